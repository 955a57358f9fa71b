//! Bound values that outlive their request, because they wait for another core, for a heavy lane,
//! or for a later task poll. All values share one buffer. A batch has tens of thousands, and an
//! allocation for each would cost more than the copy.

use std::ops::Range;
use std::sync::Arc;

use engine::{AnswerGrant, AnswerMemory, Request, Value, Viewer};

use crate::read::Grants;

/// Location of a value in the buffer.
#[derive(Clone, Debug)]
enum Place {
    Null,
    Unset,
    At(Range<usize>),
}

/// Owned values. They can be sent to another core.
#[derive(Clone, Default, Debug)]
pub(crate) struct OwnedValues {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl OwnedValues {
    /// Copies the values of one request.
    pub(crate) fn of(values: &[Value<'_>]) -> OwnedValues {
        let mut owned = OwnedValues::default();
        owned.add(values);
        owned
    }

    /// Adds values. Returns their positions, for [`OwnedValues::borrowed`].
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

    /// Returns the values at these positions.
    pub(crate) fn borrowed(&self, places: Range<usize>) -> Vec<Value<'_>> {
        let borrowed = self.places[places].iter().map(|place| match place {
            Place::Null => Value::Null,
            Place::Unset => Value::Unset,
            Place::At(range) => Value::Bytes(&self.bytes[range.clone()]),
        });
        borrowed.collect()
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns all values.
    pub(crate) fn all(&self) -> Vec<Value<'_>> {
        self.borrowed(0..self.places.len())
    }
}

/// Owned request. It can be sent to another core.
#[derive(Clone, Debug)]
pub(crate) struct OwnedRequest {
    pub(crate) values: Arc<OwnedValues>,
    page_size: Option<u32>,
    page_bytes_max: usize,
    grant: Option<Arc<dyn AnswerGrant>>,
    paging_state: Option<Vec<u8>>,
    pub(crate) timestamp_us: Option<i64>,
    pub(crate) now_s: Option<u32>,
    serial: bool,
    viewer: Option<Arc<dyn Viewer>>,
}

impl OwnedRequest {
    /// Copies a request, with its own values or those of a batch.
    pub(crate) fn of(request: &Request<'_>, values: OwnedValues) -> OwnedRequest {
        OwnedRequest {
            values: Arc::new(values),
            page_size: request.page_size,
            page_bytes_max: request.page_bytes_max,
            grant: request.room.map(AnswerMemory::open),
            paging_state: request.paging_state.map(<[u8]>::to_vec),
            timestamp_us: request.timestamp_us,
            now_s: request.now_s,
            serial: request.serial,
            viewer: request.viewer.cloned(),
        }
    }

    /// Returns the grants for its answer.
    pub(crate) fn grants(&self) -> Grants {
        Grants::of(self.grant.clone())
    }

    /// Returns the request with the given part of its values.
    pub(crate) fn borrowed<'a>(&'a self, values: &'a [Value<'a>]) -> Request<'a> {
        Request {
            values,
            page_size: self.page_size,
            page_bytes_max: self.page_bytes_max,
            room: self.grant.as_ref().map(|grant| grant as &dyn AnswerMemory),
            paging_state: self.paging_state.as_deref(),
            timestamp_us: self.timestamp_us,
            now_s: self.now_s,
            serial: self.serial,
            viewer: self.viewer.as_ref(),
        }
    }
}
