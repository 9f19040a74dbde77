//! What this program says: the one place that writes to its output.

use std::fmt::Display;

/// Writes a line.
#[expect(
    clippy::print_stdout,
    reason = "what a chore says is its output, and a closed output is worth the panic"
)]
pub(crate) fn say(line: impl Display) {
    println!("{line}");
}

/// Writes a line that starts a part of the output.
pub(crate) fn heading(title: impl Display) {
    say(format_args!("\n==> {title}"));
}
