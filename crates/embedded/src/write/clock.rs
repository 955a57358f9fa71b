//! Write timestamps of the server: one clock for all cores. It never goes back, even if the wall
//! clock does or the server restarts.
//!
//! A write with a lower timestamp than stored data loses to that data, although it was
//! acknowledged. Therefore:
//!
//! 1. [`Clock`] is one atomic word for all cores. Each timestamp exceeds every earlier one of any
//!    core, regardless of the wall clock.
//! 2. Before a core logs a write, its log has a *floor*: a row of [`FLOORS`] with a timestamp above
//!    that of the write ([`Floor::needed`]). The log keeps the order, so no write is durable
//!    without its floor. A floor is [`STEP_US`] ahead: a busy core writes one per second, an idle
//!    core none.
//! 3. At start every core raises the clock to its floors, and core 0 to the greatest timestamp of
//!    the schema.
//!
//! ```text
//!  timestamps       ─────────────●  crash        ●────────  above the floor, whatever the wall clock shows
//!  floor, durable   ────────────────┐ │          │
//!                                   └─┴──────────┘
//! ```
//!
//! Client timestamps do not raise the clock: one client could put all others into the future.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use storage::{CellRef, Change, Event, Mutation, RowBuilder};

use crate::system::own_tables::FLOORS;

/// Distance of a floor from the timestamp that needs it, in microseconds. After a crash the clock
/// may be ahead of the wall clock by this much. A smaller step would write more floors.
const STEP_US: i64 = 1_000_000;

/// Wall clock in microseconds since 1970 UTC. It may step in both directions.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl WallClock {
    /// Returns a clock that reads `now_us`.
    pub fn new(now_us: impl Fn() -> i64 + Send + Sync + 'static) -> WallClock {
        WallClock(Arc::new(now_us))
    }
}

impl Default for WallClock {
    /// Returns the clock of this machine.
    fn default() -> WallClock {
        WallClock::new(lanes::time::unix_micros)
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}

/// Source of write timestamps; see the module head.
#[derive(Debug)]
pub(crate) struct Clock {
    wall: WallClock,
    /// Last timestamp returned, or the highest floor.
    last_us: AtomicI64,
    has_reported: AtomicBool,
}

/// Floor of one core.
#[derive(Debug)]
pub(crate) struct Floor {
    /// Highest timestamp that needs no new floor.
    floor_us: Cell<i64>,
    /// Partition of the row, owned by this core.
    token: i64,
    key: Bytes,
}

impl Clock {
    pub(crate) fn new(wall: WallClock) -> Clock {
        Clock { wall, last_us: AtomicI64::new(0), has_reported: AtomicBool::new(false) }
    }

    /// Returns the first of `count` consecutive timestamps above all earlier ones, and the wall
    /// clock's time, both in microseconds.
    pub(crate) fn take(&self, count: usize) -> (i64, i64) {
        let now_us = (self.wall.0)();
        let more = i64::try_from(count).unwrap_or(i64::MAX).saturating_sub(1).max(0);
        let mut last_us = self.last_us.load(Relaxed);
        loop {
            let first = now_us.max(last_us.saturating_add(1));
            let next = first.saturating_add(more);
            match self.last_us.compare_exchange_weak(last_us, next, Relaxed, Relaxed) {
                Ok(_) => return (first, now_us),
                Err(other) => last_us = other,
            }
        }
    }

    /// Returns the last timestamp, or the highest floor.
    pub(crate) fn last_us(&self) -> i64 {
        self.last_us.load(Relaxed)
    }

    /// Makes all later timestamps exceed `floor_us`.
    pub(crate) fn raise(&self, floor_us: i64) {
        self.last_us.fetch_max(floor_us, Relaxed);
    }

    /// Reports once if the wall clock is behind.
    pub(crate) fn report(&self, event_sink: &storage::EventSink) {
        let behind_us = self.last_us.load(Relaxed).saturating_sub((self.wall.0)());
        // After a quick restart the wall clock is behind by up to [`STEP_US`].
        if behind_us > 2 * STEP_US && !self.has_reported.swap(true, Relaxed) {
            let behind = Duration::from_micros(behind_us.unsigned_abs());
            event_sink.send(&Event::ClockBehind { behind });
        }
    }
}

impl Floor {
    /// Returns the floor of a core, with a key that the core owns according to `owned`. Without
    /// durability no floor is ever needed.
    pub(crate) fn new(is_durable: bool, owned: impl Fn(i64) -> bool) -> Floor {
        let places = (0u32..).map(|n| {
            let key = Bytes::from(format!("floor {n}"));
            (schema::token::token(&key), key)
        });
        let mut places = places.skip_while(|(token, _)| !owned(*token));
        let (token, key) = places.next().expect("every core owns tokens");
        Floor { floor_us: Cell::new(if is_durable { i64::MIN } else { i64::MAX }), token, key }
    }

    /// Returns the floor to write before a write at `now_us`, or `None` if the last floor suffices.
    pub(crate) fn needed(&self, now_us: i64) -> Option<(i64, Mutation)> {
        if now_us <= self.floor_us.get() {
            return None;
        }
        let floor_us = now_us.saturating_add(STEP_US);
        let mut row = RowBuilder::new(&self.key, &[], floor_us);
        row.push(CellRef::live(0, floor_us, &[]));
        let changes = vec![Change::Row(row.finish())];
        Some((floor_us, Mutation { table: FLOORS, token: self.token, key: self.key.clone(), changes }))
    }

    /// Remembers a floor that was passed to the log.
    pub(crate) fn set(&self, floor_us: i64) {
        self.floor_us.set(floor_us);
    }
}
