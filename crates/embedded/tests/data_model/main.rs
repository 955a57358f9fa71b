//! Cassandra's data model beyond rows and plain values, statement by statement.

mod altered_tables;
mod collections;
#[path = "../common/mod.rs"]
mod common;
mod conditions;
mod constants;
mod counters;
mod dropped_columns;
mod empty_values;
mod groups;
mod index_ranges;
mod index_values;
mod indexed_relations;
mod indexes;
mod json;
mod list_operations;
mod nearest;
mod options;
mod relations;
mod scenario;
mod user_types;
mod vectors;
mod views;
