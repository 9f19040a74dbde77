//! How an agent reaches a control plane: over TCP on the loopback, or over a pipe inside one process.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    str::FromStr,
};

use async_trait::async_trait;
use llmgw_core::error::{Code, Coded};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream},
    net::TcpStream,
};

/// Any stream of bytes, in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Opens streams to a control plane.
///
/// # Contract
/// * `connect` is called again whenever the stream before has ended, one call at a time, with pauses in
///   between. Each call opens a new stream.
/// * Dropping its future opens nothing.
/// * `Display` names where it leads, for people.
#[async_trait]
pub trait Connector: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// Opens a stream.
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>>;

    /// The address of this machine that streams to the control plane come from; `None` when there is none, or it
    /// can't be told. It is asked without waiting.
    fn local_address(&self) -> Option<IpAddr> {
        None
    }
}

/// Connects over TCP, to this machine alone.
#[derive(Clone, Copy, Debug)]
pub struct TcpConnector {
    server: SocketAddr,
}

/// Connects to a control plane in the same process, which is handed the other end of each pipe.
pub struct PipeConnector {
    accept: Box<dyn Fn(DuplexStream) + Send + Sync>,
}

/// Says why an address can't be connected to.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It is no address.
    #[error("{0:?} is not an address")]
    Malformed(String),
    /// It is another machine's.
    #[error(
        "{0} is not on this machine, and the secure session is not part of this release: without it the \
         agent's token and its orders could be read and changed on the way"
    )]
    Remote(SocketAddr),
}

// === impl TcpConnector ===

impl FromStr for TcpConnector {
    type Err = AddressError;

    /// Reads `127.0.0.1:8443`, `[::1]:8443` or `localhost:8443`. Other names are not looked up: what they mean
    /// is decided elsewhere.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let malformed = || AddressError::Malformed(text.chars().take(100).collect());
        let server = match text.rsplit_once(':') {
            Some(("localhost", port)) => SocketAddr::new(
                IpAddr::V4(Ipv4Addr::LOCALHOST),
                port.parse().map_err(|_| malformed())?,
            ),
            _ => text.parse().map_err(|_| malformed())?,
        };
        Self::try_from(server)
    }
}

impl TryFrom<SocketAddr> for TcpConnector {
    type Error = AddressError;

    fn try_from(server: SocketAddr) -> Result<Self, AddressError> {
        if !server.ip().to_canonical().is_loopback() {
            return Err(AddressError::Remote(server));
        }
        Ok(Self { server })
    }
}

#[async_trait]
impl Connector for TcpConnector {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let stream = TcpStream::connect(self.server).await?;
        // Reports are small and must not wait for each other.
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }

    fn local_address(&self) -> Option<IpAddr> {
        let any: IpAddr = match self.server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // A datagram socket is connected by choosing a route; nothing is sent.
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(self.server).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }
}

impl fmt::Display for TcpConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}

// === impl PipeConnector ===

impl PipeConnector {
    /// Hands the control plane's end of each new pipe to `accept`, which must not block.
    pub fn new(accept: impl Fn(DuplexStream) + Send + Sync + 'static) -> Self {
        Self {
            accept: Box::new(accept),
        }
    }
}

impl fmt::Display for PipeConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other end of a pipe")
    }
}

#[async_trait]
impl Connector for PipeConnector {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let (ours, theirs) = tokio::io::duplex(PIPE_SIZE);
        (self.accept)(theirs);
        Ok(Box::new(ours))
    }
}

impl fmt::Debug for PipeConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipeConnector").finish_non_exhaustive()
    }
}

// === impl AddressError ===

impl Coded for AddressError {
    fn code(&self) -> Code {
        Code::InvalidRequest
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Malformed(_) => {
                Some("write an address and a port, such as 127.0.0.1:8443".to_owned())
            }
            Self::Remote(_) => Some(
                "run the agent beside the control plane, or forward the port through a tunnel of yours"
                    .to_owned(),
            ),
        }
    }
}

/// Holds a report of a busy node; a writer that is ahead waits.
const PIPE_SIZE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        sync::mpsc,
    };

    use super::*;

    #[test]
    fn only_this_machine_is_connected_to() {
        for here in [
            "127.0.0.1:8443",
            "127.8.8.8:1",
            "[::1]:8443",
            "localhost:8443",
            "[::ffff:127.0.0.1]:80",
        ] {
            assert!(here.parse::<TcpConnector>().is_ok(), "{here}");
        }
        for elsewhere in ["192.168.1.2:8443", "0.0.0.0:8443", "[2001:db8::1]:8443"] {
            let error = elsewhere.parse::<TcpConnector>().unwrap_err();
            assert!(error.to_string().contains("secure session"), "{error}");
        }
        for bad in [
            "",
            "8443",
            "localhost",
            "localhost:x",
            "example.org:8443",
            "127.0.0.1",
        ] {
            let error = bad.parse::<TcpConnector>().unwrap_err();
            assert!(
                matches!(error, AddressError::Malformed(_)),
                "{bad:?}: {error}"
            );
        }
    }

    #[test]
    fn a_connection_over_tcp_knows_where_it_comes_from() {
        let of = |text: &str| text.parse::<TcpConnector>().unwrap().local_address();
        assert_eq!(of("127.0.0.1:1"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(PipeConnector::new(drop).local_address(), None);
    }

    #[tokio::test]
    async fn a_pipe_carries_bytes_until_an_end_is_gone() {
        let (offers, mut offered) = mpsc::channel(1);
        let connector = PipeConnector::new(move |pipe| offers.try_send(pipe).unwrap());
        let mut ours = connector.connect().await.unwrap();
        let mut theirs = offered.recv().await.unwrap();
        ours.write_all(b"hello").await.unwrap();
        let mut heard = [0; 5];
        theirs.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
        drop(theirs);
        assert_eq!(ours.read(&mut heard).await.unwrap(), 0);
    }
}
