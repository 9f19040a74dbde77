//! Which loopback port an engine gets.

use std::{
    collections::{BTreeSet, VecDeque},
    fs,
    io::{self, Read as _},
    net::{Ipv4Addr, TcpListener},
    ops::RangeInclusive,
    path::PathBuf,
};

use crate::durable;

/// Gives out the ports of a range in turn.
///
/// An engine binds its port some time after it was given, and clients may still speak with, or try, the port of
/// one that has ended. So a port comes again only when the whole range has been given out, also over lives of
/// the agent, and not while the kernel knows a connection to it: a client of the earlier engine must not find
/// another one there. The range lies below the one that the kernel takes the ports of connections from, or an
/// outgoing connection could have the port before the engine binds it.
#[derive(Debug)]
pub(super) struct Ports {
    range: RangeInclusive<u16>,
    /// The one to try first.
    next: u16,
    /// Given out lately, whether bound yet or not.
    recent: VecDeque<u16>,
    /// Holds `next`.
    file: PathBuf,
}

impl Ports {
    /// The ports of `range`, from where an earlier life of the agent has stopped.
    pub(super) fn open(file: PathBuf, range: RangeInclusive<u16>) -> Self {
        let before = durable::read_text(&file, durable::SMALL).ok();
        let next = before
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or_else(|| somewhere(&range));
        Self {
            next,
            recent: VecDeque::new(),
            file,
            range,
        }
    }

    /// A port that is free now, and to which no client holds a connection. Blocks for as long as the disk does.
    ///
    /// # Errors
    /// When the range has none left.
    pub(super) fn choose(&mut self) -> io::Result<u16> {
        let held = held();
        for _ in 0..length(&self.range) {
            let port = self.advance();
            if held.contains(&port) || self.recent.contains(&port) {
                continue;
            }
            match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
                Err(error) => return Err(error),
            }
            self.recent.push_back(port);
            if self.recent.len() > length(&self.range) / 2 {
                self.recent.pop_front();
            }
            if let Err(error) = durable::write(&self.file, self.next.to_string().as_bytes()) {
                // The next life begins with ports of this one; connections to them are still seen.
                tracing::warn!(%error, "which ports were given out could not be written down");
            }
            return Ok(port);
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!(
                "all ports from {} to {} are taken",
                self.range.start(),
                self.range.end()
            ),
        ))
    }

    fn advance(&mut self) -> u16 {
        let (start, end) = (*self.range.start(), *self.range.end());
        let port = if self.range.contains(&self.next) {
            self.next
        } else {
            start
        };
        self.next = if port == end { start } else { port + 1 };
        port
    }
}

fn length(range: &RangeInclusive<u16>) -> usize {
    usize::from(range.end().saturating_sub(*range.start())) + 1
}

/// A place in the range that differs from one agent of a machine to the next.
fn somewhere(range: &RangeInclusive<u16>) -> u16 {
    let id = uuid_bits();
    let offset = usize::try_from(id % 65_536).unwrap_or(0) % length(range);
    range
        .start()
        .saturating_add(u16::try_from(offset).unwrap_or(0))
}

fn uuid_bits() -> u64 {
    llmgw_core::id::ReplicaId::generate()
        .as_uuid()
        .as_u64_pair()
        .1
}

/// Ports at either end of a connection that the kernel knows, also of one whose listener is gone; none when it
/// does not tell.
fn held() -> BTreeSet<u16> {
    let mut held = BTreeSet::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let mut text = String::new();
        let read =
            fs::File::open(table).and_then(|file| file.take(TABLE_LIMIT).read_to_string(&mut text));
        if read.is_ok() {
            held.extend(text.lines().skip(1).flat_map(ends));
        }
    }
    held
}

/// The ports of a line of `/proc/net/tcp`: `0: 0100007F:5BA0 0100007F:C350 01 …`, addresses and ports in
/// hexadecimal, then the state. A listener is no connection.
fn ends(line: &str) -> Vec<u16> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, remote, state) = (fields.next(), fields.next(), fields.next());
    if state.is_none_or(|state| state == LISTENS) {
        return Vec::new();
    }
    let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
    [local, remote]
        .into_iter()
        .flatten()
        .filter_map(port)
        .collect()
}

/// `TCP_LISTEN` of the kernel's `include/net/tcp_states.h`.
const LISTENS: &str = "0A";

/// A line has 150 bytes: some hundred thousand connections.
const TABLE_LIMIT: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn ports(dir: &tempfile::TempDir, range: RangeInclusive<u16>) -> Ports {
        Ports::open(dir.path().join("next-port"), range)
    }

    /// Of a part that no other test uses.
    fn free(start: u16, count: usize) -> Vec<u16> {
        (start..start + 500)
            .filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
            .take(count)
            .collect()
    }

    #[test]
    fn no_port_is_given_out_twice_over_lives_of_the_agent() {
        let dir = tempfile::tempdir().unwrap();
        let mut given = BTreeSet::new();
        for _ in 0..4 {
            let mut life = ports(&dir, 21_000..=21_999);
            given.extend((0..50).map(|_| life.choose().unwrap()));
        }
        assert_eq!(given.len(), 200);
    }

    #[test]
    fn a_port_that_a_client_holds_is_not_given_out() {
        let dir = tempfile::tempdir().unwrap();
        let [held, free] = free(20_000, 2)[..] else {
            panic!("two free ports");
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, held)).unwrap();
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, held)).unwrap();
        // The engine has ended; its client has not noticed.
        drop(listener.accept().unwrap());
        drop(listener);
        let choose = || {
            fs::write(dir.path().join("next-port"), held.to_string()).unwrap();
            ports(&dir, held..=free).choose().unwrap()
        };
        assert_ne!(choose(), held);
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, held)).is_ok());
        drop(client);
    }

    #[test]
    fn a_range_without_a_free_port_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let port = free(20_500, 1)[0];
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let error = ports(&dir, port..=port).choose().unwrap_err();
        assert!(error.to_string().contains(&port.to_string()), "{error}");
    }

    #[test]
    fn both_ends_of_a_connection_count_and_a_listener_does_not() {
        let connection = "  0: 0100007F:5BA0 0100007F:C350 08 00000000:00000000 00:00000000";
        assert_eq!(ends(connection), [0x5BA0, 0xC350]);
        assert!(ends("  0: 0100007F:5BA0 00000000:0000 0A 0:0 0:0").is_empty());
        assert!(ends("nonsense").is_empty());
    }

    #[test]
    fn a_number_that_is_not_of_the_range_begins_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("next-port"), "99999999").unwrap();
        let mut life = ports(&dir, 22_000..=22_499);
        assert!((22_000..=22_499).contains(&life.choose().unwrap()));
        fs::write(dir.path().join("next-port"), "7").unwrap();
        let mut life = ports(&dir, 22_000..=22_499);
        assert!((22_000..=22_499).contains(&life.choose().unwrap()));
    }
}
