//! Parking, kept across a take-over: what the loop parks is an order of its own, which the next one finds.

use std::time::Duration;

use llmgw_core::cluster::order::{Order, Parked, Subject};

use super::{Action, Memory, scene::Scene};

/// Recalls what was parked before a take-over, has what is parked now written down, and lifts what is over: a model
/// whose source or profiles have changed is tried again. Its scaling alone changes nothing.
pub(super) fn park(scene: &Scene<'_>) -> Vec<Action> {
    let Scene {
        intent,
        memory,
        now,
        ..
    } = *scene;
    let mut actions = Vec::new();
    for stored in intent.orders.iter() {
        let Order::Park { model, parked } = &stored.order else {
            continue;
        };
        if intent.definition(model) != Some(parked.definition) {
            if memory.may_tell(&Subject::Park(model.clone()), now) {
                actions.push(Action::Unpark {
                    model: model.clone(),
                });
            }
        } else if !memory
            .histories
            .get(model)
            .is_some_and(|history| history.parked)
        {
            actions.push(Action::Recall {
                model: model.clone(),
                parked: parked.clone(),
            });
        }
    }
    for (model, history) in memory.histories.iter().filter(|(_, one)| one.parked) {
        let subject = Subject::Park(model.clone());
        let Some(definition) = intent.definition(model) else {
            continue;
        };
        if intent.orders.get(&subject).is_some() || !memory.may_tell(&subject, now) {
            continue;
        }
        let error = history.last_error.clone();
        actions.push(Action::Park {
            model: model.clone(),
            parked: Parked {
                failures: history.failures,
                error: error.unwrap_or_else(|| "no reason was given".to_owned()),
                first_log: history.first_log.clone(),
                definition,
            },
        });
    }
    actions
}

impl Memory {
    /// Whether it is time to have something written about a subject: not again while the last time may be under way.
    pub(super) fn may_tell(&self, subject: &Subject, now: Duration) -> bool {
        let told = self.told.get(subject);
        told.is_none_or(|at| now.saturating_sub(*at) >= TELL_AGAIN)
    }
}

/// A write to a store that takes longer has failed, or will be followed by another that says the same.
const TELL_AGAIN: Duration = Duration::from_secs(5);
