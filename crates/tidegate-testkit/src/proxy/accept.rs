use std::{io, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};

use super::{Shared, connection::Connection, socket::Port};

// After a failure of the machine, such as too many open files.
const PAUSE: Duration = Duration::from_millis(10);

/// Accepts connections while the mode wants it. Dropped, it drops them.
pub(super) async fn accept(port: Port, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let mut mode = shared.mode.subscribe();
    let mut listener = None;
    loop {
        if !mode.borrow_and_update().accepts() {
            listener = None;
        } else if listener.is_none() {
            listener = port.listen().ok();
        }
        shared.listens.send_replace(listener.is_some());
        tokio::select! {
            // First, so that nothing is accepted that is to be refused.
            biased;
            changed = mode.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            Some(_) = connections.join_next() => {}
            accepted = next(listener.as_ref()) => match accepted {
                Ok(client) => {
                    connections.spawn(Connection::new(Arc::clone(&shared)).serve(client));
                }
                Err(_) => sleep(PAUSE).await,
            },
        }
    }
}

async fn next(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(client, _)| client),
        None => std::future::pending().await,
    }
}
