//! Why a call is not admitted: which level, which limit, how much is left, when it resets.

use super::ledger::{Lack, Need};
use crate::cluster::tenancy::Period;
use crate::{
    clock::Timestamp,
    cluster::tenancy::quota::Measure,
    error::Code,
    gateway::refusal::Refusal,
    units::{Micros, Span},
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
    let (code, message) = match quota.measure {
        Measure::Requests => (
            Code::RateLimitExceeded,
            format!("{party} may make {limit} requests per minute, and has made them{resets}"),
        ),
        Measure::Tokens => (
            Code::RateLimitExceeded,
            format!(
                "{party} may use {limit} tokens per minute, and this request needs about {least} where {left} are left{resets}"
            ),
        ),
        Measure::Concurrent => (
            Code::RateLimitExceeded,
            format!(
                "{party} may make {limit} requests at the same time, and does; wait until one is over"
            ),
        ),
        Measure::Cost if lack.is_live => (
            Code::BudgetExceeded,
            format!(
                "{party} has a budget of {} {}, of which {} is left, and this request needs about {}{resets}",
                money(*limit),
                per(quota.window.period),
                money(left),
                money(*least),
            ),
        ),
        // Nobody can say now what is spent.
        Measure::Cost => {
            let message = format!(
                "{party} has a budget, and what is spent of it can't be told now: the store does not answer"
            );
            return Refusal::new(Code::BudgetUnavailable, message);
        }
    };
    let refusal = Refusal::new(code, message);
    match reset {
        Some(left) => refusal.with_reset(left),
        None => refusal,
    }
}

fn money(micros: u64) -> String {
    Micros(i64::try_from(micros).unwrap_or(i64::MAX)).shortest()
}

fn per(period: Period) -> String {
    match period {
        Period::Total => "in all".to_owned(),
        period => format!("per {period}"),
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
