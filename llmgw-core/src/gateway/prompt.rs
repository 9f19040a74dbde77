//! A prompt as the balance between replicas sees it: how much work it is, and how it begins.
//!
//! What an engine caches are tokens; what passes here is text. Texts that begin alike give tokens that begin alike, so
//! the text is cut into blocks, in the order in which chat templates put it: tools, system prompt, turns. Each block
//! is named by a hash of all text up to its end, keyed anew in each process, so that nobody can make prompts that
//! collide.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use crate::id::ModelName;

/// What is known of a prompt before it is sent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Prompt {
    /// About how many tokens it has.
    pub(super) tokens: u64,
    /// Its blocks, from its beginning; what is left after the last whole one is left out.
    pub(super) blocks: Vec<u64>,
}

impl Prompt {
    /// Reads a prompt for this model; its parts in the order in which the model sees them.
    pub(super) fn read<'t>(
        key: &RandomState,
        model: &ModelName,
        parts: impl Iterator<Item = &'t [u8]>,
    ) -> Self {
        let mut hasher = key.build_hasher();
        hasher.write(model.as_str().as_bytes());
        let (mut blocks, mut filled, mut bytes) = (Vec::new(), 0, 0_u64);
        for mut part in parts {
            bytes += part.len() as u64;
            while !part.is_empty() && blocks.len() < MOST_BLOCKS {
                let (piece, rest) = part.split_at(part.len().min(BLOCK - filled));
                hasher.write(piece);
                filled += piece.len();
                part = rest;
                if filled == BLOCK {
                    filled = 0;
                    blocks.push(hasher.finish());
                }
            }
        }
        Self {
            tokens: Self::tokens_of(bytes),
            blocks,
        }
    }

    /// About how many tokens a text of so many bytes is.
    pub(super) fn tokens_of(bytes: u64) -> u64 {
        bytes / BYTES_PER_TOKEN
    }

    /// About how many tokens so many blocks are.
    pub(super) fn cached(blocks: usize) -> u64 {
        (blocks * BLOCK) as u64 / BYTES_PER_TOKEN
    }
}

/// Bytes of a block: about 128 tokens of English.
pub(super) const BLOCK: usize = 512;

/// A prompt is told from others by its first 2 MiB.
const MOST_BLOCKS: usize = 4_096;

/// What tokenizers make of English and of source code, roughly.
const BYTES_PER_TOKEN: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(key: &RandomState, model: &str, parts: &[&str]) -> Prompt {
        let parts = parts.iter().map(|part| part.as_bytes());
        Prompt::read(key, &model.parse().unwrap(), parts)
    }

    #[test]
    fn prompts_that_begin_alike_share_the_names_of_their_first_blocks() {
        let key = RandomState::new();
        let start = "a".repeat(BLOCK * 3 + 10);
        let one = prompt(&key, "m", &[&start, &"b".repeat(BLOCK)]);
        let other = prompt(&key, "m", &[&start, &"c".repeat(BLOCK)]);
        assert_eq!(
            (one.blocks.len(), one.tokens),
            (4, (BLOCK as u64 * 4 + 10) / 4)
        );
        assert_eq!(one.blocks[..3], other.blocks[..3]);
        assert_ne!(one.blocks[3], other.blocks[3]);
        let mut names = one.blocks;
        names.dedup();
        assert_eq!(
            names.len(),
            4,
            "equal text at another place has another name"
        );
    }

    #[test]
    fn the_cut_between_parts_makes_no_difference_and_the_model_does() {
        let key = RandomState::new();
        let text = "abcdefghij".repeat(BLOCK);
        let whole = prompt(&key, "m", &[&text]);
        let (left, right) = text.split_at(777);
        assert_eq!(prompt(&key, "m", &[left, "", right]), whole);
        assert_ne!(prompt(&key, "n", &[&text]).blocks[0], whole.blocks[0]);
        assert_ne!(
            prompt(&RandomState::new(), "m", &[&text]).blocks[0],
            whole.blocks[0]
        );
    }

    #[test]
    fn of_a_very_long_prompt_the_beginning_counts() {
        let key = RandomState::new();
        let long = prompt(&key, "m", &[&"x".repeat(BLOCK * (MOST_BLOCKS + 9))]);
        assert_eq!(long.blocks.len(), MOST_BLOCKS);
        assert_eq!(long.tokens, (BLOCK * (MOST_BLOCKS + 9)) as u64 / 4);
    }
}
