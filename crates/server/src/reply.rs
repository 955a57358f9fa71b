//! Conversion of statement results into protocol messages.

use engine::{SchemaTarget, StatementOutcome};
use wire::{ChangeType, Encoder, Failure, FailureKind, Prelude, RowsHead};

use crate::statement::{self, Statement};

/// Result columns that the client requested.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MetadataRequest {
    /// The client has the columns already, from its PREPARE.
    pub(crate) skip_metadata: bool,
    /// Protocol v5: the client's columns are no longer current.
    pub(crate) metadata_is_old: bool,
}

/// Appends the answer. `statement` is the one that has the columns of the rows. Returns the code of
/// the error if the answer is one.
pub(crate) fn answer(
    encoder: &mut Encoder,
    stream: i16,
    result: &Result<StatementOutcome, Failure>,
    statement: Option<&Statement>,
    metadata: MetadataRequest,
    prelude: Prelude,
) -> Option<i32> {
    let written = match result {
        Ok(StatementOutcome::Void) => encoder.void(stream, &prelude),
        Ok(StatementOutcome::Rows(rows)) => self::rows(encoder, stream, rows, statement, metadata, &prelude),
        Ok(StatementOutcome::SchemaChange(change)) => {
            encoder.schema_change(stream, &schema_change(change), &prelude)
        }
        Err(failure) => {
            let code = failure.kind.code();
            let prelude = Prelude { warnings: Vec::new(), ..prelude };
            return match encoder.error(stream, failure, &prelude) {
                Ok(()) => Some(code),
                Err(error) => Some(unencodable(encoder, stream, &error)),
            };
        }
    };
    written.err().map(|error| unencodable(encoder, stream, &error))
}

/// Answers with an error because the answer does not fit the protocol. Returns the error's code.
#[cold]
pub(crate) fn unencodable(encoder: &mut Encoder, stream: i16, error: &wire::Error) -> i32 {
    let failure = Failure::new(FailureKind::Server, format!("The answer does not fit the protocol: {error}"));
    encoder.error(stream, &failure, &Prelude::default()).expect("a server error has no fields to overflow");
    failure.kind.code()
}

/// Preparation for writing rows: their columns, and the part of the metadata that the client needs.
pub(crate) struct RowsPlan {
    /// Encoded columns. `None`: those of the rows, which are encoded later.
    columns: Option<wire::Columns>,
    skip_metadata: bool,
    new_metadata_id: Option<statement::Id>,
    prelude: Prelude,
}

/// Prepares to write rows. Copies the columns of a prepared statement, which are encoded already,
/// for an answer that is encoded on the heavy lane.
///
/// # Errors
/// A name is too long for the protocol.
pub(crate) fn plan_rows(
    version: wire::Version,
    rows: &engine::ResultRows,
    statement: Option<&Statement>,
    metadata: MetadataRequest,
    prelude: Prelude,
) -> Result<RowsPlan, wire::Error> {
    let statement = statement.filter(|statement| is_result_of(statement, rows));
    match statement.map(|statement| statement.encoded(version)).transpose()? {
        Some(encoded) => Ok(RowsPlan {
            columns: Some(encoded.result.clone()),
            skip_metadata: metadata.skip_metadata,
            new_metadata_id: metadata.metadata_is_old.then_some(encoded.result_id),
            prelude,
        }),
        None => Ok(RowsPlan { columns: None, skip_metadata: false, new_metadata_id: None, prelude }),
    }
}

/// Returns true if the rows have the statement's columns.
pub(crate) fn is_result_of(statement: &Statement, rows: &engine::ResultRows) -> bool {
    statement.result().is_some_and(|columns| std::sync::Arc::ptr_eq(columns, &rows.columns))
}

/// Returns the bytes that describe the columns of the rows. Stops counting above `limit`.
pub(crate) fn metadata_bytes(rows: &engine::ResultRows, limit: usize) -> usize {
    let mut sum = 0;
    for column in rows.columns.iter() {
        sum += 2 + column.name.len();
        if sum > limit {
            break;
        }
        sum += column.ty.description_bytes(limit - sum);
    }
    sum
}

/// Writes rows as prepared by [`plan_rows`], on the heavy lane. Frees cells that are written.
///
/// # Errors
/// The rows do not fit the protocol.
pub(crate) async fn write_rows(
    encoder: &mut Encoder,
    stream: i16,
    rows: engine::ResultRows,
    plan: RowsPlan,
) -> Result<(), wire::Error> {
    let head = RowsHead {
        paging_state: rows.paging_state.as_deref(),
        skip_metadata: plan.skip_metadata,
        new_metadata_id: plan.new_metadata_id.as_ref().map(|id| &id[..]),
    };
    let columns = match plan.columns {
        Some(columns) => columns,
        None => statement::encode(encoder.version(), &rows.columns)?,
    };
    let mut writer = encoder.rows(stream, &head, &columns, &plan.prelude);
    writer.encoded(rows.count as usize, &[]);
    for chunk in rows.cells.into_chunks() {
        writer.encoded(0, &chunk);
        lanes::heavy_yield().await;
    }
    writer.end()
}

fn write(
    encoder: &mut Encoder,
    stream: i16,
    rows: &engine::ResultRows,
    head: &RowsHead<'_>,
    columns: &wire::Columns,
    prelude: &Prelude,
) -> Result<(), wire::Error> {
    let mut writer = encoder.rows(stream, head, columns, prelude);
    match rows.cells.as_one() {
        Some(cells) => writer.encoded(rows.count as usize, cells),
        None => {
            writer.encoded(rows.count as usize, &[]);
            rows.cells.chunks().for_each(|chunk| writer.encoded(0, chunk));
        }
    }
    writer.end()
}

fn rows(
    encoder: &mut Encoder,
    stream: i16,
    rows: &engine::ResultRows,
    statement: Option<&Statement>,
    metadata: MetadataRequest,
    prelude: &Prelude,
) -> Result<(), wire::Error> {
    let mut head = RowsHead { paging_state: rows.paging_state.as_deref(), ..RowsHead::default() };
    match statement.map(|statement| statement.encoded(encoder.version())).transpose()? {
        Some(encoded) => {
            head.skip_metadata = metadata.skip_metadata;
            head.new_metadata_id = metadata.metadata_is_old.then_some(&encoded.result_id[..]);
            write(encoder, stream, rows, &head, &encoded.result, prelude)
        }
        None => {
            let columns = statement::encode(encoder.version(), &rows.columns)?;
            write(encoder, stream, rows, &head, &columns, prelude)
        }
    }
}

/// Converts a schema change to its protocol form.
pub(crate) fn schema_change(change: &engine::SchemaChange) -> wire::SchemaChange {
    wire::SchemaChange {
        change: match change.change {
            "CREATED" => ChangeType::Created,
            "DROPPED" => ChangeType::Dropped,
            _ => ChangeType::Updated,
        },
        target: match change.target {
            SchemaTarget::Keyspace => wire::SchemaTarget::Keyspace,
            SchemaTarget::Table => wire::SchemaTarget::Table(change.name.clone()),
            SchemaTarget::Type => wire::SchemaTarget::Type(change.name.clone()),
        },
        keyspace: change.keyspace.clone(),
    }
}

/// Returns a warning for a definition that specifies what this engine does not do: more copies of a
/// keyspace than one, or options of a table that have no effect.
pub(crate) fn definition_warning(change: &engine::SchemaChange, schema: &engine::Schema) -> Option<String> {
    match change.target {
        SchemaTarget::Keyspace => {
            let keyspace = schema.keyspaces.get(&change.keyspace)?;
            let copies = |(key, value): (&String, &String)| {
                let copies = value.parse::<u32>().ok().filter(|copies| key != "class" && *copies > 1)?;
                let of = match key.as_str() {
                    "replication_factor" => String::new(),
                    datacenter => format!(" for datacenter {datacenter}"),
                };
                Some(format!(
                    "Your replication factor {copies} for keyspace {} is higher than the number of nodes 1{of}",
                    change.keyspace
                ))
            };
            keyspace.def.replication.iter().find_map(copies)
        }
        SchemaTarget::Table => {
            let table = schema.table(&change.keyspace, &change.name)?;
            let options = table.options.other.keys().map(String::as_str);
            let is_default = |option: &schema::StoredOption| {
                table
                    .options
                    .other
                    .get(option.name)
                    .is_some_and(|text| text == table.options.default_of(option))
            };
            let has_effect = |name: &&str| {
                schema::stored_option(name).is_some_and(|option| option.has_effect || is_default(option))
            };
            let without: Vec<&str> = options.filter(|name| !has_effect(name)).collect();
            (!without.is_empty()).then(|| {
                let names = without.join(", ");
                format!("Options of table {}.{} without effect: {names}", change.keyspace, change.name)
            })
        }
        _ => None,
    }
}
