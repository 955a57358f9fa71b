//! Queries on DataFusion: from a statement's text to a plan with PostgreSQL's types, errors and
//! bounds, and its execution on heavy lanes.
//!
//! ```text
//!   plan ──▶ parse ──▶ types ──▶ limits
//!     └────▶ operators ──────────▲
//! ```

pub(crate) mod limits;
pub(crate) mod operators;
pub(crate) mod parse;
pub(crate) mod plan;
pub(crate) mod plan_cache;
pub(crate) mod types;
pub(crate) mod values;
