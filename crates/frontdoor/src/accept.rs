//! Accept loop of a listener.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lanes::net::{TcpListener, TcpStream};

use crate::Connections;

/// Work units of accepting and handing over one connection, about 20 µs.
const ACCEPT_UNITS: u32 = 200;
/// Interval of checks for a closed socket while the listener has all that it may have.
const FULL_CHECK: Duration = Duration::from_millis(2);
/// Delay after a failure of `accept`.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Reports one failure in `REPORT_ONE_IN`: one per second.
const REPORT_ONE_IN: u32 = 10;

/// Accepts connections without end on core 0's fast lane, and passes each to `take`. Yields after
/// several, so that a connection flood does not occupy the core.
///
/// At most [`Connections::sockets_max`] sockets are open. Beyond that connections wait in the
/// kernel, until those that were closed to admit them have gone.
///
/// Calls `failed` at most once per second while `accept` fails, which is mostly a lack of file
/// descriptors. Connections wait in the kernel meanwhile.
pub async fn accept(
    listener: TcpListener,
    connections: &Connections,
    mut take: impl FnMut(TcpStream, SocketAddr),
    mut failed: impl FnMut(&io::Error),
) {
    let mut failures = 0;
    loop {
        while connections.open() >= connections.sockets_max() {
            lanes::time::sleep(FULL_CHECK).await;
        }
        match listener.accept().await {
            Ok((stream, peer)) => {
                failures = 0;
                take(stream, peer);
                if lanes::spend(ACCEPT_UNITS) {
                    lanes::yield_now().await;
                }
            }
            Err(error) => {
                if failures % REPORT_ONE_IN == 0 {
                    failed(&error);
                }
                failures += 1;
                lanes::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}
