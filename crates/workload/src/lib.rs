//! Service levels in memory: what they are called, what they may have, which group of the lanes each one is, whose
//! level a role's statements run in, and what each level has been served. Nothing here knows CQL text, roles or
//! storage: `access` keeps the catalogue in tables and tells this room of every change.
//!
//! ```text
//!   CREATE/ALTER/DROP ──▶ Levels ──▶ lanes groups          (shares, class, cap: at once, on all cores)
//!                           └──────▶ Catalogue (immutable; one pointer is swapped)
//!   a role's levels ──merge──▶ Effective ──admit──▶ InFlight ──record──▶ histograms of the core ──▶ metrics
//! ```

mod admission;
mod effective;
mod gate;
mod histogram;
mod level;
mod levels;
mod memory;
mod metrics;
mod query_limit;
mod refusal;
mod slots;
mod spec;
mod usage;
mod waits;

pub use admission::{
    Admission, CORE_IN_FLIGHT_MAX, Decision, INTERACTIVE_IN_FLIGHT_MAX, InFlight, LEVEL_IN_FLIGHT_MAX,
    Refused, decide,
};
pub use effective::{Effective, merge};
pub use gate::{Entrance, Overloaded, SlotUse, Ticket, Waiting, admit, enter};
pub use level::{Kind, Level};
pub use levels::{Catalogue, Entry, LEVELS_MAX, LevelError, Levels};
pub use memory::{Account, Ask, LevelMemory, Memory, MemoryLimits, MemoryUse, PAGE_BYTES, due};
pub use query_limit::{Action, Exceeded, QueryLimit, Watch};
pub use refusal::{Refusal, Why};
pub use slots::{Arrival, Crowd, QUEUE_SIZE_DEFAULT, QUEUE_SIZE_MAX, Queue, SlotLimits, Waiter};
pub use spec::{DEFAULT_LEVEL, DRIVER_LEVEL, LevelSpec, WorkloadType};
pub use usage::LevelUsage;
