//! Threads for operations that would block: folders and opens always, and all requests where
//! io_uring is refused. They are few, of normal priority, and serve all cores. Fast lanes add jobs
//! without a lock: through a lock-free inbox, and a counter in the kernel that wakes one thread for
//! each job.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::{Finished, Op};
use crate::queue::Inbox;
use crate::shared::{CoreShared, Message};
use crate::sys;

/// Number of threads of the pool.
const THREADS: usize = 4;

enum Job {
    /// Perform this operation, and send the result to that core.
    Do { from: Arc<CoreShared>, token: usize, op: Op },
    /// Close a file that is no longer used.
    Close(File),
}

/// Thread pool. The head of this file describes it.
pub(crate) struct Pool {
    inbox: Inbox<Job>,
    /// Shared by the pool's threads only.
    queue: Mutex<VecDeque<Job>>,
    counter: File,
    stop: AtomicBool,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pool")
    }
}

impl Pool {
    #[expect(clippy::disallowed_methods, reason = "this crate owns the threads")]
    pub(crate) fn start() -> io::Result<(Arc<Pool>, Vec<JoinHandle<()>>)> {
        let pool = Arc::new(Pool {
            inbox: Inbox::new(),
            queue: Mutex::default(),
            counter: sys::job_counter()?,
            stop: AtomicBool::new(false),
        });
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
        drop(self.inbox.push(Job::Do { from: from.clone(), token, op }));
        self.ring(1);
    }

    /// Closes a file soon.
    pub(crate) fn close(&self, file: File) {
        if self.stop.load(SeqCst) {
            return; // no thread is left to close it, and no lane to stall
        }
        drop(self.inbox.push(Job::Close(file)));
        self.ring(1);
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, SeqCst);
        self.ring(THREADS as u64);
    }

    fn ring(&self, jobs: u64) {
        // Fails only if 2^64 jobs are waiting.
        drop((&self.counter).write_all(&jobs.to_ne_bytes()));
    }

    fn work(&self) {
        let mut one = [0; 8];
        loop {
            if (&self.counter).read_exact(&mut one).is_err() {
                continue; // interrupted
            }
            if self.stop.load(SeqCst) {
                return;
            }
            let job = {
                let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
                queue.extend(self.inbox.take());
                queue.pop_front()
            };
            let (from, token, mut op) = match job {
                Some(Job::Do { from, token, op }) => (from, token, op),
                Some(Job::Close(file)) => {
                    drop(file);
                    continue;
                }
                None => continue,
            };
            let before_ns = sys::thread_cpu_ns();
            let result = op.perform();
            let cpu_ns = sys::thread_cpu_ns().saturating_sub(before_ns);
            drop(from.send(Message::Disk(Box::new(Finished { token, op, result, cpu_ns }))));
        }
    }
}
