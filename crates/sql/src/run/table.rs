//! A CQL table or materialized view as a table of DataFusion: its columns in Arrow's types, and a
//! scan with one partition for each core.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{Statistics, not_impl_err};
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use engine::Relation;
use engine::scan::{TableScan, TableStatistics, schema_of_relation};

use crate::run::engines::Engines;
use crate::run::filter;
use crate::run::scan::ScanExec;

/// Options of a session for its scans.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ScanOptions {
    pub(crate) bypass_cache: bool,
}

/// A table, stored or virtual, or a materialized view.
#[derive(Debug)]
pub(crate) struct CqlTable {
    engines: Engines,
    pub(crate) relation: Relation,
    /// Scale of its CQL `decimal` columns.
    decimal_scale: i8,
    schema: SchemaRef,
}

impl CqlTable {
    pub(crate) fn new(engines: Engines, relation: Relation, decimal_scale: i8) -> CqlTable {
        let schema = schema_of_relation(&relation, decimal_scale);
        CqlTable { engines, relation, decimal_scale, schema }
    }

    /// Returns the table with its timestamps in another zone. `None` if it has none, or all are in
    /// that zone.
    pub(crate) fn in_zone(&self, zone: &str) -> Option<CqlTable> {
        let moved = |ty: &DataType| match ty {
            DataType::Timestamp(unit, Some(own)) if **own != *zone => {
                Some(DataType::Timestamp(*unit, Some(Arc::from(zone))))
            }
            _ => None,
        };
        let fields = self.schema.fields().iter();
        if !fields.clone().any(|field| moved(field.data_type()).is_some()) {
            return None;
        }
        let fields = fields.map(|field| match moved(field.data_type()) {
            Some(ty) => Arc::new(field.as_ref().clone().with_data_type(ty)),
            None => field.clone(),
        });
        let schema =
            Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), self.schema.metadata().clone()));
        let (engines, relation) = (self.engines.clone(), self.relation.clone());
        Some(CqlTable { engines, relation, decimal_scale: self.decimal_scale, schema })
    }

    /// Returns the estimated rows and bytes on all cores. Unknown if any core has no estimate.
    async fn counted(&self) -> Option<TableStatistics> {
        let mut counted = TableStatistics::default();
        for core in 0..lanes::cores() {
            let (engines, def) = (self.engines.clone(), self.relation.def.clone());
            let count =
                lanes::call(
                    core,
                    move || async move { engines.here()?.statistics(&def.keyspace, &def.name) },
                );
            let here = count.await?;
            counted.rows = counted.rows.saturating_add(here.rows);
            counted.bytes = counted.bytes.saturating_add(here.bytes);
        }
        Some(counted)
    }

    fn statistics(&self, counted: Option<TableStatistics>) -> Statistics {
        let mut statistics = Statistics::new_unknown(&self.schema);
        if let Some(TableStatistics { rows, bytes }) = counted {
            let inexact = |count: u64| Precision::Inexact(usize::try_from(count).unwrap_or(usize::MAX));
            statistics.num_rows = inexact(rows);
            statistics.total_byte_size = inexact(bytes);
        }
        statistics
    }
}

#[async_trait]
impl TableProvider for CqlTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        if self.relation.base.is_some() { TableType::View } else { TableType::Base }
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = state.config().get_extension::<ScanOptions>().unwrap_or_default();
        let columns = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let schema = Arc::new(self.schema.project(&columns)?);
        let expected = self.counted().await;
        let statistics = self.statistics(expected).project(Some(&columns));
        let def = &self.relation.def;
        let scan = TableScan {
            keyspace: def.keyspace.clone(),
            table: def.name.clone(),
            columns,
            tokens: i64::MIN..=i64::MAX,
            filters: filters.iter().flat_map(|condition| filter::filters(def, condition)).collect(),
            // DataFusion passes no limit if it filters afterwards, since filters are inexact.
            limit: limit.filter(|_| filters.is_empty()).map(|limit| limit as u64),
            batch_rows: state.config().batch_size(),
            scale: self.decimal_scale,
            bypass_cache: options.bypass_cache,
            expected,
        };
        let statistics = match scan.filters.is_empty() {
            true => statistics,
            false => statistics.to_inexact(),
        };
        Ok(Arc::new(ScanExec::new(self.engines.clone(), self.relation.clone(), scan, schema, statistics)))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let judge = |condition: &&Expr| match filter::filters(&self.relation.def, condition).is_empty() {
            false => TableProviderFilterPushDown::Inexact,
            true => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(judge).collect())
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        _input: Arc<dyn ExecutionPlan>,
        _op: datafusion::logical_expr::dml::InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        not_impl_err!("SQL is read-only for now: change data through CQL")
    }
}
