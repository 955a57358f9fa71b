//! A core's io_uring: filled by the fast lane, told to the kernel once a turn, and seen in the poller when something is
//! done. Made on the fast lane's thread, whose CPU its kernel threads are kept to.
#![expect(unsafe_code, reason = "the kernel reads and writes the requests' buffers")]

use std::io;
use std::os::fd::AsRawFd;
use std::task::{Context, Poll};

use io_uring::{IoUring, opcode, types};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{Action, Op};
use crate::sys;

/// Entries: twice the requests a core may have under way.
const ENTRIES: u32 = 256;
/// The kernel's worker threads for one ring: those for files, and those for the rest.
const KERNEL_THREADS_MAX: [u32; 2] = [4, 2];

/// See the head of this file.
pub(crate) struct Ring {
    /// Its descriptor is readable while something is done.
    ring: AsyncFd<IoUring>,
    unsubmitted: bool,
}

impl Ring {
    /// A ring whose kernel threads stay on these CPUs (empty: anywhere). On a tokio runtime only.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn new(cpus: &[usize]) -> io::Result<Ring> {
        let ring = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(ENTRIES)?;
        ring.submitter().register_iowq_max_workers(&mut KERNEL_THREADS_MAX.clone())?;
        if !cpus.is_empty() {
            ring.submitter().register_iowq_aff(&sys::cpu_set(cpus))?;
        }
        // SAFETY: an IoUring owns its descriptor and always names the same one.
        let ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) };
        Ok(Ring { ring: ring.map_err(|failed| failed.into_parts().1)?, unsubmitted: false })
    }

    /// Puts a request in. The caller keeps it, unmoved in what its buffer owns, until it is reaped.
    pub(crate) fn push(&mut self, token: usize, op: &mut Op) {
        let at = op.offset + op.done as u64;
        let file = types::Fd(op.file.as_ref().expect("ring requests have a file").as_raw_fd());
        let done = op.done;
        let entry = match op.action {
            Action::Read => {
                let rest = &mut op.buffer.as_mut_slice()[done..];
                opcode::Read::new(file, rest.as_mut_ptr(), length(rest)).offset(at).build()
            }
            Action::Write => {
                let rest = &op.buffer.as_slice()[done..];
                opcode::Write::new(file, rest.as_ptr(), length(rest)).offset(at).build()
            }
            Action::Sync { all: true } => opcode::Fsync::new(file).build(),
            Action::Sync { all: false } => {
                opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build()
            }
            Action::Blocking(_) => unreachable!("goes to the pool"),
        };
        let entry = entry.user_data(token as u64);
        // SAFETY: the buffer is owned by the request (a Vec, an AlignedBuf, or Bytes that nobody writes to), whose heap memory
        // does not move with it; the service keeps request and file until the completion is reaped, also if the task that
        // asked is gone, and waits for all completions before the lane ends.
        while unsafe { self.ring.get_mut().submission().push(&entry) }.is_err() {
            self.submit();
        }
        self.unsubmitted = true;
    }

    /// Tells the kernel of what was put in.
    pub(crate) fn submit(&mut self) {
        if self.unsubmitted {
            // Busy or interrupted: what is left is told the next time.
            self.unsubmitted = self.ring.get_ref().submit().is_err();
        }
    }

    /// What is done: token, and bytes moved.
    pub(crate) fn reap(&mut self) -> Vec<(usize, io::Result<usize>)> {
        let done = self.ring.get_mut().completion().map(|entry| {
            let result =
                usize::try_from(entry.result()).map_err(|_| io::Error::from_raw_os_error(-entry.result()));
            (entry.user_data() as usize, result)
        });
        done.collect()
    }

    /// To be called by each poll: has this task woken when something is done.
    pub(crate) fn rest(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Ok(mut guard)) = self.ring.poll_read_ready(cx) {
            guard.clear_ready();
        }
    }

    /// Waits until something is done.
    pub(crate) fn wait(&mut self) {
        drop(self.ring.get_ref().submit_and_wait(1));
    }
}

fn length(rest: &[u8]) -> u32 {
    u32::try_from(rest.len()).unwrap_or(u32::MAX / 4096 * 4096) // the rest of it with the next step
}
