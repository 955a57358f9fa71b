//! Thread that opens broken connections again, so that a slow handshake does not delay the requests
//! of other connections. The wait grows after each failure up to a bound. The thread never gives up
//! while the load runs.

use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::routing::{self, Shards};
use crate::spec::Spec;

/// Wait after a connection broke, and the longest wait between attempts.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Longest time of a handshake.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);

/// A request of a worker to open a connection again.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) worker: usize,
    pub(crate) connection: usize,
    pub(crate) host: usize,
    pub(crate) shard: Option<(Shards, u32)>,
}

struct Pending {
    wanted: Wanted,
    deadline: Instant,
    wait: Duration,
}

/// Serves until all workers have dropped their sender. There are at most as many pending requests
/// as connections.
pub(crate) fn serve(spec: &Spec, wanted: &Receiver<Wanted>, ready: &[Sender<(usize, TcpStream)>]) {
    let mut pending: Vec<Pending> = Vec::new();
    loop {
        let next = pending.iter().map(|p| p.deadline).min();
        let wait = next.map_or(Duration::from_secs(3600), |at| at.saturating_duration_since(Instant::now()));
        match wanted.recv_timeout(wait) {
            Ok(wanted) => {
                pending.push(Pending { wanted, deadline: Instant::now() + BACK_OFF.0, wait: BACK_OFF.0 })
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(index) = pending.iter().position(|p| p.deadline <= Instant::now()) else { continue };
        let mut attempt = pending.swap_remove(index);
        match routing::open(spec, attempt.wanted.host, attempt.wanted.shard) {
            // The channel of an ended worker drops the socket.
            Ok(session) => {
                drop(ready[attempt.wanted.worker].send((attempt.wanted.connection, session.into_stream())))
            }
            Err(_) => {
                attempt.wait = (attempt.wait * 2).min(BACK_OFF.1);
                attempt.deadline = Instant::now() + attempt.wait;
                pending.push(attempt);
            }
        }
    }
}
