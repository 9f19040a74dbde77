//! What people get wrong when they sum usage up.

use std::collections::BTreeMap;

use llmgw_core::{
    clock::Timestamp,
    cluster::{guard::GuardedCall, tenancy::LevelPath},
    id::{KeyId, ModelName},
    store::{GUARD_PAGE, UsageStep, UsageTotal},
    units::{Micros, Tokens},
};

use super::{BrokenStore, Bug};

impl BrokenStore {
    pub(super) fn guarded_calls(&self, since: Timestamp, limit: u32) -> Vec<GuardedCall> {
        let data = self.data();
        let came = data.usage.values().filter(|one| one.started_at >= since);
        let mut found: Vec<GuardedCall> = came.filter_map(GuardedCall::of).collect();
        found.sort_by_key(|call| std::cmp::Reverse((call.at, call.request)));
        if self.has(Bug::OldestGuardedComeFirst) {
            found.reverse();
        }
        let page = match self.has(Bug::GuardedAreUnbounded) {
            true => limit,
            false => limit.min(GUARD_PAGE),
        };
        found.truncate(usize::try_from(page).unwrap_or(usize::MAX));
        found
    }

    pub(super) fn totals(&self, since: Timestamp, step: Option<UsageStep>) -> Vec<UsageTotal> {
        type Place = (Option<Timestamp>, ModelName, KeyId, LevelPath);
        let data = self.data();
        let mut totals: BTreeMap<Place, UsageTotal> = BTreeMap::new();
        for record in data.usage.values().chain(&data.extra) {
            let started = record.started_at;
            if started < since || (started == since && self.has(Bug::SinceIsExclusive)) {
                continue;
            }
            let at = step.map(|step| {
                let millis = step.millis();
                // Towards zero, which is up before 1970.
                let down = if self.has(Bug::StepsRoundTowardsZero) {
                    started.0 / millis
                } else {
                    started.0.div_euclid(millis)
                };
                Timestamp(down * millis)
            });
            let level = if self.has(Bug::LevelsOfUsageAreForgotten) {
                LevelPath::CLUSTER
            } else {
                record.level.clone()
            };
            let total = totals
                .entry((at, record.model.clone(), record.key, level.clone()))
                .or_insert_with(|| UsageTotal {
                    at,
                    model: record.model.clone(),
                    key: record.key,
                    level,
                    requests: 0,
                    errors: 0,
                    prompt_tokens: Tokens(0),
                    cached_tokens: Tokens(0),
                    completion_tokens: Tokens(0),
                    cost: Micros(0),
                    last_at: started,
                });
            if !self.has(Bug::LastIsFirst) {
                total.last_at = total.last_at.max(started);
            }
            let from = if self.has(Bug::ErrorsFrom500) {
                500
            } else {
                400
            };
            total.cost.0 += record.cost.0;
            total.requests += 1;
            total.errors += u64::from(record.status >= from);
            for (sum, count) in [
                (&mut total.prompt_tokens.0, record.prompt_tokens.0),
                (&mut total.cached_tokens.0, record.cached_tokens.0),
                (&mut total.completion_tokens.0, record.completion_tokens.0),
            ] {
                *sum = if self.has(Bug::TotalsWrap) {
                    sum.wrapping_add(count)
                } else {
                    sum.saturating_add(count.min(u64::MAX / 2))
                };
            }
        }
        let mut totals: Vec<UsageTotal> = totals.into_values().collect();
        if self.has(Bug::TotalsAreReversed) {
            totals.reverse();
        }
        totals
    }
}
