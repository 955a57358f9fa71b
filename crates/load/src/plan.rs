//! Input of a worker: its part of the run, its connections with their statements, and its channels
//! to the other threads.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use schema::Sharding;

use crate::arrivals::Stretch;
use crate::clock::RunClock;
use crate::connection::PREPARE_STREAM;
use crate::connector::Wanted;
use crate::routing::Shards;
use crate::run::StopFlag;
use crate::spec::Spec;
use crate::statement::Template;
use crate::timeline::Message;

/// Task of one worker.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) worker: usize,
    pub(crate) spec: Arc<Spec>,
    pub(crate) clock: RunClock,
    /// Stretches of the run, at this worker's part of the rate.
    pub(crate) stretches: Vec<Stretch>,
    /// True for an open loop.
    pub(crate) open: bool,
    /// This worker's part of the limit on requests in flight.
    pub(crate) in_flight_max: usize,
    /// Statements, by host.
    pub(crate) templates: Vec<Templates>,
    /// Mapping of keys to shards. `None`: requests use any connection.
    pub(crate) sharding: Option<Sharding>,
    pub(crate) connections: Vec<Opened>,
}

/// Statements of one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Templates {
    pub(crate) read: Option<Template>,
    pub(crate) write: Option<Template>,
    /// Frames that prepare these statements again.
    pub(crate) prepare: Vec<u8>,
}

/// A connection that a worker starts with.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) host: usize,
    /// The shard it was opened for. A new connection is opened for the same shard.
    pub(crate) shard: Option<(Shards, u32)>,
    /// The shard that the server assigned it to.
    pub(crate) owner: Option<u32>,
    /// Most requests in flight.
    pub(crate) quota: usize,
    pub(crate) stream: TcpStream,
}

/// Channels between a worker and the rest of the run.
#[derive(Debug)]
pub(crate) struct Channels {
    pub(crate) messages: Sender<Message>,
    pub(crate) wanted: Sender<Wanted>,
    pub(crate) reopened: Receiver<(usize, TcpStream)>,
    pub(crate) stop: StopFlag,
}

/// Encodes frames that prepare `texts` again, on the reserved stream.
pub(crate) fn prepare_frame(texts: &[String]) -> Result<Vec<u8>, wire::Error> {
    let mut encoder = wire::Encoder::new(wire::Direction::Request, wire::Version::V4);
    for text in texts {
        let request = wire::Request::Prepare(wire::Prepare { text, keyspace: None });
        encoder.request(PREPARE_STREAM as i16, &request)?;
    }
    Ok(encoder.finish().to_vec())
}
