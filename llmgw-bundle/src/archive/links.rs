//! Where links lead.

use super::{
    fold::fold,
    tree::{Tree, What},
};
use crate::error::Rule;

/// The first link of `tree` that leads out of the folder `root`, or nowhere.
///
/// A link is followed through all other links of the archive, whichever came first: on the disk they will all be
/// there. A target that is not in the archive stays inside when its `..` parts do.
pub(super) fn first_bad(tree: &Tree, root: usize) -> Option<(String, Rule)> {
    let mut left = MOST_FOLDED;
    tree.nodes().find_map(|(place, node)| match &node.what {
        What::Link { target } => {
            let broken = follow(tree, root, node.parent, target, &mut left).err()?;
            Some((tree.path(place), broken))
        }
        What::Folder { .. } | What::File => None,
    })
}

fn follow(
    tree: &Tree,
    root: usize,
    from: usize,
    target: &str,
    left: &mut usize,
) -> Result<(), Rule> {
    let mut here = from;
    // Parts beneath `here` that the archive does not have.
    let mut unknown = 0_usize;
    let mut links = 0;
    let mut ahead: Vec<&str> = target.rsplit('/').collect();
    for _ in 0..MOST_STEPS {
        let Some(part) = ahead.pop() else {
            return Ok(());
        };
        match part {
            "" | "." => {}
            ".." if unknown > 0 => unknown -= 1,
            ".." if here == root => return Err(Rule::LeavingLink),
            ".." => here = tree.node(here).map_or(root, |node| node.parent),
            _ if unknown > 0 => unknown += 1,
            // No file system has such a name, so that nothing in the archive has it.
            _ if part.len() > LONGEST_NAME => unknown += 1,
            _ => {
                // To fold takes time for each byte.
                *left = left.checked_sub(part.len()).ok_or(Rule::EndlessLink)?;
                let next = tree.child(here, &fold(part));
                match next.and_then(|next| Some((next, tree.node(next)?))) {
                    None => unknown += 1,
                    Some((next, node)) => match &node.what {
                        What::Folder { .. } => here = next,
                        What::File => unknown += 1,
                        What::Link { target } => {
                            links += 1;
                            if links > MOST_LINKS {
                                return Err(Rule::EndlessLink);
                            }
                            ahead.extend(target.rsplit('/'));
                        }
                    },
                }
            }
        }
    }
    Err(Rule::EndlessLink)
}

/// Where Linux stops following (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;
/// A link of real archives takes under 30.
const MOST_STEPS: usize = 1_000;
/// `NAME_MAX` of Linux, in bytes.
const LONGEST_NAME: usize = 255;
/// Bytes of names that are compared for all links of an archive together, so that 100,000 links through long chains
/// end within seconds; those of real archives take some thousands.
const MOST_FOLDED: usize = 32 << 20;
