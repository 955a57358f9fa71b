//! A connection that writes rows, with a bounded number of requests in flight. Temporarily rejected
//! requests are sent again.
//!
//! One thread both sends and reads. If either blocked, client and server could wait for each other
//! with full buffers. So the socket is non-blocking, and the thread sleeps until it can do either.

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

/// Bytes collected before they are sent, a few hundred rows.
const SEND_BYTES: usize = 64 << 10;
/// Most rows in one batch. Servers warn about large batches. An order has at most seven lines.
const BATCH_ROWS_MAX: usize = 16;
/// Longest time without an answer while requests are in flight.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Rejections of a request before it counts as failed. At [`PAUSE`] each, 600 take a minute.
const TRIES_MAX: u32 = 600;
/// Pause after a rejection.
const PAUSE: Duration = Duration::from_millis(100);
/// Codes of temporary errors: overloaded, still starting, write timeout, rate limit.
const RETRYABLE: [i32; 4] = [0x1001, 0x1002, 0x1100, 0xF000];

/// A request in flight. Its frame is kept to be sent again.
#[derive(Default)]
struct SentInsert {
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
    /// Number of leading columns whose equality puts rows into one batch.
    pub(crate) batch_columns: usize,
    pub(crate) decimals: Decimals,
    pub(crate) consistency: Consistency,
}

/// Counts of answered requests, to be summed by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenCounts {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) refused: u64,
}

/// A connection that writes rows.
pub(crate) struct Writer {
    stream: TcpStream,
    address: String,
    encoder: Encoder,
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    filled: usize,
    slots: Vec<SentInsert>,
    free: Vec<u16>,
    /// Streams of rejected requests.
    retries: Vec<u16>,
    /// Rows of one partition collected for a batch, and their common key.
    batch: BatchBuf,
    batched: u64,
    key: Vec<u8>,
    values: ValuesBuf,
    scratch: Vec<u8>,
    /// Counts by table since the last [`Writer::take_progress`].
    progress: Vec<WrittenCounts>,
}

impl Writer {
    /// Takes over a logged-in stream, for `in_flight_max` requests in flight and `tables` tables.
    pub(crate) fn new(
        stream: TcpStream,
        address: String,
        in_flight_max: usize,
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
            slots: (0..in_flight_max).map(|_| SentInsert::default()).collect(),
            free: (0..in_flight_max as u16).rev().collect(),
            retries: Vec::new(),
            batch: BatchBuf::new(),
            batched: 0,
            key: Vec::new(),
            values: ValuesBuf::new(),
            scratch: Vec::new(),
            progress: vec![WrittenCounts::default(); tables],
        })
    }

    /// Sends a row, or collects it for a batch with the next rows.
    ///
    /// # Errors
    /// Fails on a lost connection, a server without answers, or a row rejected permanently.
    pub(crate) fn row(&mut self, insert: &Insert, row: &[Cell<'_>]) -> Result<(), LoadError> {
        self.values.clear();
        let mut key_bytes = 0;
        self.scratch.clear();
        for (index, cell) in row.iter().enumerate() {
            let at = self.scratch.len();
            cell.encode(insert.decimals, &mut self.scratch);
            // The codec writes the length, so skip its four bytes.
            self.values.push(Value::Bytes(&self.scratch[at + 4..])).map_err(unsendable)?;
            if index < insert.batch_columns {
                key_bytes = self.scratch.len();
            }
        }
        if insert.batch_columns == 0 {
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

    /// Sends the collected batch. Call it after the last row of a chunk.
    pub(crate) fn end_chunk(&mut self, insert: &Insert) -> Result<(), LoadError> {
        if self.batched > 0 { self.send_batch(insert) } else { Ok(()) }
    }

    /// Waits for all answers.
    pub(crate) fn finish(&mut self) -> Result<(), LoadError> {
        while self.free.len() < self.slots.len() {
            self.exchange(true)?;
        }
        Ok(())
    }

    /// Returns the counts since the last call, by table.
    pub(crate) fn take_progress(&mut self) -> impl Iterator<Item = (usize, WrittenCounts)> + '_ {
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
            self.exchange(false)?;
        }
        Ok(())
    }

    fn free_stream(&mut self) -> Result<u16, LoadError> {
        loop {
            match self.free.pop() {
                Some(stream) => return Ok(stream),
                None => self.exchange(true)?,
            }
        }
    }

    /// Sends and reads as much as possible. Sleeps first if the socket is full, or if `wait` is
    /// set.
    fn exchange(&mut self, wait: bool) -> Result<(), LoadError> {
        if !self.retries.is_empty() {
            std::thread::sleep(PAUSE);
            for stream in std::mem::take(&mut self.retries) {
                self.output.extend_from_slice(&self.slots[stream as usize].frame);
            }
        }
        let unsent = self.send()?;
        if wait || unsent {
            self.sleep(unsent)?;
        }
        self.receive()
    }

    /// Sends the output. Returns true if some of it is left.
    fn send(&mut self) -> Result<bool, LoadError> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(self.lost("the server closed the connection")),
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
                Ok(0) => return Err(self.lost("no answer in time")),
                Ok(_) => return Ok(()),
                // A signal. The stop flag is checked between rows.
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
                Ok(0) => return Err(self.lost("the server closed the connection")),
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
            // Events have negative streams.
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
            Reply::Failed { code, .. } if RETRYABLE.contains(&code) && slot.tries < TRIES_MAX => {
                slot.tries += 1;
                progress.refused += 1;
                self.retries.push(stream);
                Ok(())
            }
            Reply::Failed { code, message } => {
                Err(LoadError::Statement { statement: "INSERT".into(), code, reason: message })
            }
            Reply::Unprepared | Reply::Prepared => Err(LoadError::Protocol {
                address: self.address.clone(),
                reason: "the server no longer knows a prepared statement; check whether it restarted".into(),
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
