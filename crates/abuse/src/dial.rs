//! TCP connections from a chosen source address. Linux routes 127.0.0.0/8 to loopback. So attackers
//! and the administrator have different addresses, and limits per address differ from global
//! limits.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Address of the administrator and of the probes.
pub(crate) const FRIEND: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Address of an attacker.
pub(crate) const RUDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Longest time to connect. Detects the full accept queue of a frozen server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to `to` from address `from`, with TCP_NODELAY. `patience` bounds each later read and
/// write.
pub(crate) fn dial(to: SocketAddr, from: Ipv4Addr, patience: Duration) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    // On Linux the send timeout also bounds connecting.
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(CONNECT_TIMEOUT))?;
    rustix::net::bind(&socket, &SocketAddr::from((from, 0)))?;
    rustix::net::connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// Makes closing the socket reset the connection. An orderly close reserves the port for a minute,
/// so that storms of thousands of connections would exhaust the client's ports.
pub(crate) fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(stream, Some(Duration::ZERO))?)
}

/// Returns true for an error that means a timeout of the socket.
pub(crate) fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
