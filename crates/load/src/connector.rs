//! Opens connections again after they broke, on a thread of its own, so that a slow handshake delays no
//! other connection's requests. It waits longer after each failure, up to a bound, and never gives up while
//! the load runs.

use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::routing::{self, Shards};
use crate::spec::Spec;

/// First wait after a connection broke, and the longest between attempts.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long a handshake may take.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);

/// A connection wanted by a worker.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) worker: usize,
    pub(crate) connection: usize,
    pub(crate) host: usize,
    pub(crate) shard: Option<(Shards, u32)>,
}

struct Pending {
    wanted: Wanted,
    due: Instant,
    wait: Duration,
}

/// Serves until all workers have dropped their end. What is pending is bounded by the connections.
pub(crate) fn serve(spec: &Spec, wanted: &Receiver<Wanted>, ready: &[Sender<(usize, TcpStream)>]) {
    let mut pending: Vec<Pending> = Vec::new();
    loop {
        let next = pending.iter().map(|p| p.due).min();
        let wait =
            next.map_or(Duration::from_secs(3600), |due| due.saturating_duration_since(Instant::now()));
        match wanted.recv_timeout(wait) {
            Ok(wanted) => {
                pending.push(Pending { wanted, due: Instant::now() + BACK_OFF.0, wait: BACK_OFF.0 })
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(index) = pending.iter().position(|p| p.due <= Instant::now()) else { continue };
        let mut attempt = pending.swap_remove(index);
        match routing::open(spec, attempt.wanted.host, attempt.wanted.shard) {
            // A worker that has ended drops the socket with its channel.
            Ok(session) => {
                drop(ready[attempt.wanted.worker].send((attempt.wanted.connection, session.into_stream())))
            }
            Err(_) => {
                attempt.wait = (attempt.wait * 2).min(BACK_OFF.1);
                attempt.due = Instant::now() + attempt.wait;
                pending.push(attempt);
            }
        }
    }
}
