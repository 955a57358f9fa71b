//! Warnings on their way to the client: of guardrails, and about expensive queries. A check records
//! its warning for the request that its thread works on. The listener sends the recorded warnings
//! with the answer.
//!
//! 1. A listener begins a request with [`Warnings::begin`], and takes its warnings with
//!    [`Warnings::take`].
//! 2. A request that continues as a task is polled within [`Warnings::collect`], so that requests
//!    do not mix.
//! 3. Work of a request on another lane is wrapped in [`Warnings::collect`] there. Its caller calls
//!    [`Warnings::give`].
//!
//! The number of warnings is bounded. They become text only when they are sent, so that a request
//! without warnings allocates nothing.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::{Guardrail, Guardrails};

/// Most warnings in one answer.
const WARNINGS_MAX: usize = 3;

/// Warnings of one request.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Warnings([Option<Warning>; WARNINGS_MAX]);

/// One warning. Every request copies room for some, so that notes are small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Warning {
    /// A guardrail whose warn threshold the request exceeded, with the highest value.
    Exceeded(Guardrail, u64),
    Noted(Note),
}

/// Warning that is not about a guardrail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// An aggregate, or a `GROUP BY`, over all partitions.
    AggregationOfAll,
    /// An aggregate, or a `GROUP BY`, over the partitions of an `IN`.
    AggregationOfSeveral,
    /// The nearest rows to a vector come in one page, though the page size is below the LIMIT.
    PageBelowLimit {
        /// Requested rows per page.
        page: u16,
        /// The LIMIT.
        limit: u16,
    },
    /// They are read at another consistency level than this one, by its place in [`LEVELS`].
    Downgraded(u8),
}

/// Consistency levels that are downgraded.
const LEVELS: [&str; 6] = ["QUORUM", "LOCAL_QUORUM", "EACH_QUORUM", "ALL", "TWO", "THREE"];

impl Note {
    /// Returns the warning that a consistency level is downgraded. `None` if it is not.
    #[must_use]
    pub fn downgraded(level: &str) -> Option<Note> {
        let at = LEVELS.iter().position(|known| *known == level)?;
        Some(Note::Downgraded(at as u8))
    }

    /// Returns Cassandra's text.
    fn text(self) -> String {
        match self {
            Note::AggregationOfAll => "Aggregation query used without partition key".to_owned(),
            Note::AggregationOfSeveral => {
                "Aggregation query used on multiple partition keys (IN restriction)".to_owned()
            }
            Note::PageBelowLimit { page, limit } => format!(
                "Top-K queries do not support paging and the page size is set to {page}, which is less than LIMIT \
                 {limit}. The page size has been set to {limit} to match the LIMIT."
            ),
            Note::Downgraded(at) => {
                let level = LEVELS[at as usize];
                format!(
                    "Top-K queries can only be run with consistency level ONE / LOCAL_ONE / NODE_LOCAL. Consistency \
                     level {level} was requested. Downgrading the consistency level to {}.",
                    if level.starts_with("LOCAL_") { "LOCAL_ONE" } else { "ONE" }
                )
            }
        }
    }
}

thread_local! {
    /// Warnings of the request that this thread works on.
    static RECORDED: Cell<Warnings> = const { Cell::new(Warnings::NONE) };
}

impl Warnings {
    /// No warnings.
    pub const NONE: Warnings = Warnings([None; WARNINGS_MAX]);

    /// Starts a request without warnings.
    pub fn begin() {
        RECORDED.set(Warnings::NONE);
    }

    /// Takes the warnings recorded on this thread.
    #[must_use]
    pub fn take() -> Warnings {
        RECORDED.replace(Warnings::NONE)
    }

    /// Adds these warnings to those recorded on this thread.
    pub fn give(self) {
        if !self.is_empty() {
            let mut recorded = RECORDED.get();
            self.0.iter().flatten().for_each(|warning| recorded.add(*warning));
            RECORDED.set(recorded);
        }
    }

    /// Wraps a future that has warnings of its own, starting with `before`. It returns them with
    /// its output.
    pub fn collect<F: Future>(before: Warnings, future: F) -> Collect<F> {
        Collect { future, own: before }
    }

    /// Does the same as [`Warnings::collect`], but discards the warnings at the end.
    pub fn within<F: Future>(before: Warnings, future: F) -> Within<F> {
        Within { collect: Warnings::collect(before, future) }
    }

    /// Records a value above a warn threshold. Ignored if [`WARNINGS_MAX`] others are recorded.
    #[cold]
    pub(crate) fn note(guardrail: Guardrail, value: u64) {
        Warnings::record(Warning::Exceeded(guardrail, value));
    }

    /// Records a note. Ignored if [`WARNINGS_MAX`] others are recorded.
    #[cold]
    pub fn add_note(note: Note) {
        Warnings::record(Warning::Noted(note));
    }

    fn record(warning: Warning) {
        let mut recorded = RECORDED.get();
        recorded.add(warning);
        RECORDED.set(recorded);
    }

    fn add(&mut self, warning: Warning) {
        for entry in &mut self.0 {
            let merged = match (*entry, warning) {
                (None, warning) => warning,
                (Some(Warning::Exceeded(known, high)), Warning::Exceeded(guardrail, value))
                    if known == guardrail =>
                {
                    Warning::Exceeded(guardrail, high.max(value))
                }
                (Some(known), warning) if known == warning => known,
                _ => continue,
            };
            *entry = Some(merged);
            return;
        }
    }

    /// Returns true if there are no warnings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    /// Returns the texts of the warnings.
    #[must_use]
    #[inline]
    pub fn texts(&self, guardrails: &Guardrails) -> Vec<String> {
        if self.is_empty() { Vec::new() } else { self.some_texts(guardrails) }
    }

    #[cold]
    fn some_texts(&self, guardrails: &Guardrails) -> Vec<String> {
        let text = |warning: &Warning| match warning {
            Warning::Exceeded(guardrail, value) => guardrails.warning(*guardrail, *value),
            Warning::Noted(note) => note.text(),
        };
        self.0.iter().flatten().map(text).collect()
    }
}

pin_project! {
    /// Future with warnings of its own: see [`Warnings::collect`]. It is not an async function,
    /// because such a function stores the future twice. Tasks of requests would double in size.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are polled"]
    pub struct Collect<F> {
        #[pin]
        future: F,
        own: Warnings,
    }
}

impl<F: Future> Future for Collect<F> {
    type Output = (F::Output, Warnings);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let outer = RECORDED.replace(*this.own);
        let polled = this.future.poll(cx);
        *this.own = RECORDED.replace(outer);
        polled.map(|output| (output, *this.own))
    }
}

pin_project! {
    /// Future with warnings of its own: see [`Warnings::within`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are polled"]
    pub struct Within<F> {
        #[pin]
        collect: Collect<F>,
    }
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().collect.poll(cx).map(|(output, _)| output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(values: &[(Guardrail, u64)]) -> Warnings {
        Warnings::begin();
        values.iter().for_each(|(guardrail, value)| Warnings::note(*guardrail, *value));
        Warnings::take()
    }

    #[test]
    fn each_guardrail_is_recorded_with_its_highest_value() {
        let guardrails = Guardrails::default();
        assert_eq!(recorded(&[]).texts(&guardrails), [""; 0]);
        let same =
            recorded(&[(Guardrail::InValues, 2000), (Guardrail::InValues, 3000), (Guardrail::InValues, 1)]);
        assert_eq!(
            same.texts(&guardrails),
            [
                "Guardrail in_values warning: expected at most 1000 values in one IN, got 3000: send several statements"
            ]
        );
        let many = crate::GUARDRAILS.map(|spec| (spec.guardrail, u64::MAX));
        let texts = recorded(&many).texts(&guardrails);
        assert_eq!(texts.len(), WARNINGS_MAX);
        assert!(texts.iter().all(|text| text.len() < 500), "{texts:?}");
    }

    #[test]
    fn note_is_recorded_once_beside_guardrails() {
        Warnings::begin();
        Warnings::add_note(Note::AggregationOfAll);
        Warnings::note(Guardrail::InValues, 2000);
        Warnings::add_note(Note::AggregationOfAll);
        let texts = Warnings::take().texts(&Guardrails::default());
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert_eq!(texts[0], "Aggregation query used without partition key");
    }

    #[test]
    fn warnings_of_other_kinds_are_passed_on_once() {
        let page = Note::PageBelowLimit { page: 2, limit: 3 };
        Warnings::begin();
        let lower = Note::downgraded("LOCAL_QUORUM").expect("a level that is downgraded");
        for note in [page, lower, page] {
            Warnings::add_note(note);
        }
        let taken = Warnings::take();
        assert!(!taken.is_empty() && Warnings::take().is_empty());
        taken.give();
        let texts = Warnings::take().texts(&Guardrails::default());
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(
            texts[0].contains("set to 2, which is less than LIMIT 3") && texts[1].contains("to LOCAL_ONE.")
        );
    }

    #[test]
    fn collecting_adds_only_the_warnings_to_a_future() {
        let future = async {
            let large = [0_u8; 1000];
            std::future::ready(()).await;
            std::hint::black_box(&large);
        };
        let before = size_of_val(&future);
        let collecting = Warnings::collect(Warnings::NONE, future);
        assert!(size_of_val(&collecting) < before + size_of::<Warnings>() + align_of::<Warnings>());
    }

    #[test]
    fn tasks_have_warnings_of_their_own() {
        let other = recorded(&[(Guardrail::Columns, 300)]);
        Warnings::note(Guardrail::InValues, 2000);
        let lanes = lanes::Config { cores: vec![0], pin: false, ..lanes::Config::detect() };
        let lanes = lanes::Lanes::start(lanes).expect("lanes start");
        let (inner, outer) = lanes.block_on(0, lanes::Group::CONTROL, move || async move {
            Warnings::begin();
            let work = async {
                Warnings::note(Guardrail::Tables, 600);
                lanes::yield_now().await;
                Warnings::note(Guardrail::Tables, 700);
            };
            let ((), inner) = Warnings::collect(other, work).await;
            (inner, Warnings::take())
        });
        lanes.shutdown();
        assert_eq!(outer, Warnings::NONE);
        assert_eq!(inner, recorded(&[(Guardrail::Columns, 300), (Guardrail::Tables, 700)]));
    }
}
