//! `fairlane load usl`: throughput over concurrency. Measures a ladder of closed loops, fits the
//! Universal Scalability Law, and derives the concurrency up to which throughput is linear.
//!
//! ```text
//!   cli ── ladder: rounds of shuffled rungs ──► rung: validity ──► scaling ──► text · JSON · plot
//!            experiment                                             fit · law · confidence
//! ```
//!
//! N is the number of requests in flight, X the answers a second without error, and R the response
//! time by the client's clock. Connections and threads are the same for all N, since they are
//! variables of their own.

mod cli;
mod confidence;
mod fit;
pub(crate) mod flags;
mod ladder;
mod law;
mod page;
mod rung;
mod scaling;
mod text;

pub(crate) use cli::run as cli;
pub use confidence::Estimate;
pub use fit::{Point, fit};
pub(crate) use ladder::read as read_ladder;
pub use ladder::{Ladder, LadderPlan, ladder};
pub use law::Usl;
pub use rung::Rung;
pub use scaling::{FittedLaw, Misfit, Peak, Scaling};
#[cfg(test)]
pub(crate) use text::synthetic;
