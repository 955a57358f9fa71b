//! Threads for operations that would block: folders and opens always, and all requests where
//! io_uring is refused. They are few, of normal priority, and serve all cores. Fast lanes add jobs
//! without a lock: through a lock-free inbox, and a counter in the kernel that wakes one thread for
//! each job.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::disk::io::closer::Closer;
use crate::disk::io::op::{Finished, Op};
use crate::queue::Inbox;
use crate::shared::{CoreShared, Message};
use crate::sys;

/// Number of threads of the pool.
const THREADS: usize = 4;

/// Operation to perform. The result goes to that core.
struct Request {
    from: Arc<CoreShared>,
    token: usize,
    op: Op,
}

enum Job {
    Perform(Request),
    Close(File),
}

/// Thread pool. The head of this file describes it.
pub(crate) struct Pool {
    inbox: Inbox<Request>,
    closer: Arc<Closer>,
    /// Shared by the pool's threads only.
    queue: Mutex<VecDeque<Job>>,
}

impl Pool {
    #[expect(clippy::disallowed_methods, reason = "this crate owns the threads")]
    pub(crate) fn start() -> io::Result<(Arc<Pool>, Vec<JoinHandle<()>>)> {
        let closer = Arc::new(Closer::new()?);
        let pool = Arc::new(Pool { inbox: Inbox::new(), closer, queue: Mutex::default() });
        let mut threads = Vec::new();
        for index in 0..THREADS {
            let pool = pool.clone();
            let builder = std::thread::Builder::new().name(format!("disk-{index}"));
            threads.push(builder.spawn(move || pool.work())?);
        }
        Ok((pool, threads))
    }

    /// Queues an operation. The result comes as a message to the core.
    pub(crate) fn send(&self, from: &Arc<CoreShared>, token: usize, op: Op) {
        drop(self.inbox.push(Request { from: from.clone(), token, op }));
        self.closer.count_jobs(1);
    }

    /// Returns the part of the pool that closes files.
    pub(crate) fn closer(&self) -> &Arc<Closer> {
        &self.closer
    }

    pub(crate) fn stop(&self) {
        self.closer.stop(THREADS);
    }

    fn work(&self) {
        loop {
            if self.closer.wait_for_job().is_err() {
                continue; // interrupted
            }
            if self.closer.is_stopped() {
                return;
            }
            match self.next() {
                Some(Job::Perform(Request { from, token, mut op })) => {
                    let before_ns = sys::thread_cpu_ns();
                    let result = op.perform();
                    let cpu_ns = sys::thread_cpu_ns().saturating_sub(before_ns);
                    drop(from.send(Message::Disk(Box::new(Finished { token, op, result, cpu_ns }))));
                }
                Some(Job::Close(file)) => drop(file),
                None => {}
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.extend(self.inbox.take().map(Job::Perform));
        queue.extend(self.closer.take().map(Job::Close));
        queue.pop_front()
    }
}
