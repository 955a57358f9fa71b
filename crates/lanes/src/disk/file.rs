//! A file. What is opened as *direct* goes past the page cache: the kernel then wants memory, offset and length in whole blocks,
//! and gets them whatever the caller asks for.
//!
//! ```text
//!   block      │           │           │           │           │
//!   read_at            [·······wanted·······]                        one request for the whole blocks around it
//!              [▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒]
//!   write_at           [·······given················]
//!                      [░░░][▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒][░]             ▒ direct    ░ through the page cache
//! ```
//!
//! The ends of a write that fill no block go through the page cache, by a second descriptor, rather than being read, changed and
//! written back here, where two writers of one block would undo each other's bytes. The kernel keeps both views of a file the
//! same: before a direct request it writes back what is dirty in that range, and drops it from the cache. So it is right whoever
//! writes what, and fast for those who write whole blocks.
//!
//! A file system that knows no direct I/O says so at the open or at the first request. The file goes through the page cache
//! then, as if nobody had asked for more, and it is reported once.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::handle::Handle;
use super::service::{Failed, submit};
use super::{Action, AlignedBuf, BLOCK, Buffer, Op, blocking, pool};
use crate::sys;

/// An open file. Clones share it; it is closed with the last one.
#[derive(Clone, Debug)]
pub struct File(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Direct, if `direct` says so.
    handle: Arc<Handle>,
    direct: AtomicBool,
    /// Of a direct file that is written to in parts of blocks: the same file, through the page cache.
    cached: OnceLock<Arc<Handle>>,
    dsync: bool,
    /// For reports.
    path: PathBuf,
}

/// How to open a file; reading is always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Also for writing.
    pub write: bool,
    /// Make it if it is not there.
    pub create: bool,
    /// Make it; fail if it is there.
    pub create_new: bool,
    /// Empty it.
    pub truncate: bool,
    /// Past the page cache, where the file system can; where it cannot that is reported, once for the server.
    pub direct: bool,
    /// Each write is durable when it returns.
    pub dsync: bool,
}

/// Opens a file.
///
/// # Errors
/// As the kernel says.
pub async fn open(path: &Path, options: OpenOptions) -> io::Result<File> {
    let (path, pool) = (path.to_owned(), pool());
    let file = blocking(move || {
        let (file, direct) = open_now(&path, options)?;
        Ok(File::new(Handle::new(file, pool), direct, options.dsync, path))
    })
    .await?;
    if options.direct && !file.is_direct() {
        file.report_refusal();
    }
    Ok(file)
}

/// The file, and whether it is direct.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
fn open_now(path: &Path, options: OpenOptions) -> io::Result<(fs::File, bool)> {
    let attempt = |direct: bool| {
        let dsync = if options.dsync { libc::O_DSYNC } else { 0 };
        fs::OpenOptions::new()
            .read(true)
            .write(options.write)
            .create(options.create)
            .create_new(options.create_new)
            .truncate(options.truncate)
            .custom_flags(dsync | if direct { libc::O_DIRECT } else { 0 })
            .open(path)
    };
    match attempt(options.direct) {
        // Some file systems (tmpfs before Linux 6.6, some overlays) know no direct I/O.
        Err(error) if options.direct && is_invalid(&error) => Ok((attempt(false)?, false)),
        opened => Ok((opened?, options.direct)),
    }
}

/// Takes the exclusive lock of a file, held as long as the returned file (and its clones) live; the file is made if it is
/// not there.
///
/// # Errors
/// `WouldBlock` if another process holds it; else as the kernel says.
pub async fn lock_file(path: &Path) -> io::Result<File> {
    let path = path.to_owned();
    blocking(move || {
        let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
        let (file, direct) = open_now(&path, options)?;
        match file.try_lock() {
            Ok(()) => Ok(File::new(Handle::closed_at_once(file), direct, false, path)),
            Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    })
    .await
}

impl File {
    fn new(handle: Handle, direct: bool, dsync: bool, path: PathBuf) -> File {
        let (handle, direct, cached) = (Arc::new(handle), direct.into(), OnceLock::new());
        File(Arc::new(Inner { handle, direct, cached, dsync, path }))
    }

    /// Whether requests go past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.0.direct.load(Relaxed)
    }

    /// Exactly `len` bytes from `offset`, both of them any number; on a direct file whole blocks around them are read, and
    /// what is given back keeps those in memory. For a scan, requests of 128 KiB to 1 MiB are as fast as the disk can.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file is shorter; else as the kernel says.
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        check_range(offset, len)?;
        loop {
            let direct = self.is_direct();
            let (from, skip) =
                if direct { (offset / BLOCK64 * BLOCK64, (offset % BLOCK64) as usize) } else { (offset, 0) };
            let buffer = match direct {
                true => Buffer::Aligned(AlignedBuf::stale(skip + len)),
                false => Buffer::Bytes(vec![0; len]),
            };
            let read = Op { wanted: skip + len, ..self.op(Action::Read, from, buffer, direct) };
            let op = match submit(read).await {
                Err(failed) if direct && is_invalid(&failed.error) => {
                    self.stop_being_direct();
                    continue;
                }
                done => done?,
            };
            if op.done < skip + len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            return match op.buffer {
                Buffer::Bytes(bytes) => Ok(Bytes::from(bytes)),
                Buffer::Aligned(buffer) => Ok(Bytes::from(buffer).slice(skip..skip + len)),
                Buffer::None | Buffer::Shared(_) => unreachable!("the buffer made above comes back"),
            };
        }
    }

    /// Writes all of `data` at `offset`, both of them any. On a direct file, whole blocks that lie aligned in memory (as those of an
    /// [`AlignedBuf`] do) are written from there, and others copied first, by the caller's lane; what fills no block goes
    /// through the page cache.
    ///
    /// # Errors
    /// As the kernel says (`StorageFull` among them).
    pub async fn write_at(&self, offset: u64, data: Bytes) -> io::Result<()> {
        check_range(offset, data.len())?;
        if !self.is_direct() {
            return self.write_shared(&self.0.handle, offset, data).await;
        }
        let [head, blocks, tail] = around_blocks(offset, data.len());
        if !head.is_empty() {
            let at = offset + head.start as u64;
            self.write_shared(&self.cached().await?, at, data.slice(head)).await?;
        }
        if !blocks.is_empty() {
            let (at, data) = (offset + blocks.start as u64, data.slice(blocks));
            let buffer = match data.as_ptr().addr().is_multiple_of(BLOCK) {
                true => Buffer::Shared(data),
                false => Buffer::Aligned(AlignedBuf::copy_of(&data)),
            };
            self.write_blocks(at, buffer).await?;
        }
        if !tail.is_empty() {
            let at = offset + tail.start as u64;
            self.write_shared(&self.cached().await?, at, data.slice(tail)).await?;
        }
        Ok(())
    }

    /// Writes a buffer in whole blocks and hands it back, to be used again: the way to write much, without a copy.
    ///
    /// # Errors
    /// `InvalidInput` if `offset` is no multiple of [`BLOCK`]; else as the kernel says (`StorageFull` among them). The buffer is
    /// gone then.
    pub async fn write_aligned(&self, offset: u64, buffer: AlignedBuf) -> io::Result<AlignedBuf> {
        check_range(offset, buffer.len())?;
        if !offset.is_multiple_of(BLOCK64) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an offset in whole blocks is wanted"));
        }
        match self.write_blocks(offset, Buffer::Aligned(buffer)).await? {
            Buffer::Aligned(buffer) => Ok(buffer),
            Buffer::None | Buffer::Bytes(_) | Buffer::Shared(_) => unreachable!("the same buffer comes back"),
        }
    }

    async fn write_blocks(&self, offset: u64, buffer: Buffer) -> io::Result<Buffer> {
        let direct = self.is_direct();
        let op = match submit(self.op(Action::Write, offset, buffer, direct)).await {
            Err(Failed { error, op: Some(op) }) if direct && is_invalid(&error) => {
                self.stop_being_direct();
                submit(self.op(Action::Write, offset, op.buffer, false)).await?
            }
            done => done?,
        };
        written(op)
    }

    async fn write_shared(&self, handle: &Arc<Handle>, offset: u64, data: Bytes) -> io::Result<()> {
        let op = self.op(Action::Write, offset, Buffer::Shared(data), false);
        written(submit(Op { file: Some(handle.clone()), ..op }).await?).map(drop)
    }

    /// The descriptor that goes through the page cache.
    async fn cached(&self) -> io::Result<Arc<Handle>> {
        if !self.is_direct() {
            return Ok(self.0.handle.clone());
        }
        if let Some(cached) = self.0.cached.get() {
            return Ok(cached.clone());
        }
        let (file, pool) = (self.clone(), pool());
        blocking(move || {
            // By descriptor: the file may have another name by now, or none.
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&*file.0.handle));
            let options = OpenOptions { write: true, dsync: file.0.dsync, ..OpenOptions::default() };
            let (again, _) = open_now(Path::new(&path), options)?;
            Ok(file.0.cached.get_or_init(|| Arc::new(Handle::new(again, pool))).clone())
        })
        .await
    }

    /// The file system refuses direct requests, although it let the file be opened so.
    fn stop_being_direct(&self) {
        if sys::clear_direct(&self.0.handle).is_ok() && self.0.direct.swap(false, Relaxed) {
            self.report_refusal();
        }
    }

    fn report_refusal(&self) {
        crate::handle().direct_refused(&self.0.path);
    }

    /// Makes what was written durable, without what only tells when.
    ///
    /// # Errors
    /// As the kernel says; what was written before may then be lost, whatever a second try says.
    pub async fn sync_data(&self) -> io::Result<()> {
        let op = self.op(Action::Sync { all: false }, 0, Buffer::None, false);
        Ok(submit(op).await.map(drop)?)
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub async fn sync_all(&self) -> io::Result<()> {
        let op = self.op(Action::Sync { all: true }, 0, Buffer::None, false);
        Ok(submit(op).await.map(drop)?)
    }

    /// Bytes in the file.
    ///
    /// # Errors
    /// As the kernel says.
    pub async fn len(&self) -> io::Result<u64> {
        let file = self.0.handle.clone();
        blocking(move || file.metadata().map(|found| found.len())).await
    }

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As the kernel says.
    pub async fn is_empty(&self) -> io::Result<bool> {
        self.len().await.map(|len| len == 0)
    }

    /// Makes the file `len` bytes of durable zeros, so that overwriting them needs no more metadata. What it held is lost.
    ///
    /// # Errors
    /// As the kernel says (`StorageFull` among them).
    pub async fn allocate(&self, len: u64) -> io::Result<()> {
        let file = self.0.handle.clone();
        blocking(move || allocate_now(&file, len)).await
    }

    /// Sets the length.
    ///
    /// # Errors
    /// As the kernel says.
    pub async fn truncate(&self, len: u64) -> io::Result<()> {
        let file = self.0.handle.clone();
        blocking(move || file.set_len(len)).await
    }

    fn op(&self, action: Action, offset: u64, buffer: Buffer, direct: bool) -> Op {
        let wanted = buffer.as_slice().len();
        Op { action, file: Some(self.0.handle.clone()), offset, buffer, wanted, direct, done: 0 }
    }
}

const BLOCK64: u64 = BLOCK as u64;

/// Positions the kernel does not know are the caller's fault, and not to be taken for a file system that refuses direct I/O.
fn check_range(offset: u64, len: usize) -> io::Result<()> {
    let end = offset.checked_add(len as u64).and_then(|end| end.checked_next_multiple_of(BLOCK64));
    match end.filter(|&end| i64::try_from(end).is_ok()) {
        Some(_) => Ok(()),
        None => Err(io::Error::new(io::ErrorKind::InvalidInput, "beyond the end of any file")),
    }
}

fn is_invalid(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

/// What comes before the first whole block, whole blocks, and what comes after the last one.
fn around_blocks(offset: u64, len: usize) -> [std::ops::Range<usize>; 3] {
    let to_block = (offset.next_multiple_of(BLOCK64) - offset) as usize;
    if to_block >= len {
        return [0..len, len..len, len..len];
    }
    let end = to_block + (len - to_block) / BLOCK * BLOCK;
    [0..to_block, to_block..end, end..len]
}

fn written(op: Op) -> io::Result<Buffer> {
    if op.done < op.wanted { Err(io::ErrorKind::WriteZero.into()) } else { Ok(op.buffer) }
}

/// Space, then zeros through it: allocated but unwritten space would cost a metadata update at each first write.
fn allocate_now(file: &fs::File, len: u64) -> io::Result<()> {
    sys::allocate(file, len)?;
    file.set_len(len)?;
    let zeros = AlignedBuf::new(1 << 20);
    let mut at = 0;
    while at < len {
        let step = (len - at).min(zeros.len() as u64);
        // A direct file takes whole blocks only; what is too long is cut off again below.
        let step_whole = step.next_multiple_of(BLOCK64) as usize;
        file.write_all_at(&zeros[..step_whole], at)?;
        at += step;
    }
    file.set_len(len)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_cut_at_the_first_and_last_whole_block() {
        let cases = [
            ((0, 0), [0, 0, 0]),
            ((0, 1), [0, 0, 1]),
            ((0, 4096), [0, 4096, 0]),
            ((1, 4095), [4095, 0, 0]),
            ((1, 4096), [4095, 0, 1]),
            ((4095, 8194), [1, 8192, 1]),
            ((10, 100), [100, 0, 0]),
            ((8192, 8195), [0, 8192, 3]),
        ];
        for ((offset, len), expected) in cases {
            let parts = around_blocks(offset, len);
            assert_eq!(parts.clone().map(|part| part.len()), expected, "{len} at {offset}");
            assert!(parts[0].end == parts[1].start && parts[1].end == parts[2].start);
        }
    }

    #[test]
    fn positions_beyond_any_file_are_refused() {
        assert!(check_range(u64::MAX, 1).is_err() && check_range(i64::MAX as u64, 0).is_err());
        assert!(check_range(i64::MAX as u64 - 8192, 4096).is_ok());
    }
}
