//! Sockets of the fast lane. They are those of tokio, which work inside it.

use std::io;
use std::net::SocketAddr;

pub use tokio::io::Interest;
pub use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
pub use tokio::net::{TcpListener, TcpStream};

/// Connections that the kernel holds until they are accepted.
const BACKLOG: u32 = 4096;

/// Listens on an address, on a fast lane only. With `reuse_port`, every core may listen on the same
/// address, and the kernel spreads connections among them.
///
/// # Errors
/// Those of the kernel: the address is in use, not local, or not permitted.
pub fn listen(address: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(reuse_port)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
