//! Parser of answers. The two most frequent answers, void results and rows without column metadata,
//! are recognized by a few integers at the start of the body. All others go through the codec.

use bytes::Bytes;
use wire::{Direction, Envelope, FailureKind, HEADER_BYTES, Header, Limits, Response};

/// A parsed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Success, with the number of rows.
    Done { rows: u64 },
    /// Error.
    Failed { code: i32, message: String },
    /// The server no longer knows the prepared statement.
    Unprepared,
    /// The statement was prepared again.
    Prepared,
}

/// Code of a refusal because of overload.
const OVERLOADED: i32 = 0x1001;

impl Reply {
    /// Returns the time after which a refused client may try again, nanoseconds. `None`: no
    /// refusal, or one that names no time.
    pub(crate) fn retry_after_ns(&self) -> Option<u64> {
        let Reply::Failed { code: OVERLOADED, message } = self else { return None };
        let (_, rest) = message.rsplit_once("Try again in ")?;
        let ms: u64 = rest.split_once(" ms")?.0.parse().ok()?;
        ms.checked_mul(1_000_000)
    }
}

const VOID: i32 = 1;
const ROWS: i32 = 2;
const MORE_PAGES: i32 = 2;
const NO_METADATA: i32 = 4;

/// Parses the header at the start of `bytes`. `None`: incomplete.
pub(crate) fn header(bytes: &[u8]) -> Result<Option<Header>, wire::Error> {
    match bytes.first_chunk::<HEADER_BYTES>() {
        Some(bytes) => Header::parse(bytes, Direction::Response, Limits::default()).map(Some),
        None => Ok(None),
    }
}

/// Parses the answer with this header and body.
pub(crate) fn read(header: &Header, body: &[u8]) -> Result<Reply, wire::Error> {
    if header.flags.0 == 0
        && header.opcode == wire::Opcode::Result
        && let Some(rows) = rows_of_frequent_result(body)
    {
        return Ok(Reply::Done { rows });
    }
    let envelope = Envelope {
        version: header.version,
        flags: header.flags,
        stream: header.stream,
        opcode: header.opcode,
        body: Bytes::copy_from_slice(body),
    };
    Ok(match envelope.response()? {
        Response::Error(failure) => match failure.kind {
            FailureKind::Unprepared(_) => Reply::Unprepared,
            kind => Reply::Failed { code: kind.code(), message: failure.message },
        },
        Response::Rows(rows) => Reply::Done { rows: rows.len() as u64 },
        Response::Prepared(_) => Reply::Prepared,
        _ => Reply::Done { rows: 0 },
    })
}

/// Returns the number of rows of a frequent result, or `None` for all other results.
fn rows_of_frequent_result(body: &[u8]) -> Option<u64> {
    let int = |at: usize| body.get(at..at + 4)?.try_into().ok().map(i32::from_be_bytes);
    match int(0)? {
        VOID => Some(0),
        ROWS => {
            let flags = int(4)?;
            if flags & NO_METADATA == 0 {
                return None;
            }
            let paging = if flags & MORE_PAGES != 0 { 4 + usize::try_from(int(12)?).ok()? } else { 0 };
            u64::try_from(int(12 + paging)?).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::CqlType;
    use wire::{ColumnSpec, Columns, Encoder, Failure, Prelude, RowsHead, Version};

    fn check(write: impl Fn(&mut Encoder), expected: Reply) {
        let mut encoder = Encoder::new(Direction::Response, Version::V4);
        write(&mut encoder);
        let bytes = encoder.finish().to_vec();
        let header = header(&bytes).expect("well-formed").expect("whole");
        assert_eq!(read(&header, &bytes[HEADER_BYTES..]).expect("well-formed"), expected);
    }

    #[test]
    fn every_kind_of_answer_is_parsed() {
        let plain = Prelude::default();
        let warned = Prelude::with_warnings(vec!["one copy".into()]);
        let columns =
            [ColumnSpec::new("k", "t", "a", &CqlType::Blob), ColumnSpec::new("k", "t", "b", &CqlType::Int)];
        let columns = Columns::encode(Version::V4, &columns).expect("short names");
        check(|e| e.void(1, &plain).expect("fits"), Reply::Done { rows: 0 });
        check(|e| e.void(1, &warned).expect("fits"), Reply::Done { rows: 0 });
        for (skip_metadata, prelude) in [(true, &plain), (false, &plain), (true, &warned)] {
            for paging_state in [None, Some(&b"state"[..])] {
                let head = RowsHead { skip_metadata, paging_state, ..Default::default() };
                let rows = |e: &mut Encoder| {
                    let mut writer = e.rows(1, &head, &columns, prelude);
                    (0..6).for_each(|_| writer.cell(Some(b"abcd")));
                    writer.end().expect("fits");
                };
                check(rows, Reply::Done { rows: 3 });
            }
        }
        let overloaded = Failure::new(FailureKind::Overloaded, "full");
        check(
            |e| e.error(1, &overloaded, &plain).expect("fits"),
            Reply::Failed { code: 0x1001, message: "full".into() },
        );
        let unprepared = Failure::new(FailureKind::Unprepared(vec![1]), "unknown id");
        check(|e| e.error(1, &unprepared, &plain).expect("fits"), Reply::Unprepared);
    }

    #[test]
    fn refusal_names_the_time_to_try_again() {
        let check = |code, message: &str, expected| {
            assert_eq!(
                Reply::Failed { code, message: message.into() }.retry_after_ns(),
                expected,
                "{message}"
            );
        };
        check(0x1001, "overloaded: limit 8. Try again in 12 ms.", Some(12_000_000));
        check(0x1001, "Try again in 3 s.", None);
        check(0x1001, "full", None);
        check(0x1200, "Try again in 12 ms.", None);
        assert_eq!(Reply::Done { rows: 1 }.retry_after_ns(), None);
    }

    #[test]
    fn incomplete_header_is_not_an_error() {
        assert_eq!(header(&[0x84, 0, 0]), Ok(None));
        assert!(header(&[0x04; 9]).is_err());
        assert_eq!(rows_of_frequent_result(&[0, 0, 0, 2, 0, 0]), None);
    }
}
