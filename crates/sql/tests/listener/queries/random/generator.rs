//! Statements from a seed, over three small tables with nulls, doubles and negative values. Every
//! statement has one answer: rows are compared without their order, and LIMIT has a total order.

use std::fmt::Write;

/// Tables and the numbers of their rows.
const TABLES: [(&str, u64); 3] = [("a", 7), ("b", 6), ("c", 5)];
/// Columns beside `id`, sorted as CQL sorts them, with their types in CQL and PostgreSQL.
const COLUMNS: [(&str, &str, &str); 12] = [
    ("a", "list<int>", "int[]"),
    ("at", "timestamp", "timestamptz"),
    ("b", "boolean", "boolean"),
    ("d", "date", "date"),
    ("f", "double", "float8"),
    ("h", "duration", "interval"),
    ("i", "int", "int"),
    ("j", "int", "int"),
    ("l", "bigint", "bigint"),
    ("n", "decimal", "numeric(38, 6)"),
    ("s", "smallint", "smallint"),
    ("t", "text", "text"),
];

/// Types of expressions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ty {
    Int,
    Num,
    Float,
    Text,
    Bool,
    Date,
    /// A point in time.
    Time,
    /// An array of whole numbers.
    List,
    /// An interval. Groups and subqueries of intervals are refused: it is none of [`TYPES`].
    Span,
}

const TYPES: [Ty; 8] = [Ty::Int, Ty::Num, Ty::Float, Ty::Text, Ty::Bool, Ty::Date, Ty::Time, Ty::List];

/// Returns the statements that create and fill the tables: of CQL, and of PostgreSQL.
pub(super) fn tables() -> (Vec<String>, Vec<String>) {
    let (mut cql, mut sql) = (Vec::new(), Vec::new());
    let mut source = Source(0x5eed);
    for (table, count) in TABLES {
        let columns = |place: usize| {
            let types = COLUMNS
                .iter()
                .map(|column| format!("{} {}", column.0, if place == 0 { column.1 } else { column.2 }));
            types.collect::<Vec<_>>().join(", ")
        };
        cql.push(format!("CREATE TABLE r.{table} (id int PRIMARY KEY, {})", columns(0)));
        sql.push(format!("CREATE TABLE r.{table} (id int PRIMARY KEY, {})", columns(1)));
        for id in 1..=count {
            let mut names = "id".to_owned();
            let mut values = id.to_string();
            let mut others = values.clone();
            for (name, _, _) in COLUMNS {
                if source.below(4) == 0 {
                    continue;
                }
                let value = match name {
                    "i" | "j" => source.number(-2, 4).to_string(),
                    "s" => source.number(-1, 3).to_string(),
                    "l" => source.number(-3, 5).to_string(),
                    "n" => format!("{}.{}", source.number(-2, 4), source.pick(&["0", "5", "25"])),
                    "f" => source.pick(&["0.5", "-1.25", "2", "0", "3.75"]).to_owned(),
                    "t" => format!("'{}'", source.pick(&["", "x", "xy", "Xy", "z z", "10"])),
                    "b" => source.pick(&["true", "false"]).to_owned(),
                    "a" => {
                        let items = (0..source.number(1, 3)).map(|_| source.number(-1, 3).to_string());
                        format!("[{}]", items.collect::<Vec<_>>().join(", "))
                    }
                    "at" => {
                        let hour = source.pick(&["00:00:00", "07:30:15", "23:59:59"]);
                        format!("'2024-0{}-1{} {hour}+0000'", source.number(1, 3), source.number(0, 3))
                    }
                    "h" => source.pick(&["1d", "24h", "1mo", "30d", "36h", "2h30m"]).to_owned(),
                    _ => format!("'2024-0{}-1{}'", source.number(1, 3), source.number(0, 3)),
                };
                let of_sql = match name {
                    "a" => format!("ARRAY{value}"),
                    "h" => format!("interval '{}'", value.replace("mo", " mon").replace("h30m", ":30")),
                    _ => value.clone(),
                };
                let _ = write!(names, ", {name}");
                let _ = write!(values, ", {value}");
                let _ = write!(others, ", {of_sql}");
            }
            cql.push(format!("INSERT INTO r.{table} ({names}) VALUES ({values})"));
            sql.push(format!("INSERT INTO r.{table} ({names}) VALUES ({others})"));
        }
    }
    (cql, sql)
}

/// Returns a statement.
pub(super) fn statement(seed: u64) -> String {
    let mut source = Source(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..4 {
        source.next();
    }
    let mut query = Query { source, aliases: 0, parameters: None };
    let text = query.whole();
    match query.parameters {
        Some(parameters) if !parameters.values.is_empty() => {
            format!("{text}{VALUES}{}", parameters.values.join("|"))
        }
        _ => text,
    }
}

/// Separates a statement from the values of its parameters: `int4=5|text=x`, or `=5|=x` if the
/// statement does not declare their types.
pub(super) const VALUES: &str = " -- ";

/// Numbers from a seed.
struct Source(u64);

impl Source {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn number(&mut self, from: i64, to: i64) -> i64 {
        from + i64::try_from(self.below(u64::try_from(to - from + 1).expect("a range"))).expect("small")
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).expect("small")]
    }
}

/// Aliases of the tables that an expression may use, own ones last.
type Scope = Vec<String>;

struct Query {
    source: Source,
    aliases: u32,
    /// Parameters, if the statement takes them in place of constants.
    parameters: Option<Parameters>,
}

struct Parameters {
    are_declared: bool,
    values: Vec<String>,
}

impl Query {
    fn one_in(&mut self, n: u64) -> bool {
        self.source.below(n) == 0
    }

    fn whole(&mut self) -> String {
        match self.source.below(16) {
            12 => self.parametrized(),
            13 => self.of_times(),
            14 | 15 => self.of_arrays(),
            0 => {
                let ty = self.source.pick(&TYPES);
                let op = self.source.pick(&["UNION", "UNION ALL", "INTERSECT", "EXCEPT"]);
                let (left, right) = (self.column(ty, &Vec::new()), self.column(ty, &Vec::new()));
                format!("{left} {op} {right}")
            }
            1 => {
                let ty = self.source.pick(&TYPES);
                let inner = self.column(ty, &Vec::new());
                format!("WITH w(v) AS ({inner}) SELECT count(*), count(v), count(DISTINCT v) FROM w")
            }
            2 => {
                let order = self.source.pick(&["ASC", "DESC", "ASC NULLS FIRST", "DESC NULLS LAST"]);
                let column = self.source.pick(&["i", "j", "n", "t", "d", "b", "f"]);
                let limit = match self.source.below(3) {
                    0 => format!("LIMIT {}", self.source.number(0, 4)),
                    1 => format!("OFFSET {}", self.source.number(0, 4)),
                    _ => format!("LIMIT {} OFFSET {}", self.source.number(1, 3), self.source.number(0, 3)),
                };
                let (table, _) = self.source.pick(&TABLES);
                let scope = vec!["q".to_owned()];
                let filter = self.expr(Ty::Bool, &scope, 1, 1);
                format!(
                    "SELECT q.id, q.{column} FROM (SELECT * FROM r.{table} x ORDER BY x.{column} {order}, \
                     x.id {limit}) q WHERE {filter}"
                )
            }
            3 | 4 => self.grouped(),
            5 => self.windowed(),
            6 => self.using(),
            _ => self.plain(),
        }
    }

    /// Returns a query whose constants are parameters, and whose rows are numbers.
    fn parametrized(&mut self) -> String {
        let (table, _) = self.source.pick(&TABLES);
        let scope = vec!["x".to_owned()];
        let are_declared = self.one_in(2);
        self.parameters = Some(Parameters { are_declared, values: Vec::new() });
        let ty = self.source.pick(&[Ty::Int, Ty::Num, Ty::Float, Ty::Text, Ty::Date, Ty::Time]);
        let column = self.column_of(ty, "x");
        let compare = self.source.pick(&["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"]);
        let filter = match (self.source.below(8), ty) {
            (0, _) => format!("{column} BETWEEN {} AND {}", self.parameter(ty), self.parameter(ty)),
            (1, _) => format!("{column} IN ({}, {})", self.parameter(ty), self.parameter(ty)),
            (2, _) => format!("coalesce({column}, {}) {compare} {}", self.parameter(ty), self.parameter(ty)),
            (3, _) => format!(
                "NOT ({column} {compare} {}) OR x.id = {}",
                self.parameter(ty),
                self.parameter(Ty::Int)
            ),
            (4, Ty::Int) => format!("{column} + {} {compare} {}", self.parameter(ty), self.parameter(ty)),
            (4, Ty::Text) => format!("{column} || {} {compare} {}", self.parameter(ty), self.parameter(ty)),
            (4, Ty::Date) => {
                format!("{column} + {}::int {compare} {}", self.parameter(Ty::Int), self.parameter(ty))
            }
            (5, _) => {
                let other = self.expr(Ty::Bool, &scope, 1, 1);
                format!("{column} {compare} {} AND {other}", self.parameter(ty))
            }
            (6, _) => format!(
                "CASE WHEN {column} {compare} {} THEN x.b ELSE x.i > {} END",
                self.parameter(ty),
                self.parameter(Ty::Int)
            ),
            _ => format!("{column} {compare} {}", self.parameter(ty)),
        };
        format!("SELECT x.id FROM r.{table} x WHERE {filter}")
    }

    /// Returns the next parameter, with a value of a type.
    fn parameter(&mut self, ty: Ty) -> String {
        let value = match ty {
            Ty::Num => self.source.pick(&["1.5", "0", "-2.25", "3.0"]).to_owned(),
            Ty::Float => self.source.pick(&["0.5", "-1.25", "2"]).to_owned(),
            Ty::Text => self.source.pick(&["", "x", "xy", "Z"]).to_owned(),
            Ty::Date => self.source.pick(&["2024-01-11", "2024-02-12"]).to_owned(),
            Ty::Time => self.source.pick(&["2024-01-11 00:00:00+00", "2024-02-12 07:30:15+00"]).to_owned(),
            _ => self.source.number(-2, 5).to_string(),
        };
        let Some(parameters) = &mut self.parameters else { return value };
        let name = match ty {
            _ if !parameters.are_declared => "",
            Ty::Num => "numeric",
            Ty::Float => "float8",
            Ty::Text => "text",
            Ty::Date => "date",
            Ty::Time => "timestamptz",
            _ => "int4",
        };
        parameters.values.push(format!("{name}={value}"));
        format!("${}", parameters.values.len())
    }

    /// Returns a query of points in time and intervals.
    fn of_times(&mut self) -> String {
        let (from, scope) = self.from(&Vec::new());
        let items: Vec<String> = (0..self.source.number(1, 2))
            .map(|_| {
                let ty = self.source.pick(&[Ty::Span, Ty::Span, Ty::Time, Ty::Date]);
                self.expr(ty, &scope, 2, 0)
            })
            .collect();
        let compare = self.source.pick(&["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"]);
        let filter = match self.source.below(3) {
            0 => String::new(),
            1 => format!(
                " WHERE {} {compare} {}",
                self.expr(Ty::Span, &scope, 2, 0),
                self.expr(Ty::Span, &scope, 1, 0)
            ),
            _ => format!(
                " WHERE {} {compare} {}",
                self.expr(Ty::Time, &scope, 2, 0),
                self.expr(Ty::Time, &scope, 1, 0)
            ),
        };
        format!("SELECT {} FROM {from}{filter}", items.join(", "))
    }

    /// Returns a query of arrays.
    fn of_arrays(&mut self) -> String {
        let (from, scope) = self.from(&Vec::new());
        let list = self.expr(Ty::List, &scope, 2, 0);
        let filter = self.where_(&scope);
        match self.source.below(6) {
            0 => format!("SELECT unnest({list}) FROM {from}{filter}"),
            1 => {
                let (other, end) = (self.expr(Ty::Int, &scope, 1, 0), self.source.number(0, 3));
                format!("SELECT {other}, generate_series(1, {end}) FROM {from}{filter}")
            }
            2 => {
                let number = self.expr(Ty::Int, &scope, 1, 0);
                format!("SELECT array_agg(DISTINCT ({number})::int) FROM {from}{filter}")
            }
            3 => {
                let number = self.expr(Ty::Int, &scope, 1, 0);
                format!("SELECT {number} AS k, min({list}), max({list}) FROM {from}{filter} GROUP BY 1")
            }
            _ => {
                let ty = self.source.pick(&[Ty::Int, Ty::Bool, Ty::Text]);
                format!("SELECT {list}, {} FROM {from}{filter}", self.of_list(ty, &scope))
            }
        }
    }

    /// Returns a number, truth or text of an array.
    fn of_list(&mut self, ty: Ty, scope: &Scope) -> String {
        let list = self.expr(Ty::List, scope, 1, 0);
        let compare = self.source.pick(&["=", "<>", "<", "<=", ">", ">="]);
        match (ty, self.source.below(5)) {
            (Ty::Int, 0 | 1) => format!("({list})[{}]", self.source.number(-1, 3)),
            (Ty::Int, 2) => format!("array_length({list}, 1)"),
            (Ty::Int, 3) => format!("array_position({list}, ({})::int)", self.value(Ty::Int, scope)),
            (Ty::Int, _) => format!("cardinality({list})"),
            (Ty::Bool, 0) => format!("({} {compare} ANY ({list}))", self.expr(Ty::Int, scope, 1, 0)),
            (Ty::Bool, 1) => format!("({} {compare} ALL ({list}))", self.expr(Ty::Int, scope, 1, 0)),
            (Ty::Bool, 2 | 3) => {
                let op = self.source.pick(&["@>", "<@", "&&"]);
                format!("({list} {op} {})", self.expr(Ty::List, scope, 1, 0))
            }
            (Ty::Bool, _) => format!("({list} {compare} {})", self.expr(Ty::List, scope, 1, 0)),
            (_, 0) => format!("array_dims({list})"),
            _ => format!("array_to_string({list}, ',', '-')"),
        }
    }

    /// Returns a table with its join, and the aliases.
    fn from(&mut self, outer: &Scope) -> (String, Scope) {
        let mut scope = outer.clone();
        let alias = |query: &mut Query, scope: &mut Scope| {
            query.aliases += 1;
            let name = format!("t{}", query.aliases);
            scope.push(name.clone());
            let (table, _) = query.source.pick(&TABLES);
            format!("r.{table} {name}")
        };
        let mut text = alias(self, &mut scope);
        let joins = self.source.pick(&[0, 0, 0, 1, 1, 2]);
        for _ in 0..joins {
            let kind = self.source.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"]);
            let left = scope.last().expect("a table").clone();
            let right = alias(self, &mut scope);
            let name = scope.last().expect("a table").clone();
            let column = self.source.pick(&["i", "j", "id", "t", "n"]);
            let op = match kind {
                "FULL JOIN" => "=",
                _ => self.source.pick(&["=", "=", "=", "IS NOT DISTINCT FROM"]),
            };
            let on = match kind {
                "CROSS JOIN" => String::new(),
                _ if kind != "FULL JOIN" && self.one_in(4) => {
                    format!(
                        " ON {left}.{column} {op} {name}.{column} AND {}",
                        self.expr(Ty::Bool, &vec![left.clone(), name.clone()], 1, 0)
                    )
                }
                _ => format!(" ON {left}.{column} {op} {name}.{column}"),
            };
            let _ = write!(text, " {kind} {right}{on}");
        }
        (text, scope)
    }

    fn where_(&mut self, scope: &Scope) -> String {
        if self.one_in(4) {
            return String::new();
        }
        format!(" WHERE {}", self.expr(Ty::Bool, scope, 2, 2))
    }

    fn plain(&mut self) -> String {
        let (from, scope) = self.from(&Vec::new());
        let items: Vec<String> = (0..self.source.number(1, 3))
            .map(|_| {
                let ty = self.source.pick(&TYPES);
                self.expr(ty, &scope, 2, 1)
            })
            .collect();
        let filter = self.where_(&scope);
        let distinct = if self.one_in(6) { "DISTINCT " } else { "" };
        let keys: Vec<String> = (1..=items.len()).map(|place| place.to_string()).collect();
        let tail = if self.one_in(5) {
            format!(" ORDER BY {} LIMIT {}", keys.join(", "), self.source.number(1, 5))
        } else {
            String::new()
        };
        format!("SELECT {distinct}{} FROM {from}{filter}{tail}", items.join(", "))
    }

    /// Returns a query of one column.
    fn column(&mut self, ty: Ty, outer: &Scope) -> String {
        let (from, scope) = self.from(&Vec::new());
        let mut all = outer.clone();
        all.extend(scope.clone());
        let item = self.expr(ty, &scope, 1, 0);
        let filter = if self.one_in(3) {
            String::new()
        } else if !outer.is_empty() && self.one_in(2) {
            let (own, other) = (scope.last().expect("a table"), outer.last().expect("a table"));
            let column = self.source.pick(&["i", "j", "t"]);
            format!(" WHERE {own}.{column} = {other}.{column}")
        } else {
            format!(" WHERE {}", self.expr(Ty::Bool, &scope, 1, 0))
        };
        format!("SELECT {item} FROM {from}{filter}")
    }

    fn aggregate(&mut self, scope: &Scope) -> (String, Ty) {
        let ty = self.source.pick(&TYPES);
        let inner = self.expr(ty, scope, 1, 0);
        match (self.source.below(6), ty) {
            (0, _) => ("count(*)".to_owned(), Ty::Int),
            (1, _) => (format!("count({inner})"), Ty::Int),
            (2, _) => (format!("count(DISTINCT {inner})"), Ty::Int),
            (3, Ty::Bool) => (format!("{}({inner})", self.source.pick(&["bool_and", "bool_or"])), Ty::Bool),
            (3, Ty::Int) => (format!("round(avg({inner}), 3)"), Ty::Num),
            (3 | 4, Ty::Int | Ty::Num) => (format!("sum({inner})"), Ty::Num),
            (5, Ty::Int) => {
                (format!("sum({inner}) FILTER (WHERE {})", self.expr(Ty::Bool, scope, 1, 0)), Ty::Num)
            }
            (_, Ty::Bool) => (format!("count(*) FILTER (WHERE {inner})"), Ty::Int),
            _ => (format!("{}({inner})", self.source.pick(&["min", "max"])), ty),
        }
    }

    fn grouped(&mut self) -> String {
        let (from, scope) = self.from(&Vec::new());
        let filter = self.where_(&scope);
        let (aggregate, ty) = self.aggregate(&scope);
        let (other, _) = self.aggregate(&scope);
        let having = match (self.source.below(4), ty) {
            (0, Ty::Int | Ty::Num) => format!(" HAVING {aggregate} > {}", self.source.number(-1, 3)),
            (1, _) => format!(" HAVING count(*) > {}", self.source.number(0, 2)),
            _ => String::new(),
        };
        if self.one_in(3) {
            return format!("SELECT {aggregate}, {other} FROM {from}{filter}{having}");
        }
        let kind = self.source.pick(&TYPES);
        let key = self.expr(kind, &scope, 1, 0);
        match self.source.below(6) {
            0 => {
                let table = scope.last().expect("a table");
                let keys = format!("{table}.i, {table}.t");
                let sets = match self.source.below(3) {
                    0 => format!("ROLLUP ({keys})"),
                    1 => format!("CUBE ({keys})"),
                    _ => keys.clone(),
                };
                format!("SELECT {keys}, {aggregate} FROM {from}{filter} GROUP BY {sets}{having}")
            }
            _ => format!("SELECT {key}, {aggregate}, {other} FROM {from}{filter} GROUP BY 1{having}"),
        }
    }

    fn windowed(&mut self) -> String {
        let (table, _) = self.source.pick(&TABLES);
        let scope = vec!["x".to_owned()];
        let mut items = vec!["x.id".to_owned()];
        let by = self.source.pick(&["b", "i", "t", "s"]);
        for _ in 0..self.source.number(1, 2) {
            let ty = self.source.pick(&[Ty::Int, Ty::Num, Ty::Text]);
            let value = self.expr(ty, &scope, 1, 0);
            let over = match self.source.below(5) {
                0 => format!("(PARTITION BY x.{by} ORDER BY x.id)"),
                1 => "(ORDER BY x.id DESC)".to_owned(),
                2 => "(w ORDER BY x.id)".to_owned(),
                3 => "(ORDER BY x.id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)".to_owned(),
                _ => "(w ORDER BY x.id DESC)".to_owned(),
            };
            let call = match (self.source.below(9), ty) {
                (0, _) => "row_number()".to_owned(),
                (1, _) => format!("lag({value})"),
                (2, _) => format!("lead({value}, {})", self.source.number(0, 2)),
                (3, _) => format!("first_value({value})"),
                (4, _) => format!("last_value({value})"),
                (5, _) => "rank()".to_owned(),
                (6, Ty::Int | Ty::Num) => format!("sum({value})"),
                _ => format!("{}({value})", self.source.pick(&["min", "max", "count"])),
            };
            items.push(format!("{call} OVER {over}"));
        }
        format!("SELECT {} FROM r.{table} x WINDOW w AS (PARTITION BY x.{by})", items.join(", "))
    }

    fn using(&mut self) -> String {
        let (left, right) = (self.source.pick(&TABLES).0, self.source.pick(&TABLES).0);
        let kind = self.source.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
        let key = self.source.pick(&["i", "id", "t", "d"]);
        let items =
            self.source.pick(&["*", "K, x.id, y.id", "count(*), max(K)", "coalesce(K, NULL) AS v, x.j"]);
        let items = items.replace('K', key);
        let filter = match items.contains("count") {
            _ if self.one_in(2) => String::new(),
            true => format!(" WHERE {key} IS NOT NULL"),
            false => format!(" WHERE {key} IS NOT NULL OR x.j = y.s"),
        };
        format!("SELECT {items} FROM r.{left} x {kind} r.{right} y USING ({key}){filter}")
    }

    /// Returns a column of a table.
    fn column_of(&mut self, ty: Ty, table: &str) -> String {
        let columns: &[&str] = match ty {
            Ty::Int => &["i", "j", "s", "id", "l"],
            Ty::Num => &["n"],
            Ty::Float => &["f"],
            Ty::Text => &["t"],
            Ty::Bool => &["b"],
            Ty::Date => &["d"],
            Ty::Time => &["at"],
            Ty::List => &["a"],
            Ty::Span => &["h"],
        };
        format!("{table}.{}", self.source.pick(columns))
    }

    /// Returns a column or a constant.
    fn value(&mut self, ty: Ty, scope: &Scope) -> String {
        if !scope.is_empty() && !self.one_in(4) {
            let place = usize::try_from(self.source.below(scope.len() as u64)).expect("small");
            return self.column_of(ty, &scope[place]);
        }
        match ty {
            Ty::Int => self.source.number(-2, 5).to_string(),
            Ty::Num => self.source.pick(&["1.5", "0.0", "-2.25", "3.0"]).to_owned(),
            Ty::Float => self.source.pick(&["1.5::float8", "'-0.25'::float8", "2::float8"]).to_owned(),
            Ty::Text => self.source.pick(&["'x'", "''", "'xy'::text", "'Z'"]).to_owned() + "::text",
            Ty::Bool => self.source.pick(&["true", "false", "NULL::boolean"]).to_owned(),
            Ty::Date => {
                self.source.pick(&["date '2024-01-11'", "'2024-02-12'::date", "NULL::date"]).to_owned()
            }
            Ty::Time => {
                let times = ["timestamptz '2024-01-11 07:30:15+00'", "'2024-02-12 00:00'::timestamptz"];
                self.source.pick(&times).to_owned()
            }
            Ty::List => {
                let lists = [
                    "ARRAY[1, 2]",
                    "'{3,NULL}'::int[]",
                    "ARRAY[]::int[]",
                    "NULL::int[]",
                    "ARRAY[2, NULL, 1]",
                ];
                self.source.pick(&lists).to_owned()
            }
            Ty::Span => {
                let spans = [
                    "interval '1 day'",
                    "interval '-36 hours'",
                    "'1 mon 2 days'::interval",
                    "NULL::interval",
                ];
                self.source.pick(&spans).to_owned()
            }
        }
    }

    fn expr(&mut self, ty: Ty, scope: &Scope, depth: u32, subqueries: u32) -> String {
        if depth == 0 {
            return self.value(ty, scope);
        }
        let next = depth - 1;
        macro_rules! of {
            ($ty:expr) => {
                self.expr($ty, scope, next, subqueries)
            };
        }
        if ty == Ty::Span {
            return self.span(scope, next);
        }
        match self.source.below(14) {
            0 | 1 => return self.value(ty, scope),
            2 => return format!("coalesce({}, {})", of!(ty), of!(ty)),
            3 => return format!("nullif({}, {})", of!(ty), of!(ty)),
            4 => return format!("CASE WHEN {} THEN {} ELSE {} END", of!(Ty::Bool), of!(ty), of!(ty)),
            5 => return format!("CASE {} WHEN {} THEN {} END", of!(Ty::Int), of!(Ty::Int), of!(ty)),
            6 if !matches!(ty, Ty::Bool | Ty::List) => {
                return format!("{}({}, {})", self.source.pick(&["greatest", "least"]), of!(ty), of!(ty));
            }
            7 if subqueries > 0 => return self.scalar(ty, scope),
            _ => {}
        }
        match ty {
            Ty::Bool => self.condition(scope, next, subqueries),
            Ty::Int => match self.source.below(10) {
                0 => format!("({} + {})", of!(ty), of!(ty)),
                1 => format!("({} - {})", of!(ty), of!(ty)),
                2 => format!("({} * {})", of!(ty), of!(ty)),
                3 => format!("({} / {})", of!(ty), self.source.pick(&["2", "-3"])),
                4 => format!("({} % 3)", of!(ty)),
                5 => format!("abs({})", of!(ty)),
                6 => format!("length({})", of!(Ty::Text)),
                7 => format!("(- {})", of!(ty)),
                8 => self.of_list(ty, scope),
                _ => format!("({} {} {})", of!(ty), self.source.pick(&["#", "&", "|"]), of!(ty)),
            },
            Ty::Num => match self.source.below(7) {
                5 => {
                    format!("extract({} FROM {})", self.source.pick(&["day", "hour", "epoch"]), of!(Ty::Time))
                }
                0 => format!("({} + {})", of!(ty), of!(ty)),
                1 => format!("({} - {})", of!(ty), of!(Ty::Int)),
                2 => format!("round({}, {})", of!(ty), self.source.number(0, 2)),
                3 => format!("trunc({}, 1)", of!(ty)),
                4 => format!("abs({})", of!(ty)),
                _ => format!("({} * 2)", of!(ty)),
            },
            Ty::Float => match self.source.below(4) {
                0 => format!("({} + {})", of!(ty), of!(ty)),
                // Nothing that gives -0.
                1 => format!("({} * 2::float8)", of!(ty)),
                2 => format!("abs({})", of!(ty)),
                _ => format!("({})::float8", of!(Ty::Int)),
            },
            Ty::Text => match self.source.below(7) {
                5 => self.of_list(ty, scope),
                0 => format!("({} || {})", of!(ty), of!(ty)),
                1 => format!("upper({})", of!(ty)),
                2 => format!("substr({}, {})", of!(ty), self.source.number(1, 2)),
                3 => format!("({})::text", of!(Ty::Int)),
                4 => format!("replace({}, 'x', {})", of!(ty), of!(ty)),
                _ => format!("left({}, 1)", of!(ty)),
            },
            Ty::Time => match self.source.below(4) {
                0 => format!("({} + {})", of!(ty), self.span(scope, next)),
                1 => format!("({} - {})", of!(ty), self.span(scope, next)),
                2 => format!("({})::timestamptz", of!(Ty::Date)),
                _ => format!("date_trunc('{}', {})", self.source.pick(&["hour", "day", "month"]), of!(ty)),
            },
            Ty::List => match self.source.below(6) {
                0 => format!("array_append({}, ({})::int)", of!(ty), of!(Ty::Int)),
                1 => format!("array_remove({}, ({})::int)", of!(ty), of!(Ty::Int)),
                2 => format!("array_replace({}, ({})::int, 7)", of!(ty), of!(Ty::Int)),
                3 => format!("({} || {})", of!(ty), of!(ty)),
                4 => format!("({})[{}:{}]", of!(ty), self.source.number(-1, 2), self.source.number(0, 3)),
                _ => format!("ARRAY[({})::int, ({})::int]", of!(Ty::Int), of!(Ty::Int)),
            },
            Ty::Span => self.span(scope, next),
            Ty::Date => match self.source.below(4) {
                0 => format!("({} + {})", of!(ty), self.source.number(-3, 3)),
                3 => format!("({})::date", of!(Ty::Time)),
                1 => format!("({} + interval '1 month')::date", of!(ty)),
                _ => format!("date_trunc('month', {}::timestamp)::date", of!(ty)),
            },
        }
    }

    /// Returns an interval.
    fn span(&mut self, scope: &Scope, depth: u32) -> String {
        let next = depth.saturating_sub(1);
        match self.source.below(if depth == 0 { 2 } else { 6 }) {
            0 | 1 => self.value(Ty::Span, scope),
            2 => format!("({} + {})", self.span(scope, next), self.span(scope, next)),
            3 => {
                format!("({} - {})", self.expr(Ty::Time, scope, next, 0), self.expr(Ty::Time, scope, next, 0))
            }
            4 => format!("coalesce({}, {})", self.span(scope, next), self.span(scope, next)),
            _ => {
                let condition = self.expr(Ty::Bool, scope, next, 0);
                format!("CASE WHEN {condition} THEN {} END", self.span(scope, next))
            }
        }
    }

    fn scalar(&mut self, ty: Ty, scope: &Scope) -> String {
        let inner = self.column(ty, scope);
        let (item, rest) = inner["SELECT ".len()..].split_once(" FROM r.").expect("a query");
        match ty {
            Ty::Int if self.one_in(2) => format!("(SELECT count({item}) FROM r.{rest})"),
            Ty::Bool => format!("(SELECT bool_or({item}) FROM r.{rest})"),
            _ => format!("(SELECT {}({item}) FROM r.{rest})", self.source.pick(&["min", "max"])),
        }
    }

    fn condition(&mut self, scope: &Scope, depth: u32, subqueries: u32) -> String {
        let ty = self.source.pick(&TYPES);
        macro_rules! of {
            ($ty:expr) => {
                self.expr($ty, scope, depth, subqueries.saturating_sub(1))
            };
        }
        let compare = self.source.pick(&["=", "<>", "<", "<=", ">", ">="]);
        match self.source.below(if subqueries > 0 { 20 } else { 14 }) {
            0 => format!("({} AND {})", of!(Ty::Bool), of!(Ty::Bool)),
            1 => format!("({} OR {})", of!(Ty::Bool), of!(Ty::Bool)),
            2 => format!("NOT ({})", of!(Ty::Bool)),
            3 => format!("({} IS {}NULL)", of!(ty), self.source.pick(&["", "NOT "])),
            4 => format!("({} IS DISTINCT FROM {})", of!(ty), of!(ty)),
            5 => format!("({} IS NOT DISTINCT FROM {})", of!(ty), of!(ty)),
            6 => {
                let not = self.source.pick(&["", "NOT "]);
                let null = self.source.pick(&["", ", NULL"]);
                format!("({} {not}IN ({}, {}{null}))", of!(ty), self.value(ty, scope), of!(ty))
            }
            7 => {
                let value = of!(Ty::Int);
                format!("({value} IN (1, 2) {} {value} IN (3))", self.source.pick(&["AND", "OR"]))
            }
            8 if ty != Ty::Bool => format!("({} BETWEEN {} AND {})", of!(ty), of!(ty), of!(ty)),
            9 => format!(
                "({} {}LIKE '{}')",
                of!(Ty::Text),
                self.source.pick(&["", "NOT "]),
                self.source.pick(&["%", "x%", "_y", ""])
            ),
            10 => format!(
                "({} IS {}{})",
                of!(Ty::Bool),
                self.source.pick(&["", "NOT "]),
                self.source.pick(&["TRUE", "FALSE", "UNKNOWN"])
            ),
            8 => self.of_list(Ty::Bool, scope),
            11 => format!("({} {compare} {})", of!(Ty::Int), of!(Ty::Num)),
            12 => format!("({} {compare} {})", of!(Ty::Num), of!(Ty::Float)),
            14 | 15 => {
                let not = self.source.pick(&["", "NOT "]);
                format!("{not}EXISTS ({})", self.column(ty, scope))
            }
            16 | 17 => {
                let not = self.source.pick(&["", "NOT "]);
                format!("({} {not}IN ({}))", of!(ty), self.column(ty, scope))
            }
            18 => format!("({} = ANY ({}))", of!(ty), self.column(ty, scope)),
            19 => format!("({} {compare} ALL ({}))", of!(ty), self.column(ty, &Vec::new())),
            _ => format!("({} {compare} {})", of!(ty), of!(ty)),
        }
    }
}
