//! Running INSERT, UPDATE, DELETE and BATCH.

pub(crate) mod batch;
pub(crate) mod batch_log;
pub(crate) mod clock;
pub(crate) mod conditions;
mod json_values;
pub(crate) mod modify;
pub(crate) mod mutations;
pub(crate) mod run;
pub(crate) mod times;
