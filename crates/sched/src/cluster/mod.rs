//! Rules of several fronts before one cluster. The fronts share each node's window ([`Parts`]).

mod parts;

pub use parts::{PartSpec, Parts};
