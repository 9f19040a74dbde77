//! Tables for people.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use llmgw_core::terminal::one_line;

/// A table without lines: columns parted by two spaces, those of numbers set right.
pub(crate) fn grid(
    heading: &[&str],
    numbers: &[usize],
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(heading.iter().copied())
        .add_rows(rows.map(|row| row.iter().map(|cell| one_line(cell)).collect::<Vec<_>>()));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    for number in numbers {
        if let Some(column) = table.column_mut(*number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    text
}
