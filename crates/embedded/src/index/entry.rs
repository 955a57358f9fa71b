//! Entries of an index: rows whose clustering key names a row of the table.
//!
//! ```text
//! partition key   the indexed value, in key encoding
//! clustering key  token i64, sign bit inverted │ key length u16 │ partition key │
//!                 1 and the clustering key, or 0 for the partition itself │ class u32
//! ```
//!
//! Integers are big-endian, so entries of one value have the order of the table's rows. A query by
//! one value therefore returns rows in the order of a scan, and pages continue by position.
//!
//! An entry has a row marker and no cells. It expires not before the cells that it was written
//! for. If several writes have different times to live, one entry would replace another that lives
//! longer, because the later one wins. So the expiry is rounded up and part of the clustering key:
//! it is the *class* of the entry, 0 for none. Writes with the same time to live make at most about
//! [`CLASSES`] entries at a time.

use bytes::Bytes;
use schema::value;
use storage::{Change, Deletion, Expiry, Liveness, RowBuilder};

/// Entries of one row at a time that writes with the same time to live make, about.
const CLASSES: u32 = 8;

/// Bytes of a class.
const CLASS_BYTES: usize = 4;

/// Row of a table, or a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) token: i64,
    pub(crate) key: &'a [u8],
    /// Clustering key. `None`: the partition.
    pub(crate) row: Option<&'a [u8]>,
}

/// Entry as a reader finds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) token: i64,
    pub(crate) key: Bytes,
    /// Clustering key. `None`: the entry names the partition.
    pub(crate) row: Option<Bytes>,
    /// Clustering key of the entry itself.
    pub(crate) clustering: Bytes,
}

impl Entry {
    /// Decodes the clustering key of an entry. `None`: it is damaged.
    pub(crate) fn decode(clustering: &[u8]) -> Option<Entry> {
        let clustering = Bytes::copy_from_slice(clustering);
        let (token, rest) = clustering.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (key, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        let (kind, rest) = rest.split_first()?;
        let (row, _class) = rest.split_at_checked(rest.len().checked_sub(CLASS_BYTES)?)?;
        Some(Entry {
            token: (u64::from_be_bytes(*token) ^ 1 << 63) as i64,
            key: clustering.slice_ref(key),
            row: (*kind == 1).then(|| clustering.slice_ref(row)),
            clustering: clustering.clone(),
        })
    }

    /// Returns true if another entry names the same partition.
    pub(crate) fn is_of(&self, token: i64, key: &[u8]) -> bool {
        self.token == token && self.key == key
    }

    /// Returns the change that removes the entry, if it is not younger than `timestamp`.
    pub(crate) fn removal(&self, timestamp: i64, now_s: u32) -> Change {
        let mut row = RowBuilder::new(&[], &self.clustering, timestamp);
        row.deletion(Some(Deletion { timestamp, deleted_at_s: now_s }));
        Change::Row(row.finish())
    }
}

/// Returns the beginning of the clustering keys of entries from this token on.
pub(crate) fn token_prefix(token: i64) -> Vec<u8> {
    ((token as u64) ^ 1 << 63).to_be_bytes().to_vec()
}

/// Returns the beginning of the clustering keys of a partition's entries.
pub(crate) fn partition_prefix(token: i64, key: &[u8]) -> Vec<u8> {
    let mut out = token_prefix(token);
    let length = u16::try_from(key.len()).expect("partition keys have at most 64 KiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(key);
    out
}

/// Returns the beginning of the clustering keys of the entries of one place.
pub(crate) fn prefix(place: Place<'_>) -> Vec<u8> {
    let mut out = partition_prefix(place.token, place.key);
    out.push(u8::from(place.row.is_some()));
    out.extend_from_slice(place.row.unwrap_or_default());
    out
}

/// Returns the least bytes above all clustering keys that begin with a prefix of this module.
pub(crate) fn after(prefix: &[u8]) -> Bytes {
    // Only a prefix of the greatest token could consist of FF. Its entries have a length behind it.
    value::prefix_end(prefix).map_or_else(|| Bytes::from_static(&[0xff; 16]), Bytes::from)
}

/// Time until which an entry must live: `None` for ever.
pub(crate) type Life = Option<Expiry>;

/// Returns the longer one of two lives.
pub(crate) fn longer(a: Life, b: Life) -> Life {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a.at_s >= b.at_s { a } else { b }),
        _ => None,
    }
}

/// Rounds the end of a life up to its class.
fn class_of(life: Expiry) -> u32 {
    let step = (life.ttl_s / CLASSES).max(1).next_power_of_two();
    life.at_s.checked_next_multiple_of(step).unwrap_or(u32::MAX)
}

/// Returns the clustering key of an entry, and its expiry.
pub(crate) fn new(place: Place<'_>, life: Life) -> (Vec<u8>, Life) {
    let class = life.map_or(0, class_of);
    let mut clustering = prefix(place);
    clustering.extend_from_slice(&class.to_be_bytes());
    (clustering, life.map(|life| Expiry { ttl_s: life.ttl_s, at_s: class }))
}

/// Returns the change that writes an entry.
pub(crate) fn written(clustering: &[u8], expiry: Life, timestamp: i64) -> Change {
    let mut row = RowBuilder::new(&[], clustering, timestamp);
    row.marker(Some(Liveness { timestamp, expiry }));
    Change::Row(row.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clustering(place: Place<'_>, life: Life) -> Bytes {
        new(place, life).0.into()
    }

    #[test]
    fn entries_are_decoded_and_sorted_like_their_rows() {
        let places = [
            Place { token: i64::MIN, key: b"a", row: Some(b"") },
            Place { token: -1, key: b"a", row: None },
            Place { token: -1, key: b"a", row: Some(b"r") },
            Place { token: -1, key: b"a", row: Some(b"s") },
            Place { token: 0, key: b"", row: Some(b"\xff") },
            Place { token: i64::MAX, key: b"\xff\xff", row: Some(b"\xff") },
        ];
        let encoded: Vec<Bytes> = places.iter().map(|place| clustering(*place, None)).collect();
        assert!(encoded.is_sorted());
        for (place, bytes) in places.iter().zip(&encoded) {
            let entry = Entry::decode(bytes).unwrap();
            assert_eq!(
                (entry.token, &entry.key[..], entry.row.as_deref()),
                (place.token, place.key, place.row)
            );
            let own = partition_prefix(place.token, place.key);
            assert!(bytes.starts_with(&own) && *bytes < after(&own) && *bytes < after(&prefix(*place)));
            for cut in 0..15 {
                assert!(Entry::decode(&bytes[..cut.min(bytes.len() - 1)]).is_none_or(|e| e.row != entry.row));
            }
        }
        assert!(encoded[2] < after(&prefix(places[2])) && after(&prefix(places[2])) <= encoded[3]);
    }

    #[test]
    fn classes_end_at_or_after_the_life_and_are_few() {
        let mut classes = std::collections::BTreeSet::new();
        for at_s in 10_000..10_100 {
            let class = class_of(Expiry { ttl_s: 100, at_s });
            assert!((at_s..at_s + 100 / 4).contains(&class), "{at_s} {class}");
            classes.insert(class);
        }
        assert!(classes.len() <= 2 * CLASSES as usize, "{classes:?}");
        assert_eq!(class_of(Expiry { ttl_s: 1, at_s: 5 }), 5);
        assert_eq!(class_of(Expiry { ttl_s: 1 << 30, at_s: u32::MAX }), u32::MAX);
        let entry =
            clustering(Place { token: 1, key: b"k", row: Some(b"") }, Some(Expiry { ttl_s: 1, at_s: 5 }));
        assert!(entry.ends_with(&5_u32.to_be_bytes()));
    }
}
