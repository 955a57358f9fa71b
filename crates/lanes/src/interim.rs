//! Lanes without shares yet: one thread a core, in order of arrival.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use crate::{Config, Group, GroupSpec, Usage};

type Job = Box<dyn FnOnce() + Send>;

struct Shared {
    inboxes: Vec<tokio::sync::mpsc::UnboundedSender<Job>>,
    next: AtomicU32,
}

/// The lanes of this server.
#[derive(Clone)]
pub struct Lanes(Arc<Shared>);

/// Why the lanes could not be started.
#[derive(Debug)]
pub enum StartError {
    /// A system call failed.
    Io(&'static str, std::io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let StartError::Io(what, error) = self;
        write!(f, "{what}: {error}")
    }
}

impl std::error::Error for StartError {}

thread_local! {
    static LANES: RefCell<Option<(Lanes, usize)>> = const { RefCell::new(None) };
    static GROUP: RefCell<Rc<Cell<Group>>> = RefCell::new(Rc::new(Cell::new(Group::CONTROL)));
}

#[expect(clippy::disallowed_methods, reason = "the room that owns threads")]
impl Lanes {
    /// Starts the lanes.
    ///
    /// # Errors
    /// A system call failed.
    pub fn start(config: Config) -> Result<Lanes, StartError> {
        let (inboxes, receivers): (Vec<_>, Vec<_>) =
            config.cores.iter().map(|_| tokio::sync::mpsc::unbounded_channel::<Job>()).unzip();
        let lanes = Lanes(Arc::new(Shared { inboxes, next: AtomicU32::new(Group::BUILT_IN) }));
        for (core, mut receiver) in receivers.into_iter().enumerate() {
            let lanes = lanes.clone();
            std::thread::spawn(move || {
                LANES.set(Some((lanes, core)));
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                let local = tokio::task::LocalSet::new();
                local.block_on(&runtime, async {
                    while let Some(job) = receiver.recv().await {
                        job();
                    }
                });
            });
        }
        Ok(lanes)
    }
    /// Number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.0.inboxes.len()
    }
    /// Runs a future on a core from outside.
    pub fn block_on<F, Fut, T>(&self, core: usize, group: Group, f: F) -> T
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = std::sync::mpsc::channel();
        let job: Job = Box::new(move || {
            spawn(group, async move { drop(sender.send(f().await)) }).detach();
        });
        assert!(self.0.inboxes[core].send(job).is_ok());
        receiver.recv().expect("the task ended without a result")
    }
    /// A new group.
    #[must_use]
    pub fn create_group(&self, _parent: Group, _spec: GroupSpec) -> Group {
        Group(self.0.next.fetch_add(1, Ordering::Relaxed))
    }
    /// Changes a group.
    pub fn alter_group(&self, _group: Group, _spec: GroupSpec) {}
    /// Drops a group.
    pub fn drop_group(&self, _group: Group) {}
    /// What a group has had.
    #[must_use]
    pub fn usage(&self, _group: Group) -> Usage {
        Usage::default()
    }
    /// What a group has had on one core.
    #[must_use]
    pub fn core_usage(&self, _core: usize, _group: Group) -> Usage {
        Usage::default()
    }
    /// Long pieces.
    #[must_use]
    pub fn stalls(&self) -> u64 {
        0
    }
    /// Ends all.
    pub fn shutdown(&self) {}
}

/// The lanes of this thread.
#[must_use]
pub fn handle() -> Lanes {
    LANES.with_borrow(|lanes| lanes.as_ref().expect("on a lane").0.clone())
}
/// Number of cores.
#[must_use]
pub fn cores() -> usize {
    handle().cores()
}
/// This core's index.
#[must_use]
pub fn current_core() -> usize {
    LANES.with_borrow(|lanes| lanes.as_ref().expect("on a lane").1)
}
/// The group of the running task.
#[must_use]
pub fn current_group() -> Group {
    GROUP.with_borrow(|group| group.get())
}
/// Whether this is a heavy lane.
#[must_use]
pub fn on_heavy_lane() -> bool {
    false
}

/// A spawned task; dropping cancels.
#[derive(Debug)]
pub struct Task<T>(Option<tokio::task::JoinHandle<T>>);
impl<T> Task<T> {
    /// Lets it run on.
    pub fn detach(mut self) {
        self.0 = None;
    }
}
impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
impl<T> Future for Task<T> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let ended = ready!(Pin::new(self.0.as_mut().expect("not detached")).poll(cx));
        Poll::Ready(ended.expect("the task panicked"))
    }
}

struct InGroup<F> {
    group: Rc<Cell<Group>>,
    future: Pin<Box<F>>,
}
impl<F: Future> Future for InGroup<F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let before = GROUP.replace(self.group.clone());
        let polled = self.future.as_mut().poll(cx);
        GROUP.set(before);
        polled
    }
}

/// Runs a future on this core's fast lane.
#[expect(clippy::disallowed_methods, reason = "the room that owns tasks")]
pub fn spawn<F>(group: Group, f: F) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    Task(Some(tokio::task::spawn_local(InGroup { group: Rc::new(Cell::new(group)), future: Box::pin(f) })))
}
/// Runs a future on this core's heavy lane.
pub fn heavy<F>(group: Group, f: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    spawn(group, f)
}
/// Moves the running task to another group.
pub async fn switch_group(group: Group) {
    GROUP.with_borrow(|current| current.set(group));
    yield_now().await;
}
/// Lets others run.
#[expect(clippy::disallowed_methods, reason = "the room that owns tasks")]
pub async fn yield_now() {
    tokio::task::yield_now().await;
}
/// Lets others run, on a heavy lane.
pub async fn heavy_yield() {
    yield_now().await;
}
/// Whether this piece has used its time.
#[must_use]
pub fn should_yield() -> bool {
    false
}
/// Runs `f` on another core, in the caller's group.
pub async fn call<T, Fut, F>(core: usize, f: F) -> T
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let (sender, receiver) = sync_oneshot();
    let group = current_group();
    let job: Job = Box::new(move || {
        spawn(group, async move { sender.send(f().await) }).detach();
    });
    assert!(handle().0.inboxes[core].send(job).is_ok());
    receiver.await.expect("the called task ended without a result")
}
fn sync_oneshot<T: Send>() -> (crate::sync::cross::Sender<T>, crate::sync::cross::Receiver<T>) {
    crate::sync::cross::oneshot()
}
