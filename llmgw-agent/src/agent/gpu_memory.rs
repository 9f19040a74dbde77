//! How much of the node's GPUs is used, by the numbers that its facts give them.

use std::collections::BTreeSet;

use llmgw_core::{cluster::node::NodeFacts, units::Bytes};
use tokio::sync::watch;

use crate::{
    facts::{
        Root,
        gpu::{GpuReader, library},
    },
    supervise::GpuMemory,
};

/// Asks the drivers.
#[derive(Debug)]
pub(super) struct NodeGpuMemory {
    reader: GpuReader,
    facts: watch::Receiver<NodeFacts>,
}

impl NodeGpuMemory {
    pub(super) fn new(root: &Root, facts: watch::Receiver<NodeFacts>) -> Self {
        Self {
            reader: GpuReader::new(root.clone(), library(root)),
            facts,
        }
    }

    fn uuid(&self, gpu: u32) -> Option<String> {
        let facts = self.facts.borrow();
        let mut gpus = facts.gpus.iter().flatten();
        gpus.find(|found| found.index == gpu)?.uuid.clone()
    }
}

impl GpuMemory for NodeGpuMemory {
    fn used(&self, gpu: u32) -> Option<Bytes> {
        let uuid = self.uuid(gpu)?;
        self.reader.used(&uuid)
    }

    fn held_by(&self, gpu: u32, pids: &BTreeSet<u32>) -> Option<Bytes> {
        let uuid = self.uuid(gpu)?;
        self.reader.held_by(&uuid, pids)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::facts;

    #[test]
    fn a_gpu_is_asked_by_the_name_behind_its_number() {
        let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines");
        let scene = facts::capture::open(&machines.join("ubuntu-24.04-two-gpus")).unwrap();
        let found = facts::look(&facts::probes(&scene.root), &scene);
        let used: Vec<_> = found
            .gpus
            .iter()
            .flatten()
            .map(|gpu| gpu.memory_used)
            .collect();
        assert!(
            used.len() == 2 && used.iter().all(Option::is_some),
            "{used:?}"
        );
        let (_told, facts) = watch::channel(found);
        let memory = NodeGpuMemory::new(&scene.root, facts);
        assert_eq!([memory.used(0), memory.used(1)], used[..]);
        assert_eq!(memory.used(2), None);
    }
}
