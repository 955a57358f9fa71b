//! Definitions: statements that change the schema, and what acts on whole tables.

pub(crate) mod catalog;
pub(crate) mod definition;
pub(crate) mod index_build;
pub(crate) mod maintenance;
pub(crate) mod restore;
pub(crate) mod snapshot;
pub(crate) mod state;
pub(crate) mod truncate;
