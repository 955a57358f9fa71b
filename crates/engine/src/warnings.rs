//! Warnings of guardrails on their way to the client. A check that warns notes it for the request that its thread works on; the
//! listener takes the notes with the answer.
//!
//! 1. A listener begins a request with [`Warnings::begin`], and takes what was noted with [`Warnings::take`].
//! 2. A request that goes on as a task is polled within [`Warnings::collect`], so that requests do not mix.
//! 3. Work of a request that runs on another lane is wrapped in [`Warnings::collect`] there; its caller calls [`Warnings::give`].
//!
//! Notes are bounded, and are texts only once they are sent: a request without warnings allocates nothing.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::{Guardrail, Guardrails};

/// Guardrails that one answer warns of.
const WARNINGS_MAX: usize = 3;

/// Guardrails whose warn thresholds a request is beyond, each with the greatest value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Warnings([Option<(Guardrail, u64)>; WARNINGS_MAX]);

thread_local! {
    /// Those of the request that is being worked on.
    static NOTED: Cell<Warnings> = const { Cell::new(Warnings::NONE) };
}

impl Warnings {
    /// No warnings.
    pub const NONE: Warnings = Warnings([None; WARNINGS_MAX]);

    /// Begins with none for the request that is worked on next.
    pub fn begin() {
        NOTED.set(Warnings::NONE);
    }

    /// Takes what was noted on this thread.
    #[must_use]
    pub fn take() -> Warnings {
        NOTED.replace(Warnings::NONE)
    }

    /// Adds these to what is noted on this thread.
    pub fn give(self) {
        if !self.is_empty() {
            let mut noted = NOTED.get();
            self.0.iter().flatten().for_each(|(guardrail, value)| noted.add(*guardrail, *value));
            NOTED.set(noted);
        }
    }

    /// Polls a future with notes of its own, which begin with `before`. Returns its output and its notes.
    pub fn collect<F: Future>(before: Warnings, future: F) -> Collect<F> {
        Collect { future, own: before }
    }

    /// As [`Warnings::collect`], where nobody asks for the notes at the end.
    pub fn within<F: Future>(before: Warnings, future: F) -> Within<F> {
        Within { collect: Warnings::collect(before, future) }
    }

    /// Notes a value beyond a warn threshold. Of further guardrails than [`WARNINGS_MAX`] nothing is noted.
    #[cold]
    pub(crate) fn note(guardrail: Guardrail, value: u64) {
        let mut noted = NOTED.get();
        noted.add(guardrail, value);
        NOTED.set(noted);
    }

    fn add(&mut self, guardrail: Guardrail, value: u64) {
        let of_it = |noted: &Option<(Guardrail, u64)>| noted.is_none_or(|(of, _)| of == guardrail);
        if let Some(place) = self.0.iter_mut().find(|noted| of_it(noted)) {
            *place = Some((guardrail, place.map_or(value, |(_, known)| known.max(value))));
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    /// The warnings in the words of the guardrails.
    #[must_use]
    pub fn texts(&self, guardrails: &Guardrails) -> Vec<String> {
        self.0.iter().flatten().map(|(guardrail, value)| guardrails.warning(*guardrail, *value)).collect()
    }
}

pin_project! {
    /// A future with notes of its own: see [`Warnings::collect`]. It is no async function, as one
    /// holds the future twice: tasks of requests would be copied with twice the bytes.
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
        let outer = NOTED.replace(*this.own);
        let polled = this.future.poll(cx);
        *this.own = NOTED.replace(outer);
        polled.map(|output| (output, *this.own))
    }
}

pin_project! {
    /// A future with notes of its own: see [`Warnings::within`].
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

    fn noted(values: &[(Guardrail, u64)]) -> Warnings {
        Warnings::begin();
        values.iter().for_each(|(guardrail, value)| Warnings::note(*guardrail, *value));
        Warnings::take()
    }

    #[test]
    fn few_guardrails_are_noted_each_with_its_greatest_value() {
        let guardrails = Guardrails::default();
        assert_eq!(noted(&[]).texts(&guardrails), [""; 0]);
        let same =
            noted(&[(Guardrail::InValues, 2000), (Guardrail::InValues, 3000), (Guardrail::InValues, 1)]);
        assert_eq!(
            same.texts(&guardrails),
            [
                "Guardrail in_values warning: expected at most 1000 values in one IN, got 3000: send several statements"
            ]
        );
        let many = crate::GUARDRAILS.map(|spec| (spec.guardrail, u64::MAX));
        let texts = noted(&many).texts(&guardrails);
        assert_eq!(texts.len(), WARNINGS_MAX);
        assert!(texts.iter().all(|text| text.len() < 500), "{texts:?}");
    }

    #[test]
    fn collecting_adds_the_notes_alone_to_a_future() {
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
    fn tasks_have_notes_of_their_own() {
        let other = noted(&[(Guardrail::Columns, 300)]);
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
        assert_eq!(inner, noted(&[(Guardrail::Columns, 300), (Guardrail::Tables, 700)]));
    }
}
