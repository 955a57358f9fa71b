//! Plans a statement's text: parses and rewrites Postgres' dialect (`dialect`), then calls
//! DataFusion. All of it runs on a heavy lane. `plan_cache` keeps the plan for the next
//! statement with the same text.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::catalog::{CatalogProvider, CatalogProviderList, MemoryCatalogProviderList};
use datafusion::common::ParamValues;
use datafusion::common::format::ExplainStatementOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Volatility};
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::parser::{ExplainStatement, Statement};
use datafusion::sql::sqlparser::ast::{self, ObjectName};
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::setup_pg_catalog;
use engine::Guardrails;
use uuid::Uuid;

use crate::catalog::client_queries::{self, Replacement};
use crate::catalog::pg_catalog::{self, PgCatalog};
use crate::catalog::privileges;
use crate::catalog::{CATALOG, Catalog, Tables};
use crate::config::SqlConfig;
use crate::engine::limits::{batch_width, function_bounds, planning};
use crate::engine::operators::exchange::PlaceOnLanes;
use crate::engine::operators::{aggregate_memory, window_functions};
use crate::engine::parse::dialect::{Dialect, Parsed, SetTo, reads_catalog, set_configs};
use crate::engine::parse::{declared_types, syntax};
use crate::engine::plan_cache::{PlanCache, PlanCacheCounts};
use crate::engine::types::{checked_text, exact, functions};
use crate::engine::values;
use crate::failure::{Failure, state as class};
use crate::run::engines::Engines;
use crate::run::query::Physical;
use crate::run::table::{CqlTable, ScanOptions};

/// Version of Postgres whose dialect and catalog statements are planned for.
pub(crate) const POSTGRES_VERSION: &str = "16.6";
/// Memory of a node (`planning`) in both plans, logical and optimized, bytes. A literal takes about
/// 200 in each (the size of `Expr` and of its text, 2026-11-24).
const NODE_BYTES: u64 = 400;

/// Properties of a session that its plans depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlanOptions {
    /// The keyspace of unqualified names.
    pub(crate) schema: String,
    pub(crate) user: String,
    /// Number of the session, by which a client cancels its statements.
    pub(crate) session: i32,
    pub(crate) time_zone: String,
    pub(crate) scan: ScanOptions,
    /// PostgreSQL's ids of the types that the client declared for `$1` and on. 0: none.
    pub(crate) declared: Vec<u32>,
    /// All settings, if the statement reads them. Empty otherwise.
    pub(crate) settings: BTreeMap<String, String>,
}

/// State shared by all statements. The first one creates it.
pub(crate) struct Planner {
    engines: Engines,
    /// Scale of CQL `decimal` columns.
    decimal_scale: i8,
    /// Name of the owner of every table.
    owner: Arc<str>,
    /// Rows of a batch, for statements without wide values.
    batch_rows: usize,
    shared: OnceLock<Result<(SessionContext, Arc<Catalog>), String>>,
    dialect: OnceLock<Dialect>,
    cache: PlanCache,
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Planner")
    }
}

/// A planner that other crates cannot see. Otherwise each program and test that drops a listener
/// would compile the destructors of all of DataFusion again.
pub(crate) trait Planning: fmt::Debug + Send + Sync {
    fn planner(&self) -> &Planner;
}

impl Planning for Planner {
    fn planner(&self) -> &Planner {
        self
    }
}

/// A planned statement. Its parameters have no values yet.
pub(crate) struct Planned {
    /// State it is planned with. Sessions with equal options share it.
    state: Arc<SessionState>,
    plan: LogicalPlan,
    /// Approximate memory, bytes: the text, and [`NODE_BYTES`] for each node.
    pub(crate) bytes: u64,
    /// The optimized plan, set by the first execution if `lasts`.
    optimized: OnceLock<Optimized>,
    lasts: bool,
    /// Tables it reads, by keyspace and name.
    pub(crate) tables: Vec<(String, String)>,
    /// Types of its parameters from `$1`. `None` if unknown.
    pub(crate) parameters: Vec<Option<DataType>>,
    /// Postgres' ids of parameter types, where a known client requires them.
    pub(crate) required_types: &'static [u32],
    /// It reads only Postgres' catalog.
    pub(crate) of_catalog: bool,
    /// First word of its command tag.
    pub(crate) tag: &'static str,
    /// Settings that it changes by `set_config`.
    pub(crate) sets: Vec<(String, SetTo)>,
}

/// Reason why a statement has no plan.
pub(crate) struct NotPlanned {
    pub(crate) failure: Failure,
    /// The statement reads only Postgres' catalog.
    pub(crate) of_catalog: bool,
}

/// An optimized plan.
#[derive(Clone)]
struct Optimized {
    plan: LogicalPlan,
    repeated: Arc<HashSet<Uuid>>,
}

impl Optimized {
    fn new(state: &SessionState, plan: &LogicalPlan) -> Result<Optimized> {
        planning::step_with(plan)?;
        let plan = planning::optimized(state, plan)?;
        let repeated = Arc::new(repeated(&plan)?);
        Ok(Optimized { plan, repeated })
    }
}

impl Planned {
    /// Returns the state it is planned with.
    pub(crate) fn state(&self) -> &Arc<SessionState> {
        &self.state
    }

    /// Returns true if it reads tables, and all of them are the server's own.
    pub(crate) fn reads_server_only(&self) -> bool {
        let of_server = |(keyspace, _): &(String, String)| engine::is_of_server(keyspace);
        self.of_catalog || !self.tables.is_empty() && self.tables.iter().all(of_server)
    }

    /// Returns true if it reads Postgres' catalog and no other table, or nothing at all.
    pub(crate) fn is_of_drivers(&self) -> bool {
        let mut reads = false;
        let walked = each_scanned(&self.plan, |_| reads = true);
        self.of_catalog || walked.is_ok() && !reads
    }

    /// Returns true if it reads tables, and all of them are stored ones. The rows of virtual
    /// tables may be fixed by planning.
    fn reads_stored_tables(&self, tables: &Tables) -> Result<bool> {
        let (mut any, mut all) = (false, true);
        each_scanned(&self.plan, |table| {
            any = true;
            all &= table.is_some_and(|table| tables.store(&table.relation));
        })?;
        Ok(any && all)
    }

    /// Returns the columns of its rows.
    pub(crate) fn schema(&self) -> &datafusion::arrow::datatypes::Schema {
        self.plan.schema().as_arrow()
    }

    /// Returns the physical plan, for batches of at most `rows_max` rows.
    pub(crate) async fn physical(
        &self,
        values: Option<ParamValues>,
        joins: Joins,
        rows_max: usize,
    ) -> Result<Physical> {
        let mut state = match joins {
            Joins::Hashed => self.state.clone(),
            Joins::Sorted => Arc::new(sorting(&self.state)),
        };
        if !self.lasts {
            // `now()` is the time of execution, not of preparation.
            Arc::make_mut(&mut state).mark_start_execution();
        }
        let optimized = match values {
            Some(values) => {
                planning::step_binding(&self.plan, &values)?;
                Optimized::new(&state, &self.plan.clone().replace_params_with_values(&values)?)?
            }
            None if !self.lasts || joins == Joins::Sorted => Optimized::new(&state, &self.plan)?,
            None => match self.optimized.get() {
                Some(optimized) => optimized.clone(),
                None => {
                    let optimized = Optimized::new(&state, &self.plan)?;
                    self.optimized.get_or_init(|| optimized).clone()
                }
            },
        };
        let rows = batch_width::rows_for(batch_width::constant_bytes(&optimized.plan)?, rows_max);
        if rows < state.config().batch_size() {
            state = Arc::new(with_batches(&state, rows));
        }
        lanes::heavy_yield().await;
        planning::step_with(&optimized.plan)?;
        let plan = state.query_planner().create_physical_plan(&optimized.plan, state.as_ref()).await?;
        Ok(Physical { plan, state, repeated: optimized.repeated })
    }
}

/// Algorithm for equi-joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Joins {
    /// A hash table of one side in memory.
    Hashed,
    /// A merge of both sides, sorted.
    Sorted,
}

/// Returns the state with sort-merge joins, which DataFusion plans for at least two partitions
/// only.
fn sorting(state: &SessionState) -> SessionState {
    let partitions = state.config().target_partitions().max(2);
    let mut config = state.config().clone().with_target_partitions(partitions);
    config.options_mut().optimizer.prefer_hash_join = false;
    SessionStateBuilder::new_from_existing(state.clone()).with_config(config).build()
}

/// Returns the state with batches of `rows` rows.
fn with_batches(state: &SessionState, rows: usize) -> SessionState {
    let config = state.config().clone().with_batch_size(rows);
    SessionStateBuilder::new_from_existing(state.clone()).with_config(config).build()
}

impl Planner {
    /// Creates a planner of statements over the tables of `engines`.
    pub(crate) fn new(engines: Engines, config: &SqlConfig) -> Planner {
        Planner {
            engines,
            decimal_scale: config.decimal_scale,
            owner: config.owner.clone(),
            batch_rows: config.batch_rows,
            shared: OnceLock::new(),
            dialect: OnceLock::new(),
            cache: PlanCache::default(),
        }
    }

    /// Returns the metrics of the plan cache.
    pub(crate) fn plans(&self) -> PlanCacheCounts {
        self.cache.counted()
    }

    /// Plans one statement over `tables`, or returns its plan from the plan cache.
    ///
    /// # Errors
    /// The statement is invalid, unsupported, or exceeds a guardrail.
    pub(crate) async fn plan(
        &self,
        text: &str,
        tables: Tables,
        options: &PlanOptions,
        guardrails: &Arc<Guardrails>,
    ) -> Result<Arc<Planned>, NotPlanned> {
        let planned = self.plan_or_find(text, tables, options, guardrails).await;
        planned.map_err(|failure| NotPlanned { failure, of_catalog: reads_catalog(text) })
    }

    async fn plan_or_find(
        &self,
        text: &str,
        tables: Tables,
        options: &PlanOptions,
        guardrails: &Arc<Guardrails>,
    ) -> Result<Arc<Planned>, Failure> {
        let found = self.cache.find(text, options, &tables);
        if let Some(planned) = found.planned {
            return Ok(planned);
        }
        let replacement = replacement(text)?;
        let read = replacement.as_ref().map_or(text, |answer| &answer.text);
        planning::step_parsing(text.len())?;
        let parsed = self.parsed(read, &tables, options, guardrails)?;
        let sets = parsed.sets;
        let make = || self.make(tables.clone(), guardrails).map_err(|error| error.to_string());
        let shared = self.shared.get_or_init(make);
        let (context, catalog) =
            shared.as_ref().map_err(|error| Failure::new(class::INTERNAL, error.clone()))?;
        catalog.set(tables.clone());
        let state = found.state.unwrap_or_else(|| Arc::new(state(context, catalog, options)));
        lanes::heavy_yield().await;
        let plan = converted(parsed.statement, parsed.nodes, &state, &tables, &options.schema).await?;
        let tag = if is_explain(&plan) { "EXPLAIN" } else { "SELECT" };
        let plan = exact::exact(values::projected(plan)?, &options.time_zone)?;
        let nodes = planning::step_with(&plan)?;
        let plan = function_bounds::bound(plan, guardrails)?;
        let mut parameters = parameters_of(&plan)?;
        if let Some(answer) = &replacement {
            parameters.resize(parameters.len().max(answer.parameters), None);
        }
        let planned = Arc::new(Planned {
            bytes: (text.len() as u64).saturating_add(nodes.saturating_mul(NODE_BYTES)),
            optimized: OnceLock::new(),
            lasts: lasts(&plan)?,
            tables: tables_of(&plan)?,
            parameters,
            required_types: replacement.as_ref().map_or(&[][..], |answer| answer.types),
            of_catalog: parsed.of_catalog || replacement.is_some(),
            tag,
            sets,
            state,
            plan,
        });
        if planned.reads_stored_tables(&tables)? {
            self.cache.keep(text, options, tables, &planned);
        }
        Ok(planned)
    }

    /// Parses a text that is one statement.
    fn parsed(
        &self,
        text: &str,
        tables: &Tables,
        options: &PlanOptions,
        guardrails: &Guardrails,
    ) -> Result<ParsedStatement, Failure> {
        let dialect = self.dialect.get_or_init(Dialect::new);
        let columns = |name: &ObjectName| columns_of(name, tables, &options.schema);
        let Parsed { mut statements, size, of_catalog } = dialect.parse(text, guardrails, &columns)?;
        let (Some(mut statement), None) = (statements.pop(), statements.pop()) else {
            return Err(Failure::new(
                class::SYNTAX,
                "cannot insert multiple commands into a prepared statement",
            ));
        };
        declared_types::cast(&mut statement, &options.declared);
        let sets = set_configs(&statement).map_err(|call| {
            Failure::new(
                class::UNSUPPORTED,
                format!("set_config takes constants or parameters here, which these are not: {call}"),
            )
        })?;
        Ok(ParsedStatement { statement, nodes: size.nodes, of_catalog, sets })
    }

    /// Creates the shared state: functions, rules, the catalog.
    fn make(&self, tables: Tables, guardrails: &Arc<Guardrails>) -> Result<(SessionContext, Arc<Catalog>)> {
        let batch_rows = self.batch_rows;
        let mut config = SessionConfig::new()
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(CATALOG, "public")
            .with_target_partitions(lanes::cores())
            .with_batch_size(batch_rows);
        let options = config.options_mut();
        options.sql_parser.dialect = datafusion::common::config::Dialect::PostgreSQL;
        options.sql_parser.parse_float_as_decimal = true;
        // As in PostgreSQL, rows of a subquery come in its order.
        options.sql_parser.enable_subquery_sort_elimination = false;
        // A window that joins views keeps all texts that it ever had (`window_memory`). Texts of
        // tables are no views either.
        options.sql_parser.map_string_types_to_utf8view = false;
        // For planning only. Each run has a runtime of its own (`run`).
        let runtime = RuntimeEnvBuilder::new()
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
            .build_arc()?;
        let builder = SessionStateBuilder::new_with_default_features().with_config(config);
        let state = planning::bound_rules(builder)
            .with_runtime_env(runtime)
            .with_physical_optimizer_rule(Arc::new(PlaceOnLanes { batch_rows }))
            .build();
        let context = SessionContext::new_with_state(state);
        let catalog =
            Arc::new(Catalog::new(self.engines.clone(), self.decimal_scale, self.owner.clone(), tables));
        context.register_catalog(CATALOG, catalog.clone());
        setup_pg_catalog(&context, CATALOG, EmptyContextProvider).map_err(|error| *error)?;
        let all = Arc::new(catalog.of_all());
        let list: Arc<dyn CatalogProviderList> = Arc::new(MemoryCatalogProviderList::new());
        list.register_catalog(CATALOG.to_owned(), all.clone());
        let shown = Arc::new(PgCatalog::new(list, self.owner.clone())?);
        all.register_schema(pg_catalog::NAME, shown.clone())?;
        catalog.register_schema(pg_catalog::NAME, shown)?;
        context.register_udf(functions::text("version", version()));
        functions::register(&context, &self.owner);
        checked_text::register(&context);
        exact::register(&context);
        function_bounds::register(&context, guardrails);
        aggregate_memory::register(&context);
        window_functions::register(&context);
        Ok((context, catalog))
    }
}

/// A statement before it is planned.
struct ParsedStatement {
    statement: ast::Statement,
    /// Size of its tree.
    nodes: u64,
    /// It reads only Postgres' catalog.
    of_catalog: bool,
    /// Settings that it changes by `set_config`.
    sets: Vec<(String, SetTo)>,
}

/// Returns the plan of a statement whose tree has `nodes` nodes, as DataFusion converts it.
///
/// # Errors
/// The plan would be too large, or the statement changes data.
async fn converted(
    statement: ast::Statement,
    nodes: u64,
    state: &SessionState,
    tables: &Tables,
    schema: &str,
) -> Result<LogicalPlan, Failure> {
    let is_aggregate = |name: &str| state.aggregate_functions().contains_key(name);
    planning::step_converting(
        &statement,
        nodes,
        &planning::StatementNames { tables, schema, is_aggregate: &is_aggregate },
    )?;
    let plan = state.statement_to_plan(explained(statement)?).await?;
    planning::step_with(&plan)?;
    let reads = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    if reads.verify_plan(&plan).is_err() {
        return Err(Failure::read_only("this statement"));
    }
    Ok(plan)
}

fn is_explain(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_))
}

/// Returns the columns of a table by its name in a statement.
fn columns_of(name: &ObjectName, tables: &Tables, schema: &str) -> Option<Vec<String>> {
    let parts: Option<Vec<String>> = name.0.iter().map(|part| part.as_ident().map(syntax::folded)).collect();
    let (keyspace, table) = match &parts?[..] {
        [table] => (schema.to_owned(), table.clone()),
        [.., keyspace, table] => (keyspace.clone(), table.clone()),
        [] => return None,
    };
    let table = tables.table(&keyspace, &table)?;
    Some(table.def.columns.iter().map(|column| column.name.clone()).collect())
}

/// Returns the replacement of a known client's statement over the catalog. All of these contain
/// `pg_`.
fn replacement(text: &str) -> Result<Option<Replacement>, Failure> {
    if !text.contains("pg_") {
        return Ok(None);
    }
    Ok(match &Dialect::statements(text)?[..] {
        [statement] => client_queries::answer(statement),
        _ => None,
    })
}

/// Converts `EXPLAIN (…)` with its options, which DataFusion's planner would ignore otherwise.
fn explained(statement: ast::Statement) -> Result<Statement, Failure> {
    let (statement, mut given) = match statement {
        ast::Statement::Explain {
            statement, options: Some(given), analyze: false, verbose: false, ..
        } => (statement, given),
        other => return Ok(Statement::Statement(Box::new(other))),
    };
    for option in given.iter_mut().filter(|option| option.name.value.eq_ignore_ascii_case("format")) {
        let format = option.arg.as_ref().map(|format| format.to_string().trim_matches('\'').to_lowercase());
        let own = match format.as_deref() {
            Some("text") => "indent",
            Some("json") => "pgjson",
            _ => return Err(Failure::new(class::UNSUPPORTED, "EXPLAIN knows the formats TEXT and JSON")),
        };
        option.arg = Some(ast::Expr::Identifier(ast::Ident::new(own)));
    }
    let options = ExplainStatementOptions::from_utility_options(&given)
        .map_err(|error| Failure::new(class::UNSUPPORTED, error.strip_backtrace()))?;
    let statement = Box::new(Statement::Statement(statement));
    Ok(Statement::Explain(ExplainStatement { options, statement }))
}

/// Returns the text in which clients search for the version of Postgres.
fn version() -> String {
    format!("PostgreSQL {POSTGRES_VERSION} (fairlane {})", env!("CARGO_PKG_VERSION"))
}

/// Returns the shared state with the session's options.
fn state(context: &SessionContext, catalog: &Arc<Catalog>, options: &PlanOptions) -> SessionState {
    let state = context.state();
    let mut config = state.config().clone().with_extension(Arc::new(options.scan));
    config.options_mut().catalog.default_schema = options.schema.clone();
    config.options_mut().execution.time_zone = Some(options.time_zone.clone());
    let mut state = SessionStateBuilder::new_from_existing(state).with_config(config).build();
    // Functions that get the settings during execution get a copy made here. Otherwise it would be
    // that of the shared state.
    state.mark_start_execution();
    // These replace functions that return `postgres` and `public`. Registering them cannot fail.
    for (name, text) in [("session_user", &options.user), ("current_schema", &options.schema)] {
        let _ = state.register_udf(Arc::new(functions::text(name, text.clone())));
    }
    let _ = state.register_udf(Arc::new(functions::number("pg_backend_pid", options.session)));
    for function in privileges::functions(catalog, &options.user, &options.schema) {
        let _ = state.register_udf(Arc::new(function));
    }
    let _ = state.register_udf(Arc::new(functions::current_setting(options.settings.clone())));
    state
}

/// Returns true if a plan means the same whenever it runs: it calls only immutable functions, and
/// is not EXPLAIN.
fn lasts(plan: &LogicalPlan) -> Result<bool> {
    let mut lasts = !is_explain(plan);
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                let constant = match expr {
                    Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Immutable,
                    Expr::ScalarVariable(..) => false,
                    _ => true,
                };
                lasts &= constant;
                Ok(if constant { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
            })
        })?;
        Ok(if lasts { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(lasts)
}

/// Calls `visit` for each scanned table, also in subqueries. `None` for a table that is not a
/// [`CqlTable`].
fn each_scanned(plan: &LogicalPlan, mut visit: impl FnMut(Option<&CqlTable>)) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source).ok();
            let provider = provider.as_deref().map(|provider| provider as &dyn std::any::Any);
            visit(provider.and_then(|provider| provider.downcast_ref()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Returns the tables that a plan reads, by keyspace and name. For a view that is its table, whose
/// permissions decide.
fn tables_of(plan: &LogicalPlan) -> Result<Vec<(String, String)>> {
    let mut tables = Vec::new();
    each_scanned(plan, |table| {
        let stored = table.map(|table| table.relation.stored());
        tables.extend(stored.map(|table| (table.keyspace.clone(), table.name.clone())));
    })?;
    tables.sort_unstable();
    tables.dedup();
    Ok(tables)
}

/// Returns the ids of the tables that a plan reads more than once, by their name or by views.
fn repeated(plan: &LogicalPlan) -> Result<HashSet<Uuid>> {
    // A recursive query reads its tables again in each round.
    let mut is_recursive = false;
    plan.apply_with_subqueries(|node| {
        is_recursive |= matches!(node, LogicalPlan::RecursiveQuery(_));
        Ok(TreeNodeRecursion::Continue)
    })?;
    let (mut seen, mut repeated) = (HashSet::new(), HashSet::new());
    each_scanned(plan, |table| {
        let id = table.map(|table| table.relation.stored().id);
        repeated.extend(id.filter(|id| !seen.insert(*id) || is_recursive));
    })?;
    Ok(repeated)
}

/// Infers parameter types that DataFusion leaves open: operands of casts, LIMIT and OFFSET, and
/// the list of ANY.
fn infer_parameters(plan: &LogicalPlan, types: &mut HashMap<String, Option<DataType>>) -> Result<()> {
    let mut infer = |expr: &Expr, ty: DataType| {
        if let Expr::Placeholder(parameter) = expr
            && let Some(none @ None) = types.get_mut(&parameter.id)
        {
            *none = Some(ty);
        }
    };
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Limit(limit) = node {
            limit.skip.iter().chain(&limit.fetch).for_each(|expr| infer(expr, DataType::Int64));
        }
        let inputs = node.inputs();
        let type_of = |expr: &Expr| inputs.iter().find_map(|input| expr.get_type(input.schema()).ok());
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                match expr {
                    Expr::Cast(cast) => infer(&cast.expr, cast.field.data_type().clone()),
                    Expr::ScalarFunction(call) if call.func.name() == "array_has" => {
                        if let [list, item] = &call.args[..]
                            && let Some(ty) = type_of(item)
                        {
                            infer(list, DataType::List(Arc::new(Field::new_list_field(ty, true))));
                        }
                    }
                    Expr::ScalarFunction(call)
                        if matches!(call.func.name(), "array_has_all" | "array_has_any") =>
                    {
                        if let [left, right] = &call.args[..] {
                            type_of(right).into_iter().for_each(|ty| infer(left, ty));
                            type_of(left).into_iter().for_each(|ty| infer(right, ty));
                        }
                    }
                    Expr::ScalarFunction(call)
                        if matches!(call.func.name(), "array_element" | "array_slice") =>
                    {
                        call.args.iter().skip(1).for_each(|place| infer(place, DataType::Int32));
                    }
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// Returns the types of the parameters `$1` … `$n` of a plan.
fn parameters_of(plan: &LogicalPlan) -> Result<Vec<Option<DataType>>, Failure> {
    let mut found = plan.get_parameter_types()?;
    infer_parameters(plan, &mut found)?;
    let mut parameters = Vec::new();
    for (name, ty) in found {
        let number = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
        let Some(place) = number.filter(|number| (1..=u16::MAX.into()).contains(number)) else {
            return Err(Failure::new(
                class::SYNTAX,
                format!("there is no parameter {name}: parameters are $1, $2, …"),
            ));
        };
        if parameters.len() < place {
            parameters.resize(place, None);
        }
        parameters[place - 1] = ty;
    }
    Ok(parameters)
}
