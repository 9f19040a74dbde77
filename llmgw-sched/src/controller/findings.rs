//! Asks what weights are before any node has them: a job of the leader.
//!
//! For each model whose definition leaves something open, or whose header is not known, it asks a [`WeightsReader`],
//! which does the network's part. What was found is kept by the loop.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use llmgw_core::{cluster::weights::Weights, id::ModelName};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Shared, loop_task::Event};
use crate::conductor::{
    self,
    findings::{Answered, Findings, NotFound, is_far},
};

/// Finds out what weights are.
///
/// # Contract
/// * What it finds for the same weights is the same for as long as it can be: a branch of a hub is the commit that it was
///   when it was asked first.
/// * It reads no more than headers; everything that it reads is bounded, and every wait has an end.
/// * Dropping the future ends what was started for it.
#[async_trait]
pub trait WeightsReader: fmt::Debug + Send + Sync + 'static {
    /// Which bytes these weights are, and what they say of themselves.
    ///
    /// # Errors
    /// When it can't be found out which bytes they are. That their header can't be read is no error.
    async fn find_out(&self, weights: &Weights) -> Result<Findings, NotFound>;
}

/// Asks about the weights of models, a few at a time, until `stop`.
pub(super) async fn keep_finding_out(
    shared: Arc<Shared>,
    reader: Arc<dyn WeightsReader>,
    stop: CancellationToken,
) {
    let mut snapshots = shared.snapshot.clone();
    let mut asking = FuturesUnordered::new();
    let mut asked: BTreeSet<ModelName> = BTreeSet::new();
    loop {
        if shared.leading.borrow().is_some() {
            let snapshot = Arc::clone(&snapshots.borrow_and_update());
            let now = shared.clock.monotonic();
            for (name, entry) in &snapshot.entries {
                if asking.len() >= AT_ONCE {
                    break;
                }
                let weights = entry.model.weights();
                let known = snapshot.findings.get(name);
                let is_due = known.is_none_or(|known| known.is_due(weights, now));
                if is_due && is_far(&entry.model) && asked.insert(name.clone()) {
                    let (reader, name, of) = (Arc::clone(&reader), name.clone(), weights.clone());
                    let ask = async move {
                        let found = match timeout(PATIENCE, reader.find_out(&of)).await {
                            Ok(found) => found,
                            Err(_) => Err(NotFound {
                                problem: format!("no answer within {} s", PATIENCE.as_secs()),
                                hint: None,
                                passing: true,
                            }),
                        };
                        Answered {
                            model: name,
                            of,
                            found,
                        }
                    };
                    asking.push(ask.boxed());
                }
            }
        }
        let answered = tokio::select! {
            () = stop.cancelled() => return,
            Some(answered) = asking.next() => answered,
            changed = snapshots.changed() => match changed {
                Ok(()) => continue,
                // The loop has ended.
                Err(_) => return,
            },
        };
        asked.remove(&answered.model);
        report(&answered);
        let (done, taken_in) = tokio::sync::oneshot::channel();
        let answered = Box::new(answered);
        let event = conductor::Event::Found { answered };
        let event = Event::Done(event, done);
        if shared.events.send(event).await.is_err() {
            return;
        }
        // So that the next look sees it; the loop may be gone.
        drop(taken_in.await);
    }
}

fn report(answered: &Answered) {
    let Answered { model, found, .. } = answered;
    match found {
        Ok(Findings { shape: Ok(_), .. }) => {
            tracing::info!(%model, "the header of the weights was read");
        }
        Ok(Findings {
            shape: Err(error), ..
        }) => {
            tracing::info!(%model, problem = error.problem, "the header of the weights is not known");
        }
        Err(error) => {
            tracing::warn!(%model, problem = error.problem, "it is not known what the weights are");
        }
    }
}

/// A split model of hundreds of files is a request for each.
const PATIENCE: Duration = Duration::from_secs(300);
/// So that a hundred models do not ask a hub all at once.
const AT_ONCE: usize = 4;
