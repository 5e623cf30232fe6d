//! A TCP proxy between a process and its broker or database.

mod accept;
mod connection;
mod frames;
mod hold;
mod message;
mod socket;
mod traffic;

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{sync::watch, task::AbortHandle};

use self::{hold::Holds, traffic::Counters};
pub use self::{
    hold::{HeldTraffic, NoTraffic},
    message::{Message, Wire},
    traffic::Traffic,
};

/// A TCP proxy that a test makes the network worse with.
///
/// A client connects to [`addr`](Self::addr); what it sends goes to the server
/// and back, as the [mode](Mode) wants. A broker of Kafka tells its clients
/// where to connect, so it has to be told to name the proxy.
///
/// Besides, it holds traffic at one message, or loses the message:
/// [`hold_requests`](Self::hold_requests), [`hold_replies`](Self::hold_replies)
/// and [`lose_requests`](Self::lose_requests). For a message it has to know
/// where messages begin, hence the [`Wire`]. It does not look into TLS.
///
/// Dropping it closes all connections.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate_testkit::{Message, Proxy, Wire};
/// use tokio::{
///     io::{AsyncReadExt as _, AsyncWriteExt as _},
///     net::{TcpListener, TcpStream},
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// // A server that answers each query with one byte.
/// let server = TcpListener::bind("127.0.0.1:0").await?;
/// let upstream = server.local_addr()?;
/// tokio::spawn(async move {
///     let (mut stream, _) = server.accept().await?;
///     let mut query = [0; 64];
///     while stream.read(&mut query).await? > 0 {
///         stream.write_all(b"!").await?;
///     }
///     std::io::Result::Ok(())
/// });
///
/// let proxy = Proxy::start(upstream.to_string(), Wire::Raw).await?;
/// let held = proxy.hold_replies(Message::containing("COMMIT"));
///
/// let mut client = TcpStream::connect(proxy.addr()).await?;
/// client.write_all(b"COMMIT").await?;
/// held.answered(Duration::from_secs(5)).await.expect("the server answers");
///
/// // The server has done it, and the client does not know.
/// assert!(client.try_read(&mut [0]).is_err());
///
/// held.release();
/// assert_eq!(client.read_u8().await?, b'!');
/// # Ok(())
/// # }
/// ```
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

/// What a proxy does to what passes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Nothing.
    #[default]
    Pass,
    /// Everything arrives later, in both directions.
    Delay(Duration),
    /// So many bytes arrive in a second, in each direction.
    Throttle(u32),
    /// Nothing arrives in one direction any more. Nobody is told: connections
    /// stay, new ones are made, and what was sent arrives when this ends, if
    /// the connection lives that long.
    HalfOpen(Toward),
    /// Connections are closed, new ones refused.
    Cut,
    /// Connections live on, new ones are refused.
    Refuse,
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Toward {
    /// From the client to the server: requests.
    Server,
    /// From the server to the client: replies.
    Client,
}

/// What the proxy and its connections have in common.
struct Shared {
    upstream: String,
    wire: Wire,
    mode: watch::Sender<Mode>,
    // Whether the mode's wish to accept or to refuse is fulfilled.
    listens: watch::Sender<bool>,
    // Goes up when all connections are to be closed.
    cuts: watch::Sender<u64>,
    holds: Holds,
    counters: Counters,
}

// ===== impl Proxy =====

impl Proxy {
    /// Starts a proxy at a free port of this machine.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub async fn start(upstream: impl Into<String>, wire: Wire) -> io::Result<Self> {
        Self::bind(SocketAddr::from(([127, 0, 0, 1], 0)), upstream, wire).await
    }

    /// Starts a proxy at an address.
    ///
    /// `upstream` is looked up for each connection: the server may come later.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub async fn bind(
        addr: SocketAddr,
        upstream: impl Into<String>,
        wire: Wire,
    ) -> io::Result<Self> {
        let port = socket::Port::bind(addr)?;
        let addr = port.addr();
        let shared = Arc::new(Shared {
            upstream: upstream.into(),
            wire,
            mode: watch::Sender::default(),
            listens: watch::Sender::default(),
            cuts: watch::Sender::default(),
            holds: Holds::default(),
            counters: Counters::default(),
        });
        let accepting = tokio::spawn(accept::accept(port, Arc::clone(&shared))).abort_handle();
        let proxy = Self { addr, shared, accepting };
        proxy.set(Mode::Pass).await;
        Ok(proxy)
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes what is done, to connections that there are as well, and returns
    /// when it is done.
    ///
    /// # Cancel safety
    ///
    /// It is done in any case, and then a little later.
    pub async fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
        let wanted = || self.shared.mode.borrow().accepts();
        let mut listens = self.shared.listens.subscribe();
        // There is no error: the sender lives as long as the proxy.
        drop(listens.wait_for(|listens| *listens == wanted()).await);
        if mode == Mode::Cut {
            self.close_connections();
        }
    }

    /// Closes the connections that there are. What is under way is lost.
    pub fn close_connections(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Holds requests from this message on: it, and what follows it on its
    /// connection, does not reach the server until it is released.
    pub fn hold_requests(&self, message: Message) -> HeldTraffic {
        self.shared.holds.arm(Toward::Server, message)
    }

    /// Holds replies from this message on: it reaches the server, and nothing
    /// that the server says on that connection reaches the client until it is
    /// released.
    ///
    /// Replies to earlier requests that are still under way are held as well.
    pub fn hold_replies(&self, message: Message) -> HeldTraffic {
        self.shared.holds.arm(Toward::Client, message)
    }

    /// Loses each such request: it does not reach the server, and what follows
    /// it on its connection does, until it is released.
    ///
    /// No network does that. It shows what a client does while one of its
    /// requests has no answer and the others have.
    pub fn lose_requests(&self, message: Message) -> HeldTraffic {
        self.shared.holds.lose(message)
    }

    /// What has passed so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.shared.counters.read()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It owns the connections, which go with it.
        self.accepting.abort();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("addr", &self.addr)
            .field("upstream", &self.shared.upstream)
            .field("mode", &*self.shared.mode.borrow())
            .finish_non_exhaustive()
    }
}

// ===== impl Mode =====

impl Mode {
    fn accepts(self) -> bool {
        !matches!(self, Self::Cut | Self::Refuse)
    }
}
