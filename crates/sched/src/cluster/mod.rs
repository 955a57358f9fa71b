//! Rules of several fronts before one cluster. The fronts share each node's window ([`Parts`]) and
//! the statements in flight of a level ([`Lease`]).

mod leases;
mod parts;

pub use leases::{
    FrontDemand, FrontId, Holder, Lease, LeaseInput, LeaseRow, LeaseWrite, Presence, RENEWED_FOR_NS,
    ROW_TTL_NS, WriteOutcome,
};
pub use parts::{PartSpec, Parts};
