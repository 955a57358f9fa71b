//! Running a SELECT.

mod by_column;
pub(crate) mod by_index;
mod by_view;
pub(crate) mod chunk;
pub(crate) mod json_rows;
pub(crate) mod nearest;
pub(crate) mod nearness;
pub(crate) mod ordered;
pub(crate) mod paging;
pub(crate) mod partition;
pub(crate) mod point;
pub(crate) mod row_answer;
pub(crate) mod run;
pub(crate) mod scan;
pub(crate) mod virtual_select;
