//! `pg_stat_activity`: the sessions of `system.connections` that speak SQL, with the running
//! statements of `system.running_statements`.

use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{Ident, Query, Statement, TableAlias, TableFactor, VisitorMut};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::catalog::pg_catalog;
use crate::engine::parse::syntax;
use crate::walk;

/// Name of the view.
const NAME: &str = "pg_stat_activity";

/// Definition of the view. Sessions have suspended statements too, of which the newest is shown.
const VIEW: &str = "
    SELECT CAST(NULL AS int) AS datid, 'fairlane' AS datname, CAST(substr(c.id, 5) AS int) AS pid,
        CAST(NULL AS int) AS leader_pid, CAST(NULL AS int) AS usesysid, c.role AS usename,
        coalesce(c.application_name, '') AS application_name, c.address AS client_addr,
        CAST(NULL AS text) AS client_hostname, c.port AS client_port, c.connected_at AS backend_start,
        CAST(NULL AS timestamptz) AS xact_start, CAST(NULL AS timestamptz) AS query_start,
        CAST(NULL AS timestamptz) AS state_change,
        CASE WHEN r.state = 'waiting' THEN 'Admission' END AS wait_event_type,
        CASE WHEN r.state = 'waiting' THEN r.service_level END AS wait_event,
        CASE WHEN r.id IS NULL THEN 'idle' ELSE 'active' END AS state,
        CAST(NULL AS bigint) AS backend_xid, CAST(NULL AS bigint) AS backend_xmin,
        CAST(NULL AS bigint) AS query_id, coalesce(r.statement, '') AS query, 'client backend' AS backend_type
    FROM system.connections c LEFT JOIN (
        SELECT id, max(service_level) AS service_level, max(state) AS state, max(statement) AS statement
        FROM system.running_statements GROUP BY id
    ) r ON r.id = c.id
    WHERE c.protocol = 'sql' AND c.role IS NOT NULL";

static QUERY: LazyLock<Box<Query>> = LazyLock::new(|| {
    let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(VIEW);
    parser.and_then(|mut parser| parser.parse_query()).expect("a test parses the view")
});

/// Puts the definition of the view in place of its name.
pub(super) fn define(statement: &mut Statement) {
    let _ = walk::walk_mut(statement, &mut Views);
}

struct Views;

impl VisitorMut for Views {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table { name, alias, args: None, .. } = table else {
            return ControlFlow::Continue(());
        };
        let parts: Vec<String> =
            name.0.iter().filter_map(|part| part.as_ident()).map(syntax::folded).collect();
        let is_view = match &parts[..] {
            [view] => view == NAME,
            [.., schema, view] => schema == pg_catalog::NAME && view == NAME,
            [] => false,
        };
        if is_view {
            let named =
                || TableAlias { explicit: true, name: Ident::new(NAME), columns: Vec::new(), at: None };
            let alias = Some(alias.take().unwrap_or_else(named));
            *table = TableFactor::Derived { lateral: false, subquery: QUERY.clone(), alias, sample: None };
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_takes_the_place_of_its_name() {
        let defined = |text: &str| {
            let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, text).expect("SQL").remove(0);
            define(&mut statement);
            statement.to_string()
        };
        for text in ["pg_stat_activity", "pg_catalog.pg_stat_activity", "PG_Catalog.PG_STAT_ACTIVITY a"] {
            assert!(defined(&format!("SELECT * FROM {text}")).contains("system.connections"), "{text}");
        }
        for text in ["ks.pg_stat_activity", "pg_stat_activity(1)", "\"PG_STAT_ACTIVITY\""] {
            assert!(!defined(&format!("SELECT * FROM {text}")).contains("system.connections"), "{text}");
        }
    }
}
