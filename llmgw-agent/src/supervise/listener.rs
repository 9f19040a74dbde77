//! Who listens on a loopback port, by what the kernel says.

use std::{collections::BTreeSet, fs, io};

use llmgw_core::id::ReplicaId;

use crate::process::REPLICA_MARK;

/// Whether a process that carries this replica's mark listens on the port.
///
/// # Errors
/// When that can't be told: the kernel's tables can't be read.
pub(super) fn belongs(port: u16, replica: ReplicaId) -> io::Result<bool> {
    let mut sockets = BTreeSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match fs::read_to_string(table) {
            Ok(text) => sockets.extend(listening(&text, port)),
            // A kernel without IPv6 has no such table.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let mark = format!("{REPLICA_MARK}={replica}");
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let is_process = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        // Who has ended meanwhile, or belongs to another user, is none of the replica's.
        if is_process
            && fs::read(entry.path().join("environ"))
                .is_ok_and(|environment| is_marked(&environment, &mark))
            && holds(&entry.path().join("fd"), &sockets)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The inodes of the sockets in the kernel's table that listen on the port, whatever their address.
fn listening(table: &str, port: u16) -> impl Iterator<Item = u64> + '_ {
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace();
        let (_, its) = fields.nth(1)?.rsplit_once(':')?;
        let state = fields.nth(1)?;
        // Of what stands behind the state: queues, timer, retransmissions, user, timeout, inode.
        let inode = fields.nth(5)?;
        (u16::from_str_radix(its, 16).ok()? == port && state == LISTEN)
            .then(|| inode.parse().ok())
            .flatten()
    })
}

fn is_marked(environment: &[u8], mark: &str) -> bool {
    environment
        .split(|byte| *byte == 0)
        .any(|variable| variable == mark.as_bytes())
}

fn holds(descriptors: &std::path::Path, sockets: &BTreeSet<u64>) -> bool {
    let Ok(entries) = fs::read_dir(descriptors) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let Ok(target) = fs::read_link(entry.path()) else {
            return false;
        };
        target
            .to_str()
            .and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']'))
            .and_then(|inode| inode.parse().ok())
            .is_some_and(|inode| sockets.contains(&inode))
    })
}

/// `TCP_LISTEN` of the kernel's include/net/tcp_states.h.
const LISTEN: &str = "0A";

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        net::TcpListener,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn only_sockets_that_listen_on_the_port_are_seen() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1267 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0\n\
            1: 0100007F:1267 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0 20 4\n\
            2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0 100 0\n\
            broken\n";
        assert_eq!(listening(table, 0x1267).collect::<Vec<_>>(), [111]);
        assert_eq!(listening(table, 80).collect::<Vec<_>>(), [333]);
        assert_eq!(listening(table, 81).count(), 0);
    }

    #[test]
    fn a_listener_belongs_to_the_replica_whose_mark_it_carries() {
        let (mine, other) = (ReplicaId::generate(), ReplicaId::generate());
        let mut child = Command::new("python3")
            .args([
                "-c",
                "import socket; s = socket.create_server(('127.0.0.1', 0)); \
                 print(s.getsockname()[1], end='', flush=True); s.close if input() else None",
            ])
            .env(REPLICA_MARK, mine.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut digits = [0; 5];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut digits)
            .unwrap();
        let port = std::str::from_utf8(&digits).unwrap().parse().unwrap();
        let found = (belongs(port, mine), belongs(port, other));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.0.unwrap());
        assert!(!found.1.unwrap());

        let own = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = own.local_addr().unwrap().port();
        assert!(!belongs(port, mine).unwrap());
    }
}
