//! Queries on DataFusion: from a statement's text to a plan with PostgreSQL's types, errors and
//! bounds, and its execution on heavy lanes.

pub(crate) mod bounded;
pub(crate) mod call_names;
pub(crate) mod column_names;
pub(crate) mod dialect;
pub(crate) mod dynamic_filters;
pub(crate) mod engines;
pub(crate) mod exact;
pub(crate) mod exchange;
pub(crate) mod extent;
pub(crate) mod filter;
pub(crate) mod frames;
pub(crate) mod functions;
pub(crate) mod interval;
pub(crate) mod measure;
pub(crate) mod memory;
pub(crate) mod misfits;
pub(crate) mod passage;
pub(crate) mod plan;
pub(crate) mod plan_cache;
pub(crate) mod planning;
pub(crate) mod producer;
pub(crate) mod run;
pub(crate) mod scan;
pub(crate) mod snapshots;
pub(crate) mod spill;
pub(crate) mod table;
pub(crate) mod tasks;
pub(crate) mod text;
pub(crate) mod text_form;
pub(crate) mod to_char;
pub(crate) mod translate;
pub(crate) mod tree;
pub(crate) mod walk;
pub(crate) mod wide;
pub(crate) mod yields;
