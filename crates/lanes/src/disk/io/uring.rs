//! Ring (io_uring) of a core. The fast lane fills it, submits it to the kernel once an iteration,
//! and sees completions in its poller. The fast lane's thread creates it, and its kernel threads
//! stay on that thread's CPU.
#![expect(unsafe_code, reason = "the kernel reads and writes the requests' buffers")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::task::{Context, Poll};

use io_uring::{IoUring, Probe, opcode, types};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::disk::io::op::{Action, Op};
use crate::sys;

/// Entries of the ring: twice the requests that a core may have in flight.
pub(crate) const ENTRIES: u32 = 256;
/// Most worker threads of the kernel for one ring: for files, and for other descriptors.
const KERNEL_THREADS_MAX: [u32; 2] = [4, 2];

/// Ring of a core. The head of this file describes it.
pub(crate) struct Ring {
    /// The ring. Its descriptor is readable while completions are pending.
    ring: AsyncFd<IoUring>,
    /// Requests that were not submitted to the kernel yet, oldest first.
    unsubmitted: VecDeque<usize>,
}

/// Operations that the requests use.
const OPERATIONS: [u8; 3] = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE];

impl Ring {
    /// Creates a ring whose kernel threads stay on these CPUs (empty: any). Needs a tokio runtime.
    ///
    /// # Errors
    /// The kernel refuses, or does not support all operations.
    pub(crate) fn new(cpus: &[usize]) -> io::Result<Ring> {
        let ring = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(ENTRIES)?;
        Ring::of(ring, cpus)
    }

    /// Creates a ring without permission to write, as a security module of the kernel may impose.
    #[cfg(test)]
    pub(crate) fn restricted() -> io::Result<Ring> {
        use io_uring::register::Restriction;
        let mut builder = IoUring::builder();
        let ring = builder.setup_r_disabled().setup_single_issuer().build(ENTRIES)?;
        let allowed = [opcode::Read::CODE, opcode::Fsync::CODE];
        ring.submitter().register_restrictions(&mut allowed.map(Restriction::sqe_op))?;
        ring.submitter().register_enable_rings()?;
        Ok(Ring { ring: watched(ring)?, unsubmitted: VecDeque::new() })
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
        Ok(Ring { ring: watched(ring)?, unsubmitted: VecDeque::new() })
    }

    /// Queues a request. The caller keeps it, without moving the memory of its buffer, until it is
    /// reaped.
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
        // SAFETY: the request owns the buffer (a Vec, an AlignedBuf, or Bytes without a writer),
        // whose heap memory does not move with it. The service keeps request and file until the
        // completion is reaped, also if the task was dropped, and waits for all completions before
        // the lane ends.
        let pushed = unsafe { self.ring.get_mut().submission().push(&entry) };
        pushed.expect("the ring has more entries than requests in flight");
        self.unsubmitted.push_back(token);
    }

    /// Submits the queued requests to the kernel.
    ///
    /// # Errors
    /// The kernel does not let this process use the ring. [`Ring::take_unsubmitted`] returns the
    /// requests it has not seen. No further request may be queued.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        if self.unsubmitted.is_empty() {
            return Ok(());
        }
        match self.ring.get_ref().submit() {
            Ok(_) => {}
            // Interrupted or busy: the rest is submitted next time.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(error) => return Err(error),
        }
        let left = self.ring.get_mut().submission().len();
        self.unsubmitted.drain(..self.unsubmitted.len() - left);
        Ok(())
    }

    /// Returns true if requests were not submitted yet.
    pub(crate) fn has_unsubmitted(&self) -> bool {
        !self.unsubmitted.is_empty()
    }

    /// Takes the requests that were not submitted and will not be, after an error of
    /// [`Ring::submit`].
    pub(crate) fn take_unsubmitted(&mut self) -> VecDeque<usize> {
        std::mem::take(&mut self.unsubmitted)
    }

    /// Returns the completions: token and bytes moved.
    pub(crate) fn reap(&mut self) -> Vec<(usize, io::Result<usize>)> {
        let done = self.ring.get_mut().completion().map(|entry| {
            let result =
                usize::try_from(entry.result()).map_err(|_| io::Error::from_raw_os_error(-entry.result()));
            (entry.user_data() as usize, result)
        });
        done.collect()
    }

    /// Has this task woken at the next completion. Every poll calls it.
    pub(crate) fn rest(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Ok(mut guard)) = self.ring.poll_read_ready(cx) {
            guard.clear_ready();
        }
    }

    /// Waits for a completion of a submitted request.
    #[expect(clippy::disallowed_methods, reason = "the lane has ended: nothing else runs on its thread")]
    pub(crate) fn wait(&mut self) {
        const GETEVENTS: u32 = 1;
        // SAFETY: no argument is passed, and no new entry submitted.
        let waited = unsafe { self.ring.get_ref().submitter().enter::<()>(0, 1, GETEVENTS, None) };
        if waited.is_err() {
            // Interrupted or refused: the request still completes.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

fn watched(ring: IoUring) -> io::Result<AsyncFd<IoUring>> {
    // SAFETY: an IoUring owns its descriptor and always names the same one.
    let ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) };
    ring.map_err(|failed| failed.into_parts().1)
}

fn length(rest: &[u8]) -> u32 {
    u32::try_from(rest.len()).unwrap_or(u32::MAX / 4096 * 4096) // the next step moves the rest
}
