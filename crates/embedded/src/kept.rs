//! Bound values that outlive their request: they wait for another core, for a heavy lane, or for a
//! later task poll. All are in one buffer: a batch has tens of thousands, and an allocation for
//! each would cost more than the copy.

use std::ops::Range;
use std::sync::Arc;

use engine::{AnswerMemory, AnswerRoom, Request, Value, Viewer};

/// A value's place in the buffer.
#[derive(Clone, Debug)]
enum Place {
    Null,
    Unset,
    At(Range<usize>),
}

/// Values that can travel.
#[derive(Clone, Default, Debug)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl Kept {
    /// The values of one request.
    pub(crate) fn of(values: &[Value<'_>]) -> Kept {
        let mut kept = Kept::default();
        kept.add(values);
        kept
    }

    /// Adds values; gives their places, for [`Kept::lent`].
    pub(crate) fn add(&mut self, values: &[Value<'_>]) -> Range<usize> {
        let first = self.places.len();
        for value in values {
            self.places.push(match value {
                Value::Null => Place::Null,
                Value::Unset => Place::Unset,
                Value::Bytes(bytes) => {
                    let start = self.bytes.len();
                    self.bytes.extend_from_slice(bytes);
                    Place::At(start..self.bytes.len())
                }
            });
        }
        first..self.places.len()
    }

    /// The values at these places.
    pub(crate) fn lent(&self, places: Range<usize>) -> Vec<Value<'_>> {
        let lent = self.places[places].iter().map(|place| match place {
            Place::Null => Value::Null,
            Place::Unset => Value::Unset,
            Place::At(range) => Value::Bytes(&self.bytes[range.clone()]),
        });
        lent.collect()
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// All values.
    pub(crate) fn all(&self) -> Vec<Value<'_>> {
        self.lent(0..self.places.len())
    }
}

/// A request that can travel.
#[derive(Clone, Debug)]
pub(crate) struct KeptRequest {
    pub(crate) values: Arc<Kept>,
    page_size: Option<u32>,
    page_bytes_max: usize,
    room: Option<Arc<dyn AnswerRoom>>,
    paging_state: Option<Vec<u8>>,
    pub(crate) timestamp_us: Option<i64>,
    pub(crate) now_s: Option<u32>,
    serial: bool,
    viewer: Option<Arc<dyn Viewer>>,
}

impl KeptRequest {
    /// The request with values of its own or of a batch.
    pub(crate) fn of(request: &Request<'_>, values: Kept) -> KeptRequest {
        KeptRequest {
            values: Arc::new(values),
            page_size: request.page_size,
            page_bytes_max: request.page_bytes_max,
            room: request.room.map(AnswerMemory::open),
            paging_state: request.paging_state.map(<[u8]>::to_vec),
            timestamp_us: request.timestamp_us,
            now_s: request.now_s,
            serial: request.serial,
            viewer: request.viewer.cloned(),
        }
    }

    /// The request with these of its values.
    pub(crate) fn lent<'a>(&'a self, values: &'a [Value<'a>]) -> Request<'a> {
        Request {
            values,
            page_size: self.page_size,
            page_bytes_max: self.page_bytes_max,
            room: self.room.as_ref().map(|room| room as &dyn AnswerMemory),
            paging_state: self.paging_state.as_deref(),
            timestamp_us: self.timestamp_us,
            now_s: self.now_s,
            serial: self.serial,
            viewer: self.viewer.as_ref(),
        }
    }
}
