//! Service levels in memory: names, options, groups in the lanes, effective levels of roles, and
//! counters. This crate does not know CQL text, roles or storage. `access` keeps the catalog in
//! tables and reports every change to this crate.
//!
//! ```text
//!   CREATE/ALTER/DROP ──▶ Levels ──▶ lanes groups          (shares, class, cap: at once, on all cores)
//!                           └──────▶ Catalog (immutable; one pointer is swapped)
//!   a role's levels ──merge──▶ Effective ──admit──▶ InFlight ──record──▶ histograms of the core ──▶ metrics
//! ```

mod admission;
mod candidates;
mod effective;
mod gate;
mod histogram;
mod latency;
mod level;
mod levels;
mod limiter;
mod limits;
mod memory;
mod metrics;
mod overload;
mod query_limit;
mod refusal;
mod slots;
mod spec;
mod tag;
mod usage;
mod wait_queue;
mod waits;
mod watch;

pub use admission::{
    Admission, Arrived, CORE_IN_FLIGHT_MAX, Decision, Entrance, HeldRequest, INTERACTIVE_IN_FLIGHT_MAX,
    InFlight, LEVEL_IN_FLIGHT_MAX, Rejection, StatementsInFlight, decide,
};
pub use effective::{Effective, merge};
pub use gate::SlotUse;
pub use level::{Level, LevelEntry, RequestKind};
pub use levels::{Catalog, LEVELS_MAX, LevelError, Levels};
pub use limiter::limit_levels;
pub use limits::{DefaultLimit, LatencyUse, LimitUse};
pub use memory::{
    Account, Claim, LevelMemory, Memory, MemoryLimits, MemoryRequest, MemoryUse, PAGE_BYTES, entitlement,
};
pub use query_limit::{Action, Exceeded, QueryLimit};
pub use refusal::{Refusal, RefusalReason};
pub use slots::{
    Arrival, Occupancy, QUEUE_SIZE_DEFAULT, QUEUE_SIZE_MAX, Queue, SlotLease, SlotLimits, Waiter,
};
pub use spec::{DEFAULT_LEVEL, DRIVER_LEVEL, LatencyTarget, LevelSpec, SHARES_DEFAULT, WorkloadType};
pub use tag::{Alternative, Tag};
pub use usage::LevelUsage;
pub use wait_queue::{Overloaded, SlotRequest, Ticket, WaitingStatement, admit, enter, enter_running};
pub use watch::{StatementProgress, Watch};
