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
//! What is longer than 128 KiB is cut into requests of that length, each of which waits for its own turn; they are under way
//! together.
//!
//! A file system that knows no direct I/O says so at the open or at the first request. The file goes through the page cache
//! then, as if nobody had asked for more, and it is reported once.

use std::fs;
use std::future::{Future, poll_fn};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use bytes::Bytes;

use super::handle::Handle;
use super::service::{Failed, submit};
use super::{Action, AlignedBuf, BLOCK, Buffer, FILE_MODE, Op, blocking, pool};
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
            .mode(FILE_MODE)
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
    /// what is given back keeps those in memory. A scan is as fast as the disk can be with a megabyte at a time, and the next
    /// one asked for meanwhile.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file is shorter; else as the kernel says.
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        check_range(offset, len)?;
        let direct = self.is_direct();
        if !direct && len <= PART_BYTES {
            let buffer = Buffer::Bytes(vec![0; len]);
            return match self.read_part(offset, buffer, len).await? {
                Buffer::Bytes(bytes) => Ok(Bytes::from(bytes)),
                Buffer::None | Buffer::Aligned(_) | Buffer::Shared(_) => {
                    unreachable!("the same buffer comes back")
                }
            };
        }
        let skip = if direct { (offset % BLOCK64) as usize } else { 0 };
        let parts = AlignedBuf::stale(skip + len).cut(PART_BYTES);
        let read = |(at, part)| {
            let at = at * PART_BYTES;
            self.read_part(offset - skip as u64 + at as u64, Buffer::Aligned(part), skip + len - at)
        };
        let parts = all(parts.into_iter().enumerate().map(read)).await?;
        Ok(Bytes::from(joined(parts)).slice(skip..skip + len))
    }

    /// Fills a buffer, or as much of it as is wanted.
    async fn read_part(&self, offset: u64, buffer: Buffer, wanted: usize) -> io::Result<Buffer> {
        let op = self.op(Action::Read, offset, buffer);
        let wanted = wanted.min(op.wanted);
        let op = self.submit(Op { wanted, ..op }).await?;
        if op.done < wanted { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(op.buffer) }
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
        self.write_blocks(offset, buffer).await
    }

    async fn write_blocks(&self, offset: u64, buffer: AlignedBuf) -> io::Result<AlignedBuf> {
        let write = |(at, part)| {
            let op = self.op(Action::Write, offset + (at * PART_BYTES) as u64, Buffer::Aligned(part));
            async { written(self.submit(op).await?) }
        };
        let parts = all(buffer.cut(PART_BYTES).into_iter().enumerate().map(write)).await?;
        Ok(joined(parts))
    }

    /// Through one of the file's descriptors; the first one may be direct.
    async fn write_shared(&self, handle: &Arc<Handle>, offset: u64, data: Bytes) -> io::Result<()> {
        let direct = self.is_direct() && Arc::ptr_eq(handle, &self.0.handle);
        let write = |at: usize| {
            let part = data.slice(at..data.len().min(at + PART_BYTES));
            let op = self.op(Action::Write, offset + at as u64, Buffer::Shared(part));
            let op = Op { file: Some(handle.clone()), direct, ..op };
            async { written(self.submit(op).await?) }
        };
        all((0..data.len()).step_by(PART_BYTES).map(write)).await.map(drop)
    }

    /// Has a request done, without direct I/O if the file system, asked for it, does not know it.
    async fn submit(&self, op: Op) -> io::Result<Op> {
        match submit(op).await {
            Err(Failed { error, op: Some(op) }) if op.direct && is_invalid(&error) => {
                self.stop_being_direct();
                Ok(submit(Op { direct: false, done: 0, ..op }).await?)
            }
            done => Ok(done?),
        }
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
        let op = self.op(Action::Sync { all: false }, 0, Buffer::None);
        Ok(submit(op).await.map(drop)?)
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub async fn sync_all(&self) -> io::Result<()> {
        let op = self.op(Action::Sync { all: true }, 0, Buffer::None);
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

    fn op(&self, action: Action, offset: u64, buffer: Buffer) -> Op {
        let (wanted, direct) = (buffer.as_slice().len(), self.is_direct());
        Op { action, file: Some(self.0.handle.clone()), offset, buffer, wanted, direct, done: 0 }
    }
}

const BLOCK64: u64 = BLOCK as u64;

/// What is longer goes as several requests at once, bytes: so a scan's megabyte is not in one piece before somebody else's block, and
/// a disk is still as quick with it as it gets (its bandwidth is measured with requests of this size).
const PART_BYTES: usize = 128 << 10;
const _: () = assert!(PART_BYTES as u64 == sched::disk::SEQUENTIAL_BYTES && PART_BYTES.is_multiple_of(BLOCK));

/// Awaits all of these side by side: what they give, in order, or the first error once all are over.
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

fn joined(parts: Vec<Buffer>) -> AlignedBuf {
    let part = |part| match part {
        Buffer::Aligned(part) => part,
        Buffer::None | Buffer::Bytes(_) | Buffer::Shared(_) => unreachable!("the same buffers come back"),
    };
    AlignedBuf::join(parts.into_iter().map(part).collect())
}

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
