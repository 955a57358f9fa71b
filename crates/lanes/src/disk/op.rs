//! One request to the disk: what it is, what it costs, and doing it in a blocking way (the pool's part).

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use sched::Kind;

use super::handle::Handle;
use super::{AlignedBuf, BLOCK};

/// Memory a request reads into or writes from; owned by the request until it is over.
#[derive(Debug)]
pub(crate) enum Buffer {
    /// Nothing to move.
    None,
    /// Read into.
    Bytes(Vec<u8>),
    /// Read into or written from, for direct I/O.
    Aligned(AlignedBuf),
    /// Written from.
    Shared(Bytes),
}

impl Buffer {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Buffer::None => &[],
            Buffer::Bytes(bytes) => bytes,
            Buffer::Aligned(buffer) => buffer,
            Buffer::Shared(bytes) => bytes,
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            Buffer::None | Buffer::Shared(_) => &mut [],
            Buffer::Bytes(bytes) => bytes,
            Buffer::Aligned(buffer) => buffer,
        }
    }
}

/// Whatever has no ring operation here: opens, renames, lists. Its result travels inside the closure.
pub(crate) type Blocking = Box<dyn FnOnce() + Send>;

/// What to do.
pub(crate) enum Action {
    /// Fill the buffer, from `done` on, until it is full or the file ends.
    Read,
    /// Write the buffer, from `done` on.
    Write,
    /// Make data (and, if `all`, everything else) durable.
    Sync {
        /// Not only the data.
        all: bool,
    },
    /// Anything else.
    Blocking(Option<Blocking>),
}

/// A request.
pub(crate) struct Op {
    pub(crate) action: Action,
    /// None for `Blocking` only.
    pub(crate) file: Option<Arc<Handle>>,
    pub(crate) offset: u64,
    pub(crate) buffer: Buffer,
    /// Bytes from the start of the buffer that have to be moved; what lies behind them only fills a block.
    pub(crate) wanted: usize,
    /// In whole blocks.
    pub(crate) direct: bool,
    /// Bytes moved so far.
    pub(crate) done: usize,
}

impl Op {
    /// How it counts against the disk.
    pub(crate) fn cost(&self) -> (Kind, u64) {
        let bytes = self.buffer.as_slice().len() as u64;
        match self.action {
            Action::Read => (Kind::Read, bytes),
            Action::Write => (Kind::Write, bytes),
            Action::Sync { .. } | Action::Blocking(_) => (Kind::Write, 0),
        }
    }

    /// Takes in that a step moved so many bytes: whether the request is over.
    pub(crate) fn advance(&mut self, moved: usize) -> bool {
        let before = self.done;
        self.done += moved;
        match self.action {
            Action::Read | Action::Write if self.done >= self.wanted => true,
            // Where a direct file ends, or a step was cut short, there may be no whole block; the next one starts with one. If
            // that brings nothing new, it was the end.
            Action::Read | Action::Write if self.direct && !self.done.is_multiple_of(BLOCK) => {
                let whole = self.done / BLOCK * BLOCK;
                let over = whole <= before;
                if !over {
                    self.done = whole;
                }
                over
            }
            Action::Read | Action::Write => moved == 0,
            Action::Sync { .. } | Action::Blocking(_) => true,
        }
    }

    /// One step, blocking: bytes moved.
    pub(crate) fn step(&mut self) -> io::Result<usize> {
        let at = self.offset + self.done as u64;
        let file = self.file.as_deref().map(std::ops::Deref::deref);
        let of_file = || -> io::Result<&std::fs::File> {
            file.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
        };
        match &mut self.action {
            Action::Read => of_file()?.read_at(&mut self.buffer.as_mut_slice()[self.done..], at),
            Action::Write => of_file()?.write_at(&self.buffer.as_slice()[self.done..], at),
            Action::Sync { all: true } => of_file()?.sync_all().map(|()| 0),
            Action::Sync { all: false } => of_file()?.sync_data().map(|()| 0),
            Action::Blocking(job) => {
                job.take().into_iter().for_each(|job| job());
                Ok(0)
            }
        }
    }

    /// All of it, blocking.
    pub(crate) fn perform(&mut self) -> io::Result<()> {
        loop {
            match self.step() {
                Ok(moved) if self.advance(moved) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
