use std::{io, net::SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// A port that stays ours, whether somebody listens on it or not.
pub(super) struct Port {
    addr: SocketAddr,
    // Never listens. Without it, another process could get the port while
    // connections are refused.
    #[cfg(unix)]
    _reserved: TcpSocket,
}

const BACKLOG: u32 = 1024;

// ===== impl Port =====

impl Port {
    pub(super) fn bind(addr: SocketAddr) -> io::Result<Self> {
        let reserved = socket(addr)?;
        let addr = reserved.local_addr()?;
        Ok(Self {
            addr,
            #[cfg(unix)]
            _reserved: reserved,
        })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Listens, until the listener is dropped: then connections are refused.
    pub(super) fn listen(&self) -> io::Result<TcpListener> {
        socket(self.addr)?.listen(BACKLOG)
    }
}

fn socket(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Only one of the sockets that share the port ever listens, so the kernel
    // has no choice to make.
    #[cfg(unix)]
    socket.set_reuseport(true)?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}
