//! Values, schemas and statements of the model, and their CQL text.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Value. Values of one type have the order of CQL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum V {
    Null,
    Int(i64),
    Text(String),
    Bool(bool),
    List(Vec<V>),
    Set(BTreeSet<V>),
    Map(BTreeMap<V, V>),
}

impl V {
    /// Formats the literal, as results show it.
    pub(crate) fn text(&self) -> String {
        let all = |values: Vec<String>| values.join(", ");
        match self {
            V::Null => "null".to_owned(),
            V::Int(n) => n.to_string(),
            V::Text(text) => format!("'{text}'"),
            V::Bool(is) => is.to_string(),
            V::List(own) => format!("[{}]", all(own.iter().map(V::text).collect())),
            V::Set(own) => format!("{{{}}}", all(own.iter().map(V::text).collect())),
            V::Map(own) => {
                format!(
                    "{{{}}}",
                    all(own.iter().map(|(k, v)| format!("{}: {}", k.text(), v.text())).collect())
                )
            }
        }
    }
}

/// Type of a key, a simple column, or a collection (frozen or of elements).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ty {
    Int,
    BigInt,
    Text,
    Bool,
    Counter,
    List(bool),
    Set(bool),
    Map(bool),
}

impl Ty {
    fn text(self) -> &'static str {
        match self {
            Ty::Int => "int",
            Ty::BigInt => "bigint",
            Ty::Text => "text",
            Ty::Bool => "boolean",
            Ty::Counter => "counter",
            Ty::List(false) => "list<int>",
            Ty::Set(false) => "set<int>",
            Ty::Map(false) => "map<int, text>",
            Ty::List(true) => "frozen<list<int>>",
            Ty::Set(true) => "frozen<set<int>>",
            Ty::Map(true) => "frozen<map<int, text>>",
        }
    }

    /// Returns true for a collection with one cell per element.
    pub(crate) fn has_elements(self) -> bool {
        matches!(self, Ty::List(false) | Ty::Set(false) | Ty::Map(false))
    }

    /// Serializes the value.
    pub(crate) fn bytes(self, value: &V) -> Vec<u8> {
        let counted = |parts: Vec<Vec<u8>>, count: usize| {
            let mut out = (count as u32).to_be_bytes().to_vec();
            for part in parts {
                out.extend((part.len() as u32).to_be_bytes());
                out.extend(part);
            }
            out
        };
        match (self, value) {
            (Ty::Int | Ty::List(_) | Ty::Set(_) | Ty::Map(_), V::Int(n)) => {
                (*n as i32).to_be_bytes().to_vec()
            }
            (_, V::Int(n)) => n.to_be_bytes().to_vec(),
            (_, V::Text(text)) => text.as_bytes().to_vec(),
            (_, V::Bool(is)) => vec![u8::from(*is)],
            (_, V::List(own)) => counted(own.iter().map(|v| Ty::Int.bytes(v)).collect(), own.len()),
            (_, V::Set(own)) => counted(own.iter().map(|v| Ty::Int.bytes(v)).collect(), own.len()),
            (_, V::Map(own)) => {
                let parts = own.iter().flat_map(|(k, v)| [Ty::Int.bytes(k), Ty::Text.bytes(v)]);
                counted(parts.collect(), own.len())
            }
            (_, V::Null) => Vec::new(),
        }
    }
}

/// Role of a column in the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Partition,
    /// Clustering column; true for descending order on disk.
    Clustering(bool),
    Static,
    Regular,
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) ty: Ty,
    pub(crate) kind: Kind,
}

/// Table, with the columns in this order: partition key, clustering key, static, regular.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
}

impl Table {
    pub(crate) fn of(&self, is: impl Fn(Kind) -> bool) -> Vec<usize> {
        (0..self.columns.len()).filter(|at| is(self.columns[*at].kind)).collect()
    }

    pub(crate) fn partition(&self) -> Vec<usize> {
        self.of(|kind| kind == Kind::Partition)
    }

    pub(crate) fn clustering(&self) -> Vec<usize> {
        self.of(|kind| matches!(kind, Kind::Clustering(_)))
    }

    pub(crate) fn is_counter(&self) -> bool {
        self.columns.iter().any(|column| column.ty == Ty::Counter)
    }

    pub(crate) fn name(&self, at: usize) -> &str {
        &self.columns[at].name
    }

    pub(crate) fn create(&self) -> String {
        let mut text = "CREATE TABLE t (".to_owned();
        for column in &self.columns {
            let is_static = if column.kind == Kind::Static { " static" } else { "" };
            let _ = write!(text, "{} {}{is_static}, ", column.name, column.ty.text());
        }
        let names = |at: Vec<usize>| at.into_iter().map(|at| self.name(at).to_owned()).collect::<Vec<_>>();
        let (partition, clustering) = (names(self.partition()), names(self.clustering()));
        let _ = write!(text, "PRIMARY KEY (({})", partition.join(", "));
        clustering.iter().for_each(|name| text += &format!(", {name}"));
        text += "))";
        let order = self.columns.iter().filter_map(|column| match column.kind {
            Kind::Clustering(desc) => Some(format!("{} {}", column.name, if desc { "DESC" } else { "ASC" })),
            _ => None,
        });
        if !clustering.is_empty() {
            let _ = write!(text, " WITH CLUSTERING ORDER BY ({})", order.collect::<Vec<_>>().join(", "));
        }
        text
    }
}

/// Materialized view of the table.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) name: String,
    /// The view as a table.
    pub(crate) table: Table,
    /// True if it has all columns, also those that are added later.
    pub(crate) has_all: bool,
}

impl View {
    pub(crate) fn create(&self) -> String {
        let names =
            |at: Vec<usize>| at.into_iter().map(|at| self.table.name(at).to_owned()).collect::<Vec<_>>();
        let (partition, clustering) = (names(self.table.partition()), names(self.table.clustering()));
        let all = names((0..self.table.columns.len()).collect()).join(", ");
        let shown = if self.has_all { "*" } else { &all };
        let key = partition.iter().chain(&clustering).map(|name| format!("{name} IS NOT NULL"));
        let others: String = clustering.iter().map(|name| format!(", {name}")).collect();
        let order = self.table.create();
        let order = order.split_once(" WITH ").map_or(String::new(), |(_, order)| format!(" WITH {order}"));
        format!(
            "CREATE MATERIALIZED VIEW {} AS SELECT {shown} FROM t WHERE {} PRIMARY KEY (({}){others}){order}",
            self.name,
            key.collect::<Vec<_>>().join(" AND "),
            partition.join(", "),
        )
    }
}

/// Change to one column.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Put(V),
    /// `col = col + v` for a set, map, list or counter.
    Add(V),
    /// `col = v + col` for a list.
    Prepend(V),
    /// `col = col - v` for a set, map (by keys) or list (by values).
    Remove(V),
    /// `col[k] = v`.
    Entry(V, V),
    /// `DELETE col` and `DELETE col[k]`.
    Delete,
    DeleteEntry(V),
}

/// Lower and upper bound on a tuple of columns; true if the bound is inclusive.
pub(crate) type Range = (Option<(Vec<V>, bool)>, Option<(Vec<V>, bool)>);

/// Restrictions of the clustering key: values of the first columns, then tuples of the next ones,
/// then a range of those after them.
#[derive(Clone, Default, Debug)]
pub(crate) struct Where {
    pub(crate) prefix: Vec<Vec<V>>,
    /// Tuples of one width. `None`: no relation of several columns.
    pub(crate) tuples: Option<Vec<Vec<V>>>,
    pub(crate) range: Range,
    /// True if single columns are written in parentheses too.
    pub(crate) is_joined: bool,
}

impl Where {
    pub(crate) fn is_empty(&self) -> bool {
        self.chosen() == 0 && self.range == (None, None)
    }

    /// Returns the number of columns whose values are given.
    pub(crate) fn chosen(&self) -> usize {
        self.prefix.len() + self.tuples.as_ref().map_or(0, |tuples| tuples[0].len())
    }

    /// Returns the number of restricted columns.
    pub(crate) fn restricted(&self) -> usize {
        let width = |bound: &Option<(Vec<V>, bool)>| bound.as_ref().map_or(0, |(values, _)| values.len());
        self.chosen() + width(&self.range.0).max(width(&self.range.1))
    }

    /// Returns the keys that are given, or the first columns of keys.
    pub(crate) fn keys(&self) -> Vec<Vec<V>> {
        let tuples: BTreeSet<&[V]> = self.tuples.iter().flatten().map(Vec::as_slice).collect();
        let tuples = if tuples.is_empty() { BTreeSet::from([&[][..]]) } else { tuples };
        let prefixes = combinations(&self.prefix);
        prefixes.iter().flat_map(|key| tuples.iter().map(move |tuple| [key, *tuple].concat())).collect()
    }

    /// Writes the values of the columns after the first `length` as one tuple.
    pub(crate) fn join(&mut self, length: usize) {
        let tuples = combinations(&self.prefix[length..]);
        self.prefix.truncate(length);
        self.tuples = Some(tuples);
    }

    pub(crate) fn contains(&self, row: &[V]) -> bool {
        let is_chosen = self.prefix.iter().zip(row).all(|(values, value)| values.contains(value));
        let after = |first: usize, length: usize| row.get(first..first + length);
        let is_tuple = self.tuples.as_ref().is_none_or(|tuples| {
            let found = after(self.prefix.len(), tuples[0].len());
            tuples.iter().any(|tuple| Some(&tuple[..]) == found)
        });
        let order = |bound: &Vec<V>| after(self.chosen(), bound.len()).map(|found| found.cmp(bound));
        let meets = |bound: &Option<(Vec<V>, bool)>, wanted: Ordering| {
            bound.as_ref().is_none_or(|(values, is_in)| {
                order(values).is_none_or(|order| order == wanted || *is_in && order.is_eq())
            })
        };
        is_chosen
            && is_tuple
            && meets(&self.range.0, Ordering::Greater)
            && meets(&self.range.1, Ordering::Less)
    }

    fn relations(&self, table: &Table) -> Vec<String> {
        let names: Vec<&str> = table.clustering().into_iter().map(|at| table.name(at)).collect();
        let mut out = Vec::new();
        let is_single = self.prefix.iter().all(|values| values.len() == 1);
        if self.is_joined && is_single && !self.prefix.is_empty() {
            let values: Vec<V> = self.prefix.iter().map(|values| values[0].clone()).collect();
            out.push(format!("({}) = {}", names[..values.len()].join(", "), tuple(&values)));
        } else {
            out.extend(names.iter().zip(&self.prefix).map(|(name, values)| chosen(name, values)));
        }
        if let Some(tuples) = &self.tuples {
            let columns = names[self.prefix.len()..self.chosen()].join(", ");
            let all: Vec<String> = tuples.iter().map(|values| tuple(values)).collect();
            out.push(match &all[..] {
                [one] if self.is_joined => format!("({columns}) = {one}"),
                many => format!("({columns}) IN ({})", many.join(", ")),
            });
        }
        for (sign, bound) in [(">", &self.range.0), ("<", &self.range.1)] {
            let Some((values, is_in)) = bound else { continue };
            let sign = if *is_in { format!("{sign}=") } else { sign.to_owned() };
            let columns = &names[self.chosen()..self.chosen() + values.len()];
            out.push(match &values[..] {
                [one] if !self.is_joined => format!("{} {sign} {}", columns[0], one.text()),
                many => format!("({}) {sign} {}", columns.join(", "), tuple(many)),
            });
        }
        out
    }
}

fn tuple(values: &[V]) -> String {
    format!("({})", values.iter().map(V::text).collect::<Vec<_>>().join(", "))
}

/// Returns all combinations of one value per column.
pub(crate) fn combinations(choices: &[Vec<V>]) -> Vec<Vec<V>> {
    let mut all = vec![Vec::new()];
    for values in choices {
        let values: BTreeSet<&V> = values.iter().collect();
        all = all
            .iter()
            .flat_map(|own: &Vec<V>| values.iter().map(|v| [&own[..], &[(*v).clone()]].concat()))
            .collect();
    }
    all
}

fn chosen(name: &str, values: &[V]) -> String {
    match values {
        [one] => format!("{name} = {}", one.text()),
        many => format!("{name} IN ({})", many.iter().map(V::text).collect::<Vec<_>>().join(", ")),
    }
}

/// Condition on a row.
#[derive(Clone, Debug)]
pub(crate) enum If {
    NotExists,
    Exists,
    Columns(Vec<(usize, &'static str, V)>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Insert,
    Update,
    Delete,
}

/// Write of one or several rows, of a range, or of partitions.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) verb: Verb,
    pub(crate) key: Vec<Vec<V>>,
    pub(crate) rows: Where,
    pub(crate) ops: Vec<(usize, Op)>,
    /// Timestamp of the write, as a number of statements ago.
    pub(crate) ago: Option<i64>,
    pub(crate) ttl: Option<i64>,
    pub(crate) condition: Option<If>,
}

impl Write {
    pub(crate) fn text(&self, table: &Table, timestamp: impl Fn(i64) -> i64) -> String {
        let mut using = Vec::new();
        using.extend(self.ago.map(|ago| format!("TIMESTAMP {}", timestamp(ago))));
        using.extend(self.ttl.map(|ttl| format!("TTL {ttl}")));
        let using = if using.is_empty() { String::new() } else { format!(" USING {}", using.join(" AND ")) };
        let mut relations: Vec<_> =
            table.partition().into_iter().zip(&self.key).map(|(at, v)| chosen(table.name(at), v)).collect();
        relations.extend(self.rows.relations(table));
        let relations = relations.join(" AND ");
        let condition = match &self.condition {
            None => String::new(),
            Some(If::NotExists) => " IF NOT EXISTS".to_owned(),
            Some(If::Exists) => " IF EXISTS".to_owned(),
            Some(If::Columns(all)) => {
                let all = all.iter().map(|(at, op, v)| format!("{} {op} {}", table.name(*at), v.text()));
                format!(" IF {}", all.collect::<Vec<_>>().join(" AND "))
            }
        };
        let name = |at: usize| table.name(at);
        match self.verb {
            Verb::Insert => {
                let keys = table.partition().into_iter().zip(&self.key);
                let keys = keys.chain(table.clustering().into_iter().zip(&self.rows.prefix));
                let mut pairs: Vec<_> = keys.map(|(at, v)| (name(at), v[0].text())).collect();
                for (at, op) in &self.ops {
                    let Op::Put(value) = op else { unreachable!("an INSERT puts") };
                    pairs.push((name(*at), value.text()));
                }
                let (names, values): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
                format!(
                    "INSERT INTO t ({}) VALUES ({}){condition}{using}",
                    names.join(", "),
                    values.join(", ")
                )
            }
            Verb::Update => {
                let set = self.ops.iter().map(|(at, op)| match op {
                    Op::Put(v) => format!("{} = {}", name(*at), v.text()),
                    Op::Add(v) => format!("{0} = {0} + {1}", name(*at), v.text()),
                    Op::Prepend(v) => format!("{0} = {1} + {0}", name(*at), v.text()),
                    Op::Remove(v) => format!("{0} = {0} - {1}", name(*at), v.text()),
                    Op::Entry(k, v) => format!("{}[{}] = {}", name(*at), k.text(), v.text()),
                    Op::Delete | Op::DeleteEntry(_) => unreachable!("an UPDATE deletes nothing"),
                });
                let set = set.collect::<Vec<_>>().join(", ");
                format!("UPDATE t{using} SET {set} WHERE {relations}{condition}")
            }
            Verb::Delete => {
                let what = self.ops.iter().map(|(at, op)| match op {
                    Op::DeleteEntry(k) => format!("{}[{}]", name(*at), k.text()),
                    _ => name(*at).to_owned(),
                });
                let what = what.collect::<Vec<_>>().join(", ");
                format!("DELETE {what} FROM t{using} WHERE {relations}{condition}")
            }
        }
    }
}

/// Result column of a SELECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Show {
    Column(usize),
    WriteTime(usize),
    Ttl(usize),
    /// `count(*)`.
    Rows,
    /// Aggregate of the values of a column.
    Total(Total, usize),
}

/// Aggregate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Total {
    Count,
    Min,
    Max,
    Sum,
}

/// Partitions of a SELECT.
#[derive(Clone, Debug)]
pub(crate) enum Partitions {
    All,
    Keys(Vec<Vec<V>>),
    /// Partitions with this comparison between their token and that of a key.
    Token(&'static str, Vec<V>),
}

#[derive(Clone, Debug)]
pub(crate) struct Select {
    /// Result columns; empty for all columns.
    pub(crate) shows: Vec<Show>,
    /// GROUP BY: the partition key and this number of clustering columns.
    pub(crate) group: Option<usize>,
    pub(crate) distinct: bool,
    pub(crate) partitions: Partitions,
    pub(crate) rows: Where,
    /// Column, operator (a comparison, CONTAINS, CONTAINS KEY, or `[]` for an entry) and value.
    pub(crate) filters: Vec<(usize, &'static str, V)>,
    /// True for the reverse of the order on disk; `None` without ORDER BY.
    pub(crate) order: Option<bool>,
    pub(crate) limit: Option<usize>,
    pub(crate) per_partition: Option<usize>,
    pub(crate) page: Option<u32>,
}

impl Select {
    /// Returns true if rows are grouped: those of the whole result without GROUP BY.
    pub(crate) fn is_grouped(&self) -> bool {
        self.group.is_some() || self.shows.iter().any(|show| matches!(show, Show::Rows | Show::Total(..)))
    }

    pub(crate) fn text(&self, from: &str, table: &Table, token: impl Fn(&[V]) -> i64) -> String {
        let name = |at: usize| table.name(at);
        let shows = self.shows.iter().map(|show| match show {
            Show::Column(at) => name(*at).to_owned(),
            Show::WriteTime(at) => format!("writetime({})", name(*at)),
            Show::Ttl(at) => format!("ttl({})", name(*at)),
            Show::Rows => "count(*)".to_owned(),
            Show::Total(total, at) => {
                format!("{}({})", format!("{total:?}").to_lowercase(), name(*at))
            }
        });
        let shows = match self.shows.is_empty() {
            true => "*".to_owned(),
            false => shows.collect::<Vec<_>>().join(", "),
        };
        let mut relations = Vec::new();
        match &self.partitions {
            Partitions::All => {}
            Partitions::Keys(key) => {
                relations.extend(table.partition().into_iter().zip(key).map(|(at, v)| chosen(name(at), v)));
            }
            Partitions::Token(op, key) => {
                let names: Vec<_> = table.partition().into_iter().map(name).collect();
                relations.push(format!("token({}) {op} {}", names.join(", "), token(key)));
            }
        }
        relations.extend(self.rows.relations(table));
        relations.extend(self.filters.iter().map(|(at, op, v)| match (*op, v) {
            ("[]", V::Map(pair)) => {
                let (key, value) = pair.first_key_value().expect("a pair");
                format!("{}[{}] = {}", name(*at), key.text(), value.text())
            }
            _ => format!("{} {op} {}", name(*at), v.text()),
        }));
        let mut text = format!("SELECT {}{shows} FROM {from}", if self.distinct { "DISTINCT " } else { "" });
        if !relations.is_empty() {
            let _ = write!(text, " WHERE {}", relations.join(" AND "));
        }
        if let Some(columns) = self.group {
            let columns = table.partition().into_iter().chain(table.clustering().into_iter().take(columns));
            let _ = write!(text, " GROUP BY {}", columns.map(name).collect::<Vec<_>>().join(", "));
        }
        if let Some(reversed) = self.order {
            let order = table.clustering().into_iter().map(|at| {
                let Kind::Clustering(desc) = table.columns[at].kind else {
                    unreachable!("a clustering column")
                };
                format!("{} {}", name(at), if desc != reversed { "DESC" } else { "ASC" })
            });
            let _ = write!(text, " ORDER BY {}", order.collect::<Vec<_>>().join(", "));
        }
        if let Some(most) = self.per_partition {
            let _ = write!(text, " PER PARTITION LIMIT {most}");
        }
        if let Some(most) = self.limit {
            let _ = write!(text, " LIMIT {most}");
        }
        let is_sliced = matches!(self.partitions, Partitions::Keys(_)) || self.rows.is_empty();
        if !self.filters.is_empty() || !is_sliced {
            text += " ALLOW FILTERING";
        }
        text
    }
}

/// Step of a history.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Creates an index of a column, on this target, and storage-attached if true. It changes no
    /// answer.
    Index(String, String, bool),
    /// Drops all indexes of a column.
    DropIndexes(String),
    CreateView(View),
    DropViews,
    /// SELECT from the view of this name.
    SelectView(String, Select),
    Write(Write),
    /// Batch of statements; true if it is logged.
    Batch(Vec<Write>, bool),
    Select(Select),
    Flush,
    Compact,
    Restart,
    Truncate,
    /// Advances the clock by this many seconds.
    Sleep(i64),
    /// Drops a regular column, by name.
    Drop(String),
    Add(Column),
}
