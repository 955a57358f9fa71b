//! Request to the disk: its kind, its cost, and its blocking execution, which the pool uses.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use sched::DiskDirection;

use crate::disk::io::buffer::{AlignedBuf, BLOCK};
use crate::disk::io::handle::Handle;

/// Memory that a request reads into or writes from. The request owns it until it ends.
#[derive(Debug)]
pub(crate) enum Buffer {
    /// No data.
    None,
    /// Memory to read into.
    Bytes(Vec<u8>),
    /// Memory to read into or write from, for direct I/O.
    Aligned(AlignedBuf),
    /// Memory to write from.
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

/// Operation without a ring opcode here: open, rename, list. Its result travels inside the closure.
pub(crate) type Blocking = Box<dyn FnOnce() + Send>;

/// Action of a request.
pub(crate) enum Action {
    /// Fill the buffer from `done` on, until it is full or the file ends.
    Read,
    /// Write the buffer from `done` on.
    Write,
    /// Make data (and, if `all`, everything else) durable.
    Sync {
        /// True for metadata as well.
        all: bool,
    },
    /// Any other operation.
    Blocking(Option<Blocking>),
}

/// Request to the disk.
pub(crate) struct Op {
    pub(crate) action: Action,
    /// `None` only for `Blocking`.
    pub(crate) file: Option<Arc<Handle>>,
    pub(crate) offset: u64,
    pub(crate) buffer: Buffer,
    /// Bytes from the start of the buffer that have to be moved. The bytes after them only fill a
    /// block.
    pub(crate) wanted: usize,
    /// True if it moves whole blocks only.
    pub(crate) direct: bool,
    /// Bytes moved so far.
    pub(crate) done: usize,
}

impl Op {
    /// Returns the kind and the bytes that it is charged.
    pub(crate) fn cost(&self) -> (DiskDirection, u64) {
        let bytes = self.buffer.as_slice().len() as u64;
        match self.action {
            Action::Read => (DiskDirection::Read, bytes),
            Action::Write => (DiskDirection::Write, bytes),
            Action::Sync { .. } | Action::Blocking(_) => (DiskDirection::Write, 0),
        }
    }

    /// Records that a step moved `moved` bytes. Returns true if the request is complete.
    pub(crate) fn advance(&mut self, moved: usize) -> bool {
        let before = self.done;
        self.done += moved;
        match self.action {
            Action::Read | Action::Write if self.done >= self.wanted => true,
            // At the end of a direct file, or after a short step, the last block may be incomplete.
            // The next step starts at a whole block. If it brings nothing new, the file has ended.
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

    /// Runs one step, blocking. Returns the bytes moved.
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

    /// Runs the whole request, blocking.
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

/// Request that the pool has completed.
pub(crate) struct Finished {
    pub(crate) token: usize,
    pub(crate) op: Op,
    pub(crate) result: io::Result<()>,
    pub(crate) cpu_ns: u64,
}
