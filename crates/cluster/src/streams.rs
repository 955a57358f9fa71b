//! Streams of one connection to a node: each pairs a request with its answer.

use lanes::sync::oneshot::{Receiver, Sender, channel};

use wire::Envelope;

use crate::Refusal;
use crate::node::Place;

/// Requests in flight on one connection, at most: as many as the protocol has streams.
pub(crate) const STREAMS_MAX: usize = 1 << 15;

/// Result of a request.
pub(crate) type Answered = Result<Envelope, Refusal>;

/// A request in flight, which waits for its answer.
pub(crate) struct Waiting {
    pub(crate) sender: Sender<Answered>,
    /// Its place in the window of the node, which a cancelled request keeps as well. `None`: a
    /// request of the front itself.
    pub(crate) place: Option<Place>,
}

/// Requests in flight, by stream.
#[derive(Default)]
pub(crate) struct Streams {
    waiting: Vec<Option<Waiting>>,
    free: Vec<i16>,
    /// Requests that were not written to the socket yet.
    unwritten: Vec<i16>,
    in_flight: usize,
}

impl Streams {
    /// Takes a stream for a request that is sent with `place`. `None`: all are in use.
    ///
    /// A cancelled request keeps its stream until its answer comes: another request would get that
    /// answer.
    pub(crate) fn take(&mut self, place: Option<Place>) -> Option<(i16, Receiver<Answered>)> {
        let (sender, receiver) = channel();
        let stream = match self.free.pop() {
            Some(stream) => stream,
            None if self.waiting.len() < STREAMS_MAX => {
                self.waiting.push(None);
                i16::try_from(self.waiting.len() - 1).expect("fewer streams than 2^15")
            }
            None => return None,
        };
        place.iter().for_each(|place| place.set_used(true));
        if place.is_some() {
            self.unwritten.push(stream);
        }
        self.waiting[usize::from(stream.unsigned_abs())] = Some(Waiting { sender, place });
        self.in_flight += 1;
        Some((stream, receiver))
    }

    /// Starts the clocks of the requests that are written to the socket now.
    pub(crate) fn written(&mut self, now_ns: u64) {
        for stream in self.unwritten.drain(..) {
            let waiting = self.waiting.get(usize::from(stream.unsigned_abs())).and_then(Option::as_ref);
            waiting.iter().flat_map(|waiting| &waiting.place).for_each(|place| place.written(now_ns));
        }
    }

    /// Returns the waiting request of an answer. `None`: the stream is not in use.
    pub(crate) fn answered(&mut self, stream: i16) -> Option<Waiting> {
        let index = usize::try_from(stream).ok()?;
        let waiting = self.waiting.get_mut(index)?.take()?;
        self.free.push(stream);
        self.in_flight -= 1;
        Some(waiting)
    }

    /// Returns the number of requests in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes all waiting requests, because the connection has ended.
    pub(crate) fn take_all(&mut self) -> Vec<Waiting> {
        self.free.clear();
        self.unwritten.clear();
        self.in_flight = 0;
        std::mem::take(&mut self.waiting).into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_used_again_only_after_its_answer() {
        let mut streams = Streams::default();
        let (first, receiver) = streams.take(None).expect("free");
        // The caller gave up.
        drop(receiver);
        let (second, _receiver) = streams.take(None).expect("free");
        assert_ne!(first, second, "the answer of the first may still come");
        assert!(streams.answered(first).is_some());
        let (third, _receiver) = streams.take(None).expect("free");
        assert_eq!(third, first);
        assert_eq!(streams.in_flight(), 2);
    }

    #[test]
    fn streams_are_bounded_and_unknown_ones_ignored() {
        let mut streams = Streams::default();
        assert!(streams.answered(i16::MAX).is_none(), "not in use yet");
        let taken: Vec<_> = (0..STREAMS_MAX).map(|_| streams.take(None).expect("free")).collect();
        assert!(streams.take(None).is_none());
        assert!(streams.answered(-1).is_none());
        assert_eq!(taken.len(), streams.take_all().len());
        assert_eq!(streams.in_flight(), 0);
    }
}
