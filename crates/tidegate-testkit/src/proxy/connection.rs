use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::{mpsc, watch},
    time::{Instant, timeout_at},
};

use super::{Mode, Shared, Toward, frames::Frames, hold::Hold, message::Wire};

// What waits in the proxy, per direction of a connection, is bounded: beyond
// that, the sender is not read from, as with a network that stands still.
const CHUNKS: usize = 64;
const CHUNK: usize = 16 * 1024;

/// A client, and the server on its behalf.
pub(super) struct Connection {
    shared: Arc<Shared>,
    // From before its task runs: a cut that comes until then is not missed.
    cuts: watch::Receiver<u64>,
    // What holds the replies of this connection.
    replies: Mutex<Vec<Arc<Hold>>>,
}

/// Bytes that wait to be passed on, which were read at a time.
struct Chunk {
    bytes: Vec<u8>,
    read: Instant,
    holds: Vec<Arc<Hold>>,
}

// ===== impl Connection =====

impl Connection {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let cuts = shared.cuts.subscribe();
        Self { shared, cuts, replies: Mutex::default() }
    }

    pub(super) async fn serve(self, client: TcpStream) {
        let _open = self.shared.counters.open();
        let mut cuts = self.cuts.clone();
        tokio::select! {
            // Either side closing is how connections end.
            _ = self.pass(client) => {}
            _ = cuts.changed() => {}
        }
    }

    async fn pass(&self, mut client: TcpStream) -> io::Result<()> {
        let mut server = TcpStream::connect(&self.shared.upstream).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::try_join!(
            self.pump(from_client, to_server, Toward::Server),
            self.pump(from_server, to_client, Toward::Client),
        )?;
        Ok(())
    }

    async fn pump(
        &self,
        from: impl AsyncRead + Unpin,
        to: impl AsyncWrite + Unpin,
        toward: Toward,
    ) -> io::Result<()> {
        let (chunks, waiting) = mpsc::channel(CHUNKS);
        tokio::try_join!(self.read(from, chunks, toward), self.write(to, waiting, toward))?;
        Ok(())
    }

    async fn read(
        &self,
        mut from: impl AsyncRead + Unpin,
        chunks: mpsc::Sender<Chunk>,
        toward: Toward,
    ) -> io::Result<()> {
        // Only what clients say is cut into messages.
        let wire = if toward == Toward::Server { self.shared.wire } else { Wire::Raw };
        let mut frames = Frames::new(wire);
        let mut buffer = vec![0; CHUNK];
        loop {
            let count = from.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            self.shared.counters.received(toward, count);
            frames.push(&buffer[..count]);
            while let Some(bytes) = frames.next() {
                let holds = match toward {
                    Toward::Server => self.shared.holds.of(&bytes),
                    Toward::Client => Vec::new(),
                };
                let chunk = Chunk { bytes, read: Instant::now(), holds };
                // The writer has failed, and says why.
                if chunks.send(chunk).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    async fn write(
        &self,
        mut to: impl AsyncWrite + Unpin,
        mut chunks: mpsc::Receiver<Chunk>,
        toward: Toward,
    ) -> io::Result<()> {
        let mut mode = self.shared.mode.subscribe();
        while let Some(Chunk { bytes, read, holds }) = chunks.recv().await {
            for hold in holds.iter().filter(|hold| hold.toward == Toward::Server) {
                hold.came.announce(());
                if !hold.loses {
                    wait(hold).await?;
                }
            }
            if holds.iter().any(|hold| hold.loses) {
                continue;
            }
            if toward == Toward::Client {
                self.replies_released().await?;
            }
            self.arrive(&mut mode, toward, read, bytes.len()).await;
            // Before it is sent, so that no reply to it slips through.
            let replies = holds.into_iter().filter(|hold| hold.toward == Toward::Client);
            let replies: Vec<_> = replies.collect();
            self.hold_replies(&replies);
            to.write_all(&bytes).await?;
            to.flush().await?;
            self.shared.counters.delivered(toward, bytes.len());
            for hold in replies {
                hold.came.announce(());
            }
        }
        to.shutdown().await
    }

    /// Waits until what was read at a time arrives, as the mode wants it.
    async fn arrive(
        &self,
        mode: &mut watch::Receiver<Mode>,
        toward: Toward,
        read: Instant,
        bytes: usize,
    ) {
        let begun = Instant::now();
        loop {
            let arrives = match *mode.borrow_and_update() {
                Mode::Pass | Mode::Cut | Mode::Refuse => return,
                Mode::HalfOpen(to) if to != toward => return,
                Mode::HalfOpen(_) => None,
                Mode::Delay(delay) => Some(read + delay),
                Mode::Throttle(rate) => Some(begun + time_for(bytes, rate)),
            };
            // The proxy is gone, and this connection goes with it.
            let changed = async { drop(mode.changed().await) };
            match arrives {
                None => changed.await,
                Some(at) => {
                    if timeout_at(at, changed).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn hold_replies(&self, holds: &[Arc<Hold>]) {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.extend_from_slice(holds);
    }

    async fn replies_released(&self) -> io::Result<()> {
        loop {
            let first = {
                let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
                replies.pop()
            };
            match first {
                Some(hold) => wait(&hold).await?,
                None => return Ok(()),
            }
        }
    }
}

async fn wait(hold: &Hold) -> io::Result<()> {
    if hold.released().await { Ok(()) } else { Err(io::ErrorKind::ConnectionAborted.into()) }
}

fn time_for(bytes: usize, rate: u32) -> Duration {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    Duration::from_secs_f64(f64::from(bytes) / f64::from(rate.max(1)))
}
