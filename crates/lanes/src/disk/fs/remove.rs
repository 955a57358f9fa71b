//! Removal of a large file in steps. A file system frees the space of a file in one operation in
//! the kernel. Meanwhile other users wait for its journal, and for discards on the disk. So:
//!
//! 1. Remove the name, so that a crash leaves nothing to clean up.
//! 2. If the file has another name (of a snapshot), stop.
//! 3. Otherwise truncate it by [`STEP_BYTES`], with a request of the group like any other.
//! 4. Pause for [`REST`] times as long as that took, so that freeing uses at most a fifth of the
//!    disk.
//! 5. Repeat from 3 until nothing is left.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::fs::{blocking, closer, opening};
use crate::disk::io::closer::Closer;
use crate::disk::io::handle::Handle;
use crate::time;

/// Bytes freed in one step. An ext4 on a virtual disk takes well under a millisecond for them.
pub const STEP_BYTES: u64 = 32 << 20;
/// Length of the pause after a step, in lengths of that step.
const REST: u32 = 4;
/// Shortest pause: the precision of sleeping.
const REST_MIN: Duration = Duration::from_millis(1);
/// Longest pause: with it, a TB takes an hour.
const REST_MAX: Duration = Duration::from_millis(100);

/// Removes a file: its name at once, its space in steps. It must have no readers, unless it has
/// another name: a reader would see it shrink. If the caller stops waiting, the rest is freed in
/// one step.
///
/// # Errors
/// Those of the kernel. If the name was removed, the space is freed in any case.
pub async fn remove_paced(path: &Path) -> io::Result<()> {
    let (path, closer) = (path.to_owned(), closer());
    let unnamed = opening(move || unlink(&path, closer.clone())).await?;
    let Some((file, mut len)) = unnamed else { return Ok(()) };
    while len > 0 {
        let began = time::monotonic_ns();
        len = len.saturating_sub(STEP_BYTES);
        let cut = file.clone();
        blocking(move || cut.set_len(len)).await?;
        let took = Duration::from_nanos(time::monotonic_ns().saturating_sub(began));
        if len > 0 {
            time::sleep((took * REST).clamp(REST_MIN, REST_MAX)).await;
        }
    }
    Ok(())
}

/// Runs steps 1 and 2. Returns the file and its length if there is space to be freed in steps.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
fn unlink(path: &Path, closer: Arc<Closer>) -> io::Result<Option<(Arc<Handle>, u64)>> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_file() || found.len() <= STEP_BYTES {
        return fs::remove_file(path).map(|()| None);
    }
    let file = Handle::new(fs::OpenOptions::new().write(true).open(path)?, closer);
    fs::remove_file(path)?;
    let left = file.metadata()?;
    Ok((left.nlink() == 0).then(|| (Arc::new(file), left.len())))
}
