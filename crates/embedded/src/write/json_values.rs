//! Values that INSERT JSON statements read from their texts, added behind the values of the client.

use std::ops::Range;
use std::sync::Arc;

use engine::{Error, Value};
use schema::value::json::JsonColumn;

use crate::heavy_lane::heavy;
use crate::owned::OwnedValues;
use crate::write::batch::{Unchecked, WRITE_BYTES_MAX};
use crate::write::mutations::WritePlan;

/// Bytes of JSON that one task poll reads, at about 10 ns each.
const BYTES_AT_ONCE: usize = 4 << 10;

/// Values that are added in one task poll. Each becomes a cell, at about 100 ns.
const VALUES_AT_ONCE: usize = 256;

/// Bytes that an added value costs besides its own: its place, and the cell of a null.
const VALUE_BYTES: u64 = 32;

/// Writes whose values are read from texts, with the positions of the client's values.
struct Texts {
    /// Position in the batch.
    at: usize,
    plans: Arc<[WritePlan]>,
    places: Range<usize>,
}

impl Texts {
    /// Reads the texts. Returns the positions of all values. `bytes` is the size of the values that
    /// were added to the batch so far.
    ///
    /// # Errors
    /// Returns an error if a text is invalid, or if the values are larger than a batch may be.
    fn read(&self, values: &mut OwnedValues, bytes: &mut u64) -> Result<Range<usize>, Error> {
        let given = values.borrowed(self.places.clone());
        let mut columns: Vec<(&WritePlan, Vec<JsonColumn>)> = Vec::new();
        for plan in self.plans.iter() {
            let Some(text) = plan.json else { continue };
            let read = text.read(&plan.def, &given)?;
            let size = |column: &JsonColumn| match column {
                JsonColumn::Value(value) => VALUE_BYTES + value.len() as u64,
                JsonColumn::Missing | JsonColumn::Null => VALUE_BYTES,
            };
            *bytes += read.iter().map(size).sum::<u64>();
            if *bytes > WRITE_BYTES_MAX {
                return Err(Error::Invalid(format!(
                    "expected at most {WRITE_BYTES_MAX} bytes of values in the JSON of one statement or batch, got \
                     {bytes} or more: send several statements"
                )));
            }
            columns.push((plan, read));
        }
        let added: Vec<Value<'_>> = columns
            .iter()
            .filter_map(|(plan, read)| Some((plan.json?, read)))
            .flat_map(|(text, read)| read.iter().map(move |column| text.value(column)))
            .collect();
        Ok(values.add_behind(self.places.clone(), &added))
    }
}

impl Unchecked {
    /// Returns the texts to read.
    fn texts(&self) -> Vec<Texts> {
        let writes = self.json_writes();
        writes.map(|(at, plans, places)| Texts { at, plans: plans.clone(), places: places.clone() }).collect()
    }

    /// Returns true if one task poll can read its JSON.
    pub(super) fn has_short_json(&self) -> bool {
        let (mut bytes, mut values) = (0, 0);
        for (_, plans, places) in self.json_writes() {
            let given = self.values().borrowed(places.clone());
            for plan in plans.iter() {
                bytes += plan.json.map_or(0, |text| text.bytes(&given));
                values += plan.json.map_or(0, |_| plan.def.columns.len());
            }
            if bytes > BYTES_AT_ONCE || values > VALUES_AT_ONCE {
                return false;
            }
        }
        true
    }

    /// Reads its JSON in this task poll.
    ///
    /// # Errors
    /// Returns the errors of [`Texts::read`].
    pub(super) fn with_json(mut self) -> Result<Unchecked, Error> {
        let (texts, mut values) = (self.texts(), self.take_values());
        let mut bytes = 0;
        for text in &texts {
            let places = text.read(&mut values, &mut bytes)?;
            self.set_places(text.at, places);
        }
        self.set_values(values);
        Ok(self)
    }

    /// Reads its JSON on a heavy lane.
    ///
    /// # Errors
    /// Returns the errors of [`Texts::read`].
    pub(super) async fn with_long_json(mut self) -> Result<Unchecked, Error> {
        let (texts, mut values) = (self.texts(), self.take_values());
        let read = async move {
            let (mut bytes, mut all) = (0, Vec::with_capacity(texts.len()));
            for text in &texts {
                all.push((text.at, text.read(&mut values, &mut bytes)?));
                lanes::heavy_yield().await;
            }
            Ok::<_, Error>((values, all))
        };
        let (values, all) = heavy(read).await?;
        for (at, places) in all {
            self.set_places(at, places);
        }
        self.set_values(values);
        Ok(self)
    }
}
