//! Paging state: the position at which the last page ended, as bytes that the client returns.
//! Format, big-endian:
//!
//! ```text
//! version u8 = 3 │ rows left under LIMIT u32 │ rows taken of the partition u32 │ token i64
//! rows read by earlier pages u64 │ their bytes u64
//! flags u8 (1: has a key, 2: inside the partition, 4: the end)
//! key length u32 │ key │ clustering length u32 │ clustering
//! ```

use bytes::Bytes;
use engine::Error;

/// Position to continue from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Position {
    /// Rows that LIMIT still permits.
    pub(crate) left: u32,
    /// Rows taken of the current partition.
    pub(crate) of_partition: u32,
    /// Token of the partition.
    pub(crate) token: i64,
    /// Rows that the pages so far have read, and their bytes.
    pub(crate) rows_read: u64,
    pub(crate) bytes_read: u64,
    /// Key of the partition. `None`: the start.
    pub(crate) key: Option<Bytes>,
    /// Clustering key of the last row taken. `None`: the partition is finished.
    pub(crate) row: Option<Bytes>,
    /// True behind the last row. As in Cassandra, a page without rows follows a last page that is
    /// full: clients read on until a page has fewer rows than they requested.
    pub(crate) is_end: bool,
}

impl Position {
    /// Returns the position after a partition.
    pub(crate) fn after(token: i64, key: Bytes) -> Position {
        Position { token, key: Some(key), ..Position::default() }
    }

    /// Encodes the position.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![3];
        out.extend(self.left.to_be_bytes());
        out.extend(self.of_partition.to_be_bytes());
        out.extend(self.token.to_be_bytes());
        out.extend(self.rows_read.to_be_bytes());
        out.extend(self.bytes_read.to_be_bytes());
        let flags = [self.key.is_some(), self.row.is_some(), self.is_end];
        out.push(flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag)));
        for part in [&self.key, &self.row] {
            let part = part.as_deref().unwrap_or_default();
            out.extend((part.len() as u32).to_be_bytes());
            out.extend(part);
        }
        out
    }

    /// Decodes a position from bytes of a client.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Position, Error> {
        Position::parse(bytes).ok_or_else(|| Error::Invalid("Invalid value for the paging state".into()))
    }

    fn parse(mut bytes: &[u8]) -> Option<Position> {
        let mut take = |n: usize| {
            let (head, tail) = bytes.split_at_checked(n)?;
            bytes = tail;
            Some(head)
        };
        if take(1)? != [3] {
            return None;
        }
        let left = u32::from_be_bytes(take(4)?.try_into().ok()?);
        let of_partition = u32::from_be_bytes(take(4)?.try_into().ok()?);
        let token = i64::from_be_bytes(take(8)?.try_into().ok()?);
        let rows_read = u64::from_be_bytes(take(8)?.try_into().ok()?);
        let bytes_read = u64::from_be_bytes(take(8)?.try_into().ok()?);
        let flags = take(1)?[0];
        let mut part = || {
            let len = u32::from_be_bytes(take(4)?.try_into().ok()?) as usize;
            take(len).map(Bytes::copy_from_slice)
        };
        let (key, row) = (part()?, part()?);
        if key.len() > usize::from(u16::MAX) {
            return None;
        }
        let position = Position {
            left,
            of_partition,
            token,
            rows_read,
            bytes_read,
            key: (flags & 1 != 0).then_some(key),
            row: (flags & 2 != 0).then_some(row),
            is_end: flags & 4 != 0,
        };
        bytes.is_empty().then_some(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_survives_encoding_and_damage_is_rejected() {
        let position = Position {
            left: 7,
            of_partition: 2,
            token: -5,
            rows_read: 1 << 40,
            bytes_read: 9,
            key: Some(Bytes::from_static(b"key")),
            row: Some(Bytes::new()),
            is_end: false,
        };
        let bytes = position.encode();
        assert_eq!(Position::decode(&bytes).unwrap(), position);
        let end = Position { is_end: true, ..Position::default() };
        assert_eq!(Position::decode(&end.encode()).unwrap(), end);
        for cut in 0..bytes.len() {
            assert!(Position::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn position_with_a_key_that_no_partition_has_is_rejected() {
        let of = |length| Position { key: Some(vec![7; length].into()), ..Position::default() }.encode();
        assert!(Position::decode(&of(65_535)).is_ok());
        assert!(Position::decode(&of(65_536)).is_err());
    }
}
