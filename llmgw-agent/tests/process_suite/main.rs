//! All runtimes keep the contract of processes; and the suite that says so catches runtimes that don't.
#![cfg(feature = "testing")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod broken;
#[path = "../scene/home.rs"]
#[expect(dead_code, reason = "others use the rest")]
mod scene;

use std::{io, sync::Arc};

use async_trait::async_trait;
use llmgw_agent::{
    process::{
        Exit, Limits, ProcessError, ProcessRuntime, ProcessStart, cgroup::Cgroups,
        identity::ProcessIdentity, native::Containment,
    },
    testing::{
        Faulty, Script, ScriptedRuntime, World,
        process::{Behaviour, ChildKind, ProcessFixture, checks, conformance},
    },
};
use llmgw_core::id::ReplicaId;
use scene::Home;
use serde_json::json;

use crate::broken::{BUGS, BrokenRuntime, Bug};

#[tokio::test]
async fn processes_in_groups_keep_the_contract() {
    keeps(|| OnThisMachine::new(Kind::Groups)).await;
}

#[tokio::test]
async fn processes_with_launchers_keep_the_contract() {
    keeps(|| OnThisMachine::new(Kind::Launched)).await;
}

/// Where the machine or the user has no control groups, their absence is told, and launchers are what is used.
#[tokio::test]
async fn processes_in_real_control_groups_keep_the_contract() {
    let home = Home::new();
    if let Err(why) = Cgroups::detect(home.path()) {
        assert!(!why.to_string().is_empty());
        println!("not run on control groups: {why}");
    }
    keeps(|| OnThisMachine::new(Kind::Strongest)).await;
}

#[tokio::test(start_paused = true)]
async fn scripted_processes_keep_the_contract() {
    keeps(|| InMemory::new(None)).await;
}

#[tokio::test(start_paused = true)]
async fn a_wrapper_without_faults_changes_nothing() {
    keeps(|| InMemory {
        wrapped: true,
        ..InMemory::new(None)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_bug_is_caught_and_every_check_catches_one() {
    let mut caught: Vec<&str> = Vec::new();
    for bug in BUGS {
        let found = conformance(|| async { InMemory::new(Some(*bug)) })
            .await
            .expect_err(&format!("{bug:?} went unnoticed"));
        let by: Vec<&str> = found.breaches().iter().map(|b| b.check()).collect();
        println!("{bug:?}: {}", by.join(", "));
        caught.extend(by);
    }
    let idle: Vec<&str> = checks().filter(|check| !caught.contains(check)).collect();
    assert!(idle.is_empty(), "no bug was caught by {idle:?}");
}

#[tokio::test(start_paused = true)]
async fn the_broken_runtime_without_a_bug_keeps_the_contract() {
    keeps(|| InMemory::new(Some(Bug::None))).await;
}

async fn keeps<X: ProcessFixture>(fresh: impl Fn() -> X) {
    let fresh = || {
        let fixture = fresh();
        async { fixture }
    };
    conformance(fresh)
        .await
        .unwrap_or_else(|found| panic!("{found}"));
}

/// Real processes.
struct OnThisMachine {
    home: Home,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Groups,
    Launched,
    Strongest,
}

impl OnThisMachine {
    fn new(kind: Kind) -> Self {
        Self {
            home: Home::new(),
            kind,
        }
    }

    fn pids(&self, replica: ReplicaId) -> std::path::PathBuf {
        self.home.path().join(format!("{replica}.pids"))
    }
}

#[async_trait]
impl ProcessFixture for OnThisMachine {
    async fn open(&self) -> Result<Arc<dyn ProcessRuntime>, ProcessError> {
        let containment = match self.kind {
            Kind::Groups => Containment::Groups,
            Kind::Launched => Containment::Launched(scene::launcher(), None),
            Kind::Strongest => Containment::strongest(Some(scene::launcher()), self.home.path()),
        };
        Ok(Arc::new(self.home.runtime_in(containment)))
    }

    fn start(&self, replica: ReplicaId, behaviour: &Behaviour) -> ProcessStart {
        let Behaviour {
            end,
            stubborn,
            children,
            missing,
        } = behaviour;
        let mut plan = json!({
            "stubborn": stubborn,
            "children": children.iter().copied().map(word).collect::<Vec<_>>(),
        });
        match end {
            Some(Exit::Code(code)) => plan["exit"] = json!(code),
            Some(Exit::Signal(signal)) => plan["signal"] = json!(signal),
            _ => {}
        }
        let model = self.home.plan_with(plan, &self.pids(replica));
        let program = if *missing {
            "/nowhere/llama-server".into()
        } else {
            scene::engine()
        };
        ProcessStart {
            replica,
            program,
            args: vec!["-m".into(), model.into()],
            env: Vec::new(),
            log: self.home.path().join(format!("{replica}.log")),
            limits: Limits::default(),
        }
    }

    async fn running(&self, replica: ReplicaId) -> Vec<ProcessIdentity> {
        let text = std::fs::read_to_string(self.pids(replica)).unwrap_or_default();
        text.lines()
            .filter_map(|line| ProcessIdentity::of(line.parse().unwrap()).unwrap())
            .collect()
    }

    async fn is_running(&self, process: &ProcessIdentity) -> bool {
        process.is_alive().unwrap()
    }

    async fn kill(&self, process: &ProcessIdentity) {
        let killed = std::process::Command::new("kill")
            .args(["-9", &process.pid.to_string()])
            .status();
        assert!(killed.unwrap().success());
        scene::eventually("it is dead", || !process.is_alive().unwrap()).await;
    }

    async fn stranger(&self) -> ProcessIdentity {
        let started = tokio::process::Command::new("sh")
            .args(["-c", "sleep 1000 >/dev/null 2>&1 & echo $!"])
            .output()
            .await
            .unwrap();
        let pid = String::from_utf8(started.stdout).unwrap();
        ProcessIdentity::of(pid.trim().parse().unwrap())
            .unwrap()
            .unwrap()
    }

    fn finds(&self, kind: ChildKind) -> bool {
        // Groups and marks alone don't tell who has neither.
        !matches!(self.kind, Kind::Groups) || !matches!(kind, ChildKind::Bare | ChildKind::Vanished)
    }
}

fn word(kind: ChildKind) -> &'static str {
    match kind {
        ChildKind::Plain => "plain",
        ChildKind::Group => "group",
        ChildKind::Session => "session",
        ChildKind::Daemon => "daemon",
        ChildKind::Bare => "bare",
        ChildKind::Vanished => "vanished",
    }
}

/// Processes of a world in memory; which does what, the arguments say.
struct InMemory {
    world: World,
    bug: Option<Bug>,
    wrapped: bool,
}

impl InMemory {
    fn new(bug: Option<Bug>) -> Self {
        Self {
            world: World::new(),
            bug,
            wrapped: false,
        }
    }
}

#[async_trait]
impl ProcessFixture for InMemory {
    async fn open(&self) -> Result<Arc<dyn ProcessRuntime>, ProcessError> {
        let world = self.world.clone();
        Ok(match self.bug {
            Some(bug) => Arc::new(BrokenRuntime::new(world, bug)),
            None if self.wrapped => Arc::new(Faulty::new(ScriptedRuntime::new(world, script))),
            None => Arc::new(ScriptedRuntime::new(world, script)),
        })
    }

    fn start(&self, replica: ReplicaId, behaviour: &Behaviour) -> ProcessStart {
        let Behaviour {
            end,
            stubborn,
            children,
            missing,
        } = behaviour;
        let program = if *missing { "missing" } else { "there" };
        let end = match end {
            Some(Exit::Code(code)) => format!("code {code}"),
            Some(Exit::Signal(signal)) => format!("signal {signal}"),
            _ => String::new(),
        };
        ProcessStart {
            replica,
            program: program.into(),
            args: vec![
                end.into(),
                stubborn.to_string().into(),
                children.len().to_string().into(),
            ],
            env: Vec::new(),
            log: "/nowhere".into(),
            limits: Limits::default(),
        }
    }

    async fn running(&self, replica: ReplicaId) -> Vec<ProcessIdentity> {
        self.world.running(replica)
    }

    async fn is_running(&self, process: &ProcessIdentity) -> bool {
        self.world.is_running(process)
    }

    async fn kill(&self, process: &ProcessIdentity) {
        self.world.end(process, Exit::Signal(9));
    }

    async fn stranger(&self) -> ProcessIdentity {
        self.world.stranger()
    }

    fn finds(&self, _kind: ChildKind) -> bool {
        true
    }
}

/// What the arguments of [`InMemory::start`] say.
pub(crate) fn script(start: &ProcessStart) -> io::Result<Script> {
    if start.program.as_os_str() == "missing" {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    }
    let word = |index: usize| start.args[index].to_str().unwrap();
    let end = word(0).split_once(' ').map(|(kind, number)| {
        let number = number.parse().unwrap();
        match kind {
            "code" => Exit::Code(number),
            _ => Exit::Signal(number),
        }
    });
    Ok(Script {
        end,
        stubborn: word(1) == "true",
        children: word(2).parse().unwrap(),
        ..Script::default()
    })
}
