//! Which loopback port an engine gets.

use std::{
    collections::VecDeque,
    io,
    net::{Ipv4Addr, TcpListener},
};

/// Gives out ports, none twice in a row of many.
///
/// An engine binds its port some time after it was given, and clients may still try the port of one that has
/// ended. So a port that was given out lately is not given to another replica, even if it is free.
#[derive(Debug, Default)]
pub(super) struct Ports {
    recent: VecDeque<u16>,
}

impl Ports {
    /// Remembers a port that is in use.
    pub(super) fn note(&mut self, port: u16) {
        self.recent.retain(|recent| *recent != port);
        self.recent.push_back(port);
        while self.recent.len() > REMEMBERED {
            self.recent.pop_front();
        }
    }

    /// A port that is free now.
    ///
    /// # Errors
    /// When the system has none left.
    pub(super) fn choose(&mut self) -> io::Result<u16> {
        // Those that are refused stay bound until one is found, so that the system offers others.
        let mut refused = Vec::new();
        loop {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let port = listener.local_addr()?.port();
            if !self.recent.contains(&port) {
                self.note(port);
                return Ok(port);
            }
            refused.push(listener);
            if refused.len() > REMEMBERED {
                return Err(io::Error::from(io::ErrorKind::AddrInUse));
            }
        }
    }
}

/// A small part of the 28,000 ports that Linux gives out by itself.
const REMEMBERED: usize = 512;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_is_given_out_twice() {
        let mut ports = Ports::default();
        let given: BTreeSet<u16> = (0..200).map(|_| ports.choose().unwrap()).collect();
        assert_eq!(given.len(), 200);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut ports = Ports::default();
        (1..=2000).for_each(|port| ports.note(port));
        ports.note(2000);
        assert_eq!(ports.recent.len(), REMEMBERED);
    }
}
