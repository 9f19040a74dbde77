//! Parts of a log, read one after the other while its engine writes on.

use std::{
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use llmgw_core::{api::log::LogFrom, id::ReplicaId};

use super::{Logs, plain};

/// Which part of a log is wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Wanted {
    /// Where it begins.
    pub from: LogFrom,
    /// How many bytes of the log it may have.
    pub most: u64,
    /// The engine writes no more: what it wrote last is a line, though no end of one follows.
    pub is_over: bool,
}

/// A part of a log.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Part {
    /// How much was written before the next part: the bytes that were cut off count too.
    pub cursor: u64,
    /// Whole lines, fit to be shown: without control characters, each bounded.
    pub lines: Vec<String>,
    /// How many bytes were cut off before they could be read.
    pub skipped: u64,
    /// More lines are there already.
    pub has_more: bool,
}

impl Logs {
    /// Where the log of a replica is; `None` when there is none: nothing was started yet, or later replicas of its model
    /// took its place.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn of(&self, replica: ReplicaId) -> io::Result<Option<PathBuf>> {
        let ending = format!(".{replica}.log");
        for file in fs::read_dir(&self.dir)? {
            let file = file?;
            if file
                .file_name()
                .to_str()
                .is_some_and(|name| name.ends_with(&ending))
            {
                return Ok(Some(file.path()));
            }
        }
        Ok(None)
    }

    /// Reads a part of a log. A cursor beyond its end is of another life of this agent, which had cut it: then the part
    /// begins with the oldest that there is.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn part(&self, log: &Path, wanted: Wanted) -> io::Result<Part> {
        // While it is held, nobody cuts the log.
        let cuts = self.cuts();
        let cut = cuts.get(log).copied().unwrap_or(0);
        let mut file = fs::File::open(log)?;
        let end = cut.saturating_add(file.metadata()?.len());
        let (start, skipped) = match wanted.from {
            LogFrom::After(at) if at < cut => (cut, cut - at),
            LogFrom::After(at) if at > end => (cut, 0),
            LogFrom::After(at) => (at, 0),
            LogFrom::Last(_) => (end.saturating_sub(wanted.most).max(cut), 0),
        };
        file.seek(SeekFrom::Start(start - cut))?;
        let mut bytes = Vec::new();
        file.take(wanted.most.min(end - start))
            .read_to_end(&mut bytes)?;
        drop(cuts);

        let read = length(&bytes);
        let reaches_the_end = start.saturating_add(read) >= end;
        let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
            _ if wanted.is_over && reaches_the_end => bytes.len(),
            Some(last) => last + 1,
            // A line that is longer than a part may be comes in pieces.
            None if read >= wanted.most => bytes.len(),
            None => 0,
        };
        bytes.truncate(whole);
        let cursor = start.saturating_add(length(&bytes));
        let mut lines = lines_of(&bytes);
        if let LogFrom::Last(most) = wanted.from {
            if start > cut && !lines.is_empty() {
                // Where it begins is in the middle of a line, most likely.
                lines.remove(0);
            }
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            lines.drain(..lines.len().saturating_sub(most));
        }
        Ok(Part {
            cursor,
            lines,
            skipped,
            has_more: !reaches_the_end,
        })
    }
}

fn lines_of(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(shown).collect()
}

/// A line as a terminal would leave it: what is written over (a carriage return, as progress bars do) is not shown.
fn shown(line: &str) -> String {
    let line = line.trim_end_matches('\r');
    plain(line.rsplit('\r').next().unwrap_or(line), LINE_LIMIT)
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Characters. Engines write a configuration or a traceback in a line of some thousand.
const LINE_LIMIT: usize = 8_192;

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, io::Write as _};

    use llmgw_core::id::ModelName;

    use super::{super::private, *};

    struct Scene {
        _dir: tempfile::TempDir,
        logs: Logs,
        log: PathBuf,
        writer: fs::File,
    }

    impl Scene {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let logs = Logs::open(dir.path().join("logs")).unwrap();
            let model: ModelName = "org/model:7b".parse().unwrap();
            let replica = ReplicaId::generate();
            assert_eq!(logs.of(replica).unwrap(), None);
            let log = logs.begin(&model, replica, &BTreeSet::new()).unwrap();
            private(&log).unwrap();
            assert_eq!(logs.of(replica).unwrap().as_deref(), Some(&*log));
            let writer = fs::OpenOptions::new().append(true).open(&log).unwrap();
            Self {
                _dir: dir,
                logs,
                log,
                writer,
            }
        }

        fn write(&mut self, bytes: impl AsRef<[u8]>) {
            self.writer.write_all(bytes.as_ref()).unwrap();
        }

        fn part(&self, from: LogFrom, most: u64, is_over: bool) -> Part {
            let wanted = Wanted {
                from,
                most,
                is_over,
            };
            self.logs.part(&self.log, wanted).unwrap()
        }

        fn after(&self, cursor: u64) -> Part {
            self.part(LogFrom::After(cursor), 1 << 16, false)
        }
    }

    #[test]
    fn parts_have_every_line_once_and_a_line_is_there_when_it_is_whole() {
        let mut scene = Scene::new();
        scene.write("one\ntwo\nthr");
        let first = scene.after(0);
        assert_eq!(first.lines, ["one", "two"]);
        assert_eq!(scene.after(first.cursor).lines, [""; 0]);
        scene.write("ee\n");
        let second = scene.after(first.cursor);
        assert_eq!(
            (second.lines, second.cursor),
            (vec!["three".to_owned()], 14)
        );
        scene.write("last words");
        assert_eq!(scene.after(14).lines, [""; 0]);
        let end = scene.part(LogFrom::After(14), 1 << 16, true);
        assert_eq!(
            (end.lines, end.has_more),
            (vec!["last words".to_owned()], false)
        );
    }

    #[test]
    fn the_last_lines_are_as_many_as_were_asked_for_and_the_cursor_is_behind_them() {
        let mut scene = Scene::new();
        scene.write("one\ntwo\nthree\nfo");
        let last = |lines| scene.part(LogFrom::Last(lines), 1 << 16, false);
        assert_eq!(last(2).lines, ["two", "three"]);
        assert_eq!((last(0).lines.len(), last(0).cursor), (0, 14));
        assert_eq!(last(9).lines.len(), 3);
        // Of a line that does not fit whole, nothing is shown.
        assert_eq!(scene.part(LogFrom::Last(9), 10, false).lines, ["three"]);
    }

    #[test]
    fn a_part_is_bounded_and_plain_whatever_the_engine_wrote() {
        let mut scene = Scene::new();
        scene.write(b"bad \xff\xfe\r\n\x1b[31mred\x1b[0m\x07\n 1 %\r 99 %\r100 %\n");
        assert_eq!(
            scene.after(0).lines,
            ["bad \u{fffd}\u{fffd}", "red", "100 %"]
        );
        let mut scene = Scene::new();
        scene.write(vec![b'x'; 200_000]);
        let piece = scene.after(0);
        assert_eq!((piece.cursor, piece.has_more), (1 << 16, true));
        assert_eq!(piece.lines[0].chars().count(), LINE_LIMIT + 1);
        let mut scene = Scene::new();
        scene.write("a line\n".repeat(10_000));
        let (mut cursor, mut count) = (0, 0);
        loop {
            let part = scene.part(LogFrom::After(cursor), 1_000, false);
            assert!(part.cursor - cursor <= 1_000);
            (cursor, count) = (part.cursor, count + part.lines.len());
            if !part.has_more {
                break;
            }
        }
        assert_eq!((cursor, count), (70_000, 10_000));
    }

    #[test]
    fn what_was_cut_off_is_counted_and_what_was_kept_is_read_once() {
        let mut scene = Scene::new();
        let line = format!("{}\n", "x".repeat(1_023));
        scene.write(line.repeat(17 << 10));
        let seen = (16 << 20) + (512 << 10);
        scene.logs.trim(&scene.log).unwrap();
        // 17 MiB were written, the last one is kept.
        let lost = scene.after(0);
        assert_eq!((lost.skipped, lost.lines.len()), (16 << 20, 64));
        assert_eq!(lost.cursor, (16 << 20) + (64 << 10));
        let going_on = scene.after(seen);
        assert_eq!((going_on.skipped, going_on.cursor), (0, seen + (64 << 10)));
        scene.write("the end\n");
        assert_eq!(scene.after(17 << 20).lines, ["the end"]);

        // The next life of the agent knows of no cut.
        let next = Logs::open(scene.logs.dir.clone()).unwrap();
        scene.logs = next;
        let again = scene.after((17 << 20) + 8);
        assert_eq!((again.skipped, again.cursor), (0, 64 << 10));
    }
}
