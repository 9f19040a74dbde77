//! README's Python blocks, each run as a program of its own. (Its Rust blocks are doctests.)

use std::{fs, time::Duration};

use anyhow::{Context as _, bail};

use crate::{
    python::{self, python},
    steps::Outcome,
    workspace::Workspace,
};

/// Runs every block that starts with exactly "```python".
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<Outcome> {
    let text = fs::read_to_string(workspace.root.join("README.md")).context("README.md")?;
    let blocks = python_blocks(&text);
    if blocks.is_empty() {
        bail!("README.md has no Python block");
    }
    let folder = python::scratch(workspace)?;
    for block in &blocks {
        let script = folder.join(format!("readme_line_{}.py", block.line));
        fs::write(&script, &block.code)?;
        python(workspace)
            .arg(&script)
            .directory(&folder)
            .limit(LIMIT)
            .run()
            .with_context(|| format!("the block at README.md:{}", block.line))?;
    }
    Ok(Outcome::Passed(format!("blocks run: {}", blocks.len())))
}

/// A block of Python code.
#[derive(Debug, Eq, PartialEq)]
struct Block {
    /// The line of its fence.
    line: usize,
    code: String,
}

fn python_blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut in_other = false;
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_end().strip_prefix("```");
        match (&mut open, fence) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.code.push_str(line);
                block.code.push('\n');
            }
            (None, Some(_)) if in_other => in_other = false,
            (None, Some("python")) => {
                open = Some(Block {
                    line: index + 1,
                    code: String::new(),
                });
            }
            (None, Some(_)) => in_other = true,
            (None, None) => {}
        }
    }
    blocks
}

/// What a README shows is done at once.
const LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_python_blocks_are_taken_whole_and_with_their_line() {
        let text = "a\n```python\nx = 1\n\ny = 2\n```\n```console\n$ x\n```\n```python\nz\n```\n";
        let blocks = python_blocks(text);
        let expected = [(2, "x = 1\n\ny = 2\n"), (10, "z\n")];
        let expected = expected.map(|(line, code)| Block {
            line,
            code: code.to_owned(),
        });
        assert_eq!(blocks, expected);
    }
}
