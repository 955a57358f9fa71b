//! Bound values that outlive their request, because they wait for another core, for a heavy lane,
//! or for a later task poll. All values share one buffer. A batch has tens of thousands, and an
//! allocation for each would cost more than the copy. Values of a large request stay where they
//! are: copying 16 MiB takes several milliseconds.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use engine::{AnswerGrant, AnswerMemory, Request, Value, Viewer};

use crate::read::chunk::Grants;

/// Values that are listed in one work unit, at about 2 ns each.
const VALUES_PER_UNIT: usize = 40;

/// Location of a value in the buffer.
#[derive(Clone, Debug)]
enum Place {
    Null,
    Unset,
    At(Range<usize>),
    /// In the body of the request.
    InBody(Range<usize>),
}

/// Owned values. They can be sent to another core.
#[derive(Clone, Default, Debug)]
pub(crate) struct OwnedValues {
    /// Body of a large request.
    body: Option<Bytes>,
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl OwnedValues {
    /// Takes the values of one request.
    pub(crate) fn of(request: &Request<'_>) -> OwnedValues {
        let mut owned = OwnedValues::within(request);
        owned.add(request.values);
        owned
    }

    /// Returns no values. Those that are in the body of the request will not be copied.
    pub(crate) fn within(request: &Request<'_>) -> OwnedValues {
        OwnedValues { body: request.body.cloned(), ..OwnedValues::default() }
    }

    /// Adds values. Returns their positions, for [`OwnedValues::borrowed`].
    pub(crate) fn add(&mut self, values: &[Value<'_>]) -> Range<usize> {
        let first = self.places.len();
        lanes::count((values.len() / VALUES_PER_UNIT) as u32);
        for value in values {
            let place = match value {
                Value::Null => Place::Null,
                Value::Unset => Place::Unset,
                Value::Bytes(bytes) => self.in_body(bytes).unwrap_or_else(|| {
                    let start = self.bytes.len();
                    lanes::count_copied(bytes.len());
                    self.bytes.extend_from_slice(bytes);
                    Place::At(start..self.bytes.len())
                }),
            };
            self.places.push(place);
        }
        first..self.places.len()
    }

    /// Adds the values at these positions again, followed by others. Returns their positions.
    pub(crate) fn add_behind(&mut self, places: Range<usize>, others: &[Value<'_>]) -> Range<usize> {
        let first = self.places.len();
        self.places.extend_from_within(places);
        self.add(others);
        first..self.places.len()
    }

    /// Returns the location of a value in the body, if it is there.
    fn in_body(&self, value: &[u8]) -> Option<Place> {
        let body = self.body.as_ref()?;
        let start = (value.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
        let end = start.checked_add(value.len())?;
        (end <= body.len()).then_some(Place::InBody(start..end))
    }

    /// Returns the values at these positions.
    pub(crate) fn borrowed(&self, places: Range<usize>) -> Vec<Value<'_>> {
        lanes::count((places.len() / VALUES_PER_UNIT) as u32);
        let body = self.body.as_deref().unwrap_or_default();
        let borrowed = self.places[places].iter().map(|place| match place {
            Place::Null => Value::Null,
            Place::Unset => Value::Unset,
            Place::At(range) => Value::Bytes(&self.bytes[range.clone()]),
            Place::InBody(range) => Value::Bytes(&body[range.clone()]),
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

/// Values of one statement after the other. Statements of a textual BATCH share the values of their
/// request, which are borrowed once.
#[derive(Debug)]
pub(crate) struct InTurn<'a> {
    all: &'a OwnedValues,
    places: Range<usize>,
    values: Vec<Value<'a>>,
}

impl<'a> InTurn<'a> {
    /// Begins before the first statement.
    pub(crate) fn of(all: &'a OwnedValues) -> InTurn<'a> {
        InTurn { all, places: 0..0, values: Vec::new() }
    }

    /// Returns the values at these positions.
    pub(crate) fn at(&mut self, places: &Range<usize>) -> &[Value<'a>] {
        if self.places != *places {
            self.values = self.all.borrowed(places.clone());
            self.places = places.clone();
        }
        &self.values
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
    consistency: &'static str,
    pub(crate) viewer: Option<Arc<dyn Viewer>>,
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
            consistency: request.consistency,
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
            body: None,
            page_size: self.page_size,
            page_bytes_max: self.page_bytes_max,
            room: self.grant.as_ref().map(|grant| grant as &dyn AnswerMemory),
            paging_state: self.paging_state.as_deref(),
            timestamp_us: self.timestamp_us,
            now_s: self.now_s,
            serial: self.serial,
            consistency: self.consistency,
            viewer: self.viewer.as_ref(),
        }
    }
}
