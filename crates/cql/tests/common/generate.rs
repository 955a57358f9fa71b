//! Random syntax trees of every kind of statement.

use cql::Statement;
use cql::ast::*;
use schema::{ClusteringOrder, CqlType};

use testkit::Random;

/// Number of statement kinds.
pub(crate) const KINDS: usize = 52;

/// Names that are special in some position: reserved words, keywords, constants, types, upper case,
/// blanks, quotes.
const NAMES: [&str; 40] = [
    "a",
    "b",
    "key",
    "select",
    "from",
    "token",
    "json",
    "distinct",
    "as",
    "count",
    "cast",
    "true",
    "null",
    "nan",
    "int",
    "list",
    "frozen",
    "exists",
    "values",
    "keys",
    "full",
    "ttl",
    "timestamp",
    "tables",
    "cluster",
    "only",
    "type",
    "role",
    "service",
    "level",
    "unmask",
    "p1d",
    "P1D",
    "Upper",
    "with space",
    "quo\"te",
    "per",
    "compact",
    "all",
    "clustering",
];

const STRINGS: [&str; 9] = ["", "x", "it's", "''", "$$", "--", "/*", "ünï\n\u{1F600}", "?"];

pub(crate) struct Generator {
    random: Random,
}

impl Generator {
    pub(crate) fn new(random: Random) -> Generator {
        Generator { random }
    }

    fn chance(&mut self) -> bool {
        self.random.index(2) == 0
    }

    fn name(&mut self) -> String {
        self.random.pick(&NAMES).to_owned()
    }

    fn string(&mut self) -> String {
        self.random.pick(&STRINGS).to_owned()
    }

    fn names(&mut self) -> Vec<String> {
        self.some(1, Generator::name)
    }

    fn qualified(&mut self) -> QualifiedName {
        QualifiedName { keyspace: self.maybe(Generator::name), name: self.name() }
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.chance() { Some(make(self)) } else { None }
    }

    /// Returns `least` to `least + 3` items.
    fn some<T>(&mut self, least: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = least + self.random.index(3);
        (0..count).map(|_| make(self)).collect()
    }

    pub(crate) fn statement(&mut self) -> Statement {
        match self.random.index(4) {
            0 => self.data(),
            1 => self.schema(),
            2 => self.access(),
            _ => self.other_schema(),
        }
    }

    fn data(&mut self) -> Statement {
        match self.random.index(10) {
            0 | 1 => Statement::Select(self.select()),
            2 => self.insert(),
            3 => self.update(),
            4 => self.delete(),
            5 => {
                let kind = self.random.pick(&[BatchKind::Logged, BatchKind::Unlogged, BatchKind::Counter]);
                let using = self.using(true, false);
                let statements = self.some(0, |g| match g.random.index(3) {
                    0 => g.insert(),
                    1 => g.update(),
                    _ => g.delete(),
                });
                Statement::Batch(Batch { kind, using, statements })
            }
            7 => Statement::Compact(self.qualified()),
            8 => Statement::Flush(self.qualified()),
            9 => Statement::Scrub(self.qualified()),
            _ => {
                let table = self.qualified();
                let timeout = self.chance().then(Generator::day);
                Statement::Truncate(Truncate { table, using: Using { timeout, ..Using::default() } })
            }
        }
    }

    fn select(&mut self) -> Select {
        Select {
            json: self.chance(),
            distinct: self.chance(),
            selection: self.selection(),
            from: self.qualified(),
            relations: self.some(0, Generator::relation),
            group_by: self.some(0, |g| g.expr(2)),
            order_by: self.some(0, Generator::ordering),
            nearest: self.some(0, |g| {
                let (column, order) = g.ordering();
                Nearest { column, vector: g.constant(1), order }
            }),
            per_partition_limit: self.maybe(Generator::integer),
            limit: self.maybe(Generator::integer),
            allow_filtering: self.chance(),
            bypass_cache: self.chance(),
            using: self.using(false, false),
        }
    }

    fn selection(&mut self) -> Selection {
        if self.random.index(4) == 0 {
            return Selection::All;
        }
        Selection::Selectors(self.some(1, |g| Selector { expr: g.expr(3), alias: g.maybe(Generator::name) }))
    }

    fn ordering(&mut self) -> (String, ClusteringOrder) {
        (self.name(), self.random.pick(&[ClusteringOrder::Asc, ClusteringOrder::Desc]))
    }

    fn expr(&mut self, depth: usize) -> SelectExpr {
        let leaf = depth == 0 || self.random.index(4) == 0;
        if leaf {
            return match self.random.index(3) {
                0 => SelectExpr::Term(self.constant(0)),
                1 => SelectExpr::CountRows,
                _ => SelectExpr::Column(self.name()),
            };
        }
        let inner = depth - 1;
        match self.random.index(10) {
            9 => self.literal_with_column(inner),
            0 => SelectExpr::Function(self.call(inner)),
            1 => SelectExpr::Cast(Box::new(self.expr(inner)), self.native_type()),
            2 => match self.expr(inner) {
                SelectExpr::Term(term) => SelectExpr::Term(self.hint(term)),
                other => SelectExpr::TypeHint(self.hint_type(), Box::new(other)),
            },
            3 => SelectExpr::Element(Box::new(self.expr(inner)), self.term(1)),
            4 => {
                let expr = Box::new(self.expr(inner));
                SelectExpr::Slice(expr, self.maybe(|g| g.term(1)), self.maybe(|g| g.term(1)))
            }
            5 => SelectExpr::Field(Box::new(self.expr(inner)), self.name()),
            6 => SelectExpr::Term(self.constant(inner)),
            7 => match self.expr(inner) {
                // The parser folds `-5` into a literal.
                SelectExpr::Term(Term::Literal(literal)) => SelectExpr::Term(Term::Literal(literal)),
                other => SelectExpr::Negate(Box::new(other)),
            },
            _ => {
                let (left, right) = (self.expr(inner), self.expr(inner));
                SelectExpr::Arithmetic(Box::new(Arithmetic { op: self.sign(), left, right }))
            }
        }
    }

    /// Returns a collection, a tuple or a value of a user type that has a column.
    fn literal_with_column(&mut self, depth: usize) -> SelectExpr {
        let mut parts = vec![SelectExpr::Column(self.name())];
        parts.extend(self.some(1, |g| g.expr(depth)));
        match self.random.index(5) {
            0 => SelectExpr::List(parts),
            1 => SelectExpr::Set(parts),
            2 => SelectExpr::Tuple(parts),
            3 => {
                let first = (SelectExpr::Function(self.call(0)), SelectExpr::Column(self.name()));
                let more = self.some(0, |g| (g.expr(depth), g.expr(depth)));
                SelectExpr::Map(std::iter::once(first).chain(more).collect())
            }
            _ => SelectExpr::Udt(parts.into_iter().map(|part| (self.name(), part)).collect()),
        }
    }

    fn call(&mut self, depth: usize) -> SelectCall {
        let name = self.qualified();
        let arguments = self.some(0, |g| g.expr(depth));
        // `count(*)` and `count(1)` have their own expression.
        let counts = name.keyspace.is_none() && name.name == "count";
        SelectCall { name, arguments: if counts { Vec::new() } else { arguments } }
    }

    fn sign(&mut self) -> ArithmeticOp {
        self.random.pick(&[
            ArithmeticOp::Add,
            ArithmeticOp::Subtract,
            ArithmeticOp::Multiply,
            ArithmeticOp::Divide,
            ArithmeticOp::Remainder,
        ])
    }

    fn hint(&mut self, term: Term) -> Term {
        Term::TypeHint(Box::new(TypeHint { ty: self.hint_type(), term }))
    }

    /// Returns a type for a hint. Excludes strings, which would start a tuple, and `true` and
    /// similar words.
    fn hint_type(&mut self) -> TypeName {
        loop {
            match self.type_name(2) {
                TypeName::Custom(_) => {}
                ty => return ty,
            }
        }
    }

    /// Returns a constant of a selection: no function, and arithmetic only inside of collections.
    fn constant(&mut self, depth: usize) -> Term {
        if depth == 0 {
            return if self.chance() { self.marker() } else { Term::Literal(self.literal()) };
        }
        match self.random.index(4) {
            0 => Term::Tuple(self.some(2, |g| g.constant(depth - 1))),
            1 => {
                let term = self.constant(depth - 1);
                self.hint(term)
            }
            _ => self.collection(depth),
        }
    }

    fn collection(&mut self, depth: usize) -> Term {
        match self.random.index(4) {
            0 => Term::List(self.some(0, |g| g.term(depth - 1))),
            1 => Term::Set(self.some(0, |g| g.term(depth - 1))),
            2 => Term::Map(self.some(1, |g| (g.term(depth - 1), g.term(depth - 1)))),
            _ => Term::Udt(self.some(1, |g| (g.name(), g.term(depth - 1)))),
        }
    }

    /// Returns any term: a sum of products.
    fn term(&mut self, depth: usize) -> Term {
        let mut sum = self.product(depth);
        while depth > 0 && self.random.index(8) == 0 {
            let op = self.random.pick(&[ArithmeticOp::Add, ArithmeticOp::Subtract]);
            sum = Term::Arithmetic(Box::new(Arithmetic { op, left: sum, right: self.product(depth) }));
        }
        sum
    }

    fn product(&mut self, depth: usize) -> Term {
        let mut product = self.unary(depth);
        while depth > 0 && self.random.index(8) == 0 {
            let op =
                self.random.pick(&[ArithmeticOp::Multiply, ArithmeticOp::Divide, ArithmeticOp::Remainder]);
            product = Term::Arithmetic(Box::new(Arithmetic { op, left: product, right: self.unary(depth) }));
        }
        product
    }

    fn unary(&mut self, depth: usize) -> Term {
        if depth == 0 {
            return self.constant(0);
        }
        match self.random.index(7) {
            0 => match self.unary(depth - 1) {
                Term::Literal(literal) => Term::Literal(literal),
                other => Term::Negate(Box::new(other)),
            },
            1 => {
                let term = self.unary(depth - 1);
                self.hint(term)
            }
            2 => Term::Tuple(self.some(1, |g| g.term(depth - 1))),
            3 => {
                let name = self.qualified();
                Term::Function(FunctionCall { name, arguments: self.some(0, |g| g.term(depth - 1)) })
            }
            4 => self.collection(depth),
            _ => self.constant(0),
        }
    }

    fn marker(&mut self) -> Term {
        // The generator does not number markers in text order. The test compares trees without
        // indexes.
        Term::Marker(BindMarker { index: 0, name: self.maybe(Generator::name) })
    }

    fn day() -> Term {
        let day = Duration { days: 1, ..Duration::default() };
        Term::Literal(Literal::Duration(day, day.to_string()))
    }

    fn literal(&mut self) -> Literal {
        match self.random.index(8) {
            0 => Literal::Integer(self.random.pick(&["0", "-1", "99999999999999999999"]).to_owned()),
            1 => Literal::Float(
                self.random.pick(&["1.5", "-2.", "1e10", "-1.5E-3", "NaN", "-Infinity"]).to_owned(),
            ),
            2 => Literal::String(self.string()),
            3 => Literal::Boolean(self.chance()),
            4 => Literal::Uuid(uuid::Uuid::from_u64_pair(self.random.next_u64(), self.random.next_u64())),
            5 => Literal::Blob(self.some(0, |g| g.random.index(256) as u8)),
            6 => {
                let duration = self.duration();
                Literal::Duration(duration, duration.to_string())
            }
            _ => Literal::Null,
        }
    }

    fn duration(&mut self) -> Duration {
        let duration = Duration {
            months: self.random.pick(&[0, 1, 12, 25]),
            days: self.random.pick(&[0, 1, 40]),
            nanoseconds: self.random.pick(&[0, 1, 1_000_000, 3_600_000_000_001, i64::MAX]),
        };
        if self.chance() { duration } else { duration.negated() }
    }

    fn integer(&mut self) -> Term {
        if self.chance() { self.marker() } else { Term::Literal(Literal::Integer("-5".to_owned())) }
    }

    fn native_type(&mut self) -> TypeName {
        TypeName::Native(self.random.pick(&[CqlType::Int, CqlType::Text, CqlType::Counter]))
    }

    fn type_name(&mut self, depth: usize) -> TypeName {
        if depth == 0 || self.chance() {
            return match self.random.index(4) {
                0 => TypeName::User(self.qualified()),
                1 => TypeName::Custom(self.string()),
                _ => self.native_type(),
            };
        }
        let mut boxed = || Box::new(self.type_name(depth - 1));
        let (first, second) = (boxed(), boxed());
        match self.random.index(6) {
            0 => TypeName::List(first),
            1 => TypeName::Set(first),
            2 => TypeName::Map(first, second),
            3 => TypeName::Tuple(vec![*first, *second]),
            4 => TypeName::Vector(first, 3),
            _ => TypeName::Frozen(Box::new(TypeName::Set(first))),
        }
    }

    fn compare_op(&mut self) -> CompareOp {
        self.random.pick(&[
            CompareOp::Eq,
            CompareOp::NotEq,
            CompareOp::Less,
            CompareOp::LessEq,
            CompareOp::Greater,
            CompareOp::GreaterEq,
        ])
    }

    fn in_values(&mut self) -> InValues {
        if self.chance() {
            InValues::Marker(self.marker())
        } else {
            InValues::List(self.some(0, |g| g.term(2)))
        }
    }

    fn tuple(&mut self) -> Term {
        Term::Tuple(self.some(1, |g| g.term(1)))
    }

    fn relation(&mut self) -> Relation {
        let column = self.name();
        match self.random.index(10) {
            0 => Relation::Element { column, key: self.term(1), op: self.compare_op(), value: self.term(2) },
            1 => Relation::In { column, values: self.in_values() },
            2 => Relation::Contains { column, value: self.term(1) },
            3 => Relation::ContainsKey { column, key: self.term(1) },
            4 => Relation::Like { column, pattern: self.term(1) },
            5 => Relation::IsNotNull { column },
            6 => {
                let (columns, op) = (self.names(), self.compare_op());
                let value = if self.chance() { self.marker() } else { self.tuple() };
                Relation::Tuple { columns, op, value }
            }
            7 => {
                let columns = self.names();
                let values = match self.random.index(3) {
                    0 => InValues::Marker(self.marker()),
                    1 => InValues::List(self.some(0, Generator::marker)),
                    _ => InValues::List(self.some(0, Generator::tuple)),
                };
                Relation::TupleIn { columns, values }
            }
            8 => Relation::Token { columns: self.names(), op: self.compare_op(), value: self.term(2) },
            _ => Relation::Compare { column, op: self.compare_op(), value: self.term(2) },
        }
    }

    fn using(&mut self, timestamp: bool, ttl: bool) -> Using {
        Using {
            timestamp: if timestamp { self.maybe(Generator::integer) } else { None },
            ttl: if ttl { self.maybe(Generator::integer) } else { None },
            timeout: self.maybe(|g| if g.chance() { g.marker() } else { Generator::day() }),
            service_level: self.maybe(Generator::name),
        }
    }

    fn insert(&mut self) -> Statement {
        let json = self.maybe(|g| InsertJson { value: g.marker(), default_unset: g.chance() });
        let columns = if json.is_some() { Vec::new() } else { self.names() };
        let values = columns.iter().map(|_| self.term(3)).collect();
        let table = self.qualified();
        let if_not_exists = self.chance();
        let using = self.using(true, true);
        Statement::Insert(Insert { table, columns, values, json, if_not_exists, using })
    }

    fn update(&mut self) -> Statement {
        Statement::Update(Update {
            table: self.qualified(),
            using: self.using(true, true),
            assignments: self.some(1, |g| match g.target() {
                target @ AssignmentTarget::Column(_) => {
                    let term = g.term(2);
                    let change = match g.random.index(4) {
                        0 => Change::Set(term),
                        1 => Change::Add(term),
                        2 => Change::Subtract(term),
                        _ => Change::Prepend(term),
                    };
                    Assignment { target, change }
                }
                target => Assignment { target, change: Change::Set(g.term(2)) },
            }),
            relations: self.some(1, Generator::relation),
            condition: self.condition(),
        })
    }

    fn delete(&mut self) -> Statement {
        Statement::Delete(Delete {
            targets: self.some(0, Generator::target),
            table: self.qualified(),
            using: self.using(true, false),
            relations: self.some(1, Generator::relation),
            condition: self.condition(),
        })
    }

    fn target(&mut self) -> AssignmentTarget {
        let column = self.name();
        match self.random.index(3) {
            0 => AssignmentTarget::Element(column, self.term(1)),
            1 => AssignmentTarget::Field(column, self.name()),
            _ => AssignmentTarget::Column(column),
        }
    }

    fn condition(&mut self) -> IfClause {
        match self.random.index(3) {
            0 => IfClause::None,
            1 => IfClause::Exists,
            _ => IfClause::Columns(self.some(1, |g| {
                let target = g.target();
                // Parts of a column are compared only.
                let tests = if matches!(target, AssignmentTarget::Column(_)) { 5 } else { 2 };
                let test = match g.random.index(tests) {
                    0 => Test::In(g.in_values()),
                    1 => Test::Compare(g.compare_op(), g.term(1)),
                    2 => Test::Contains(g.term(1)),
                    3 => Test::ContainsKey(g.term(1)),
                    _ => Test::Like(g.term(1)),
                };
                Condition { target, test }
            })),
        }
    }

    fn options(&mut self, least: usize) -> OptionList {
        let mut options = self.some(least, |g| {
            let value = if g.chance() { OptionValue::Map(g.map()) } else { g.option_value() };
            (g.name().to_ascii_lowercase(), value)
        });
        options.sort_by(|a, b| a.0.cmp(&b.0));
        options.dedup_by(|a, b| a.0 == b.0);
        options
    }

    fn map(&mut self) -> Vec<(String, OptionValue)> {
        let mut pairs = self.some(0, |g| (g.string(), g.option_value()));
        // A key occurs once.
        let mut names = std::collections::HashSet::new();
        pairs.retain(|(name, _)| names.insert(name.clone()));
        pairs
    }

    fn option_value(&mut self) -> OptionValue {
        match self.random.index(6) {
            0 => OptionValue::Null,
            1 => OptionValue::Integer(self.random.pick(&[0, -1, i64::MAX, i64::MIN])),
            2 => OptionValue::Float(self.random.pick(&[0.5, -1e9, 1e300, 1e-7])),
            3 => OptionValue::Boolean(self.chance()),
            4 => OptionValue::Duration(self.duration()),
            _ => OptionValue::String(self.string()),
        }
    }

    fn properties(&mut self, least: usize) -> TableProperties {
        TableProperties {
            options: self.options(least),
            clustering_order: self.some(0, Generator::ordering),
            compact_storage: self.chance(),
        }
    }

    fn columns(&mut self) -> Vec<ColumnDefinition> {
        self.some(1, |g| ColumnDefinition {
            name: g.name(),
            ty: g.type_name(2),
            is_static: g.chance(),
            mask: g.maybe(Generator::mask),
        })
    }

    fn mask(&mut self) -> FunctionCall {
        FunctionCall { name: self.qualified(), arguments: self.some(0, |g| Term::Literal(g.literal())) }
    }

    fn fields(&mut self) -> Vec<(String, TypeName)> {
        self.some(1, |g| (g.name(), g.type_name(2)))
    }

    fn renamings(&mut self) -> Vec<(String, String)> {
        self.some(1, |g| (g.name(), g.name()))
    }

    fn drop_object(&mut self) -> DropObject {
        DropObject { if_exists: self.chance(), name: self.qualified() }
    }

    fn schema(&mut self) -> Statement {
        let flag = self.chance();
        let name = self.name();
        let qualified = self.qualified();
        match self.random.index(11) {
            0 => Statement::Use(name),
            1 => Statement::CreateKeyspace(CreateKeyspace {
                if_not_exists: flag,
                name,
                options: self.options(1),
            }),
            2 => Statement::AlterKeyspace(AlterKeyspace { if_exists: flag, name, options: self.options(1) }),
            3 => Statement::DropKeyspace(DropKeyspace { if_exists: flag, name }),
            4 => {
                let partition_key = self.some(0, Generator::name);
                let clustering =
                    if partition_key.is_empty() { Vec::new() } else { self.some(0, Generator::name) };
                Statement::CreateTable(CreateTable {
                    if_not_exists: flag,
                    table: qualified,
                    columns: self.columns(),
                    partition_key,
                    clustering,
                    properties: self.properties(0),
                })
            }
            5 => {
                let change = self.table_change();
                Statement::AlterTable(AlterTable { if_exists: flag, table: qualified, change })
            }
            6 => Statement::DropTable(self.drop_object()),
            7 => Statement::CreateType(CreateType {
                if_not_exists: flag,
                name: qualified,
                fields: self.fields(),
            }),
            8 => {
                let change = match self.random.index(3) {
                    0 => TypeChange::Add { if_not_exists: self.chance(), field: name, ty: self.type_name(2) },
                    1 => TypeChange::Rename { if_exists: self.chance(), fields: self.renamings() },
                    _ => TypeChange::Type { field: name, ty: self.type_name(2) },
                };
                Statement::AlterType(AlterType { if_exists: flag, name: qualified, change })
            }
            9 => Statement::DropType(self.drop_object()),
            _ => {
                let target = self.describe_target();
                let with_passwords = flag && matches!(target, DescribeTarget::Schema { .. }) && self.chance();
                Statement::Describe(Describe { target, with_internals: flag, with_passwords })
            }
        }
    }

    fn table_change(&mut self) -> TableChange {
        let flag = self.chance();
        match self.random.index(7) {
            0 => TableChange::Add { if_not_exists: flag, columns: self.columns() },
            1 => {
                let timestamp = self.maybe(|_| Term::Literal(Literal::Integer("7".to_owned())));
                TableChange::Drop { if_exists: flag, columns: self.names(), timestamp }
            }
            2 => TableChange::DropCompactStorage,
            3 => TableChange::Rename { if_exists: flag, columns: self.renamings() },
            4 => TableChange::Type { column: self.name(), ty: self.type_name(2) },
            5 => {
                let mask = self.maybe(Generator::mask);
                TableChange::Mask { if_exists: flag, column: self.name(), mask }
            }
            _ => TableChange::With(self.properties(1)),
        }
    }

    fn describe_target(&mut self) -> DescribeTarget {
        let name = self.qualified();
        match self.random.index(15) {
            0 => DescribeTarget::Schema { full: self.chance() },
            1 => DescribeTarget::Cluster,
            2 => DescribeTarget::Keyspaces,
            3 => DescribeTarget::Keyspace { only: self.chance(), name: self.maybe(Generator::name) },
            4 => DescribeTarget::Tables,
            5 => DescribeTarget::Table(name),
            6 => DescribeTarget::Types,
            7 => DescribeTarget::Type(name),
            8 => DescribeTarget::Functions,
            9 => DescribeTarget::Function(name),
            10 => DescribeTarget::Aggregates,
            11 => DescribeTarget::Aggregate(name),
            12 => DescribeTarget::Index(name),
            13 => DescribeTarget::MaterializedView(name),
            _ => DescribeTarget::Named(name),
        }
    }

    fn other_schema(&mut self) -> Statement {
        let flag = self.chance();
        let name = self.qualified();
        let table = self.qualified();
        match self.random.index(11) {
            0 => Statement::CreateIndex(CreateIndex {
                custom: flag,
                if_not_exists: self.chance(),
                name: self.maybe(|_| name),
                table,
                targets: self.some(0, |g| {
                    let make = [
                        IndexTarget::Column,
                        IndexTarget::Values,
                        IndexTarget::Keys,
                        IndexTarget::Entries,
                        IndexTarget::Full,
                    ];
                    make[g.random.index(make.len())](g.name())
                }),
                class: self.maybe(Generator::string),
                options: self.options(0),
            }),
            1 => Statement::DropIndex(self.drop_object()),
            2 => {
                // A view takes no markers, so that its terms are simple.
                let column = self.name();
                Statement::CreateMaterializedView(CreateMaterializedView {
                    if_not_exists: flag,
                    name,
                    selection: Selection::All,
                    from: table,
                    relations: vec![Relation::IsNotNull { column }],
                    partition_key: self.names(),
                    clustering: self.some(0, Generator::name),
                    properties: self.properties(0),
                })
            }
            3 => {
                let properties = self.properties(1);
                Statement::AlterMaterializedView(AlterMaterializedView { if_exists: flag, name, properties })
            }
            4 => Statement::DropMaterializedView(self.drop_object()),
            5 => Statement::CreateFunction(CreateFunction {
                or_replace: flag,
                if_not_exists: self.chance(),
                name,
                arguments: self.fields(),
                called_on_null_input: self.chance(),
                returns: self.type_name(2),
                language: self.name(),
                body: self.string(),
            }),
            6 => Statement::DropFunction(self.drop_function()),
            7 => Statement::CreateAggregate(CreateAggregate {
                or_replace: flag,
                if_not_exists: self.chance(),
                name,
                arguments: self.some(0, |g| g.type_name(2)),
                state_function: self.name(),
                state_type: self.type_name(2),
                final_function: self.maybe(Generator::name),
                initial: self.maybe(|g| Term::Tuple(vec![Term::Literal(g.literal())])),
            }),
            8 => Statement::DropAggregate(self.drop_function()),
            9 => {
                let (name, class) = (self.name(), self.string());
                Statement::CreateTrigger(CreateTrigger { if_not_exists: flag, name, table, class })
            }
            _ => Statement::DropTrigger(DropTrigger { if_exists: flag, name: self.name(), table }),
        }
    }

    fn drop_function(&mut self) -> DropFunction {
        let arguments = self.maybe(|g| g.some(0, |g| g.type_name(2)));
        DropFunction { if_exists: self.chance(), name: self.qualified(), arguments }
    }

    fn access(&mut self) -> Statement {
        let flag = self.chance();
        let name = self.name();
        let other = self.name();
        match self.random.index(20) {
            0 => {
                Statement::CreateRole(CreateRole { if_not_exists: flag, name, options: self.role_options() })
            }
            1 => Statement::AlterRole(AlterRole { if_exists: flag, name, options: self.role_options() }),
            2 => Statement::DropRole(DropRole { if_exists: flag, name }),
            3 => {
                let (password, hashed_password) = self.passwords();
                let superuser = self.chance();
                Statement::CreateUser(CreateUser {
                    if_not_exists: flag,
                    name,
                    password,
                    hashed_password,
                    superuser,
                })
            }
            4 => {
                let (password, hashed_password) = self.passwords();
                let superuser = self.maybe(Generator::chance);
                Statement::AlterUser(AlterUser {
                    if_exists: flag,
                    name,
                    password,
                    hashed_password,
                    superuser,
                })
            }
            5 => Statement::DropUser(DropRole { if_exists: flag, name }),
            6 => Statement::GrantRole(GrantRole { role: name, grantee: other }),
            7 => Statement::RevokeRole(GrantRole { role: name, grantee: other }),
            8 => Statement::Grant(self.grant()),
            9 => Statement::Revoke(self.grant()),
            10 => Statement::ListRoles(ListRoles { of: self.maybe(Generator::name), recursive: flag }),
            11 => Statement::ListUsers,
            12 => Statement::ListPermissions(ListPermissions {
                permissions: self.permissions(),
                resource: self.maybe(Generator::resource),
                of: self.maybe(Generator::name),
                recursive: flag,
            }),
            13 => {
                let options = self.options(0);
                Statement::CreateServiceLevel(CreateServiceLevel { if_not_exists: flag, name, options })
            }
            14 => Statement::AlterServiceLevel(AlterServiceLevel { name, options: self.options(1) }),
            15 => Statement::DropServiceLevel(DropServiceLevel { if_exists: flag, name }),
            16 => Statement::AttachServiceLevel(AttachServiceLevel { level: name, role: other }),
            17 => Statement::DetachServiceLevel(name),
            18 if flag => Statement::CancelSession(name),
            18 => Statement::CancelStatement(name),
            _ => Statement::ListServiceLevels(match self.random.index(5) {
                0 => ListServiceLevels::One(name),
                1 => ListServiceLevels::All,
                2 => ListServiceLevels::AttachedTo(name),
                3 => ListServiceLevels::AllAttached,
                _ => ListServiceLevels::EffectiveOf(name),
            }),
        }
    }

    fn role_options(&mut self) -> RoleOptions {
        RoleOptions {
            password: self.maybe(Generator::string),
            hashed_password: self.maybe(Generator::string),
            login: self.maybe(Generator::chance),
            superuser: self.maybe(Generator::chance),
            options: self.maybe(Generator::map),
            datacenters: self.maybe(|g| {
                if g.chance() { Datacenters::All } else { Datacenters::Only(g.some(1, Generator::string)) }
            }),
        }
    }

    fn passwords(&mut self) -> (Option<String>, Option<String>) {
        match self.random.index(3) {
            0 => (None, None),
            1 => (Some(self.string()), None),
            _ => (None, Some(self.string())),
        }
    }

    fn permissions(&mut self) -> Permissions {
        if self.chance() {
            return Permissions::All;
        }
        Permissions::Some(self.some(1, |g| g.random.pick(&Permission::ALL)))
    }

    fn grant(&mut self) -> Grant {
        Grant { permissions: self.permissions(), resource: self.resource(), grantee: self.name() }
    }

    fn resource(&mut self) -> Resource {
        let name = self.name();
        match self.random.index(13) {
            0 => Resource::AllKeyspaces,
            1 => Resource::Keyspace(name),
            2 => Resource::AllTables(name),
            3 => Resource::Table(self.qualified()),
            4 => Resource::AllRoles,
            5 => Resource::Role(name),
            6 => Resource::AllServiceLevels,
            7 => Resource::ServiceLevel(name),
            8 => Resource::AllFunctions,
            9 => Resource::AllFunctionsIn(name),
            10 => Resource::Function(self.qualified(), self.some(0, |g| g.type_name(2))),
            11 => Resource::AllMBeans,
            _ => Resource::MBeans(self.string()),
        }
    }
}
