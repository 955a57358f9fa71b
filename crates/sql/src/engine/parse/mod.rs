//! Turns a text into a syntax tree that DataFusion plans as PostgreSQL does: bounds on texts and
//! trees, parsing, and rewriting.

pub(crate) mod array_syntax;
pub(crate) mod catalog_subqueries;
pub(crate) mod column_names;
pub(crate) mod declared_types;
pub(crate) mod dialect;
pub(crate) mod masked_text;
pub(crate) mod precedence;
pub(crate) mod scopes;
pub(crate) mod set_returning;
pub(crate) mod stat_activity;
pub(crate) mod syntax;
pub(crate) mod text;
pub(crate) mod text_bounds;
pub(crate) mod to_char;
pub(crate) mod translate;
pub(crate) mod tree;
pub(crate) mod window_frames;
