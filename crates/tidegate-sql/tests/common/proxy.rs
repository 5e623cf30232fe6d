//! A proxy before PostgreSQL: it counts round trips, and cuts connections.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
};

/// A listener that passes on what comes.
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    // Ended with this value.
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct State {
    round_trips: AtomicU64,
    // The next COMMIT is passed on, and the connection cut before its answer.
    cut_at_commit: AtomicBool,
    // The next COMMIT is not passed on, and the connection cut.
    cut_before_commit: AtomicBool,
}

impl Proxy {
    /// Stands before the server of a URL.
    pub(crate) async fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::<State>::default();
        let target = place(server).to_owned();
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&state);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&target).await.expect("the server is there");
                connections.spawn(pass(client, server, Arc::clone(&shared)));
            }
        });
        Self { address, state, _tasks: tasks }
    }

    /// The URL by which the server is reached through this.
    pub(crate) fn url(&self, server: &str) -> String {
        server.replacen(place(server), &self.address.to_string(), 1)
    }

    /// How often a client has waited for an answer.
    pub(crate) fn round_trips(&self) -> u64 {
        self.state.round_trips.load(Ordering::SeqCst)
    }

    /// Loses the answer to the next COMMIT.
    pub(crate) fn cut_at_commit(&self) {
        self.state.cut_at_commit.store(true, Ordering::SeqCst);
    }

    /// Loses the next COMMIT itself.
    pub(crate) fn cut_before_commit(&self) {
        self.state.cut_before_commit.store(true, Ordering::SeqCst);
    }
}

/// `host:port` of a URL.
fn place(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or_default()
}

async fn pass(client: TcpStream, server: TcpStream, state: Arc<State>) {
    let (client_read, mut client_write) = client.into_split();
    let (mut server_read, server_write) = server.into_split();
    let answers = async move { tokio::io::copy(&mut server_read, &mut client_write).await };
    tokio::select! {
        // Both halves are dropped when one ends: the connection is cut.
        _ = requests(client_read, server_write, state) => {}
        _ = answers => {}
    }
}

/// Passes messages on, one by one: a type, a length, a body.
///
/// PostgreSQL's documentation, "Message Formats".
async fn requests(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    state: Arc<State>,
) -> std::io::Result<()> {
    // The first one has no type.
    let length = client.read_u32().await?;
    let body = read_body(&mut client, length).await?;
    server.write_u32(length).await?;
    server.write_all(&body).await?;
    let mut asked = false;
    loop {
        let kind = client.read_u8().await?;
        let length = client.read_u32().await?;
        let body = read_body(&mut client, length).await?;
        let is_commit = kind == b'Q' && body.starts_with(b"COMMIT");
        if is_commit && state.cut_before_commit.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        // A pool syncs with nothing asked when it is given a connection back.
        if kind == b'Q' || kind == b'S' && asked {
            state.round_trips.fetch_add(1, Ordering::SeqCst);
        }
        asked = !matches!(kind, b'Q' | b'S');
        server.write_u8(kind).await?;
        server.write_u32(length).await?;
        server.write_all(&body).await?;
        server.flush().await?;
        if is_commit && state.cut_at_commit.swap(false, Ordering::SeqCst) {
            // Its answer is what the other direction would pass on next. The
            // server sees the end of requests, commits first, and is gone.
            server.shutdown().await?;
            return Ok(());
        }
    }
}

async fn read_body(client: &mut OwnedReadHalf, length: u32) -> std::io::Result<Vec<u8>> {
    let mut body = vec![0; (length as usize).saturating_sub(4)];
    client.read_exact(&mut body).await?;
    Ok(body)
}
