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
//! An index that finds ranges has one more entry for each, in the order of values. The first byte
//! of its partition keys tells the two kinds apart:
//!
//! ```text
//! partition key   00 │ the indexed value, in key encoding
//! partition key   01 │ bucket u8: the highest bits of the token of the row
//! clustering key  value │ place as above │ length of the value u16 │ class u32
//! ```
//!
//! Buckets have the order of tokens, so a reader of a range sorts the places of one bucket at a
//! time.
//!
//! An entry has a row marker and no cells. It expires not before the cells that it was written
//! for. If several writes have different times to live, one entry would replace another that lives
//! longer, because the later one wins. So the expiry is rounded up and part of the clustering key:
//! it is the *class* of the entry, 0 for none. Writes with the same time to live make at most about
//! [`CLASSES`] entries at a time.

use std::ops::RangeInclusive;

use bytes::Bytes;
use schema::value;
use storage::{Change, Deletion, Expiry, Liveness, RowBuilder};

/// Entries of one row at a time that writes with the same time to live make, about.
const CLASSES: u32 = 8;

/// Bytes of a class.
pub(crate) const CLASS_BYTES: usize = 4;

/// Bytes of the length of a value behind an ordered entry.
const LENGTH_BYTES: usize = 2;

/// Bits of the number of a bucket: 32 buckets. A range over all of them costs 32 lookups on each
/// core, and one over a tenth of 10 million rows on two cores sorts about 16,000 places at a time.
const BUCKET_BITS: u32 = 5;

/// First byte of the partition key of a value, in an index that finds ranges.
const VALUE: u8 = 0;

/// First byte of the partition key of a bucket.
const BUCKET: u8 = 1;

/// Bytes of a value in an entry, at most. Of longer values, entries have the beginning. Rows are
/// checked, so entries of several values in one place are right.
pub(crate) const VALUE_BYTES_MAX: usize = 32 << 10;

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
    /// Partition key of the entry itself.
    pub(crate) partition: Bytes,
    pub(crate) token: i64,
    pub(crate) key: Bytes,
    /// Clustering key. `None`: the entry names the partition.
    pub(crate) row: Option<Bytes>,
    /// The place of the row as bytes: see [`prefix`].
    pub(crate) place: Bytes,
    /// Clustering key of the entry itself.
    pub(crate) clustering: Bytes,
}

impl Entry {
    /// Decodes an entry of an index. `None`: it is damaged.
    pub(crate) fn of_index(finds_ranges: bool, partition: &Bytes, clustering: &[u8]) -> Option<Entry> {
        match finds_ranges && is_bucket(partition) {
            true => Entry::decode_ordered(partition, clustering),
            false => Entry::decode(partition, clustering),
        }
    }

    /// Decodes the clustering key of an entry of one value. `None`: it is damaged.
    pub(crate) fn decode(partition: &Bytes, clustering: &[u8]) -> Option<Entry> {
        let end = clustering.len().checked_sub(CLASS_BYTES)?;
        Entry::of_place(partition, clustering, 0..end)
    }

    /// Decodes the clustering key of an entry of a bucket. `None`: it is damaged.
    pub(crate) fn decode_ordered(partition: &Bytes, clustering: &[u8]) -> Option<Entry> {
        let (rest, _class) = clustering.split_last_chunk::<CLASS_BYTES>()?;
        let (rest, length) = rest.split_last_chunk::<LENGTH_BYTES>()?;
        let length = usize::from(u16::from_be_bytes(*length));
        (length <= rest.len()).then(|| Entry::of_place(partition, clustering, length..rest.len()))?
    }

    fn of_place(partition: &Bytes, clustering: &[u8], place: std::ops::Range<usize>) -> Option<Entry> {
        let clustering = Bytes::copy_from_slice(clustering);
        let place = clustering.slice(place);
        let (token, rest) = place.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (key, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        let (kind, row) = rest.split_first()?;
        Some(Entry {
            partition: partition.clone(),
            token: (u64::from_be_bytes(*token) ^ 1 << 63) as i64,
            key: place.slice_ref(key),
            row: (*kind == 1).then(|| place.slice_ref(row)),
            place: place.clone(),
            clustering,
        })
    }

    /// Returns the indexed value. `finds_ranges`: of its index.
    pub(crate) fn value(&self, finds_ranges: bool) -> &[u8] {
        match finds_ranges {
            false => &self.partition,
            true if is_bucket(&self.partition) => {
                let behind = self.place.len() + LENGTH_BYTES + CLASS_BYTES;
                &self.clustering[..self.clustering.len() - behind]
            }
            true => self.partition.get(1..).unwrap_or_default(),
        }
    }

    /// Returns true if another entry names the same partition.
    pub(crate) fn is_of(&self, token: i64, key: &[u8]) -> bool {
        self.token == token && self.key == key
    }
}

/// Returns the change that removes an entry, by its clustering key, if it is not younger than
/// `timestamp`.
pub(crate) fn removal(clustering: &[u8], timestamp: i64, now_s: u32) -> Change {
    let mut row = RowBuilder::new(&[], clustering, timestamp);
    row.deletion(Some(Deletion { timestamp, deleted_at_s: now_s }));
    Change::Row(row.finish())
}

/// Returns the partition key of a value, which is cut to [`VALUE_BYTES_MAX`], in an index.
pub(crate) fn value_key(value: &[u8], finds_ranges: bool) -> Vec<u8> {
    let value = &value[..value.len().min(VALUE_BYTES_MAX)];
    match finds_ranges {
        true => [&[VALUE], value].concat(),
        false => value.to_vec(),
    }
}

/// Returns the partition key of the bucket of a token.
pub(crate) fn bucket_key(token: i64) -> [u8; 2] {
    [BUCKET, ((token as u64 ^ 1 << 63) >> (64 - BUCKET_BITS)) as u8]
}

/// Returns true for the partition key of a bucket, in an index that finds ranges.
fn is_bucket(partition: &[u8]) -> bool {
    partition.first() == Some(&BUCKET)
}

/// Returns the tokens of the bucket of a token.
pub(crate) fn bucket_tokens(token: i64) -> RangeInclusive<i64> {
    let low = (u64::MAX >> BUCKET_BITS) as i64;
    token & !low..=token | low
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

/// Entry to write: a clustering key, and its expiry.
pub(crate) type NewEntry = (Vec<u8>, Life);

/// Returns the entry of a place among those of its value.
pub(crate) fn new(place: Place<'_>, life: Life) -> NewEntry {
    with_class(prefix(place), life)
}

/// Returns the entry of a place and a value, of at most [`VALUE_BYTES_MAX`] bytes, in its bucket.
pub(crate) fn new_ordered(value: &[u8], place: Place<'_>, life: Life) -> NewEntry {
    let length = u16::try_from(value.len()).expect("entries have the beginning of longer values");
    let mut clustering = value.to_vec();
    clustering.extend_from_slice(&prefix(place));
    clustering.extend_from_slice(&length.to_be_bytes());
    with_class(clustering, life)
}

/// Appends the class of a life. Returns the clustering key with it, and the expiry of the entry.
pub(crate) fn with_class(mut clustering: Vec<u8>, life: Life) -> NewEntry {
    let class = life.map_or(0, class_of);
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
            let value = Bytes::from_static(b"value");
            let entry = Entry::decode(&value, bytes).unwrap();
            assert_eq!((&entry.partition, &entry.place[..]), (&value, &prefix(*place)[..]));
            assert_eq!(
                (entry.token, &entry.key[..], entry.row.as_deref()),
                (place.token, place.key, place.row)
            );
            let own = partition_prefix(place.token, place.key);
            assert!(bytes.starts_with(&own) && *bytes < after(&own) && *bytes < after(&prefix(*place)));
            for cut in 0..15 {
                let cut = &bytes[..cut.min(bytes.len() - 1)];
                assert!(Entry::decode(&value, cut).is_none_or(|e| e.row != entry.row));
            }
        }
        assert!(encoded[2] < after(&prefix(places[2])) && after(&prefix(places[2])) <= encoded[3]);
    }

    #[test]
    fn ordered_entries_are_sorted_by_value_and_then_like_rows() {
        let near = Place { token: -1, key: b"a", row: Some(b"r") };
        let far = Place { token: 9, key: b"b", row: None };
        let entries: [(&[u8], Place<'_>); 4] = [(&[1], near), (&[1], far), (&[2, 0], near), (&[2, 1], near)];
        let partition = Bytes::copy_from_slice(&bucket_key(-1));
        let encoded: Vec<Bytes> =
            entries.iter().map(|(value, place)| new_ordered(value, *place, None).0.into()).collect();
        assert!(encoded.is_sorted());
        for ((value, place), bytes) in entries.iter().zip(&encoded) {
            let entry = Entry::decode_ordered(&partition, bytes).unwrap();
            let found = Place { token: entry.token, key: &entry.key, row: entry.row.as_deref() };
            assert_eq!((found, &entry.place[..]), (*place, &prefix(*place)[..]));
            assert!(entry.value(true) == *value && bytes.starts_with(value));
        }
        assert_eq!(Entry::decode_ordered(&partition, b"12345678"), None);
    }

    #[test]
    fn no_value_has_the_partition_key_of_a_bucket() {
        // Those of a varint of three bytes, of FF FF, and of a bucket itself.
        for value in [&[0xff, 0xff, 0x80][..], &[0xff, 0xff], &bucket_key(-1), &[]] {
            let key = Bytes::from(value_key(value, true));
            assert!(!is_bucket(&key), "{value:?}");
            let entry = new(Place { token: 7, key: b"k", row: None }, None).0;
            let entry = Entry::of_index(true, &key, &entry).unwrap();
            assert_eq!((entry.value(true), entry.token), (value, 7));
            assert_eq!(value_key(value, false), value);
        }
        let long = vec![7; VALUE_BYTES_MAX + 9];
        assert_eq!(value_key(&long, true).len(), 1 + VALUE_BYTES_MAX);
    }

    #[test]
    fn buckets_cover_all_tokens_in_order() {
        let (mut token, mut keys) = (i64::MIN, Vec::new());
        loop {
            let tokens = bucket_tokens(token);
            assert_eq!(*tokens.start(), token);
            assert!(bucket_key(token) == bucket_key(*tokens.end()) && is_bucket(&bucket_key(token)));
            keys.push(bucket_key(token));
            let Some(next) = tokens.end().checked_add(1) else { break };
            token = next;
        }
        assert_eq!(keys.len(), 1 << BUCKET_BITS);
        assert!(keys.is_sorted() && bucket_tokens(5).contains(&0) && !bucket_tokens(-5).contains(&0));
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
