//! PostgreSQL's types and functions in DataFusion's plans, with their errors and text forms.

pub(crate) mod argument_errors;
pub(crate) mod checked_text;
pub(crate) mod exact;
pub(crate) mod functions;
pub(crate) mod interval;
pub(crate) mod size_pretty;
pub(crate) mod text_form;
