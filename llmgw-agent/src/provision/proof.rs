//! Showing that an engine computes: what its installation is proven with, and what a model's weights add.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use llmgw_core::{
    cluster::node::Warning,
    gguf::{self, TensorType, check::CheckModel},
};
use tokio::task::spawn_blocking;

use super::{
    ComputeProblem, ProvisionError, Provisioner, Shop,
    compute::{ComputeCheck, Expectation, Record, compute, made},
};
use crate::engine::{InstalledEngine, loads_gguf};

/// What is to be shown of a build.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Proving {
    build: String,
    expectation: Expectation,
    gpus: Vec<u32>,
    visible: Vec<(OsString, OsString)>,
    types: BTreeSet<TensorType>,
}

impl Provisioner {
    /// Shows that an engine computes with weights of the types in this file, unless it was shown before: on GPUs
    /// when there are `gpus`, numbered as a replica's; `visible` are the variables that show it these alone.
    ///
    /// Types that no check is known for are passed over, and so are files whose header can't be read: the engine
    /// will say of them what it has to say. Who asks for the same at the same time shares the work. Dropping the
    /// future ends what was started for it.
    ///
    /// # Errors
    /// What the engine did instead, with the types that it was tried with.
    pub async fn prove(
        &self,
        installed: &InstalledEngine,
        weights: &Path,
        gpus: &[u32],
        visible: &[(OsString, OsString)],
    ) -> Result<(), ProvisionError> {
        if !loads_gguf(&installed.name) {
            return Ok(());
        }
        let path = weights.to_owned();
        let needed = spawn_blocking(move || types_of(&path)).await;
        let expectation = match gpus {
            [] => Expectation::Cpu,
            _ => Expectation::Gpu,
        };
        let record = Record::of(installed, &self.shop.config.directory);
        let types = record
            .missing(needed.unwrap_or_default(), expectation)
            .await;
        if types.is_empty() {
            return Ok(());
        }
        let key = Proving {
            build: format!("{installed:?}"),
            expectation,
            gpus: gpus.to_vec(),
            visible: visible.to_vec(),
            types,
        };
        let work = |_| {
            let (shop, key, installed) = (Arc::clone(&self.shop), key.clone(), installed.clone());
            async move { shop.prove(&installed, &key).await }
        };
        self.proofs.join(key.clone(), work, &|()| ()).await
    }
}

impl Shop {
    /// Has a build compute with a model for each of the types, and keeps what it has shown.
    async fn prove(
        &self,
        installed: &InstalledEngine,
        proving: &Proving,
    ) -> Result<(), ProvisionError> {
        let record = Record::of(installed, &self.config.directory);
        let check = ComputeCheck {
            engine: installed,
            scratch: &self.scratch(),
            expectation: proving.expectation,
            gpus: &proving.gpus,
            env: &[&self.engine_env()[..], &proving.visible[..]].concat(),
            deadlines: self.times.compute,
        };
        let mut left = proving.types.clone();
        while let Some(kind) = left.pop_first() {
            // Most weights are made of the types of one model, which proves them all at once.
            let made = made(move || CheckModel::with(kind)).await;
            let (types, proof) = match made {
                Ok(Some(model)) => (model.types(), check.run(&model).await),
                Ok(None) => continue,
                Err(problem) => (BTreeSet::from([kind]), Err(problem)),
            };
            let proof = proof
                .map_err(|problem| ProvisionError::not_computing(installed, types, problem))?;
            left.retain(|kind| !proof.types.contains(kind));
            record.keep(proof.types, proving.expectation).await;
        }
        Ok(())
    }

    /// The warning that a program of somebody else's was never seen to compute here, while that is so. It has to before
    /// its first model is served.
    pub(super) async fn not_computed(
        &self,
        installed: &InstalledEngine,
        path: &Path,
    ) -> Option<Warning> {
        if !loads_gguf(&installed.name) {
            return None;
        }
        let record = Record::of(installed, &self.config.directory);
        let warn = || {
            let text = format!(
                "{} at {} says its version and has not computed here yet: it has to, with the weights of the first \
                 model that it is to run, before that is served",
                installed.name,
                path.display()
            );
            Warning::new(Warning::NOT_COMPUTED, text)
        };
        (!record.has_computed().await).then(warn)
    }

    /// What an engine is started with, besides what it needs itself.
    pub(super) fn engine_env(&self) -> Vec<(OsString, OsString)> {
        [&self.config.environment[..], &self.config.marker_env[..]].concat()
    }

    /// Where the models of checks stand while they are needed.
    pub(super) fn scratch(&self) -> PathBuf {
        self.config.directory.join(".check")
    }

    /// Has a build compute with the types that most weights are made of, and keeps what it has shown.
    pub(super) async fn compute(
        &self,
        installed: &InstalledEngine,
        on_gpu: bool,
    ) -> Result<(), ComputeProblem> {
        if let Some(prover) = &self.prover {
            return prover.prove(installed, on_gpu).await;
        }
        let expectation = if on_gpu {
            Expectation::Gpu
        } else {
            Expectation::Cpu
        };
        let (scratch, env) = (self.scratch(), self.engine_env());
        let deadlines = self.times.compute;
        let proof = compute(installed, &scratch, expectation, &env, deadlines).await?;
        let record = Record::of(installed, &self.config.directory);
        record.keep(proof.types, expectation).await;
        Ok(())
    }
}

/// The types of the matrices in a file of weights, as far as there is a check for them. Vectors are always of plain
/// numbers, which every build adds alike.
fn types_of(weights: &Path) -> BTreeSet<TensorType> {
    let Ok(header) = gguf::open(weights, &gguf::Limits::default()) else {
        return BTreeSet::new();
    };
    header
        .tensors
        .iter()
        .filter(|tensor| {
            tensor
                .dimensions
                .iter()
                .filter(|length| **length > 1)
                .count()
                > 1
        })
        .map(|tensor| tensor.kind)
        .filter(|kind| CheckModel::is_provable(*kind))
        .collect()
}
