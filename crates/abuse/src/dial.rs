//! TCP connections from a chosen source address. Linux routes all of 127.0.0.0/8 to loopback, so an attacker
//! has another address than the administrator, and limits for each address can be told apart from limits for
//! all.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// The address of the administrator and of the probes.
pub(crate) const FRIEND: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The address of an attacker.
pub(crate) const RUDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// How long connecting may take. A full accept queue of a frozen server is found out by this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to `to` from the address `from`, without delay of small writes. `patience` bounds each later read
/// and write.
pub(crate) fn dial(to: SocketAddr, from: Ipv4Addr, patience: Duration) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    // On Linux the send timeout bounds connecting as well.
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(CONNECT_TIMEOUT))?;
    rustix::net::bind(&socket, &SocketAddr::from((from, 0)))?;
    rustix::net::connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// Makes closing the socket reset it. Storms of thousands of connections would otherwise use up the client's
/// ports, which stay reserved for a minute after an orderly close.
pub(crate) fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(stream, Some(Duration::ZERO))?)
}

/// Whether an error means that nothing happened within the socket's timeout.
pub(crate) fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
