//! Statements of a load: their tables, their text, and each as one encoded EXECUTE frame. A request
//! is a copy of the frame with stream, key and values replaced. Nothing else is allocated or
//! encoded per request.

use rand::RngCore as _;
use rand::rngs::SmallRng;
use rand_distr::{Distribution as _, Exp1};
use wire::{Direction, Encoder, Execute, QueryParams, Request, Value, ValuesBuf, Version};

use crate::spec::{RowLayout, Spec, ValueSizes, Workload};
use crate::{LoadError, session::Prepared};

/// Length of a key, bytes: its number, big-endian.
const KEY_BYTES: usize = 8;

/// Purpose of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Read,
    Write,
}

/// A row: the number of its key and, in table `slices`, its clustering key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowId {
    pub(crate) key: u64,
    pub(crate) clustering: u64,
}

/// Returns the table of a load, with its keyspace.
pub(crate) fn table(rows: &RowLayout) -> String {
    match (rows.per_partition, rows.columns) {
        (0, 5) => format!("{}.standard1", rows.keyspace),
        (0, columns) => format!("{}.columns{columns}", rows.keyspace),
        _ => format!("{}.slices", rows.keyspace),
    }
}

/// Returns the statements that create keyspace and table if they are missing.
pub(crate) fn definitions(rows: &RowLayout) -> [String; 2] {
    let keyspace = format!(
        "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {}}}",
        rows.keyspace, rows.replication
    );
    let table_name = table(rows);
    let table = if rows.per_partition > 0 {
        format!(
            "CREATE TABLE IF NOT EXISTS {table_name} (key blob, ck bigint, v blob, PRIMARY KEY (key, ck))"
        )
    } else {
        let columns: Vec<String> = (0..rows.columns).map(|column| format!("\"C{column}\" blob")).collect();
        format!("CREATE TABLE IF NOT EXISTS {table_name} (key blob PRIMARY KEY, {})", columns.join(", "))
    };
    [keyspace, table]
}

/// Returns the text of a statement.
pub(crate) fn text(spec: &Spec, role: Role) -> String {
    let rows = &spec.rows;
    let table = table(rows);
    let bypass = if spec.bypass_cache { " BYPASS CACHE" } else { "" };
    match (role, spec.workload, spec.clustered()) {
        (Role::Read, Workload::Slice, _) => {
            format!("SELECT ck, v FROM {table} WHERE key = ? AND ck >= ? LIMIT {}{bypass}", rows.slice_rows)
        }
        (Role::Read, _, true) => format!("SELECT ck, v FROM {table} WHERE key = ? AND ck = ?{bypass}"),
        (Role::Read, _, false) => format!("SELECT * FROM {table} WHERE key = ?{bypass}"),
        (Role::Write, _, true) => format!("INSERT INTO {table} (key, ck, v) VALUES (?, ?, ?)"),
        (Role::Write, _, false) => {
            let names: Vec<String> = (0..rows.columns).map(|column| format!("\"C{column}\"")).collect();
            let marks = vec!["?"; rows.columns + 1].join(", ");
            format!("INSERT INTO {table} (key, {}) VALUES ({marks})", names.join(", "))
        }
    }
}

/// An encoded EXECUTE frame to copy and patch, without the blobs at its end.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    frame: Vec<u8>,
    key_at: usize,
    clustering_at: Option<usize>,
    values: usize,
    value_bytes: usize,
    value_sizes: ValueSizes,
    /// Random part of each blob, 0 to 1. The rest is one repeated byte.
    random_part: f64,
}

/// Largest size of a value, over the mean.
const SIZE_MAX_PART: f64 = 8.0;
/// Offset of the length of a frame's body, and the size of its header, bytes.
const BODY_LENGTH_AT: usize = 5;
const HEADER_BYTES: usize = 9;

impl Template {
    /// Encodes the frame. Without optional parameters, nothing follows the values in protocol v4.
    /// So the offsets to patch are computed from the end.
    ///
    /// # Errors
    /// [`LoadError::Usage`] if the values do not fit a frame.
    pub(crate) fn new(spec: &Spec, role: Role, prepared: &Prepared) -> Result<Template, LoadError> {
        let rows = &spec.rows;
        let clustered = spec.clustered();
        let blobs = match role {
            Role::Read => 0,
            Role::Write => rows.columns,
        };
        let value = vec![b'x'; rows.value_bytes];
        let mut values = ValuesBuf::new();
        let parts = [(1, &[0; KEY_BYTES][..]), (usize::from(clustered), &[0; 8]), (blobs, &value)];
        for (times, bytes) in parts {
            for _ in 0..times {
                values.push(Value::Bytes(bytes)).map_err(|error| LoadError::Usage(error.to_string()))?;
            }
        }
        let params = QueryParams {
            consistency: spec.consistency_level()?,
            values: values.values(),
            skip_metadata: true,
            ..Default::default()
        };
        let mut encoder = Encoder::new(Direction::Request, Version::V4);
        let execute = Execute { id: &prepared.id, result_metadata_id: &[], params };
        let encoded = encoder.request(0, &Request::Execute(execute));
        encoded.map_err(|error| LoadError::Usage(error.to_string()))?;
        let mut frame = encoder.finish().to_vec();
        let values_at = frame.len() - blobs * (4 + rows.value_bytes);
        let clustering_at = clustered.then(|| values_at - 8);
        frame.truncate(values_at);
        let key_at = values_at - if clustered { 12 } else { 0 } - KEY_BYTES;
        Ok(Template {
            frame,
            key_at,
            clustering_at,
            values: blobs,
            value_bytes: rows.value_bytes,
            value_sizes: rows.value_sizes,
            random_part: 1.0 - rows.compressibility,
        })
    }

    /// Appends the request for a row to `out`.
    pub(crate) fn append(&self, out: &mut Vec<u8>, stream: u16, row: RowId, rng: &mut SmallRng) {
        let start = out.len();
        out.extend_from_slice(&self.frame);
        let frame = &mut out[start..];
        frame[2..4].copy_from_slice(&stream.to_be_bytes());
        frame[self.key_at..self.key_at + KEY_BYTES].copy_from_slice(&row.key.to_be_bytes());
        if let Some(at) = self.clustering_at {
            frame[at..at + 8].copy_from_slice(&row.clustering.to_be_bytes());
        }
        for _ in 0..self.values {
            let bytes = match self.value_sizes {
                ValueSizes::Fixed => self.value_bytes,
                ValueSizes::Exponential => {
                    let size: f64 = Exp1.sample(rng);
                    (size.min(SIZE_MAX_PART) * self.value_bytes as f64) as usize
                }
            };
            out.extend_from_slice(&(bytes as u32).to_be_bytes());
            let at = out.len();
            out.resize(at + bytes, b'x');
            rng.fill_bytes(&mut out[at..at + (self.random_part * bytes as f64).round() as usize]);
        }
        let body = (out.len() - start - HEADER_BYTES) as u32;
        out[start + BODY_LENGTH_AT..start + HEADER_BYTES].copy_from_slice(&body.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use rand::SeedableRng;
    use wire::{Decoder, Limits};

    /// Appends one request and returns its values as a server decodes them.
    fn check(spec: &Spec, role: Role, row: RowId) -> Vec<Vec<u8>> {
        let prepared = Prepared { id: b"an id".to_vec(), markers: 0 };
        let template = Template::new(spec, role, &prepared).expect("the values fit");
        let mut out = b"before".to_vec();
        template.append(&mut out, 0x1234, row, &mut SmallRng::seed_from_u64(5));
        let mut decoder = Decoder::new(Direction::Request, Limits::default());
        let mut input = Bytes::from(out).slice(6..).into();
        let envelope = decoder.decode(&mut input).expect("well-formed").expect("whole");
        assert!(input.is_empty());
        assert_eq!(envelope.stream, 0x1234);
        let Ok(Request::Execute(execute)) = envelope.request() else { panic!("no EXECUTE") };
        assert_eq!(execute.id, b"an id");
        assert!(execute.params.skip_metadata);
        let bytes = |value| if let Value::Bytes(bytes) = value { bytes.to_vec() } else { panic!("null") };
        execute.params.values.iter().map(bytes).collect()
    }

    #[test]
    fn request_contains_its_row() {
        let mut spec = Spec::default();
        let row = RowId { key: 0x0102_0304_0506_0708, clustering: 9 };
        assert_eq!(check(&spec, Role::Read, row), [vec![1, 2, 3, 4, 5, 6, 7, 8]]);
        let written = check(&spec, Role::Write, row);
        assert_eq!(written.iter().map(Vec::len).collect::<Vec<_>>(), [8, 34, 34, 34, 34, 34]);
        assert_ne!(written[1], written[2]);
        spec.rows.per_partition = 100;
        spec.rows.columns = 1;
        spec.workload = Workload::Slice;
        assert_eq!(check(&spec, Role::Read, row)[1], 9i64.to_be_bytes());
        assert_eq!(check(&spec, Role::Write, row).iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 34]);
    }

    #[test]
    fn compressible_bytes_are_equal() {
        let mut spec = Spec::default();
        spec.rows.compressibility = 0.5;
        let written = check(&spec, Role::Write, RowId { key: 1, clustering: 0 });
        assert!(written[1..].iter().all(|value| value[17..].iter().all(|byte| *byte == b'x')));
        assert!(written[1..].iter().all(|value| value[..17].iter().any(|byte| *byte != b'x')));
    }

    #[test]
    fn exponential_sizes_have_their_mean() {
        let mut spec = Spec::default();
        (spec.rows.columns, spec.rows.value_bytes, spec.rows.compressibility) = (3, 2000, 0.7);
        spec.rows.value_sizes = ValueSizes::Exponential;
        let prepared = Prepared { id: b"an id".to_vec(), markers: 0 };
        let template = Template::new(&spec, Role::Write, &prepared).expect("the values fit");
        let mut out = Vec::new();
        let mut rng = SmallRng::seed_from_u64(5);
        (0..1000).for_each(|key| template.append(&mut out, 1, RowId { key, clustering: 0 }, &mut rng));
        let mean = out.len() as f64 / 3000.0;
        assert!((1900.0..2150.0).contains(&mean), "{mean}");
        let sizes: Vec<usize> =
            check(&spec, Role::Write, RowId { key: 1, clustering: 0 })[1..].iter().map(Vec::len).collect();
        assert!(sizes.iter().all(|size| *size <= 16_000) && sizes[0] != sizes[1], "{sizes:?}");
    }

    #[test]
    fn only_reads_bypass_the_cache() {
        let mut spec = Spec { bypass_cache: true, ..Spec::default() };
        assert!(text(&spec, Role::Read).ends_with("WHERE key = ? BYPASS CACHE"));
        assert!(!text(&spec, Role::Write).contains("BYPASS"));
        (spec.rows.per_partition, spec.workload) = (100, Workload::Slice);
        assert!(text(&spec, Role::Read).ends_with("LIMIT 100 BYPASS CACHE"));
        spec.bypass_cache = false;
        assert!(text(&spec, Role::Read).ends_with("LIMIT 100"));
    }

    #[test]
    fn layout_chooses_the_table() {
        let mut rows = Spec::default().rows;
        assert!(definitions(&rows)[1].contains("keyspace1.standard1 (key blob PRIMARY KEY, \"C0\" blob, "));
        rows.columns = 1;
        assert!(definitions(&rows)[1].contains("keyspace1.columns1 "));
        rows.per_partition = 10;
        assert!(definitions(&rows)[1].contains("PRIMARY KEY (key, ck)"));
    }
}
