//! Columns of a scan: its text, the check that a node's rows have these columns, and the conversion
//! of a page to a batch.

use std::fmt::Write;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use columns::ColumnBuilder;
use engine::Error;
use engine::scan::TableScan;
use schema::CqlType;
use schema::names::always_quoted;
use wire::{ColumnsRef, ReceivedRows};

use crate::catalog::ClusterTable;
use crate::scan::pushed::Condition;

/// Rows between two yields.
const ROWS_PER_YIELD: usize = 64;

/// Columns of a scan. The head of this file describes it.
#[derive(Debug)]
pub(crate) struct Shape {
    table: ClusterTable,
    /// Columns that nodes return: those of the batches, or else one of the key, to count rows.
    selected: Vec<usize>,
    /// Columns of the batches.
    pub(crate) schema: SchemaRef,
    scale: i8,
}

/// Statement of a scan.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ScanText {
    pub(crate) text: String,
    /// Types of its markers.
    pub(crate) markers: Vec<CqlType>,
    /// Values of the markers behind those of the partition key.
    pub(crate) conditions: Vec<Bytes>,
}

impl Shape {
    /// Creates the columns of a scan.
    ///
    /// # Errors
    /// A column does not exist.
    pub(crate) fn new(table: ClusterTable, scan: &TableScan) -> Result<Shape, Error> {
        let schema = scan.schema(&table.relation())?;
        let selected = if scan.columns.is_empty() { vec![0] } else { scan.columns.clone() };
        Ok(Shape { schema, selected, scale: scan.scale, table })
    }

    /// Returns the name of the table, for messages.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.table.def.keyspace, self.table.def.name)
    }

    pub(crate) fn keyspace(&self) -> &str {
        &self.table.def.keyspace
    }

    pub(crate) fn table(&self) -> &ClusterTable {
        &self.table
    }

    /// Returns the statement of one partition key.
    pub(crate) fn text_of_key(&self, clustering: &[Condition]) -> ScanText {
        self.text(true, clustering)
    }

    /// Returns the statement of a range of tokens.
    pub(crate) fn text_of_range(&self, clustering: &[Condition]) -> ScanText {
        self.text(false, clustering)
    }

    fn text(&self, of_key: bool, clustering: &[Condition]) -> ScanText {
        let def = &self.table.def;
        let name = |column: &usize| always_quoted(&def.columns[*column].name);
        let list = |columns: &[usize]| columns.iter().map(name).collect::<Vec<_>>().join(", ");
        let key: Vec<usize> = (0..def.partition_key().count()).collect();
        let from = format!("{}.{}", always_quoted(&def.keyspace), always_quoted(&def.name));
        let mut text = format!("SELECT {} FROM {from} WHERE ", list(&self.selected));
        let mut markers: Vec<CqlType> = Vec::new();
        if of_key {
            let equal = |column: &usize| format!("{} = ?", name(column));
            text += &key.iter().map(equal).collect::<Vec<_>>().join(" AND ");
            markers.extend(key.iter().map(|column| def.columns[*column].ty.clone()));
        } else {
            let key = list(&key);
            let _ = write!(text, "token({key}) > ? AND token({key}) <= ?");
            markers.extend([CqlType::BigInt, CqlType::BigInt]);
        }
        for Condition { column, operator, .. } in clustering {
            let _ = write!(text, " AND {} {operator} ?", name(column));
            markers.push(def.columns[*column].ty.clone());
        }
        if !of_key && !clustering.is_empty() {
            // Nodes read the rows of each partition by their order all the same.
            text += " ALLOW FILTERING";
        }
        let conditions = clustering.iter().map(|condition| condition.value.clone()).collect();
        ScanText { text, markers, conditions }
    }

    /// Checks that columns of a node are those of the scan.
    ///
    /// # Errors
    /// They are not: the table was altered.
    pub(crate) fn check(&self, theirs: &ColumnsRef<'_>) -> Result<(), Error> {
        let def = &self.table.def;
        let is_own = |(column, (name, ty)): (&usize, &(&str, Option<CqlType>))| {
            let own = &def.columns[*column];
            let is_same = |ty: &CqlType| is_same(&own.ty, ty);
            own.name == *name && (self.table.is_opaque(*column) || ty.as_ref().is_some_and(is_same))
        };
        let theirs = theirs.decode_known().map_err(|error| self.unreadable(&error))?;
        match theirs.len() == self.selected.len() && self.selected.iter().zip(&theirs).all(is_own) {
            true => Ok(()),
            false => Err(self.altered()),
        }
    }

    pub(crate) fn altered(&self) -> Error {
        Error::Invalid(format!("the columns of {} have changed: run the query again", self.name()))
    }

    pub(crate) fn unreadable(&self, error: &wire::Error) -> Error {
        Error::Server(format!("a node's answer about {} cannot be read: {error}", self.name()))
    }

    /// Converts rows to a batch, on a heavy lane.
    ///
    /// # Errors
    /// A value does not fit its column: see `columns`.
    pub(crate) async fn batch(&self, rows: &ReceivedRows<'_>) -> Result<RecordBatch, Error> {
        let count = rows.len();
        let shown = self.schema.fields().len();
        let def = &self.table.def;
        let builder = |column: &usize| ColumnBuilder::new(&def.columns[*column].ty, self.scale, count);
        let mut builders: Vec<ColumnBuilder> = self.selected.iter().take(shown).map(builder).collect();
        let mut cells = rows.cells();
        if shown > 0 {
            for row in 0..count {
                for (builder, column) in builders.iter_mut().zip(&self.selected) {
                    let cell = cells.next().flatten();
                    builder.push(cell).map_err(|error| self.unfit(*column, error.into()))?;
                }
                if row % ROWS_PER_YIELD == 0 {
                    lanes::heavy_yield().await;
                }
            }
        }
        let arrays: Vec<ArrayRef> = builders.iter_mut().map(ColumnBuilder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(|error| Error::Server(format!("a row of {} is damaged: {error}", self.name())))
    }

    /// Returns the error with the name of the column.
    fn unfit(&self, column: usize, error: Error) -> Error {
        let name = &self.table.def.columns[column].name;
        let with_name = |message: String| format!("column {name} of {}: {message}", self.name());
        match error {
            Error::Invalid(message) => Error::Invalid(with_name(message)),
            other => Error::Server(with_name(other.to_string())),
        }
    }
}

/// Returns true if types are the same to the protocol, which does not show `frozen`.
pub(crate) fn is_same(own: &CqlType, theirs: &CqlType) -> bool {
    let (own, theirs) = (own.thawed(), theirs.thawed());
    let has_same_names = match (own, theirs) {
        (CqlType::Udt(own), CqlType::Udt(theirs)) => {
            let names = |(own, theirs): (&(String, CqlType), &(String, CqlType))| own.0 == theirs.0;
            own.name == theirs.name && own.fields.iter().zip(&theirs.fields).all(names)
        }
        (CqlType::Vector(_, own), CqlType::Vector(_, theirs)) => own == theirs,
        _ => own.kind_name() == theirs.kind_name(),
    };
    let (inner, of_theirs) = (own.inner(), theirs.inner());
    has_same_names
        && inner.len() == of_theirs.len()
        && inner.iter().zip(of_theirs).all(|(own, theirs)| is_same(own, theirs))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use std::collections::BTreeMap;

    use arrow_array::Array;
    use schema::{ColumnDef, ColumnKind, TableDef, TableOptions, UdtType, value};
    use testkit::start_lanes;
    use uuid::Uuid;
    use wire::{
        ColumnSpec, Columns, Decoder, Direction, Encoder, Envelope, Limits, Prelude, Response, RowsHead,
        Version,
    };

    use super::*;

    /// Types, each with the text of a value.
    fn types() -> Vec<(CqlType, Vec<u8>)> {
        let scalar = |name: &str, text: &str| {
            let ty = CqlType::scalar(name).expect("a type");
            let value = value::parse_text(&ty, text).expect("a value");
            (ty, value)
        };
        let int = |n: i32| n.to_be_bytes().to_vec();
        let frozen = |ty: CqlType| CqlType::Frozen(Box::new(ty));
        let boxed = |ty: CqlType| Box::new(ty);
        let udt = |name: &str| {
            let fields = vec![
                ("x".to_owned(), CqlType::Int),
                ("y".to_owned(), frozen(CqlType::List(boxed(CqlType::Text)))),
            ];
            CqlType::Udt(Arc::new(UdtType::new("ks", name, fields)))
        };
        let list = value::encode_list([&int(1)[..], &int(2)].into_iter());
        let map = value::encode_map([(&b"a"[..], &int(1)[..])].into_iter());
        let texts = value::encode_list([&b"a"[..]].into_iter());
        let fields = value::encode_tuple([Some(&int(7)[..]), Some(&texts[..])].into_iter());
        let pair = value::encode_tuple([Some(&int(7)[..]), None].into_iter());
        vec![
            scalar("ascii", "a"),
            scalar("bigint", "-5"),
            scalar("blob", "0x00ff"),
            scalar("boolean", "true"),
            (CqlType::Counter, 9_i64.to_be_bytes().to_vec()),
            scalar("date", "2026-11-29"),
            scalar("decimal", "1.50"),
            scalar("double", "0.5"),
            scalar("duration", "1mo2d3s"),
            scalar("float", "0.25"),
            scalar("inet", "10.0.0.1"),
            scalar("int", "7"),
            scalar("smallint", "-2"),
            scalar("text", "ü"),
            scalar("time", "01:02:03"),
            scalar("timestamp", "2026-11-29T00:00:00Z"),
            scalar("timeuuid", "50554d6e-29bb-11e5-b345-feff819cdc9f"),
            scalar("tinyint", "1"),
            scalar("uuid", "50554d6e-29bb-41e5-b345-feff819cdc9f"),
            scalar("varint", "123456789012345678901234567890"),
            (CqlType::List(boxed(CqlType::Int)), list.clone()),
            (frozen(CqlType::Set(boxed(CqlType::Int))), list),
            (CqlType::Map(boxed(CqlType::Text), boxed(CqlType::Int)), map),
            (frozen(CqlType::Tuple(vec![CqlType::Int, CqlType::Text])), pair),
            (CqlType::Vector(boxed(CqlType::Float), 2), [int(1), int(2)].concat()),
            (CqlType::Vector(boxed(CqlType::Text), 1), b"\x01a".to_vec()),
            (udt("one"), fields.clone()),
            (frozen(udt("two")), fields),
        ]
    }

    /// Returns a table with a key and a column of each type, of which those in `opaque` are binary.
    fn shape(types: &[CqlType], opaque: &[usize], selected: Vec<usize>) -> Shape {
        let column = |(at, ty): (usize, &CqlType)| ColumnDef {
            id: at as u32,
            name: format!("c{at:02}"),
            ty: if opaque.contains(&at) { CqlType::Blob } else { ty.clone() },
            kind: if at == 0 { ColumnKind::PartitionKey(0) } else { ColumnKind::Regular },
        };
        let def = TableDef {
            id: Uuid::from_u128(1),
            keyspace: "ks".into(),
            name: "t".into(),
            columns: types.iter().enumerate().map(column).collect(),
            next_column_id: types.len() as u32,
            options: TableOptions { other: BTreeMap::new(), ..TableOptions::default() },
            data: None,
            dropped: Default::default(),
            masks: Default::default(),
            indexes: Vec::new(),
            views: Vec::new(),
        };
        let table = ClusterTable::of(def, opaque.to_vec());
        let scan = TableScan {
            keyspace: "ks".into(),
            table: "t".into(),
            columns: selected,
            tokens: i64::MIN..=i64::MAX,
            filters: Vec::new(),
            limit: None,
            batch_rows: 100,
            scale: 6,
            bypass_cache: false,
            expected: None,
        };
        Shape::new(table, &scan).expect("its columns exist")
    }

    /// Returns a page with these rows, as a node sends it.
    fn page(version: Version, types: &[CqlType], rows: &[Vec<Option<&[u8]>>]) -> Envelope {
        let names: Vec<String> = (0..types.len()).map(|at| format!("c{at:02}")).collect();
        let specs: Vec<ColumnSpec<'_>> =
            names.iter().zip(types).map(|(name, ty)| ColumnSpec::new("ks", "t", name, ty)).collect();
        let columns = Columns::encode(version, &specs).expect("short");
        let mut encoder = Encoder::new(Direction::Response, version);
        let mut writer = encoder.rows(0, &RowsHead::default(), &columns, &Prelude::default());
        rows.iter().flatten().for_each(|cell| writer.cell(*cell));
        writer.end().expect("short");
        let mut bytes = encoder.finish().split();
        let decoded = Decoder::new(Direction::Response, Limits::default()).decode(&mut bytes);
        decoded.expect("well-formed").expect("whole")
    }

    fn batch(shape: Shape, page: Envelope) -> Result<RecordBatch, Error> {
        let lanes = start_lanes(1);
        let batch = lanes.block_on(0, lanes::Group::CONTROL, move || {
            lanes::heavy(lanes::Group::CONTROL, async move {
                let Ok(Response::Rows(rows)) = page.response() else { panic!("rows") };
                shape.check(rows.metadata.columns.as_ref().expect("columns"))?;
                shape.batch(&rows).await
            })
        });
        lanes.shutdown();
        batch
    }

    #[test]
    fn values_of_every_type_become_columns() {
        let (types, values): (Vec<CqlType>, Vec<Vec<u8>>) = types().into_iter().unzip();
        for version in [Version::V4, Version::V5] {
            let all: Vec<Option<&[u8]>> = values.iter().map(|value| Some(&value[..])).collect();
            let mut nulls: Vec<Option<&[u8]>> = vec![None; types.len()];
            nulls[0] = Some(b"key");
            let rows = [all, nulls];
            let batch = batch(shape(&types, &[], (0..types.len()).collect()), page(version, &types, &rows));
            let batch = batch.expect("all types have columns");
            assert_eq!(batch.num_rows(), 2);
            for (at, ty) in types.iter().enumerate() {
                let mut alone = ColumnBuilder::new(ty, 6, 2);
                rows.iter().for_each(|row| alone.push(row[at]).expect("a value"));
                assert_eq!(batch.column(at), &alone.finish(), "{ty}");
                assert_eq!(batch.column(at).null_count(), usize::from(at > 0), "{ty}");
            }
        }
    }

    #[test]
    fn opaque_column_is_binary_and_others_must_have_the_known_type() {
        let known = [CqlType::Int, CqlType::List(Box::new(CqlType::Text))];
        let altered = [CqlType::Int, CqlType::List(Box::new(CqlType::Blob))];
        let row = vec![Some(&[0, 0, 0, 1][..]), Some(&[0, 0, 0, 0][..])];
        let with = |opaque: &[usize], types: &[CqlType]| {
            batch(shape(&known, opaque, vec![0, 1]), page(Version::V5, types, std::slice::from_ref(&row)))
        };
        assert!(with(&[], &known).is_ok());
        let error = with(&[], &altered).expect_err("another type").to_string();
        assert_eq!(error, "the columns of ks.t have changed: run the query again");
        let binary = with(&[1], &altered).expect("any type");
        assert_eq!(binary.column(1).data_type(), &arrow_schema::DataType::Binary);
        assert!(with(&[1], &altered[..1]).is_err(), "a column is missing");
    }

    #[test]
    fn unfit_value_is_refused_with_its_column() {
        let types = [CqlType::Int, CqlType::Decimal];
        let check = |cells: [&[u8]; 2], expected: &str| {
            let row = cells.map(Some).to_vec();
            let error =
                batch(shape(&types, &[], vec![0, 1]), page(Version::V5, &types, &[row])).expect_err("unfit");
            assert!(error.to_string().starts_with(expected), "{error}");
        };
        // A short int, and one hundredth of a millionth.
        check([&[0], &[0, 0, 0, 0, 1]], "column c00 of ks.t: ");
        check([&[0; 4], &[0, 0, 0, 8, 1]], "column c01 of ks.t: expected a decimal");
    }

    #[test]
    fn rows_without_columns_are_counted() {
        let types = [CqlType::Int, CqlType::Int];
        let rows = vec![vec![Some(&[0_u8; 4][..])]; 3];
        let counted = batch(shape(&types, &[], Vec::new()), page(Version::V5, &types[..1], &rows));
        let counted = counted.expect("three rows");
        assert_eq!((counted.num_rows(), counted.num_columns()), (3, 0));
    }
}
