//! What goes wrong, and how it is mended.

use std::time::Duration;

use llmgw_core::id::NodeId;

use super::world::{Due, World};

/// What is wrong for a while.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// No frame comes through to a node.
    Cut(NodeId),
    /// The store does not answer.
    StoreAway,
    /// A node has no engine yet.
    NoEngine(NodeId),
}

impl World {
    pub(super) fn fault(&mut self) {
        if !self.weather.bad {
            return;
        }
        let pause = self.between(self.weather.between_faults);
        self.after(pause, Due::Fault);
        self.counts.faults += 1;
        let nodes = self.node_ids();
        let Some(node) = self.random.pick(&nodes) else {
            return;
        };
        match self.random.below(16) {
            0..=2 => self.crash_agent(node),
            3 => self.lose_power(node),
            4..=6 => self.crash_engine(node),
            7 | 8 => self.cut(node),
            9 => {
                // A switch, a power cut, a bad release: many at once, or all.
                let all = self.random.happens(300);
                for node in nodes {
                    if all || self.random.happens(500) {
                        self.cut(node);
                    }
                }
            }
            10 => self.freeze_node(node),
            11 | 12 => self.crash_plane(),
            13 => self.freeze_plane(),
            14 => {
                self.store.away = true;
                self.note(|| "the store is away".to_owned());
                let away = self.random.span(500, 30_000);
                self.after(away, Due::Mend(Fault::StoreAway));
            }
            _ => {
                let jump = self.random.within(0, 86_400_000);
                let jump = i64::try_from(jump).unwrap_or(0) - 43_200_000;
                self.note(|| format!("the wall clocks jump by {jump} ms"));
                for plane in &mut self.planes {
                    plane.wall += jump;
                }
            }
        }
    }

    pub(super) fn mend(&mut self, fault: Fault) {
        match fault {
            Fault::Cut(node) => {
                self.note(|| format!("{node} is reached again"));
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.cut = false;
                }
            }
            Fault::StoreAway => self.store.away = false,
            Fault::NoEngine(node) => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.disk.installed = true;
                }
            }
        }
    }

    fn crash_agent(&mut self, id: NodeId) {
        self.note(|| format!("{id}: the agent crashes"));
        let lost = self.random.happens(500);
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let link = node.agent.take().and_then(|agent| agent.link);
        // What was being ended was told so, or not yet.
        node.processes.retain(|_, process| !process.ending || !lost);
        for process in node.processes.values_mut() {
            process.ending = false;
        }
        self.drop_link(id, link);
        let down = self.random.span(200, 25_000);
        self.after(down, Due::Wake { node: id });
    }

    fn lose_power(&mut self, id: NodeId) {
        self.note(|| format!("{id} loses power"));
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let link = node.agent.take().and_then(|agent| agent.link);
        let gone: Vec<_> = std::mem::take(&mut node.processes).into_keys().collect();
        for replica in gone {
            self.clients.forget(replica);
        }
        self.drop_link(id, link);
        let down = self.random.span(5_000, 60_000);
        self.after(down, Due::Wake { node: id });
    }

    /// The other end of a session notices sooner or later.
    fn drop_link(&mut self, id: NodeId, link: Option<super::node::Link>) {
        if let Some(link) = link {
            let after = self.random.span(0, 30_000);
            let number = link.number;
            self.after(after, Due::Hangup { node: id, number });
        }
    }

    fn crash_engine(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let running: Vec<_> = node.processes.keys().copied().collect();
        let Some(replica) = self.random.pick(&running) else {
            return;
        };
        let has_agent = self.nodes.get(&id).is_some_and(|node| node.agent.is_some());
        if has_agent {
            self.fail(id, replica, "signal 9");
        } else if let Some(node) = self.nodes.get_mut(&id) {
            node.processes.remove(&replica);
            self.clients.forget(replica);
        }
    }

    fn cut(&mut self, id: NodeId) {
        self.note(|| format!("{id} is cut off"));
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        node.cut = true;
        let link = node.agent.as_ref().and_then(|agent| agent.link);
        let cut = self.random.span(500, 60_000);
        if cut > Duration::from_secs(20) {
            self.drop_link(id, link);
        }
        self.after(cut, Due::Mend(Fault::Cut(id)));
    }

    /// A node's agent says nothing for a while, though its session stands.
    fn freeze_node(&mut self, id: NodeId) {
        self.note(|| format!("{id}: the agent is stopped"));
        let until = self.now + self.random.span(1_000, 40_000);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.frozen_until = until;
        }
    }

    fn crash_plane(&mut self) {
        let planes: Vec<usize> = (0..self.planes.len()).collect();
        let Some(at) = self.random.pick(&planes) else {
            return;
        };
        let Some(plane) = self.planes.get_mut(at) else {
            return;
        };
        let Some(mind) = plane.mind.take() else {
            return;
        };
        self.note(|| format!("plane {at} crashes"));
        for (node, number) in mind.sessions {
            let after = self.random.span(0, 3_000);
            self.after(after, Due::Hangup { node, number });
        }
        let down = self.random.span(500, 40_000);
        self.after(down, Due::Boot { plane: at });
    }

    /// A control plane does nothing for a while, and does not know: its machine was paused.
    fn freeze_plane(&mut self) {
        let planes: Vec<usize> = (0..self.planes.len()).collect();
        let Some(at) = self.random.pick(&planes) else {
            return;
        };
        let until = self.now + self.random.span(1_000, 40_000);
        self.note(|| format!("plane {at} is paused"));
        if let Some(plane) = self.planes.get_mut(at) {
            plane.frozen_until = until;
        }
    }

    /// All is mended, and nothing is ordered or asked any more.
    pub(super) fn calm(&mut self) {
        self.note(|| "all is well from now on".to_owned());
        self.weather.bad = false;
        self.store.away = false;
        self.stirred_at = self.now;
        for temper in self.tempers.values_mut() {
            *temper = 0;
        }
        for plane in &mut self.planes {
            plane.frozen_until = Duration::ZERO;
        }
        for node in self.nodes.values_mut() {
            node.cut = false;
            node.frozen_until = Duration::ZERO;
        }
        for plane in 0..self.planes.len() {
            self.boot(plane);
        }
        for node in self.node_ids() {
            self.wake(node);
        }
    }
}
