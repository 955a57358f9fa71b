//! Files and folders for tasks: requests to the disk service of the task's core, above the
//! executor.

pub(crate) mod file;
mod on_core;
pub(crate) mod process;
pub(crate) mod remove;
mod submit;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::context::{handle, with_core};
use crate::counters::Cached;
use crate::current::current_group;
use crate::disk::fs::process::ProcessUse;
use crate::disk::fs::submit::submit;
use crate::disk::io::closer::Closer;
use crate::disk::io::kernel::KernelUse;
use crate::disk::io::op::{Action, Buffer, Op};

/// Permissions of files: only the server's user may read the data of clients.
const FILE_MODE: u32 = 0o600;
/// Permissions of folders.
const FOLDER_MODE: u32 = 0o700;

/// Counts a lookup in a cache above the disk, for the current group: a hit if `found`, else a miss.
/// Counts nothing outside of fast lanes.
pub fn count_lookup(cached: Cached, found: bool) {
    let group = current_group();
    with_core(|core| core.count_lookup(group, cached, found));
}

/// Creates a folder and its parents. It may exist already.
///
/// # Errors
/// Those of the kernel.
pub async fn create_dir_all(path: &Path) -> io::Result<()> {
    on_path(path, |path| fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)).await
}

/// Removes a file in one step. For large files use [`remove_paced`].
///
/// # Errors
/// Those of the kernel.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
pub async fn remove_file(path: &Path) -> io::Result<()> {
    on_path(path, fs::remove_file).await
}

/// Removes an empty folder.
///
/// # Errors
/// Those of the kernel.
pub async fn remove_dir(path: &Path) -> io::Result<()> {
    on_path(path, fs::remove_dir).await
}

/// Renames a file, and replaces an existing one.
///
/// # Errors
/// Those of the kernel.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
pub async fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let to = to.to_owned();
    on_path(from, move |from| fs::rename(from, to)).await
}

/// Creates a second name for a file.
///
/// # Errors
/// Those of the kernel.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
pub async fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    let to = to.to_owned();
    on_path(from, move |from| fs::hard_link(from, to)).await
}

/// Returns the names in a folder, sorted, without those that are not UTF-8.
///
/// # Errors
/// Those of the kernel.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
pub async fn list_dir(path: &Path) -> io::Result<Vec<String>> {
    let path = path.to_owned();
    opening(move || {
        let mut names = Vec::new();
        for entry in fs::read_dir(&path)? {
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
/// Those of the kernel.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
pub async fn sync_dir(path: &Path) -> io::Result<()> {
    let path = path.to_owned();
    opening(move || fs::File::open(&path)?.sync_all()).await
}

/// Returns true if the path exists.
///
/// # Errors
/// Those of the kernel, other than "not found".
pub async fn exists(path: &Path) -> io::Result<bool> {
    on_path(path, |path| path.try_exists()).await
}

/// Returns the usage of the kernel's own threads for this process's disk requests (`iou-wrk`). They
/// belong to no group, and appear only where the file system makes a request wait. Reads `/proc`,
/// so it is for occasional calls.
///
/// # Errors
/// `/proc` is not mounted.
pub async fn kernel_use() -> io::Result<KernelUse> {
    let lanes = handle();
    blocking(move || {
        // Locked only here, by threads of the pool, so no lane waits.
        let mut threads = lanes.kernel_threads().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        threads.read()
    })
    .await
}

/// Returns the use of this process. Reads `/proc`, with an entry for each descriptor, so it is for
/// occasional calls.
///
/// # Errors
/// `/proc` is not mounted.
pub async fn process_use() -> io::Result<ProcessUse> {
    blocking(process::read).await
}

/// Returns the number of files that this process may have open at once; `u64::MAX` if there is no
/// limit.
pub fn open_files_max() -> u64 {
    crate::sys::open_files_max()
}

/// Returns the bytes free for this process, and all bytes, of the file system that holds `path`.
///
/// # Errors
/// Those of the kernel.
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
    let op = Op { action, file: None, offset: 0, buffer: Buffer::None, wanted: 0, direct: false, done: 0 };
    submit(op).await?;
    receiver.await.unwrap_or_else(|_| Err(io::Error::other("the disk job did not finish")))
}

/// Longest time for which an open is repeated while no descriptor is free.
const DESCRIPTOR_WAIT: Duration = Duration::from_secs(60);
/// Longest pause between two attempts.
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(250);

/// Runs a job that opens a file, as [`blocking`] does. Repeats it while the process or the machine
/// has no free descriptor: connections and files give theirs back, and a flush or a log that failed
/// for want of one could not go on.
async fn opening<T: Send + 'static>(
    job: impl Fn() -> io::Result<T> + Clone + Send + 'static,
) -> io::Result<T> {
    let end_ns = crate::sys::monotonic_ns() + DESCRIPTOR_WAIT.as_nanos() as u64;
    let mut pause = Duration::from_millis(5);
    loop {
        match blocking(job.clone()).await {
            Err(error) if is_without_descriptor(&error) && crate::sys::monotonic_ns() < end_ns => {
                crate::time::sleep(pause).await;
                pause = (pause * 2).min(DESCRIPTOR_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// Returns true if the process or the machine has no free descriptor.
fn is_without_descriptor(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Returns the part of the server's pool that closes files.
fn closer() -> Arc<Closer> {
    handle().pool().closer().clone()
}
