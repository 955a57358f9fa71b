//! Figures as SVG text. Panels stand one below the other and share the time axis. Phases are shaded
//! through all panels and named above. Lines and areas carry their names, so that no legend is
//! needed. Colours come from the page by class, for light and dark schemes. Lines also differ in
//! dashes and marks. Both axes have titles, and labels that differ and do not overlap.
//!
//! ```text
//!              alone        beside it      alone again      phases
//!   y title  ┌─────────────┬─┬────────────┬─┬────────────┐
//!   marks  ──┤ note        │ │ note       │ │ note       │  one panel
//!            └─────────────┴─┴────────────┴─┴────────────┘
//!            0             20             40                marks
//!                           x title
//! ```

mod axis;
mod draw;
mod label;
mod model;
pub mod numbers;
mod page;
mod panel;

pub use axis::Scale;
pub use draw::{draw, group};
pub use model::{Across, Band, Figure, Layout, Line, NARROW, Note, Panel, Rule, WIDE, escaped};
pub use page::{
    HALF, SPACE, begin, close_table, end, figure_element, file, heading, notes_element, open_table, row,
};
