//! Notes in the panels: a text for each phase.

use crate::results::{Chapter, Window};
use charts::Note;

/// Returns the notes of phases for which `texts` returns any: the same text, from long to short.
pub(super) fn notes(chapter: &Chapter, texts: impl Fn(&Window) -> Option<Vec<String>>) -> Vec<Note> {
    let note = |(band, window): (usize, &Window)| Some(Note { band, between: None, texts: texts(window)? });
    chapter.windows.iter().enumerate().filter_map(note).collect()
}
