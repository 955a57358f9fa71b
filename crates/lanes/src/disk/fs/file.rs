//! File. A file opened as *direct* bypasses the page cache. The kernel then requires memory, offset
//! and length in whole blocks. The caller may pass any range:
//!
//! ```text
//!   block      │           │           │           │           │
//!   read_at            [·······wanted·······]                        one request for the whole blocks around it
//!              [▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒]
//!   write_at           [·······given················]
//!                      [░░░][▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒][░]             ▒ direct    ░ through the page cache
//! ```
//!
//! The ends of a write that fill no block go through the page cache, by a second descriptor.
//! Reading, changing and writing them back here would let two writers of one block undo each
//! other's bytes. The kernel keeps both views of a file the same: before a direct request it writes
//! back dirty pages of that range and drops them from the cache. So any mix of writes is correct,
//! and writes of whole blocks are fast.
//!
//! Requests longer than 128 KiB are cut into chunks of that length. Each chunk waits for its own
//! turn, and all are in flight together.
//!
//! A file system without direct I/O rejects it at the open or at the first request. The file then
//! uses the page cache, and this is reported once.

use std::fs;
use std::future::{Future, poll_fn};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use bytes::Bytes;

use crate::disk::fs::submit::{Failed, submit};
use crate::disk::fs::{FILE_MODE, blocking, closer, opening};
use crate::disk::io::buffer::{AlignedBuf, BLOCK};
use crate::disk::io::handle::Handle;
use crate::disk::io::op::{Action, Buffer, Op};
use crate::sys;

/// Open file. Clones share it, and the last one closes it.
#[derive(Clone, Debug)]
pub struct File(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Direct, if `direct` is true.
    handle: Arc<Handle>,
    direct: AtomicBool,
    /// Second descriptor of a direct file, through the page cache, for writes of parts of blocks.
    cached: OnceLock<Arc<Handle>>,
    dsync: bool,
    /// Path for reports.
    path: PathBuf,
}

/// Options for opening a file. Reading is always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Allow writing.
    pub write: bool,
    /// Create the file if it does not exist.
    pub create: bool,
    /// Create the file, and fail if it exists.
    pub create_new: bool,
    /// Truncate the file to no bytes.
    pub truncate: bool,
    /// Bypass the page cache, if the file system supports it. If not, that is reported once for the
    /// server.
    pub direct: bool,
    /// Each write is durable when it returns.
    pub dsync: bool,
}

/// Opens a file.
///
/// # Errors
/// Those of the kernel.
pub async fn open(path: &Path, options: OpenOptions) -> io::Result<File> {
    let (path, closer) = (path.to_owned(), closer());
    let file = opening(move || {
        let (file, direct) = open_now(&path, options)?;
        Ok(File::new(Handle::new(file, closer.clone()), direct, options.dsync, path.clone()))
    })
    .await?;
    if options.direct && !file.is_direct() {
        file.report_refusal();
    }
    Ok(file)
}

/// Opens a file. Returns it, and true if it is direct.
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
            .mode(FILE_MODE)
            .custom_flags(dsync | if direct { libc::O_DIRECT } else { 0 })
            .open(path)
    };
    match attempt(options.direct) {
        // Some file systems (tmpfs before Linux 6.6, some overlays) have no direct I/O.
        Err(error) if options.direct && is_invalid(&error) => Ok((attempt(false)?, false)),
        opened => Ok((opened?, options.direct)),
    }
}

/// Takes the exclusive lock of a file, held as long as the returned file and its clones live.
/// Creates the file if it does not exist.
///
/// # Errors
/// `WouldBlock` if another process holds the lock; else those of the kernel.
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
        File(Arc::new(Inner {
            handle: Arc::new(handle),
            direct: direct.into(),
            cached: OnceLock::new(),
            dsync,
            path,
        }))
    }

    /// Returns true if requests bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.0.direct.load(Relaxed)
    }

    /// Reads exactly `len` bytes from `offset`, both of any value. On a direct file the whole
    /// blocks around them are read, and the result keeps those in memory. A scan gets the full
    /// speed of the disk with a megabyte at a time and the next one requested meanwhile.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file is shorter; else those of the kernel.
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        check_range(offset, len)?;
        let direct = self.is_direct();
        if !direct && len <= CHUNK_BYTES {
            let buffer = Buffer::Bytes(vec![0; len]);
            return match self.read_chunk(offset, buffer, len).await? {
                Buffer::Bytes(bytes) => Ok(Bytes::from(bytes)),
                Buffer::None | Buffer::Aligned(_) | Buffer::Shared(_) => {
                    unreachable!("the same buffer comes back")
                }
            };
        }
        let skip = if direct { (offset % BLOCK64) as usize } else { 0 };
        let chunks = AlignedBuf::stale(skip + len).cut(CHUNK_BYTES);
        let read = |(at, chunk)| {
            let at = at * CHUNK_BYTES;
            self.read_chunk(offset - skip as u64 + at as u64, Buffer::Aligned(chunk), skip + len - at)
        };
        let chunks = all(chunks.into_iter().enumerate().map(read)).await?;
        Ok(Bytes::from(joined(chunks)).slice(skip..skip + len))
    }

    /// Fills the first `wanted` bytes of a buffer.
    async fn read_chunk(&self, offset: u64, buffer: Buffer, wanted: usize) -> io::Result<Buffer> {
        let op = self.op(Action::Read, offset, buffer);
        let wanted = wanted.min(op.wanted);
        let op = self.submit(Op { wanted, ..op }).await?;
        if op.done < wanted { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(op.buffer) }
    }

    /// Writes all of `data` at `offset`, both of any length. On a direct file, whole blocks that
    /// are aligned in memory (as those of an [`AlignedBuf`] are) are written without a copy. Others
    /// are copied first, by the caller's lane. Parts of blocks go through the page cache.
    ///
    /// # Errors
    /// Those of the kernel (`StorageFull` among them).
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
            match data.as_ptr().addr().is_multiple_of(BLOCK) {
                true => self.write_shared(&self.0.handle, at, data).await?,
                false => drop(self.write_blocks(at, AlignedBuf::copy_of(&data)).await?),
            }
        }
        if !tail.is_empty() {
            let at = offset + tail.start as u64;
            self.write_shared(&self.cached().await?, at, data.slice(tail)).await?;
        }
        Ok(())
    }

    /// Writes a buffer in whole blocks and returns it for reuse. This writes large amounts without
    /// a copy.
    ///
    /// # Errors
    /// `InvalidInput` if `offset` is not a multiple of [`BLOCK`]; else those of the kernel
    /// (`StorageFull` among them). The buffer is lost then.
    pub async fn write_aligned(&self, offset: u64, buffer: AlignedBuf) -> io::Result<AlignedBuf> {
        check_range(offset, buffer.len())?;
        if !offset.is_multiple_of(BLOCK64) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected an offset in whole blocks"));
        }
        self.write_blocks(offset, buffer).await
    }

    async fn write_blocks(&self, offset: u64, buffer: AlignedBuf) -> io::Result<AlignedBuf> {
        let write = |(at, chunk)| {
            let op = self.op(Action::Write, offset + (at * CHUNK_BYTES) as u64, Buffer::Aligned(chunk));
            async { written(self.submit(op).await?) }
        };
        let chunks = all(buffer.cut(CHUNK_BYTES).into_iter().enumerate().map(write)).await?;
        Ok(joined(chunks))
    }

    /// Writes through one of the file's descriptors; the first one may be direct.
    async fn write_shared(&self, handle: &Arc<Handle>, offset: u64, data: Bytes) -> io::Result<()> {
        let direct = self.is_direct() && Arc::ptr_eq(handle, &self.0.handle);
        let write = |at: usize| {
            let chunk = data.slice(at..data.len().min(at + CHUNK_BYTES));
            let op = self.op(Action::Write, offset + at as u64, Buffer::Shared(chunk));
            let op = Op { file: Some(handle.clone()), direct, ..op };
            async { written(self.submit(op).await?) }
        };
        all((0..data.len()).step_by(CHUNK_BYTES).map(write)).await.map(drop)
    }

    /// Submits a request. Retries it without direct I/O if the file system turns out not to support
    /// it.
    async fn submit(&self, op: Op) -> io::Result<Op> {
        match submit(op).await {
            Err(Failed { error, op: Some(op) }) if op.direct && is_invalid(&error) => {
                self.stop_being_direct();
                Ok(submit(Op { direct: false, done: 0, ..op }).await?)
            }
            done => Ok(done?),
        }
    }

    /// Returns the descriptor that goes through the page cache.
    async fn cached(&self) -> io::Result<Arc<Handle>> {
        if !self.is_direct() {
            return Ok(self.0.handle.clone());
        }
        if let Some(cached) = self.0.cached.get() {
            return Ok(cached.clone());
        }
        let (file, closer) = (self.clone(), closer());
        opening(move || {
            // Open by descriptor: the file may have another name by now, or none.
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&*file.0.handle));
            let options = OpenOptions { write: true, dsync: file.0.dsync, ..OpenOptions::default() };
            let (again, _) = open_now(Path::new(&path), options)?;
            Ok(file.0.cached.get_or_init(|| Arc::new(Handle::new(again, closer.clone()))).clone())
        })
        .await
    }

    /// Switches direct I/O off: the file system rejects direct requests, although it allowed the
    /// open.
    fn stop_being_direct(&self) {
        if sys::clear_direct(&self.0.handle).is_ok() && self.0.direct.swap(false, Relaxed) {
            self.report_refusal();
        }
    }

    fn report_refusal(&self) {
        crate::handle().direct_refused(&self.0.path);
    }

    /// Makes written data durable, without timestamps.
    ///
    /// # Errors
    /// Those of the kernel. Earlier writes may then be lost, even if a second call succeeds.
    pub async fn sync_data(&self) -> io::Result<()> {
        let op = self.op(Action::Sync { all: false }, 0, Buffer::None);
        Ok(submit(op).await.map(drop)?)
    }

    /// Makes data and metadata durable.
    ///
    /// # Errors
    /// Those of [`File::sync_data`].
    pub async fn sync_all(&self) -> io::Result<()> {
        let op = self.op(Action::Sync { all: true }, 0, Buffer::None);
        Ok(submit(op).await.map(drop)?)
    }

    /// Returns the length of the file, bytes.
    ///
    /// # Errors
    /// Those of the kernel.
    pub async fn len(&self) -> io::Result<u64> {
        let file = self.0.handle.clone();
        blocking(move || file.metadata().map(|found| found.len())).await
    }

    /// Returns true if the file has no bytes.
    ///
    /// # Errors
    /// Those of the kernel.
    pub async fn is_empty(&self) -> io::Result<bool> {
        self.len().await.map(|len| len == 0)
    }

    /// Makes the file `len` bytes of durable zeros, so that overwriting them changes no metadata.
    /// Its previous contents are lost.
    ///
    /// # Errors
    /// Those of the kernel (`StorageFull` among them).
    pub async fn allocate(&self, len: u64) -> io::Result<()> {
        let file = self.0.handle.clone();
        blocking(move || allocate_now(&file, len)).await
    }

    /// Sets the length.
    ///
    /// # Errors
    /// Those of the kernel.
    pub async fn truncate(&self, len: u64) -> io::Result<()> {
        let file = self.0.handle.clone();
        blocking(move || file.set_len(len)).await
    }

    fn op(&self, action: Action, offset: u64, buffer: Buffer) -> Op {
        let (wanted, direct) = (buffer.as_slice().len(), self.is_direct());
        Op { action, file: Some(self.0.handle.clone()), offset, buffer, wanted, direct, done: 0 }
    }
}

const BLOCK64: u64 = BLOCK as u64;

/// Length of a chunk, bytes; longer requests are sent as several chunks at once. So a megabyte of a
/// scan does not go as a whole before a block of another group. The disk still reaches its full
/// speed, because its bandwidth is measured with requests of this size.
const CHUNK_BYTES: usize = 128 << 10;
const _: () =
    assert!(CHUNK_BYTES as u64 == sched::disk::SEQUENTIAL_BYTES && CHUNK_BYTES.is_multiple_of(BLOCK));

/// Awaits all requests concurrently. Returns their results in order, or the first error once all
/// have ended.
async fn all<T>(requests: impl Iterator<Item = impl Future<Output = io::Result<T>>>) -> io::Result<Vec<T>> {
    let mut requests: Vec<_> = requests.map(Box::pin).collect();
    if requests.len() == 1 {
        return Ok(vec![requests.remove(0).await?]);
    }
    let mut done: Vec<_> = requests.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut pending = false;
        for (request, done) in requests.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            match request.as_mut().poll(cx) {
                Poll::Ready(result) => *done = Some(result),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    done.into_iter().map(|done| done.expect("all are over")).collect()
}

fn joined(chunks: Vec<Buffer>) -> AlignedBuf {
    let chunk = |chunk| match chunk {
        Buffer::Aligned(chunk) => chunk,
        Buffer::None | Buffer::Bytes(_) | Buffer::Shared(_) => unreachable!("the same buffers come back"),
    };
    AlignedBuf::join(chunks.into_iter().map(chunk).collect())
}

/// Rejects positions that the kernel cannot represent. They are an error of the caller, and must
/// not count as a file system that rejects direct I/O.
fn check_range(offset: u64, len: usize) -> io::Result<()> {
    let end = offset.checked_add(len as u64).and_then(|end| end.checked_next_multiple_of(BLOCK64));
    match end.filter(|&end| i64::try_from(end).is_ok()) {
        Some(_) => Ok(()),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "expected a position within the largest possible file",
        )),
    }
}

fn is_invalid(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

/// Splits a range into the bytes before the first whole block, the whole blocks, and the bytes
/// after the last one.
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

/// Reserves space and writes zeros to it. Reserved but unwritten space would cost a metadata update
/// at each first write.
fn allocate_now(file: &fs::File, len: u64) -> io::Result<()> {
    sys::allocate(file, len)?;
    file.set_len(len)?;
    let zeros = AlignedBuf::new(1 << 20);
    let mut at = 0;
    while at < len {
        let step = (len - at).min(zeros.len() as u64);
        // A direct file takes whole blocks only. The excess is cut off again below.
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
    fn write_is_cut_at_the_first_and_last_whole_block() {
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
            let chunks = around_blocks(offset, len);
            assert_eq!(chunks.clone().map(|chunk| chunk.len()), expected, "{len} at {offset}");
            assert!(chunks[0].end == chunks[1].start && chunks[1].end == chunks[2].start);
        }
    }

    #[test]
    fn positions_beyond_any_file_are_rejected() {
        assert!(check_range(u64::MAX, 1).is_err() && check_range(i64::MAX as u64, 0).is_err());
        assert!(check_range(i64::MAX as u64 - 8192, 4096).is_ok());
    }
}
