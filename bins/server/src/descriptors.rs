//! File descriptors: how many this process may have, and how many of them clients may take.
//!
//! The gateway, the admin API, the agents' port and the store live in one process. Without a bound, clients that
//! only connect could take the last descriptor from all of them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's limit of open files as far as it may, and tells it; `None` is no limit. Programs that it
/// starts inherit the limit.
pub fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, "can't raise the limit of open files");
            current
        }
    }
}

/// How many client connections there may be of the `wanted` ones, when this process may have `limit` open files.
/// Says so when it is fewer.
pub fn bounded_connections(wanted: usize, limit: Option<u64>) -> usize {
    let Some(limit) = limit else {
        return wanted;
    };
    let most = connections_within(limit);
    if most >= wanted {
        return wanted;
    }
    let needed = wanted
        .saturating_mul(PER_CONNECTION)
        .saturating_add(RESERVE);
    tracing::warn!(
        "at most {most} client connections at once, not {wanted}: this process may have {limit} open files; \
         raise its hard limit (ulimit -Hn, LimitNOFILE=) to {needed}"
    );
    most
}

fn connections_within(limit: u64) -> usize {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    (limit.saturating_sub(RESERVE) / PER_CONNECTION).max(FEWEST)
}

/// For the store, the admin API, agents, engines that are started, and clients that are being turned away.
const RESERVE: usize = 256;
/// Its own descriptor, and one to an engine.
const PER_CONNECTION: usize = 2;
/// With a limit below what the rest needs, something should be served still.
const FEWEST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_the_reserve_leaves_and_two_descriptors_each() {
        assert_eq!(bounded_connections(4096, None), 4096);
        assert_eq!(bounded_connections(4096, Some(u64::MAX)), 4096);
        assert_eq!(bounded_connections(4096, Some(8448)), 4096);
        assert_eq!(bounded_connections(4096, Some(8447)), 4095);
        assert_eq!(bounded_connections(4096, Some(1024)), 384);
        assert_eq!(bounded_connections(10, Some(1024)), 10);
        for little in [0, 64, 256, 280] {
            assert_eq!(bounded_connections(4096, Some(little)), 16, "{little}");
        }
    }
}
