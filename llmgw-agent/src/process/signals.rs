//! Names for signals.

/// The name of a signal that engines die of.
pub(super) fn name(number: i32) -> Option<&'static str> {
    let found = SIGNALS.iter().find(|(signal, _)| *signal == number);
    found.map(|(_, name)| *name)
}

/// The signals that engines die of, with the numbers that they have on x86-64 and on arm64.
const SIGNALS: &[(i32, &str)] = &[
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (15, "SIGTERM"),
    (31, "SIGSYS"),
];
