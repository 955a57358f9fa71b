//! A core's io_uring: filled by the fast lane, told to the kernel once a turn, and seen in the poller when something is
//! done. Made on the fast lane's thread, whose CPU its kernel threads are kept to.
#![expect(unsafe_code, reason = "the kernel reads and writes the requests' buffers")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::task::{Context, Poll};

use io_uring::{IoUring, Probe, opcode, types};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{Action, Op};
use crate::sys;

/// Entries: twice the requests a core may have under way.
pub(super) const ENTRIES: u32 = 256;
/// The kernel's worker threads for one ring: those for files, and those for the rest.
const KERNEL_THREADS_MAX: [u32; 2] = [4, 2];

/// See the head of this file.
pub(crate) struct Ring {
    /// Its descriptor is readable while something is done.
    ring: AsyncFd<IoUring>,
    /// Requests that the kernel was not told of yet, oldest first.
    untold: VecDeque<usize>,
}

/// What requests are made of.
const OPERATIONS: [u8; 3] = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE];

impl Ring {
    /// A ring whose kernel threads stay on these CPUs (empty: anywhere). On a tokio runtime only.
    ///
    /// # Errors
    /// The kernel refuses, or knows not all of what is needed.
    pub(crate) fn new(cpus: &[usize]) -> io::Result<Ring> {
        let ring = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(ENTRIES)?;
        Ring::of(ring, cpus)
    }

    /// One that may not write, as a kernel's security module would have it.
    #[cfg(test)]
    pub(crate) fn restricted() -> io::Result<Ring> {
        use io_uring::register::Restriction;
        let mut builder = IoUring::builder();
        let ring = builder.setup_r_disabled().setup_single_issuer().build(ENTRIES)?;
        let allowed = [opcode::Read::CODE, opcode::Fsync::CODE];
        ring.submitter().register_restrictions(&mut allowed.map(Restriction::sqe_op))?;
        ring.submitter().register_enable_rings()?;
        Ok(Ring { ring: watched(ring)?, untold: VecDeque::new() })
    }

    fn of(ring: IoUring, cpus: &[usize]) -> io::Result<Ring> {
        let mut known = Probe::new();
        ring.submitter().register_probe(&mut known)?;
        if !OPERATIONS.iter().all(|&operation| known.is_supported(operation)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        ring.submitter().register_iowq_max_workers(&mut KERNEL_THREADS_MAX.clone())?;
        if !cpus.is_empty() {
            ring.submitter().register_iowq_aff(&sys::cpu_set(cpus))?;
        }
        Ok(Ring { ring: watched(ring)?, untold: VecDeque::new() })
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
        let pushed = unsafe { self.ring.get_mut().submission().push(&entry) };
        pushed.expect("there are more entries than requests under way");
        self.untold.push_back(token);
    }

    /// Tells the kernel of what was put in.
    ///
    /// # Errors
    /// The kernel does not let this process work with the ring: what it was not told of is [`Ring::take_untold`]'s, and
    /// nothing may be put in any more.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        if self.untold.is_empty() {
            return Ok(());
        }
        match self.ring.get_ref().submit() {
            Ok(_) => {}
            // Interrupted or busy: what is left is told the next time.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(error) => return Err(error),
        }
        let left = self.ring.get_mut().submission().len();
        self.untold.drain(..self.untold.len() - left);
        Ok(())
    }

    /// Whether there is something that the kernel was not told of.
    pub(crate) fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Requests that the kernel was not told of, and will not be: after an error of [`Ring::submit`].
    pub(crate) fn take_untold(&mut self) -> VecDeque<usize> {
        std::mem::take(&mut self.untold)
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

    /// Waits until something is done of what the kernel was told of.
    #[expect(clippy::disallowed_methods, reason = "the lane has ended: nothing else runs on its thread")]
    pub(crate) fn wait(&mut self) {
        const GETEVENTS: u32 = 1;
        // SAFETY: no argument is passed, and no new entry told.
        let waited = unsafe { self.ring.get_ref().submitter().enter::<()>(0, 1, GETEVENTS, None) };
        if waited.is_err() {
            std::thread::sleep(std::time::Duration::from_millis(1)); // interrupted or refused: it is done anyway, some time
        }
    }
}

fn watched(ring: IoUring) -> io::Result<AsyncFd<IoUring>> {
    // SAFETY: an IoUring owns its descriptor and always names the same one.
    let ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) };
    ring.map_err(|failed| failed.into_parts().1)
}

fn length(rest: &[u8]) -> u32 {
    u32::try_from(rest.len()).unwrap_or(u32::MAX / 4096 * 4096) // the rest of it with the next step
}
