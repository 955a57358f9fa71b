//! Removing a large file bit by bit. A file system frees a file's space in one go, in the kernel, while everybody else waits
//! for its journal, and for the disk to be told of what is free:
//!
//! 1. the name goes, so that a crash from here on leaves nothing behind that somebody would have to clear away;
//! 2. if the file has another name (a snapshot's), that is all;
//! 3. else it is cut shorter by [`STEP_BYTES`], a request of the group like any other;
//! 4. then it rests for [`REST`] times as long as that took, so that freeing has a fifth of the disk at most;
//! 5. and so on from 3, until nothing is left.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::handle::Handle;
use super::{blocking, pool};
use crate::time;

/// Freed at once, bytes. An ext4 on a virtual disk takes well under a millisecond for them.
pub const STEP_BYTES: u64 = 32 << 20;
/// Times as long as a step it rests after it.
const REST: u32 = 4;
/// Bounds of a rest. The shorter one is the grain of sleeping; with the longer one a TB takes an hour.
const REST_MIN: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_millis(100);

/// Removes a file: its name at once, its space in steps. Nobody may be reading it any more: who has it open would find it
/// shorter and shorter, unless it has another name. If the caller stops waiting, the rest is freed in one go.
///
/// # Errors
/// As the kernel says. If the name went, the space follows in any case.
pub async fn remove_paced(path: &Path) -> io::Result<()> {
    let (path, pool) = (path.to_owned(), pool());
    let unnamed = blocking(move || unlink(&path, pool)).await?;
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

/// Steps 1 and 2: the file and its length if there is something to be freed in steps.
#[expect(clippy::disallowed_methods, reason = "this is the disk service")]
fn unlink(path: &Path, pool: Arc<pool::Pool>) -> io::Result<Option<(Arc<Handle>, u64)>> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_file() || found.len() <= STEP_BYTES {
        return fs::remove_file(path).map(|()| None);
    }
    let file = Handle::new(fs::OpenOptions::new().write(true).open(path)?, pool);
    fs::remove_file(path)?;
    let left = file.metadata()?;
    Ok((left.nlink() == 0).then(|| (Arc::new(file), left.len())))
}
