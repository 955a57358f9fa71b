//! One non-blocking socket of the load: what is to be sent, what has arrived, and who waits for an answer on
//! which stream.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use wire::{HEADER_BYTES, Opcode};

use crate::histogram::OpKind;
use crate::reply::{self, Reply};
use crate::spec::STREAMS_MAX;
use crate::statement::RowId;

/// Where the read buffer begins; it grows to the longest answer, which the protocol bounds.
const INPUT_BYTES: usize = 128 << 10;

/// The stream on which a statement is prepared again: above all that requests use.
pub(crate) const PREPARE_STREAM: u16 = STREAMS_MAX as u16 + 1;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// From when its latency counts, nanoseconds since the run began.
    pub(crate) from_ns: u64,
    /// When it was sent.
    pub(crate) sent_ns: u64,
    pub(crate) row: RowId,
    pub(crate) kind: OpKind,
    /// The stretch of the run it belongs to.
    pub(crate) stretch: u32,
}

/// A connection is of no more use; says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) String);

/// A socket that is ready for statements.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    filled: usize,
    pub(crate) output: Vec<u8>,
    written: usize,
    slots: Vec<Option<Slot>>,
    free: Vec<u16>,
    /// Whether the poller was asked to tell when the socket can be written.
    pub(crate) awaits_writable: bool,
    /// Whether preparing again is under way.
    pub(crate) preparing: bool,
}

impl Connection {
    /// Takes over a stream that is logged in, for at most `quota` requests in flight.
    pub(crate) fn new(stream: TcpStream, quota: usize) -> Result<Connection, std::io::Error> {
        stream.set_nonblocking(true)?;
        let quota = quota.min(STREAMS_MAX);
        Ok(Connection {
            stream,
            input: vec![0; INPUT_BYTES],
            filled: 0,
            output: Vec::new(),
            written: 0,
            slots: vec![None; quota],
            free: (0..quota as u16).rev().collect(),
            awaits_writable: false,
            preparing: false,
        })
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether another request may be sent here.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes a free stream for a request, if there is one; its frame is appended to `output` by the caller.
    pub(crate) fn take(&mut self, slot: Slot) -> Option<u16> {
        let stream = self.free.pop()?;
        self.slots[stream as usize] = Some(slot);
        Some(stream)
    }

    /// What is in flight, as it is lost with the connection.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Slot> + '_ {
        self.slots.iter_mut().filter_map(Option::take)
    }

    /// Sends what is waiting; says whether all of it went.
    pub(crate) fn flush(&mut self) -> Result<bool, Broken> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(0) => return Err(Broken("the server closed the connection".into())),
                Ok(sent) => self.written += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Broken(error.to_string())),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(true)
    }

    /// Reads once what has arrived. The poller is level-triggered: more is reported again.
    pub(crate) fn fill(&mut self) -> Result<(), Broken> {
        match self.stream.read(&mut self.input[self.filled..]) {
            Ok(0) => Err(Broken("the server closed the connection".into())),
            Ok(read) => {
                self.filled += read;
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(Broken(error.to_string())),
        }
    }

    /// Hands every whole answer in the buffer to `each`, with the request it answers.
    pub(crate) fn answers(&mut self, mut each: impl FnMut(Slot, Reply)) -> Result<(), Broken> {
        let malformed = |error: wire::Error| Broken(error.to_string());
        let mut at = 0;
        while let Some(header) = reply::header(&self.input[at..self.filled]).map_err(malformed)? {
            let end = at + HEADER_BYTES + header.length;
            if end > self.filled {
                let wanted = HEADER_BYTES + header.length;
                if wanted > self.input.len() {
                    self.input.resize(wanted, 0);
                }
                break;
            }
            if header.opcode != Opcode::Event {
                let reply = reply::read(&header, &self.input[at + HEADER_BYTES..end]).map_err(malformed)?;
                if header.stream as u16 == PREPARE_STREAM {
                    self.preparing = false;
                } else {
                    let slot = self.slots.get_mut(header.stream as u16 as usize).and_then(Option::take);
                    let Some(slot) = slot else {
                        return Err(Broken(format!(
                            "an answer on stream {}, where nothing was asked",
                            header.stream
                        )));
                    };
                    self.free.push(header.stream as u16);
                    each(slot, reply);
                }
            }
            at = end;
        }
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }
}
