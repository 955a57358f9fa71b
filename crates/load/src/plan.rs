//! What a worker is given: its part of the run, its connections with their statements, and the lines on
//! which it talks to the rest.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use schema::Sharding;

use crate::arrivals::Stretch;
use crate::clock::Clock;
use crate::connection::PREPARE_STREAM;
use crate::connector::Wanted;
use crate::routing::Shards;
use crate::run::StopFlag;
use crate::spec::Spec;
use crate::statement::Template;
use crate::timeline::Message;

/// What a worker is to do.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) worker: usize,
    pub(crate) spec: Arc<Spec>,
    pub(crate) clock: Clock,
    /// The run in stretches, at this worker's part of the rate.
    pub(crate) stretches: Vec<Stretch>,
    pub(crate) open: bool,
    /// This worker's part of the limit on requests in flight.
    pub(crate) in_flight_max: usize,
    /// Reading and writing, for each host.
    pub(crate) templates: Vec<Templates>,
    /// How keys go to shards; nothing when requests go to any connection.
    pub(crate) sharding: Option<Sharding>,
    pub(crate) connections: Vec<Opened>,
}

/// The statements of one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Templates {
    pub(crate) read: Option<Template>,
    pub(crate) write: Option<Template>,
    /// What to send to have them prepared again.
    pub(crate) prepare: Vec<u8>,
}

/// A connection a worker begins with.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) host: usize,
    /// The shard it was opened for, to be opened for it again.
    pub(crate) shard: Option<(Shards, u32)>,
    /// The shard it belongs to.
    pub(crate) owner: Option<u32>,
    pub(crate) quota: usize,
    pub(crate) stream: TcpStream,
}

/// How a worker talks to the rest of the run.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) messages: Sender<Message>,
    pub(crate) wanted: Sender<Wanted>,
    pub(crate) reopened: Receiver<(usize, TcpStream)>,
    pub(crate) stop: StopFlag,
}

/// The frame that has statements prepared again, on its reserved stream.
pub(crate) fn prepare_frame(texts: &[String]) -> Result<Vec<u8>, wire::Error> {
    let mut encoder = wire::Encoder::new(wire::Direction::Request, wire::Version::V4);
    for text in texts {
        let request = wire::Request::Prepare(wire::Prepare { text, keyspace: None });
        encoder.request(PREPARE_STREAM as i16, &request)?;
    }
    Ok(encoder.finish().to_vec())
}
