//! Notes of a traced request, on their way to its trace. Code that works for a request records what
//! it does with [`note`]. The listener collects the notes of a request that its client traces.
//!
//! Other requests pay for one check of a flag of the thread. Work on other cores and lanes records
//! nothing itself: the caller notes that it begins and ends.

use std::cell::RefCell;

/// Most notes of one request.
const NOTES_MAX: usize = 64;

/// A note.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceNote {
    /// Time, ns of the monotonic clock.
    pub at_ns: u64,
    /// The event.
    pub text: String,
}

thread_local! {
    /// Notes of the traced request that this thread works on. `None`: it is not traced.
    static NOTES: RefCell<Option<Vec<TraceNote>>> = const { RefCell::new(None) };
}

/// Records a note if the request is traced. Ignored above [`NOTES_MAX`] notes.
#[inline]
pub fn note(text: impl FnOnce() -> String) {
    NOTES.with_borrow_mut(|notes| {
        if let Some(notes) = notes
            && notes.len() < NOTES_MAX
        {
            notes.push(TraceNote { at_ns: lanes::time::monotonic_ns(), text: text() });
        }
    });
}

/// Puts the notes of other work back, also after a panic.
struct Outer<'a> {
    outer: Option<Vec<TraceNote>>,
    own: &'a mut Vec<TraceNote>,
}

impl Drop for Outer<'_> {
    fn drop(&mut self) {
        let own = NOTES.replace(self.outer.take());
        *self.own = own.unwrap_or_default();
    }
}

/// Runs work of a traced request. Adds its notes to `notes`.
pub fn collect_notes<R>(notes: &mut Vec<TraceNote>, work: impl FnOnce() -> R) -> R {
    let outer = NOTES.replace(Some(std::mem::take(notes)));
    let _outer = Outer { outer, own: notes };
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_traced_work_is_noted() {
        let lanes = lanes::Config { cores: vec![0], pin: false, ..lanes::Config::detect() };
        let lanes = lanes::Lanes::start(lanes).expect("lanes start");
        let (first, second) = lanes.block_on(0, lanes::Group::CONTROL, || async {
            note(|| unreachable!("nothing is traced"));
            let (mut first, mut second) = (Vec::new(), Vec::new());
            collect_notes(&mut first, || {
                note(|| "a".into());
                collect_notes(&mut second, || (0..2 * NOTES_MAX).for_each(|_| note(|| "b".into())));
                note(|| "c".into());
            });
            let panicked = lanes::catch_panic_in(|| collect_notes(&mut second, || panic!("for the test")));
            assert!(panicked.is_err());
            note(|| unreachable!("nothing is traced after a panic either"));
            (first, second)
        });
        lanes.shutdown();
        assert_eq!(first.iter().map(|note| &*note.text).collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(second.len(), NOTES_MAX);
    }
}
