//! A non-blocking socket of the load with its output buffer, its input buffer, and the request in
//! flight on each stream.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use wire::{HEADER_BYTES, Opcode};

use crate::histogram::OpKind;
use crate::reply::{self, Reply};
use crate::spec::STREAMS_MAX;
use crate::statement::RowId;

/// Initial size of the read buffer, bytes. It grows to the longest answer, which the protocol
/// bounds.
const INPUT_BYTES: usize = 128 << 10;

/// Stream for preparing statements again. Above all streams of requests.
pub(crate) const PREPARE_STREAM: u16 = STREAMS_MAX as u16 + 1;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentRequest {
    /// Start of its latency, nanoseconds since the run began: due time or send time.
    pub(crate) from_ns: u64,
    /// Time it was sent, nanoseconds since the run began.
    pub(crate) sent_ns: u64,
    pub(crate) row: RowId,
    pub(crate) kind: OpKind,
    /// Stretch of the run that it is counted in.
    pub(crate) stretch: u32,
}

/// Reason why a connection can no longer be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) String);

/// A socket that is logged in and ready for statements.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    filled: usize,
    pub(crate) output: Vec<u8>,
    written: usize,
    slots: Vec<Option<SentRequest>>,
    free: Vec<u16>,
    /// True while the poller reports when the socket becomes writable.
    pub(crate) awaits_writable: bool,
    /// True while statements are being prepared again.
    pub(crate) preparing: bool,
}

impl Connection {
    /// Takes over a logged-in stream for at most `quota` requests in flight.
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

    /// Returns true if a stream is free for another request.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Reserves a free stream for a request, if any. The caller appends the frame to `output`.
    pub(crate) fn take(&mut self, slot: SentRequest) -> Option<u16> {
        let stream = self.free.pop()?;
        self.slots[stream as usize] = Some(slot);
        Some(stream)
    }

    /// Removes and returns the requests in flight.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = SentRequest> + '_ {
        self.slots.iter_mut().filter_map(Option::take)
    }

    /// Writes the output buffer. Returns true if all of it was written.
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

    /// Reads once. The poller is level-triggered, so that unread bytes are reported again.
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

    /// Calls `each` with every complete answer in the buffer and the request it belongs to.
    pub(crate) fn answers(&mut self, mut each: impl FnMut(SentRequest, Reply)) -> Result<(), Broken> {
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
                            "got an answer on stream {} without a request",
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
