//! The CQL language: text ⇄ syntax tree. Nothing here knows storage or sessions, and no name is looked up:
//! whether a table exists, a value fits or an option is known is decided by whoever executes the statement.

pub mod ast;

pub use ast::Statement;
