//! Tables and metrics of the engine itself.

pub(crate) mod metrics;
pub(crate) mod own_tables;
pub(crate) mod system_schema;
pub(crate) mod table_uses;
pub(crate) mod table_view;
pub(crate) mod task_tables;
pub(crate) mod view_tables;
