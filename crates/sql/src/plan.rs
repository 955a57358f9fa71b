//! From a statement's text to a plan: Postgres' dialect is read and rewritten (`dialect`), then DataFusion plans it. All of it on a heavy lane. What was planned is kept a while (`kept_plans`) for whoever sends the same text again.

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
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::parser::{ExplainStatement, Statement};
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::setup_pg_catalog;
use engine::Guardrails;
use uuid::Uuid;

use crate::catalog::{CATALOG, Catalog, Tables};
use crate::config::SqlConfig;
use crate::counts::Plans;
use crate::dialect::{Dialect, SetTo, set_configs};
use crate::exchange::PlaceOnLanes;
use crate::failure::{Failure, state as class};
use crate::kept_plans::KeptPlans;
use crate::pg_catalog::{self, PgCatalog};
use crate::server::Sql;
use crate::settings::SERVER_VERSION;
use crate::table::{CqlTable, ScanOptions};
use crate::{bounded, exact, functions, known, wide};

/// Memory of a node of the syntax tree in both plans, logical and optimized, bytes. A literal takes about 200 in each
/// (the size of `Expr` and of its text, 2026-11-24).
const NODE_BYTES: u64 = 400;

/// What a session brings to the planning of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlanOptions {
    /// Where names without a keyspace are looked for.
    pub(crate) schema: String,
    pub(crate) user: String,
    pub(crate) time_zone: String,
    pub(crate) scan: ScanOptions,
    /// All settings, for statements that ask for them.
    pub(crate) settings: BTreeMap<String, String>,
}

/// What all statements share, made by the first.
pub(crate) struct Planner {
    shared: OnceLock<Result<(SessionContext, Arc<Catalog>), String>>,
    dialect: OnceLock<Dialect>,
    kept: KeptPlans,
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Planner")
    }
}

/// A planner that other crates know nothing about: whoever drops a [`Sql`] would otherwise compile what drops all of DataFusion, once
/// more in each program and test.
pub(crate) trait Planning: fmt::Debug + Send + Sync {
    fn planner(&self) -> &Planner;
}

impl Planning for Planner {
    fn planner(&self) -> &Planner {
        self
    }
}

/// A planned statement. Parameters, if it has any, have no values yet.
pub(crate) struct Planned {
    /// What it is planned in; statements of sessions that say the same share it.
    state: Arc<SessionState>,
    plan: LogicalPlan,
    /// Memory that it takes, about: its text, and [`NODE_BYTES`] a node.
    pub(crate) bytes: u64,
    /// Rewritten, once it was run, if it means the same whenever it runs.
    optimized: OnceLock<Optimized>,
    lasts: bool,
    /// The tables it reads, by keyspace and name.
    pub(crate) tables: Vec<(String, String)>,
    /// Its parameters, from `$1`: their types where they can be told.
    pub(crate) parameters: Vec<Option<DataType>>,
    /// Types that they are said to have, by their numbers in Postgres, where the client insists.
    pub(crate) told: &'static [u32],
    /// The first word: what is said when it ends.
    pub(crate) tag: &'static str,
    /// What it sets when it runs, by `set_config`.
    pub(crate) sets: Vec<(String, SetTo)>,
}

/// A plan as the optimizer leaves it.
#[derive(Clone)]
struct Optimized {
    plan: LogicalPlan,
    repeated: Arc<HashSet<Uuid>>,
}

impl Optimized {
    fn new(state: &SessionState, plan: &LogicalPlan) -> Result<Optimized> {
        let plan = state.optimize(plan)?;
        let repeated = Arc::new(repeated(&plan)?);
        Ok(Optimized { plan, repeated })
    }
}

/// A plan to be executed.
pub(crate) struct Physical {
    /// With one partition.
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    /// What it was planned in.
    pub(crate) state: Arc<SessionState>,
    /// The tables that it reads more than once, by their ids.
    pub(crate) repeated: Arc<HashSet<Uuid>>,
}

impl Planned {
    /// What it is planned in.
    pub(crate) fn state(&self) -> &Arc<SessionState> {
        &self.state
    }

    /// Whether it reads tables, and only such as the schema defines: what others are filled with may be decided when they are planned.
    fn reads_stored_tables(&self, tables: &Tables) -> Result<bool> {
        let (mut any, mut all) = (false, true);
        each_scanned(&self.plan, |table| {
            any = true;
            all &= table.is_some_and(|table| tables.store(&table.def));
        })?;
        Ok(any && all)
    }

    /// The columns of its rows.
    pub(crate) fn schema(&self) -> &datafusion::arrow::datatypes::Schema {
        self.plan.schema().as_arrow()
    }

    /// The physical plan, for batches of at most `rows_max` rows.
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
            // Now is when it runs, and not when it was prepared.
            Arc::make_mut(&mut state).mark_start_execution();
        }
        let optimized = match values {
            Some(values) => Optimized::new(&state, &self.plan.clone().replace_params_with_values(&values)?)?,
            None if !self.lasts || joins == Joins::Sorted => Optimized::new(&state, &self.plan)?,
            None => match self.optimized.get() {
                Some(optimized) => optimized.clone(),
                None => {
                    let optimized = Optimized::new(&state, &self.plan)?;
                    self.optimized.get_or_init(|| optimized).clone()
                }
            },
        };
        let rows = wide::rows_for(wide::constant_bytes(&optimized.plan)?, rows_max);
        if rows < state.config().batch_size() {
            state = Arc::new(with_batches(&state, rows));
        }
        lanes::heavy_yield().await;
        let plan = state.query_planner().create_physical_plan(&optimized.plan, state.as_ref()).await?;
        Ok(Physical { plan, state, repeated: optimized.repeated })
    }
}

/// How tables are joined on equal values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Joins {
    /// By a table of one side in memory.
    Hashed,
    /// By sorting both sides.
    Sorted,
}

/// The state with joins by sorting, which DataFusion plans for two partitions and more only.
fn sorting(state: &SessionState) -> SessionState {
    let partitions = state.config().target_partitions().max(2);
    let mut config = state.config().clone().with_target_partitions(partitions);
    config.options_mut().optimizer.prefer_hash_join = false;
    SessionStateBuilder::new_from_existing(state.clone()).with_config(config).build()
}

/// The state with so many rows a batch.
fn with_batches(state: &SessionState, rows: usize) -> SessionState {
    let config = state.config().clone().with_batch_size(rows);
    SessionStateBuilder::new_from_existing(state.clone()).with_config(config).build()
}

impl Planner {
    pub(crate) fn new() -> Planner {
        Planner { shared: OnceLock::new(), dialect: OnceLock::new(), kept: KeptPlans::default() }
    }

    /// What is counted of the plans it keeps.
    pub(crate) fn plans(&self) -> Plans {
        self.kept.counted()
    }

    /// Plans one statement over these tables.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) async fn plan(
        &self,
        sql: &Sql,
        text: &str,
        tables: Tables,
        options: &PlanOptions,
        guardrails: &Arc<Guardrails>,
    ) -> Result<Arc<Planned>, Failure> {
        let found = self.kept.find(text, options, &tables);
        if let Some(planned) = found.planned {
            return Ok(planned);
        }
        let dialect = self.dialect.get_or_init(Dialect::new);
        let known = known::answer(text);
        let read = known.as_ref().map_or(text, |answer| &answer.text);
        let (mut statements, size) = dialect.parse(read, guardrails)?;
        let (Some(statement), None) = (statements.pop(), statements.pop()) else {
            return Err(Failure::new(
                class::SYNTAX,
                "cannot insert multiple commands into a prepared statement",
            ));
        };
        let sets = set_configs(&statement).map_err(|call| {
            Failure::new(
                class::UNSUPPORTED,
                format!("set_config takes constants or parameters here, which these are not: {call}"),
            )
        })?;
        let make = || make(sql, tables.clone(), guardrails).map_err(|error| error.to_string());
        let shared = self.shared.get_or_init(make);
        let (context, catalog) =
            shared.as_ref().map_err(|error| Failure::new(class::INTERNAL, error.clone()))?;
        catalog.set(tables.clone());
        let state = found.state.unwrap_or_else(|| Arc::new(state(context, options)));
        lanes::heavy_yield().await;
        let plan = state.statement_to_plan(explained(statement)?).await?;
        let reads =
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        if reads.verify_plan(&plan).is_err() {
            return Err(Failure::read_only("this statement"));
        }
        let tag = if matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_)) {
            "EXPLAIN"
        } else {
            "SELECT"
        };
        let plan = bounded::bound(exact::exact(plan, &options.time_zone)?, guardrails)?;
        let (lasts, reads) = (lasts(&plan)?, tables_of(&plan)?);
        let mut parameters = parameters_of(&plan)?;
        let told = known.as_ref().map_or(&[][..], |answer| answer.types);
        if let Some(answer) = known {
            parameters.resize(parameters.len().max(answer.parameters), None);
        }
        let optimized = OnceLock::new();
        let bytes = (text.len() as u64).saturating_add(size.nodes.saturating_mul(NODE_BYTES));
        let planned = Arc::new(Planned {
            state,
            plan,
            bytes,
            optimized,
            lasts,
            tables: reads,
            parameters,
            told,
            tag,
            sets,
        });
        if planned.reads_stored_tables(&tables)? {
            self.kept.keep(text, options, tables, &planned);
        }
        Ok(planned)
    }
}

/// What all statements share: functions, rules, the catalog.
fn make(sql: &Sql, tables: Tables, guardrails: &Arc<Guardrails>) -> Result<(SessionContext, Arc<Catalog>)> {
    let SqlConfig { batch_rows, .. } = *sql.config();
    let mut config = SessionConfig::new()
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(CATALOG, "public")
        .with_target_partitions(lanes::cores())
        .with_batch_size(batch_rows);
    let options = config.options_mut();
    options.sql_parser.dialect = datafusion::common::config::Dialect::PostgreSQL;
    options.sql_parser.parse_float_as_decimal = true;
    // Of planning; what runs has its own (`run`).
    let runtime = RuntimeEnvBuilder::new()
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
        .build_arc()?;
    let state = SessionStateBuilder::new_with_default_features()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_physical_optimizer_rule(Arc::new(PlaceOnLanes { batch_rows }))
        .build();
    let context = SessionContext::new_with_state(state);
    let catalog = Arc::new(Catalog::new(sql.clone(), tables));
    context.register_catalog(CATALOG, catalog.clone());
    setup_pg_catalog(&context, CATALOG, EmptyContextProvider).map_err(|error| *error)?;
    let all = Arc::new(catalog.of_all());
    let list: Arc<dyn CatalogProviderList> = Arc::new(MemoryCatalogProviderList::new());
    list.register_catalog(CATALOG.to_owned(), all.clone());
    let shown = Arc::new(PgCatalog::new(list)?);
    all.register_schema(pg_catalog::NAME, shown.clone())?;
    catalog.register_schema(pg_catalog::NAME, shown)?;
    context.register_udf(functions::text("version", version()));
    functions::register(&context);
    exact::register(&context);
    bounded::register(&context, guardrails);
    Ok((context, catalog))
}

/// The statement with the options of `EXPLAIN (…)`, of which DataFusion's planner takes no notice otherwise.
fn explained(statement: datafusion::sql::sqlparser::ast::Statement) -> Result<Statement, Failure> {
    use datafusion::sql::sqlparser::ast::{Expr, Ident, Statement as Parsed};
    let (statement, mut given) = match statement {
        Parsed::Explain { statement, options: Some(given), analyze: false, verbose: false, .. } => {
            (statement, given)
        }
        other => return Ok(Statement::Statement(Box::new(other))),
    };
    for option in given.iter_mut().filter(|option| option.name.value.eq_ignore_ascii_case("format")) {
        let format = option.arg.as_ref().map(|format| format.to_string().trim_matches('\'').to_lowercase());
        let own = match format.as_deref() {
            Some("text") => "indent",
            Some("json") => "pgjson",
            _ => return Err(Failure::new(class::UNSUPPORTED, "EXPLAIN knows the formats TEXT and JSON")),
        };
        option.arg = Some(Expr::Identifier(Ident::new(own)));
    }
    let options = ExplainStatementOptions::from_utility_options(&given)
        .map_err(|error| Failure::new(class::UNSUPPORTED, error.strip_backtrace()))?;
    let statement = Box::new(Statement::Statement(statement));
    Ok(Statement::Explain(ExplainStatement { options, statement }))
}

/// What clients look for the version of Postgres in.
fn version() -> String {
    format!("PostgreSQL {SERVER_VERSION} (fairlane {})", env!("CARGO_PKG_VERSION"))
}

/// The shared state with what the session says.
fn state(context: &SessionContext, options: &PlanOptions) -> SessionState {
    let state = context.state();
    let mut config = state.config().clone().with_extension(Arc::new(options.scan));
    config.options_mut().catalog.default_schema = options.schema.clone();
    config.options_mut().execution.time_zone = Some(options.time_zone.clone());
    let mut state = SessionStateBuilder::new_from_existing(state).with_config(config).build();
    // Functions that are told the settings when they run are told those of the beginning: else of the shared state.
    state.mark_start_execution();
    // They replace those that say `postgres` and `public`; that cannot fail.
    for (name, text) in [("session_user", &options.user), ("current_schema", &options.schema)] {
        let _ = state.register_udf(Arc::new(functions::text(name, text.clone())));
    }
    let _ = state.register_udf(Arc::new(functions::current_setting(options.settings.clone())));
    state
}

/// Whether a plan means the same whenever it runs: it asks for no time, no chance, and nothing else that changes.
fn lasts(plan: &LogicalPlan) -> Result<bool> {
    let mut lasts = !matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
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

/// What a plan scans, in subqueries too; none for a table that is not one of ours.
fn each_scanned(plan: &LogicalPlan, mut look: impl FnMut(Option<&CqlTable>)) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source).ok();
            let provider = provider.as_deref().map(|provider| provider as &dyn std::any::Any);
            look(provider.and_then(|provider| provider.downcast_ref()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The tables a plan reads.
fn tables_of(plan: &LogicalPlan) -> Result<Vec<(String, String)>> {
    let mut tables = Vec::new();
    each_scanned(plan, |table| {
        tables.extend(table.map(|table| (table.def.keyspace.clone(), table.def.name.clone())));
    })?;
    tables.sort_unstable();
    tables.dedup();
    Ok(tables)
}

/// The tables that a plan reads more than once, by their ids.
fn repeated(plan: &LogicalPlan) -> Result<HashSet<Uuid>> {
    // What a recursive query reads it reads in every round.
    let mut is_recursive = false;
    plan.apply_with_subqueries(|node| {
        is_recursive |= matches!(node, LogicalPlan::RecursiveQuery(_));
        Ok(TreeNodeRecursion::Continue)
    })?;
    let (mut seen, mut repeated) = (HashSet::new(), HashSet::new());
    each_scanned(plan, |table| {
        repeated.extend(table.map(|table| table.def.id).filter(|id| !seen.insert(*id) || is_recursive));
    })?;
    Ok(repeated)
}

/// Types of parameters that DataFusion does not tell: of what is cast, of LIMIT and OFFSET, of the list that ANY looks in.
fn told_by_place(plan: &LogicalPlan, types: &mut HashMap<String, Option<DataType>>) -> Result<()> {
    let mut tell = |expr: &Expr, ty: DataType| {
        if let Expr::Placeholder(parameter) = expr
            && let Some(none @ None) = types.get_mut(&parameter.id)
        {
            *none = Some(ty);
        }
    };
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Limit(limit) = node {
            limit.skip.iter().chain(&limit.fetch).for_each(|expr| tell(expr, DataType::Int64));
        }
        let inputs = node.inputs();
        let type_of = |expr: &Expr| inputs.iter().find_map(|input| expr.get_type(input.schema()).ok());
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                match expr {
                    Expr::Cast(cast) => tell(&cast.expr, cast.field.data_type().clone()),
                    Expr::ScalarFunction(call) if call.func.name() == "array_has" => {
                        if let [list, item] = &call.args[..]
                            && let Some(ty) = type_of(item)
                        {
                            tell(list, DataType::List(Arc::new(Field::new_list_field(ty, true))));
                        }
                    }
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// The parameters `$1` … `$n` of a plan.
fn parameters_of(plan: &LogicalPlan) -> Result<Vec<Option<DataType>>, Failure> {
    let mut found = plan.get_parameter_types()?;
    told_by_place(plan, &mut found)?;
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
