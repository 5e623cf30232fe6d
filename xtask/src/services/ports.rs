use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use socket2::{Domain, Socket, Type};

/// A port of 127.0.0.1 that is kept for a server which is still to start, or
/// which is down for a while.
///
/// The port is bound, but nobody listens. Such a port is given to no other
/// process that asks for a free one, while a server that sets `SO_REUSEADDR`,
/// as Kafka and PostgreSQL do, can bind the same one and listen. This holds on
/// Linux; elsewhere the port is chosen and let go, and could be taken before
/// the server has it.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _held: Option<Socket>,
}

impl Port {
    /// Reserves a free port.
    ///
    /// # Errors
    ///
    /// Fails when there is none, or no socket to ask with.
    pub fn reserve() -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let address = socket.local_addr()?.as_socket().ok_or_else(|| {
            io::Error::new(io::ErrorKind::AddrNotAvailable, "the socket has no address")
        })?;
        Ok(Self { address, _held: cfg!(target_os = "linux").then_some(socket) })
    }

    /// The address with the port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of the port.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.address.port()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::Port;

    #[test]
    fn a_reserved_port_can_be_listened_on_again_and_again() {
        let port = Port::reserve().unwrap();
        for _ in 0..2 {
            TcpStream::connect(port.address()).expect_err("nobody listens");
            let server = TcpListener::bind(port.address()).unwrap();
            let client = TcpStream::connect(port.address()).unwrap();
            // The client's side closes first and keeps the waiting state.
            drop(client);
            drop(server.accept().unwrap());
        }
    }

    #[test]
    fn a_reserved_port_is_given_to_nobody_else() {
        let port = Port::reserve().unwrap();
        let others: Vec<_> = (0..500).map(|_| Port::reserve().unwrap()).collect();
        assert!(others.iter().all(|other| other.number() != port.number()));
        let listeners: Vec<_> =
            (0..500).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        for listener in listeners {
            let number = listener.local_addr().unwrap().port();
            assert_ne!(number, port.number());
            assert!(others.iter().all(|other| other.number() != number));
        }
    }
}
