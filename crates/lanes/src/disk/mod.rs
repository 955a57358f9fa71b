//! The disk service: files, read and written by position, and the few operations on folders that a database needs. Every
//! request takes the group of the task that makes it, waits its turn in the fair queue of its core, and is counted.
//! A heavy task's requests are sent by its core's fast lane: a heavy lane never enters the file system itself.
//!
//! ```text
//!   task ──▶ fair queue of the core ──▶ io_uring of the core ─────▶ completion wakes the task
//!                (sched::IoQueue)   └─▶ thread pool of the server ──▶ (folders; everything where there is no io_uring)
//! ```

mod buffer;
mod kernel;
mod op;
mod pool;
mod service;
mod uring;

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

pub use buffer::{AlignedBuf, BLOCK};
pub(crate) use kernel::KernelThreads;
pub use kernel::KernelUse;
pub(crate) use op::{Action, Buffer, Op};
pub(crate) use pool::Pool;
pub(crate) use service::{Bucket, Finished, Service, end, submit};
pub(crate) use uring::Ring;

/// An open file. Clones share it; it is closed with the last one.
#[derive(Clone, Debug)]
pub struct File {
    inner: Arc<fs::File>,
    direct: bool,
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
    /// Past the page cache, where the file system can.
    pub direct: bool,
    /// Each write is durable when it returns.
    pub dsync: bool,
}

/// Opens a file.
///
/// # Errors
/// As the kernel says.
pub async fn open(path: &Path, options: OpenOptions) -> io::Result<File> {
    let path = path.to_owned();
    blocking(move || open_now(&path, options)).await
}

#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
fn open_now(path: &Path, options: OpenOptions) -> io::Result<File> {
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
        Err(error) if options.direct && error.raw_os_error() == Some(libc::EINVAL) => {
            Ok(File { inner: Arc::new(attempt(false)?), direct: false })
        }
        opened => Ok(File { inner: Arc::new(opened?), direct: options.direct }),
    }
}

impl File {
    /// Whether requests go past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Exactly `len` bytes from `offset`; on a direct file whole blocks around them are read.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file is shorter; else as the kernel says.
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let block = BLOCK as u64;
        let (from, skip) =
            if self.direct { (offset / block * block, (offset % block) as usize) } else { (offset, 0) };
        let buffer = if self.direct {
            Buffer::Aligned(AlignedBuf::stale(skip + len))
        } else {
            Buffer::Bytes(vec![0; len])
        };
        let op = self.request(Action::Read, from, buffer).await?;
        if op.done < skip + len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match op.buffer {
            Buffer::Bytes(bytes) => Ok(Bytes::from(bytes)),
            Buffer::Aligned(buffer) => Ok(Bytes::from_owner(buffer).slice(skip..skip + len)),
            Buffer::None | Buffer::Shared(_) => unreachable!("the buffer made above comes back"),
        }
    }

    /// Writes all of `data` at `offset`. On a direct file offset, length and memory must be in whole blocks, which
    /// [`File::write_aligned`] ensures.
    ///
    /// # Errors
    /// As the kernel says (`StorageFull` among them).
    pub async fn write_at(&self, offset: u64, data: Bytes) -> io::Result<()> {
        let op = self.request(Action::Write, offset, Buffer::Shared(data)).await?;
        written(&op)
    }

    /// Writes a buffer in whole blocks and hands it back, to be used again. `offset` must be a multiple of [`BLOCK`] on a
    /// direct file.
    ///
    /// # Errors
    /// As the kernel says (`StorageFull` among them); the buffer is gone then.
    pub async fn write_aligned(&self, offset: u64, buffer: AlignedBuf) -> io::Result<AlignedBuf> {
        let op = self.request(Action::Write, offset, Buffer::Aligned(buffer)).await?;
        written(&op)?;
        match op.buffer {
            Buffer::Aligned(buffer) => Ok(buffer),
            Buffer::None | Buffer::Bytes(_) | Buffer::Shared(_) => unreachable!("the same buffer comes back"),
        }
    }

    /// Makes what was written durable, without what only tells when.
    ///
    /// # Errors
    /// As the kernel says; what was written before may then be lost, whatever a second try says.
    pub async fn sync_data(&self) -> io::Result<()> {
        self.request(Action::Sync { all: false }, 0, Buffer::None).await.map(drop)
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub async fn sync_all(&self) -> io::Result<()> {
        self.request(Action::Sync { all: true }, 0, Buffer::None).await.map(drop)
    }

    /// Bytes in the file.
    ///
    /// # Errors
    /// As the kernel says.
    pub async fn len(&self) -> io::Result<u64> {
        let file = self.inner.clone();
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
        let file = self.inner.clone();
        blocking(move || allocate_now(&file, len)).await
    }

    /// Sets the length.
    ///
    /// # Errors
    /// As the kernel says.
    pub async fn truncate(&self, len: u64) -> io::Result<()> {
        let file = self.inner.clone();
        blocking(move || file.set_len(len)).await
    }

    async fn request(&self, action: Action, offset: u64, buffer: Buffer) -> io::Result<Op> {
        submit(Op { action, file: Some(self.inner.clone()), offset, buffer, done: 0 }).await
    }
}

fn written(op: &Op) -> io::Result<()> {
    if op.done < op.buffer.as_slice().len() { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
}

/// Space, then zeros through it: allocated but unwritten space would cost a metadata update at each first write.
fn allocate_now(file: &fs::File, len: u64) -> io::Result<()> {
    crate::sys::allocate(file, len)?;
    file.set_len(len)?;
    let zeros = AlignedBuf::new(1 << 20);
    let mut at = 0;
    while at < len {
        let step = (len - at).min(zeros.len() as u64);
        // A direct file takes whole blocks only; what is too long is cut off again below.
        let step_whole = step.next_multiple_of(BLOCK as u64) as usize;
        file.write_all_at(&zeros[..step_whole], at)?;
        at += step;
    }
    file.set_len(len)?;
    file.sync_all()
}

/// Makes a folder and those above it; it may be there already.
///
/// # Errors
/// As the kernel says.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
pub async fn create_dir_all(path: &Path) -> io::Result<()> {
    on_path(path, fs::create_dir_all).await
}

/// Removes a file.
///
/// # Errors
/// As the kernel says.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
pub async fn remove_file(path: &Path) -> io::Result<()> {
    on_path(path, fs::remove_file).await
}

/// Renames a file, over an existing one too.
///
/// # Errors
/// As the kernel says.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
pub async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let to = to.to_owned();
    on_path(from, move |from| fs::rename(from, to)).await
}

/// A second name for a file.
///
/// # Errors
/// As the kernel says.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
pub async fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    let to = to.to_owned();
    on_path(from, move |from| fs::hard_link(from, to)).await
}

/// Names in a folder, sorted; those that are not UTF-8 are left out.
///
/// # Errors
/// As the kernel says.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
pub async fn list_dir(path: &Path) -> io::Result<Vec<String>> {
    on_path(path, |path| {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    })
    .await
}

/// Makes a folder's entries durable: renames, new and removed files.
///
/// # Errors
/// As the kernel says.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
pub async fn sync_dir(path: &Path) -> io::Result<()> {
    on_path(path, |path| fs::File::open(path)?.sync_all()).await
}

/// Whether there is something of this name.
///
/// # Errors
/// As the kernel says, other than "not found".
pub async fn exists(path: &Path) -> io::Result<bool> {
    on_path(path, |path| path.try_exists()).await
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
        let file = open_now(&path, options)?;
        match file.inner.try_lock() {
            Ok(()) => Ok(file),
            Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    })
    .await
}

/// What the kernel's own threads for this process's disk requests (`iou-wrk`) have used. They belong to no group, and
/// appear only where the file system makes a request wait. Reads `/proc`: for now and then.
///
/// # Errors
/// There is no `/proc`.
pub async fn kernel_use() -> io::Result<KernelUse> {
    let lanes = crate::handle();
    blocking(move || {
        // Only ever locked here, by threads of the pool, so no lane waits.
        let mut threads = lanes.kernel_threads().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        threads.look()
    })
    .await
}

/// Bytes free for us, and all bytes, of the file system that holds `path`.
///
/// # Errors
/// As the kernel says.
pub async fn space(path: &Path) -> io::Result<(u64, u64)> {
    on_path(path, |path| crate::sys::space(&path)).await
}

async fn on_path<T: Send + 'static>(
    path: &Path,
    job: impl FnOnce(PathBuf) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let path = path.to_owned();
    blocking(move || job(path)).await
}

/// Runs a job on the pool, through the fair queue.
async fn blocking<T: Send + 'static>(job: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (sender, receiver) = crate::sync::cross::oneshot();
    let action = Action::Blocking(Some(Box::new(move || sender.send(job()))));
    submit(Op { action, file: None, offset: 0, buffer: Buffer::None, done: 0 }).await?;
    receiver.await.unwrap_or_else(|_| Err(io::Error::other("the disk job did not finish")))
}
