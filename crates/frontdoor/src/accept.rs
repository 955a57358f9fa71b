//! The loop that accepts connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lanes::net::{TcpListener, TcpStream};

/// Work units of accepting one connection and handing it over, about 20 µs.
const ACCEPT_UNITS: u32 = 200;
/// The wait after a failure.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// One failure of so many is reported: one a second.
const REPORT_ONE_IN: u32 = 10;

/// Accepts connections without end, on core 0's fast lane, and gives each to `take`. Yields after some of them, so that a flood does
/// not keep the core. `failed` is called at most once a second while the kernel refuses, mostly for want of file descriptors:
/// connections wait in the kernel meanwhile.
pub async fn accept(
    listener: TcpListener,
    mut take: impl FnMut(TcpStream, SocketAddr),
    mut failed: impl FnMut(&io::Error),
) {
    let mut failures = 0;
    loop {
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
