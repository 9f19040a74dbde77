//! One run: pods arrive one by one, and stay.

use std::{collections::BTreeMap, fmt, time::Duration};

use llmgw_sched::{
    fleet::{Fleet, Phase},
    planner::{
        demand::{Classes, Demand},
        mix::Mix,
        policy::{Policy, Scale},
        room::Room,
        score::Ties,
        working::Working,
    },
};

use crate::{
    Contender,
    random::{Draws, Random},
    trace::{Pod, Trace, WHOLE},
};

/// How ties between nodes are broken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum TieOrder {
    /// By the order of the run.
    Run,
    /// By the fixed hash of production.
    Hash,
}

/// A workload that can be replayed.
#[derive(Debug)]
pub(crate) struct Replay<'t> {
    trace: &'t Trace,
    workload: String,
    fleet: Fleet,
    pods: Vec<Pod>,
    classes: Classes,
    mix: Mix,
}

/// What one run or several came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) runs: f64,
    /// Percent of all GPU memory that is given out when 100 percent of it were asked for.
    pub(crate) at_100: f64,
    /// The same at 130 percent.
    pub(crate) at_130: f64,
    /// Percent of all GPU memory that is free and useless at 80 percent.
    pub(crate) fragmented_at_80: f64,
    /// Whether all were in the order of a published run.
    pub(crate) ordered: bool,
    pub(crate) decisions: u32,
    pub(crate) took: Duration,
    /// States that nodes were in, at most.
    pub(crate) states: usize,
}

/// What was seen while some percent of all GPU memory were asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    samples: f64,
    allocated: f64,
    fragmented: f64,
}

impl<'t> Replay<'t> {
    pub(crate) fn new(trace: &'t Trace, workload: &str) -> anyhow::Result<Self> {
        let fleet = trace.fleet.sorted();
        let pods = trace.pods(workload)?;
        let mut classes = Classes::of(&fleet);
        let mix = mix(&pods, &mut classes);
        Ok(Self {
            trace,
            workload: workload.to_owned(),
            fleet,
            pods,
            classes,
            mix,
        })
    }

    pub(crate) fn run(
        &self,
        contender: Contender,
        seed: u64,
        ties: TieOrder,
    ) -> anyhow::Result<Sums> {
        let order = self.trace.order(&self.workload, seed, &self.pods)?;
        let scale = Scale::of(&self.fleet);
        let policy: Box<dyn Policy> = match contender {
            Contender::Random => Box::new(Random(Draws::seeded(seed))),
            Contender::Planner(name) => name.policy(self.mix.clone(), scale),
        };
        let ties = match ties {
            TieOrder::Hash => Ties::HashOfId,
            TieOrder::Run => {
                let ids = self.trace.fleet.nodes.iter().map(|node| node.id);
                Ties::Rank(ids.zip(order.ranks.iter().copied()).collect())
            }
        };
        let mut working = Working::new(&self.fleet, self.classes.clone(), policy, &ties);
        let useless =
            |room: Option<&Room>| room.map_or(0.0, |room| self.mix.fragmentation(room, scale));
        let mut fragmented: f64 = (0..self.fleet.nodes.len())
            .map(|node| useless(working.room(node)))
            .sum();
        let gpus: usize = self
            .fleet
            .nodes
            .iter()
            .map(|node| node.gpus.iter().flatten().count())
            .sum();
        let percent = real(u64::try_from(gpus)? * WHOLE) / 100.0;
        let (mut arrived, mut allocated) = (0, 0);
        let mut buckets = vec![Bucket::default(); 132];
        let mut sums = Sums {
            runs: 1.0,
            ordered: order.given,
            ..Sums::default()
        };
        for row in order.pods {
            let Some(pod) = self.pods.get(row) else {
                continue;
            };
            let started = now();
            let ask = working.ask(None, &pod.profile);
            let spot = working.best(&ask);
            sums.took += now().saturating_sub(started);
            sums.decisions += 1;
            arrived += pod.demand;
            if let Some(spot) = spot {
                let before = useless(working.room(spot.node));
                let started = now();
                working.take(&ask, spot, Phase::Ready);
                sums.took += now().saturating_sub(started);
                fragmented += useless(working.room(spot.node)) - before;
                allocated += pod.demand;
            }
            // Half to even, as the published numbers are rounded. What is beyond the last bucket is in none.
            let bucket = (real(arrived) / percent).round_ties_even();
            if let Some(bucket) = buckets
                .iter_mut()
                .zip(0u32..)
                .find(|(_, at)| f64::from(*at) == bucket)
            {
                bucket.0.samples += 1.0;
                bucket.0.allocated += hundredths(real(allocated) / percent);
                bucket.0.fragmented += fragmented / percent;
            }
        }
        sums.at_100 = hundredths(Bucket::at(&buckets, 100).allocated);
        sums.at_130 = hundredths(Bucket::at(&buckets, 130).allocated);
        sums.fragmented_at_80 = Bucket::at(&buckets, 80).fragmented;
        sums.states = working.states();
        Ok(sums)
    }
}

impl Sums {
    pub(crate) fn total(runs: impl Iterator<Item = Self>) -> Self {
        let mut total = Self {
            ordered: true,
            ..Self::default()
        };
        for run in runs {
            let Self {
                runs,
                at_100,
                at_130,
                fragmented_at_80,
                ordered,
                decisions,
                took,
                states,
            } = run;
            total.runs += runs;
            total.at_100 += at_100;
            total.at_130 += at_130;
            total.fragmented_at_80 += fragmented_at_80;
            total.ordered &= ordered;
            total.decisions += decisions;
            total.took += took;
            total.states = total.states.max(states);
        }
        total
    }
}

impl Bucket {
    /// The means in a bucket; of an empty one, of its neighbours.
    fn at(buckets: &[Self], at: usize) -> Self {
        let sum = |range: std::ops::RangeInclusive<usize>| {
            let mut sum = Self::default();
            for bucket in buckets.get(range).unwrap_or_default() {
                sum.samples += bucket.samples;
                sum.allocated += bucket.allocated;
                sum.fragmented += bucket.fragmented;
            }
            sum
        };
        let mut sum_at = sum(at..=at);
        if sum_at.samples == 0.0 {
            sum_at = sum(at - 1..=at + 1);
        }
        Self {
            samples: sum_at.samples,
            allocated: sum_at.allocated / sum_at.samples,
            fragmented: sum_at.fragmented / sum_at.samples,
        }
    }
}

/// The typical pods, from the whole list.
fn mix(pods: &[Pod], classes: &mut Classes) -> Mix {
    let mut counted: BTreeMap<_, (u64, &Pod)> = BTreeMap::new();
    for pod in pods {
        counted.entry(pod.kind()).or_insert((0, pod)).0 += 1;
    }
    let demands = counted.into_values().rev().map(|(count, pod)| {
        let mut demand = Demand::of(&pod.profile, classes);
        demand.memory = 0;
        (demand, count)
    });
    Mix::of(demands.collect())
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round_ties_even() / 100.0
}

#[expect(
    clippy::cast_precision_loss,
    reason = "thousandths of some thousand GPUs"
)]
fn real(amount: u64) -> f64 {
    amount as f64
}

/// The time that this thread has worked: others on the same core count for nothing.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl fmt::Display for TieOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run => "run",
            Self::Hash => "hash",
        })
    }
}
