//! Holds: where nothing is placed or moved.

use std::{fmt, time::Duration};

use async_trait::async_trait;

use super::ControlError;
use crate::{
    api::orders::{HoldRequest, HoldView},
    clock::Timestamp,
    cluster::{
        order::{Hold, HoldScope, Order, StoredOrder},
        pool::Pools,
    },
    error::Code,
    id::{HoldName, NodeId},
    terminal,
};

/// Holds: where nothing is placed or moved.
///
/// # Contract
/// As for [`Catalog`](super::Catalog). A hold that has ended by itself is not listed.
#[async_trait]
pub trait Holds: fmt::Debug + Send + Sync + 'static {
    /// All that stand, by name.
    async fn holds(&self) -> Result<Vec<HoldView>, ControlError>;

    /// Holds a facility, a pool or a node; one of that name is replaced.
    ///
    /// MUST refuse a node that nobody has heard of, a pool that there is not, and a length of time that is none
    /// ([`Code::InvalidRequest`]).
    async fn hold(&self, request: HoldRequest) -> Result<HoldView, ControlError>;

    /// Lifts a hold.
    ///
    /// MUST refuse an unknown one ([`Code::NotFound`]).
    async fn lift(&self, name: &HoldName) -> Result<(), ControlError>;
}

/// Checks a request as [`Holds::hold`] must.
///
/// # Errors
/// What `hold` must answer.
pub fn check_hold(
    request: HoldRequest,
    knows: impl FnOnce(NodeId) -> bool,
    pools: &Pools,
    now: Timestamp,
) -> Result<Hold, ControlError> {
    let HoldRequest {
        name,
        scope,
        reason,
        lasts,
    } = request;
    let wrong = |field: &str, problem: String| {
        ControlError::new(Code::InvalidRequest, format!("{field}: {problem}"))
    };
    match &scope {
        HoldScope::Node(node) if !knows(*node) => {
            return Err(wrong("scope.node", format!("there is no node {node}"))
                .with_hint("`llmgw ctl nodes` lists those there are"));
        }
        HoldScope::Facility(text) | HoldScope::Pool(text) if !is_text(text, MAX_PLACE) => {
            return Err(wrong("scope", "it names no place".to_owned())
                .with_hint("a facility or a pool is a text of 1 to 128 characters"));
        }
        HoldScope::Pool(pool) => pools.require(pool, "scope.pool")?,
        HoldScope::Facility(_) | HoldScope::Node(_) => {}
    }
    if !reason.is_empty() && !is_text(&reason, MAX_REASON) {
        return Err(wrong(
            "reason",
            "it is longer than 500 characters, or has one that a terminal would obey".to_owned(),
        ));
    }
    let until = match lasts.map(Duration::from) {
        None => None,
        Some(span) if span < SHORTEST || span > LONGEST => {
            return Err(
                wrong("for", "it is not between 1s and 365days".to_owned()).with_hint(
                    "write for example 2h; leave it out for a hold that stands until it is lifted",
                ),
            );
        }
        Some(span) => {
            let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
            Some(Timestamp(now.0.saturating_add(millis)))
        }
    };
    Ok(Hold {
        name,
        scope,
        reason,
        until,
    })
}

/// A hold as it is shown; `None` for an order that is none.
#[must_use]
pub fn hold_view(stored: &StoredOrder) -> Option<HoldView> {
    let Order::Hold(hold) = &stored.order else {
        return None;
    };
    Some(HoldView {
        name: hold.name.clone(),
        scope: hold.scope.clone(),
        reason: hold.reason.clone(),
        until: hold.until,
        by: stored.by.clone(),
        since: stored.since,
    })
}

/// No hold has this name.
#[must_use]
pub fn unknown_hold(name: &HoldName) -> ControlError {
    ControlError::new(Code::NotFound, format!("there is no hold {name}"))
        .with_hint("`llmgw ctl holds` lists those there are")
}

/// Whether a text is a line of at most so many characters, none of which a terminal would obey.
pub(super) fn is_text(text: &str, most: usize) -> bool {
    !text.trim().is_empty() && text.chars().count() <= most && terminal::line(text) == text
}

const MAX_PLACE: usize = 128;
/// The longest reason that an operator gives.
pub(super) const MAX_REASON: usize = 500;
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(365 * 86_400);
