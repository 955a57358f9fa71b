//! Metrics in the text format of Prometheus: one head for each metric, then its values.

use std::fmt::Write;

use engine::{Measure, Metric, TableMeasures};

/// The page under construction.
#[derive(Default)]
pub(crate) struct Page(pub(crate) String);

impl Page {
    /// Appends the head of a metric. Its values must follow.
    pub(crate) fn head(&mut self, metric: &Metric) {
        let Metric { name, kind, help } = metric;
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
    }

    /// Appends a value of the last metric. Label values are constants or numbers, and need no
    /// escaping.
    pub(crate) fn value(&mut self, metric: &Metric, label: &str, of: impl std::fmt::Display, value: f64) {
        let _ = writeln!(self.0, "{}{{{label}=\"{of}\"}} {value}", metric.name);
    }

    /// Appends a value of a level at a node.
    pub(crate) fn at_node(&mut self, metric: &Metric, node: std::net::SocketAddr, level: &str, value: f64) {
        let level = escaped(level);
        let _ = writeln!(self.0, "{}{{node=\"{node}\",level=\"{level}\"}} {value}", metric.name);
    }

    /// Appends the metrics of tables, in the order of the first table.
    pub(crate) fn tables(&mut self, tables: &[TableMeasures]) {
        let Some(first) = tables.first() else { return };
        for (index, Measure { metric, .. }) in first.measures.iter().enumerate() {
            self.head(metric);
            for TableMeasures { keyspace, table, measures } in tables {
                let (name, value) = (metric.name, measures[index].value);
                let (keyspace, table) = (escaped(keyspace), escaped(table));
                let _ = writeln!(self.0, "{name}{{keyspace=\"{keyspace}\",table=\"{table}\"}} {value}");
            }
        }
    }

    /// Appends a metric with one value.
    pub(crate) fn one(&mut self, metric: &Metric, value: f64) {
        self.head(metric);
        let _ = writeln!(self.0, "{} {value}", metric.name);
    }

    /// Appends metrics that every core measures, in the order of the first core.
    pub(crate) fn cores(&mut self, cores: &[Vec<Measure>]) {
        let Some(first) = cores.first() else { return };
        for (index, Measure { metric, .. }) in first.iter().enumerate() {
            self.head(metric);
            for (core, measures) in cores.iter().enumerate() {
                if let Some(measure) = measures.get(index) {
                    self.value(metric, "core", core, measure.value);
                }
            }
        }
    }
}

/// Escapes a label value that a client may have chosen.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_has_one_head_and_a_value_for_each_core() {
        static ROWS: Metric = Metric::counter("rows_total", "Rows.");
        let of = |value| vec![Measure { metric: &ROWS, value }];
        let mut page = Page::default();
        page.cores(&[of(2.0), of(0.5)]);
        let expected = "# HELP rows_total Rows.\n# TYPE rows_total counter\n\
                        rows_total{core=\"0\"} 2\nrows_total{core=\"1\"} 0.5\n";
        assert_eq!(page.0, expected);
        page.cores(&[]);
        assert_eq!(page.0, expected);
        let table = "t\"\\".to_owned();
        let measures = vec![Measure { metric: &ROWS, value: 3.0 }];
        let mut page = Page::default();
        page.tables(&[TableMeasures { keyspace: "k".to_owned(), table, measures }]);
        let expected = "# HELP rows_total Rows.\n# TYPE rows_total counter\n\
                        rows_total{keyspace=\"k\",table=\"t\\\"\\\\\"} 3\n";
        assert_eq!(page.0, expected);
    }
}
