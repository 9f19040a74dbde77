//! How the memory of a profile follows its context and its slots.

use std::collections::BTreeMap;

use llmgw_core::{
    cluster::catalog::{KvCache, Profile},
    fingerprint::Fingerprint,
    id::ModelName,
    units::{Bytes, Tokens},
};

use crate::fit::{CacheType, Engine, Estimate, Request, Shape, estimate};

/// What is known of the weights of models.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sizes {
    shapes: BTreeMap<ModelName, Shape>,
    /// The most main memory that a replica of each definition was measured to hold.
    measured: BTreeMap<Fingerprint, Bytes>,
}

impl Sizes {
    /// Makes the shape of a model's weights known.
    pub fn insert(&mut self, model: ModelName, shape: Shape) {
        self.shapes.insert(model, shape);
    }

    /// Makes known what a replica of the definition with this fingerprint was measured to hold; the largest counts.
    pub fn measured(&mut self, definition: Fingerprint, memory: Bytes) {
        if self.measured.len() >= MAX_MEASURED && !self.measured.contains_key(&definition) {
            // Definitions that are gone are not looked for: what still runs is measured again.
            self.measured.clear();
        }
        let known = self.measured.entry(definition).or_default();
        *known = memory.max(*known);
    }

    /// The most that a replica of this definition was measured to hold.
    #[must_use]
    pub fn most_measured(&self, definition: Fingerprint) -> Option<Bytes> {
        self.measured.get(&definition).copied()
    }

    /// What is known of the weights of other models, beside what was measured here.
    #[must_use]
    pub fn with_measured_of(mut self, before: &Self) -> Self {
        self.measured.clone_from(&before.measured);
        self
    }

    /// What a profile that says nothing of its memory is given: what it needs by estimate, or what a replica of it was
    /// measured to hold when that is more. `definition` is the fingerprint of the profile as it is written.
    #[must_use]
    pub fn needed(
        &self,
        model: &ModelName,
        profile: &Profile,
        definition: Fingerprint,
    ) -> Option<Bytes> {
        self.memory(model, profile)
            .max(self.most_measured(definition))
    }

    /// Main memory that the profile needs by estimate, with room for what the estimate does not know. `None` when
    /// nothing is known of the weights or the engine.
    #[must_use]
    pub fn memory(&self, model: &ModelName, profile: &Profile) -> Option<Bytes> {
        let shape = self.shapes.get(model)?;
        let estimate = estimated(shape, profile, profile.context, profile.parallel)?;
        let memory = host(&estimate);
        (memory > Bytes::ZERO).then_some(memory)
    }

    /// The profile with another context and number of slots, and with the memory that goes with them: what it says
    /// now, and the difference of the two estimates. `None` when nothing is known of the weights or the engine.
    #[must_use]
    pub fn resized(
        &self,
        model: &ModelName,
        profile: &Profile,
        context: Tokens,
        parallel: u32,
    ) -> Option<Profile> {
        let shape = self.shapes.get(model)?;
        let now = estimated(shape, profile, profile.context, profile.parallel)?;
        let then = estimated(shape, profile, context, parallel)?;
        let mut resized = profile.clone();
        resized.context = context;
        resized.parallel = parallel;
        resized.memory = moved(profile.memory, host(&now), host(&then));
        if let Some(gpus) = &mut resized.needs.gpus {
            gpus.memory = gpus
                .memory
                .map(|memory| moved(memory, largest_gpu(&now), largest_gpu(&then)));
        }
        Some(resized)
    }
}

fn estimated(shape: &Shape, profile: &Profile, context: Tokens, parallel: u32) -> Option<Estimate> {
    let engine = match profile.engine.as_str() {
        "llamacpp" => Engine::Llamacpp,
        "vllm" => Engine::Vllm,
        "sglang" => Engine::Sglang,
        _ => return None,
    };
    let gpus = profile.needs.gpus.as_ref().map_or(0, |gpus| gpus.count);
    let cache = match profile.needs.kv_cache {
        KvCache::Auto => CacheType::default(),
        KvCache::F8 => CacheType::F8,
    };
    let request = Request {
        engine,
        parallel,
        cache_keys: cache,
        cache_values: cache,
        gpus: vec![None; usize::try_from(gpus).unwrap_or(0)],
        ..Request::new(context)
    };
    estimate(shape, &request).ok()
}

fn host(estimate: &Estimate) -> Bytes {
    estimate
        .host()
        .map_or(Bytes::ZERO, |host| host.total().most)
}

fn largest_gpu(estimate: &Estimate) -> Bytes {
    let gpus = estimate.gpus().map(|gpu| gpu.total().most);
    gpus.max().unwrap_or(Bytes::ZERO)
}

/// `said`, less what the estimate went down by, or more by what it went up.
fn moved(said: Bytes, from: Bytes, to: Bytes) -> Bytes {
    said - (from - to) + (to - from)
}

/// As many as a large cluster has profiles.
const MAX_MEASURED: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_that_was_measured_counts_and_is_bounded() {
        let mut sizes = Sizes::default();
        for count in 0..=u64::try_from(MAX_MEASURED).unwrap() {
            sizes.measured(Fingerprint(count), Bytes(count));
        }
        assert!(sizes.measured.len() <= MAX_MEASURED);
        sizes.measured(Fingerprint(1), Bytes(9));
        sizes.measured(Fingerprint(1), Bytes(5));
        assert_eq!(sizes.measured[&Fingerprint(1)], Bytes(9));
        let kept = Sizes::default().with_measured_of(&sizes);
        assert_eq!(kept, sizes);
    }
}
