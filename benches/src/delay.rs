//! A network of some length, to a server that is near.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use anyhow::Result;
use tokio::time::Instant;

/// Bytes, and when they arrive.
type Chunk = (Instant, Vec<u8>);

// What is under way is bounded: beyond that, the sender is not read from.
const CHUNKS: usize = 64;
const CHUNK: usize = 64 * 1024;

/// Starts a proxy in front of a server, through which everything takes `delay`
/// longer, in each direction.
///
/// It has threads, since the timers of asynchronous runtimes tick once a
/// millisecond. It goes on for as long as the process.
pub(crate) fn start(upstream: &str, delay: Duration) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let upstream = upstream.to_owned();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // Either side closing is how connections end.
            drop(connect(client, &upstream, delay));
        }
    });
    Ok(address)
}

fn connect(client: TcpStream, upstream: &str, delay: Duration) -> std::io::Result<()> {
    let server = TcpStream::connect(upstream)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        let (chunks, waiting) = sync_channel(CHUNKS);
        thread::spawn(move || read(from, &chunks, delay));
        thread::spawn(move || write(to, &waiting));
    }
    Ok(())
}

fn read(mut from: TcpStream, chunks: &SyncSender<Chunk>, delay: Duration) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if chunks.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
            return;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "its times are shorter than a tick of a runtime")]
fn write(mut to: TcpStream, waiting: &Receiver<Chunk>) {
    for (arrives, bytes) in waiting {
        thread::sleep(arrives.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            return;
        }
    }
    drop(to.shutdown(Shutdown::Write));
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        thread,
        time::Duration,
    };

    use tokio::time::Instant;

    #[test]
    fn an_answer_takes_twice_the_delay() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let upstream = server.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let (mut client, _) = server.accept().unwrap();
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            client.write_all(&byte).unwrap();
        });
        let proxy = super::start(&upstream, Duration::from_millis(20)).unwrap();
        let mut client = TcpStream::connect(proxy).unwrap();
        let since = Instant::now();
        client.write_all(b"?").unwrap();
        client.read_exact(&mut [0]).unwrap();
        assert!(since.elapsed() >= Duration::from_millis(40));
    }
}
