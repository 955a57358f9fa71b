//! `pg_catalog` as a role sees it. The library numbers the tables of all keyspaces, and forgets a
//! table's number once it does not find the table. Therefore it always lists all keyspaces, and
//! rows about keyspaces hidden from the role are filtered out here.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch, StringArray};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{Int32Type, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{CatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::internal_datafusion_err;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::pg_catalog::{PgCatalogSchemaProvider, PgCatalogStaticTables, PgCatalogTable};
use futures::StreamExt;

use crate::catalog::shows;

/// Name of the schema.
pub(crate) const NAME: &str = "pg_catalog";

type Inner = PgCatalogSchemaProvider<Arc<dyn CatalogProviderList>, EmptyContextProvider>;

/// The schema `pg_catalog`, filtered by the rights of the role that reads it.
#[derive(Debug)]
pub(crate) struct PgCatalog {
    all: Arc<Inner>,
    /// Name of the owner of every table.
    owner: Arc<str>,
}

impl PgCatalog {
    /// Describes the tables of `all`, which must list every keyspace. They belong to `owner`.
    ///
    /// # Errors
    /// Errors of the library.
    pub(crate) fn new(all: Arc<dyn CatalogProviderList>, owner: Arc<str>) -> Result<PgCatalog> {
        let tables = Arc::new(PgCatalogStaticTables::try_new()?);
        let all = Arc::new(Inner::try_new(all, tables, EmptyContextProvider)?);
        Ok(PgCatalog { all, owner })
    }
}

#[async_trait]
impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        self.all.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(about) = About::of(name) else { return self.all.table(name).await };
        let schema = stream(&self.all, about)?.schema().clone();
        let rows = Shown { all: self.all.clone(), owner: self.owner.clone(), about, schema };
        Ok(Some(Arc::new(StreamingTable::try_new(rows.schema.clone(), vec![Arc::new(rows)])?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.all.table_exist(name)
    }
}

/// Catalog tables with rows about keyspaces or their tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    Namespaces,
    Classes,
    Attributes,
    Tables,
}

impl About {
    const ALL: [About; 4] = [About::Namespaces, About::Classes, About::Attributes, About::Tables];

    fn name(self) -> &'static str {
        match self {
            About::Namespaces => "pg_namespace",
            About::Classes => "pg_class",
            About::Attributes => "pg_attribute",
            About::Tables => "pg_tables",
        }
    }

    fn of(name: &str) -> Option<About> {
        About::ALL.into_iter().find(|about| name.eq_ignore_ascii_case(about.name()))
    }
}

/// Returns the unfiltered rows of a table.
fn stream(all: &Inner, about: About) -> Result<Arc<dyn PartitionStream>> {
    match all.build_table_by_name(about.name())? {
        Some(PgCatalogTable::Dynamic(stream)) => Ok(stream),
        _ => Err(internal_datafusion_err!("{} is not made of the tables", about.name())),
    }
}

/// Rows of a table that the role may see.
struct Shown {
    all: Arc<Inner>,
    owner: Arc<str>,
    about: About,
    schema: SchemaRef,
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shown({:?})", self.about)
    }
}

impl PartitionStream for Shown {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let all = self.all.clone();
        let owner = self.owner.clone();
        let about = self.about;
        let rows = async move { owned(&shown(all, about, context).await?, &owner) };
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), futures::stream::once(rows)))
    }
}

/// Returns the rows of a table, without those about hidden keyspaces.
async fn shown(all: Arc<Inner>, about: About, context: Arc<TaskContext>) -> Result<RecordBatch> {
    let rows = made(&all, about, &context).await?;
    let by_name = |rows: &RecordBatch, column: &str| -> BooleanArray {
        let names = rows.column_by_name(column).and_then(|names| names.as_string_opt::<i32>().cloned());
        (0..rows.num_rows())
            .map(|row| Some(names.as_ref().is_some_and(|names| shows(names.value(row)))))
            .collect()
    };
    let by_number = |rows: &RecordBatch, column: &str, numbers: &HashSet<i32>| -> BooleanArray {
        (0..rows.num_rows())
            .map(|row| Some(number(rows, column, row).is_some_and(|n| numbers.contains(&n))))
            .collect()
    };
    let kept = match about {
        About::Namespaces => by_name(&rows, "nspname"),
        About::Tables => by_name(&rows, "schemaname"),
        About::Classes | About::Attributes => {
            let spaces = made(&all, About::Namespaces, &context).await?;
            let spaces = numbers(&filter_record_batch(&spaces, &by_name(&spaces, "nspname"))?, "oid");
            if about == About::Classes {
                by_number(&rows, "relnamespace", &spaces)
            } else {
                let classes = made(&all, About::Classes, &context).await?;
                let own = filter_record_batch(&classes, &by_number(&classes, "relnamespace", &spaces))?;
                by_number(&rows, "attrelid", &numbers(&own, "oid"))
            }
        }
    };
    Ok(filter_record_batch(&rows, &kept)?)
}

/// Returns rows with `owner` as the owner of each table. The library names one that does not exist.
fn owned(rows: &RecordBatch, owner: &str) -> Result<RecordBatch> {
    let mut columns = rows.columns().to_vec();
    if let Ok(at) = rows.schema_ref().index_of("tableowner") {
        let owners = StringArray::from_iter_values(std::iter::repeat_n(owner, rows.num_rows()));
        columns[at] = Arc::new(owners);
    }
    Ok(RecordBatch::try_new(rows.schema(), columns)?)
}

/// Returns all rows of a table. The library yields them as one batch.
async fn made(all: &Inner, about: About, context: &Arc<TaskContext>) -> Result<RecordBatch> {
    let stream = stream(all, about)?;
    let none = RecordBatch::new_empty(stream.schema().clone());
    stream.execute(context.clone()).next().await.unwrap_or(Ok(none))
}

fn number(rows: &RecordBatch, column: &str, row: usize) -> Option<i32> {
    let numbers = rows.column_by_name(column)?.as_primitive_opt::<Int32Type>()?;
    Some(numbers.value(row))
}

fn numbers(rows: &RecordBatch, column: &str) -> HashSet<i32> {
    (0..rows.num_rows()).filter_map(|row| number(rows, column, row)).collect()
}
