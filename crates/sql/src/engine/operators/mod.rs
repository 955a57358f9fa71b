//! Plan nodes and functions around those of DataFusion: they place work on lanes, yield, and charge
//! memory that DataFusion does not reserve.

pub(crate) mod aggregate_memory;
pub(crate) mod charges;
pub(crate) mod coalesce;
pub(crate) mod exchange;
pub(crate) mod nested_loops;
pub(crate) mod pass_through;
pub(crate) mod wide_batches;
pub(crate) mod window_functions;
pub(crate) mod window_memory;
pub(crate) mod yields;
