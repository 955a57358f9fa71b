//! One connection that rows are written over: requests in flight up to a window, and what the server refuses for now sent again.
//!
//! Sending and reading take turns on one thread. Neither may block while the other could go on, or both ends would wait for each other
//! with full buffers; so the socket does not block, and the thread sleeps until either is possible.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::{
    Batch, BatchBuf, BatchEntry, BatchKind, BatchParams, Consistency, Direction, Encoder, Execute,
    HEADER_BYTES, QueryParams, Request, Statement, Value, ValuesBuf, Version,
};

use super::{Cell, Decimals};
use crate::LoadError;
use crate::reply::{self, Reply};

/// Bytes collected before they are sent: a few hundred rows.
const SEND_BYTES: usize = 64 << 10;
/// Rows in one batch, at most. Servers warn of large batches; the lines of an order are seven.
const BATCH_ROWS_MAX: usize = 16;
/// How long a server may say nothing while it owes answers.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Refusals of the same request before it counts as failed; at [`PAUSE`] apart, that is a minute.
const TRIES_MAX: u32 = 600;
/// The pause after a refusal.
const PAUSE: Duration = Duration::from_millis(100);
/// Codes of what may succeed a moment later: overloaded, still starting, write timeout, rate limit.
const FOR_NOW: [i32; 4] = [0x1001, 0x1002, 0x1100, 0xF000];

/// A request on its way: its frame, kept to be sent again.
#[derive(Default)]
struct Slot {
    frame: Vec<u8>,
    rows: u64,
    table: usize,
    tries: u32,
}

/// A prepared INSERT of a table.
#[derive(Clone, Debug)]
pub(crate) struct Insert {
    pub(crate) table: usize,
    pub(crate) id: Vec<u8>,
    /// The first columns that make rows of one batch.
    pub(crate) together: usize,
    pub(crate) decimals: Decimals,
    pub(crate) consistency: Consistency,
}

/// What has become of rows, to be added up by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) refused: u64,
}

/// A connection that rows go over.
pub(crate) struct Writer {
    stream: TcpStream,
    address: String,
    encoder: Encoder,
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    filled: usize,
    slots: Vec<Slot>,
    free: Vec<u16>,
    again: Vec<u16>,
    /// Rows of one partition collected for a batch, and the key they share.
    batch: BatchBuf,
    batched: u64,
    key: Vec<u8>,
    values: ValuesBuf,
    scratch: Vec<u8>,
    /// Rows answered since they were last asked for, by table.
    progress: Vec<Progress>,
}

impl Writer {
    /// Takes over a stream that is logged in, for `window` requests in flight and `tables` tables.
    pub(crate) fn new(
        stream: TcpStream,
        address: String,
        window: usize,
        tables: usize,
    ) -> Result<Writer, LoadError> {
        stream.set_nonblocking(true).map_err(|error| LoadError::System(error.to_string()))?;
        Ok(Writer {
            stream,
            address,
            encoder: Encoder::new(Direction::Request, Version::V4),
            output: Vec::with_capacity(2 * SEND_BYTES),
            sent: 0,
            input: vec![0; SEND_BYTES],
            filled: 0,
            slots: (0..window).map(|_| Slot::default()).collect(),
            free: (0..window as u16).rev().collect(),
            again: Vec::new(),
            batch: BatchBuf::new(),
            batched: 0,
            key: Vec::new(),
            values: ValuesBuf::new(),
            scratch: Vec::new(),
            progress: vec![Progress::default(); tables],
        })
    }

    /// Sends a row, or keeps it for a batch with the next.
    ///
    /// # Errors
    /// When the connection is lost, the server falls silent, or it refuses a row for good.
    pub(crate) fn row(&mut self, insert: &Insert, row: &[Cell<'_>]) -> Result<(), LoadError> {
        self.values.clear();
        let mut key_bytes = 0;
        self.scratch.clear();
        for (index, cell) in row.iter().enumerate() {
            let at = self.scratch.len();
            cell.encode(insert.decimals, &mut self.scratch);
            // The value without its length, which the codec writes.
            self.values.push(Value::Bytes(&self.scratch[at + 4..])).map_err(unsendable)?;
            if index < insert.together {
                key_bytes = self.scratch.len();
            }
        }
        if insert.together == 0 {
            return self.execute(insert);
        }
        let ends = self.key != self.scratch[..key_bytes] || self.batched as usize >= BATCH_ROWS_MAX;
        if self.batched > 0 && ends {
            self.send_batch(insert)?;
        }
        self.key.clear();
        self.key.extend_from_slice(&self.scratch[..key_bytes]);
        let statement = Statement::Prepared(&insert.id);
        self.batch.push(BatchEntry { statement, values: self.values.values() }).map_err(unsendable)?;
        self.batched += 1;
        Ok(())
    }

    /// Sends what was kept for a batch; to be called behind the last row of a table's piece.
    pub(crate) fn end_piece(&mut self, insert: &Insert) -> Result<(), LoadError> {
        if self.batched > 0 { self.send_batch(insert) } else { Ok(()) }
    }

    /// Waits until all has been answered.
    pub(crate) fn finish(&mut self) -> Result<(), LoadError> {
        while self.free.len() < self.slots.len() {
            self.turn(true)?;
        }
        Ok(())
    }

    /// Rows answered since this was last asked, by table.
    pub(crate) fn take_progress(&mut self) -> impl Iterator<Item = (usize, Progress)> + '_ {
        self.progress.iter_mut().map(std::mem::take).enumerate()
    }

    fn execute(&mut self, insert: &Insert) -> Result<(), LoadError> {
        let stream = self.free_stream()?;
        let params = QueryParams {
            consistency: insert.consistency,
            values: self.values.values(),
            skip_metadata: true,
            ..Default::default()
        };
        let execute = Execute { id: &insert.id, result_metadata_id: &[], params };
        self.encoder.request(stream as i16, &Request::Execute(execute)).map_err(unsendable)?;
        self.submit(stream, insert.table, 1)
    }

    fn send_batch(&mut self, insert: &Insert) -> Result<(), LoadError> {
        let stream = self.free_stream()?;
        let params = BatchParams { consistency: insert.consistency, ..Default::default() };
        let batch = Batch::new(BatchKind::Unlogged, &self.batch, params);
        self.encoder.request(stream as i16, &Request::Batch(batch)).map_err(unsendable)?;
        let rows = std::mem::take(&mut self.batched);
        self.batch.clear();
        self.submit(stream, insert.table, rows)
    }

    fn submit(&mut self, stream: u16, table: usize, rows: u64) -> Result<(), LoadError> {
        let encoded = self.encoder.finish();
        let slot = &mut self.slots[stream as usize];
        slot.frame.clear();
        slot.frame.extend_from_slice(encoded);
        encoded.clear();
        (slot.rows, slot.table, slot.tries) = (rows, table, 0);
        self.output.extend_from_slice(&slot.frame);
        while self.output.len() - self.sent >= SEND_BYTES {
            self.turn(false)?;
        }
        Ok(())
    }

    fn free_stream(&mut self) -> Result<u16, LoadError> {
        loop {
            match self.free.pop() {
                Some(stream) => return Ok(stream),
                None => self.turn(true)?,
            }
        }
    }

    /// Sends and reads what can be; sleeps before when nothing can be sent, or when `wait` says that answers are wanted.
    fn turn(&mut self, wait: bool) -> Result<(), LoadError> {
        if !self.again.is_empty() {
            std::thread::sleep(PAUSE);
            for stream in std::mem::take(&mut self.again) {
                self.output.extend_from_slice(&self.slots[stream as usize].frame);
            }
        }
        let unsent = self.send()?;
        if wait || unsent {
            self.sleep(unsent)?;
        }
        self.receive()
    }

    /// Says whether something is left to be sent.
    fn send(&mut self) -> Result<bool, LoadError> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(self.lost("it closed the connection")),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error.to_string())),
            }
        }
        self.output.drain(..self.sent);
        self.sent = 0;
        Ok(!self.output.is_empty())
    }

    fn sleep(&self, unsent: bool) -> Result<(), LoadError> {
        let wanted = if unsent { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let timeout = Timespec { tv_sec: SILENCE_MAX.as_secs() as i64, tv_nsec: 0 };
        let asleep = Instant::now();
        loop {
            match poll(&mut [PollFd::new(&self.stream, wanted)], Some(&timeout)) {
                Ok(0) => return Err(self.lost("it does not answer")),
                Ok(_) => return Ok(()),
                // A signal: whoever asked for the end is noticed between rows.
                Err(rustix::io::Errno::INTR) if asleep.elapsed() < SILENCE_MAX => {}
                Err(error) => return Err(self.lost(&error.to_string())),
            }
        }
    }

    fn receive(&mut self) -> Result<(), LoadError> {
        loop {
            if self.filled == self.input.len() {
                self.input.resize(2 * self.filled, 0);
            }
            match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(self.lost("it closed the connection")),
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.lost(&error.to_string())),
            }
            self.answers()?;
        }
    }

    fn answers(&mut self) -> Result<(), LoadError> {
        let malformed = |error: wire::Error, address: &str| LoadError::Protocol {
            address: address.to_string(),
            reason: error.to_string(),
        };
        let mut at = 0;
        while let Some(header) =
            reply::header(&self.input[at..self.filled]).map_err(|error| malformed(error, &self.address))?
        {
            let end = at + HEADER_BYTES + header.length;
            if end > self.filled {
                break;
            }
            let body = &self.input[at + HEADER_BYTES..end];
            let found = reply::read(&header, body).map_err(|error| malformed(error, &self.address))?;
            at = end;
            // Events have streams below zero.
            if header.stream >= 0 {
                self.answer(header.stream as u16, found)?;
            }
        }
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }

    fn answer(&mut self, stream: u16, found: Reply) -> Result<(), LoadError> {
        let Some(slot) = self.slots.get_mut(stream as usize) else { return Ok(()) };
        let progress = &mut self.progress[slot.table];
        match found {
            Reply::Done { .. } => {
                progress.rows += slot.rows;
                progress.bytes += slot.frame.len() as u64;
                self.free.push(stream);
                Ok(())
            }
            Reply::Failed { code, .. } if FOR_NOW.contains(&code) && slot.tries < TRIES_MAX => {
                slot.tries += 1;
                progress.refused += 1;
                self.again.push(stream);
                Ok(())
            }
            Reply::Failed { code, message } => {
                Err(LoadError::Statement { statement: "INSERT".into(), code, reason: message })
            }
            Reply::Unprepared | Reply::Prepared => Err(LoadError::Protocol {
                address: self.address.clone(),
                reason: "it no longer knows a statement it has prepared; was it restarted?".into(),
            }),
        }
    }

    fn lost(&self, reason: &str) -> LoadError {
        LoadError::Connect { address: self.address.clone(), reason: reason.to_string() }
    }
}

fn unsendable(error: wire::Error) -> LoadError {
    LoadError::Usage(error.to_string())
}
