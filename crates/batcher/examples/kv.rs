//! Counts views of pages, over a key-value store that takes a millisecond for each operation. All
//! events are of the same few pages: consumers that run partitions in parallel would take one after
//! the other.
#![expect(clippy::disallowed_methods, reason = "a client, which stands outside the lanes")]

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use batcher::{Batcher, Command, Footprint, Kv, KvStore, Limits, View};

/// The event, and the command that it stands for.
struct Visit {
    user: u32,
    page: &'static str,
}

impl Command<String, u64> for Visit {
    /// Number of views of the page so far.
    type Out = u64;

    fn footprint(&self, footprint: &mut Footprint<String>) {
        footprint.reads.push(self.page.to_owned());
        footprint.writes.extend([self.page.to_owned(), format!("user {}", self.user)]);
    }

    fn apply(self, view: &mut View<'_, String, u64>) -> u64 {
        let page = self.page.to_owned();
        let views = view.get(&page).copied().unwrap_or(0) + 1;
        view.set(&page, views);
        view.set(&format!("user {}", self.user), views);
        views
    }
}

/// A map behind a network. Yours calls the client library of the store.
#[derive(Default)]
struct Map {
    values: Mutex<BTreeMap<String, u64>>,
    operations: AtomicUsize,
}

impl Map {
    async fn with<R>(
        &self,
        operation: impl FnOnce(&mut BTreeMap<String, u64>) -> R,
    ) -> Result<R, Infallible> {
        self.operations.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(operation(&mut self.values.lock().unwrap()))
    }
}

impl Kv for &Map {
    type Key = String;
    type Value = u64;
    type Error = Infallible;

    async fn get(&self, key: &String) -> Result<Option<u64>, Infallible> {
        self.with(|values| values.get(key).copied()).await
    }

    async fn set(&self, key: &String, value: u64) -> Result<(), Infallible> {
        self.with(|values| values.insert(key.clone(), value)).await.map(|_| ())
    }

    async fn del(&self, key: &String) -> Result<(), Infallible> {
        self.with(|values| values.remove(key)).await.map(|_| ())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    const EVENTS: u32 = 20_000;
    let pages = ["/", "/shop", "/help"];
    let log = (0..EVENTS).map(|offset| Visit { user: offset % 50, page: pages[offset as usize % 3] });

    let map = Map::default();
    let began = Instant::now();
    let (handle, drive) = Batcher::new(KvStore(&map), Limits::default()).start();
    let consume = async move {
        let mut pending = VecDeque::new();
        let mut offset_to_commit = 0;
        for event in log {
            // Waits while the batcher is full. The order of `push` is the order of the results.
            pending.push_back(handle.push(event).await.unwrap());
            offset_to_commit = handle.acknowledged_up_to();
        }
        assert!(offset_to_commit > 0, "more events than the batcher holds");
        for (event, reply) in pending.into_iter().enumerate() {
            // As if they had been applied one after the other.
            assert_eq!(reply.await.unwrap(), event as u64 / 3 + 1);
        }
        assert_eq!(handle.acknowledged_up_to(), u64::from(EVENTS));
    };
    let (done, ()) = tokio::join!(drive, consume);
    done.unwrap();

    let operations = map.operations.load(Ordering::Relaxed);
    println!("{EVENTS} events in {:?}, {operations} operations instead of {}", began.elapsed(), 3 * EVENTS);
    let values = map.values.lock().unwrap();
    let expected = [0, 1, 2].map(|page| u64::from((EVENTS + 2 - page) / 3));
    assert_eq!(pages.map(|page| values[page]), expected);
    assert!(operations < EVENTS as usize / 10, "{operations} operations");
    println!("views: {} {} {}", values["/"], values["/shop"], values["/help"]);
}

#[test]
fn all_events_are_counted() {
    main();
}
