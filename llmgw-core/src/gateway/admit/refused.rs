//! Why a call is not admitted: which level, which limit, how much is left, when it resets.

use super::ledger::{Lack, Need};
use crate::{
    clock::Timestamp, cluster::tenancy::quota::Measure, error::Code, gateway::refusal::Refusal,
    units::Span,
};

/// The refusal of a call that lacks something.
pub(super) fn refused(lack: &Lack, needs: &[Need], now: Timestamp) -> Refusal {
    let Some(need) = needs.get(lack.place) else {
        return Refusal::new(Code::Internal, "what the call lacks is not known");
    };
    let Need {
        quota,
        limit,
        least,
        ..
    } = need;
    let (party, left) = (&quota.party, lack.remaining);
    let reset = quota.window.left(now);
    let resets = match reset {
        Some(span) => format!("; it resets in {}", whole(span)),
        None => String::new(),
    };
    let message = match quota.measure {
        Measure::Requests => {
            format!("{party} may make {limit} requests per minute, and has made them{resets}")
        }
        Measure::Tokens => format!(
            "{party} may use {limit} tokens per minute, and this request needs about {least} where {left} are left{resets}"
        ),
        Measure::Concurrent => {
            format!(
                "{party} may make {limit} requests at the same time, and does; wait until one is over"
            )
        }
    };
    let refusal = Refusal::new(Code::RateLimitExceeded, message);
    match reset {
        Some(left) => refusal.with_reset(left),
        None => refusal,
    }
}

fn whole(span: std::time::Duration) -> Span {
    Span(std::time::Duration::from_secs(
        span.as_millis()
            .div_ceil(1_000)
            .try_into()
            .unwrap_or(u64::MAX),
    ))
}
