//! Values, schemas and statements of the model, and their CQL text.

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

/// Lower and upper bound on one column; true if the bound is inclusive.
pub(crate) type Range = (Option<(V, bool)>, Option<(V, bool)>);

/// Restrictions of the clustering key: values of the first columns, then a range of the next one.
#[derive(Clone, Default, Debug)]
pub(crate) struct Where {
    pub(crate) prefix: Vec<Vec<V>>,
    pub(crate) range: Range,
}

impl Where {
    pub(crate) fn is_empty(&self) -> bool {
        self.prefix.is_empty() && self.range == (None, None)
    }

    pub(crate) fn contains(&self, row: &[V]) -> bool {
        let is_chosen = self.prefix.iter().zip(row).all(|(values, value)| values.contains(value));
        let next = row.get(self.prefix.len());
        let above = |value: &V| {
            self.range.0.as_ref().is_none_or(|(low, is_in)| value > low || *is_in && value == low)
        };
        let below =
            |value: &V| self.range.1.as_ref().is_none_or(|(up, is_in)| value < up || *is_in && value == up);
        is_chosen && next.is_none_or(|value| above(value) && below(value))
    }

    fn relations(&self, table: &Table) -> Vec<String> {
        let columns = table.clustering();
        let mut out: Vec<_> =
            columns.iter().zip(&self.prefix).map(|(at, v)| chosen(table.name(*at), v)).collect();
        let Some(next) = columns.get(self.prefix.len()) else { return out };
        if let Some((low, is_in)) = &self.range.0 {
            out.push(format!("{} >{} {}", table.name(*next), if *is_in { "=" } else { "" }, low.text()));
        }
        if let Some((up, is_in)) = &self.range.1 {
            out.push(format!("{} <{} {}", table.name(*next), if *is_in { "=" } else { "" }, up.text()));
        }
        out
    }
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
    /// Counts rows, or the values of a column.
    pub(crate) count: Option<Option<usize>>,
    pub(crate) distinct: bool,
    pub(crate) partitions: Partitions,
    pub(crate) rows: Where,
    /// Column, operator (a comparison, CONTAINS or CONTAINS KEY) and value.
    pub(crate) filters: Vec<(usize, &'static str, V)>,
    /// True for the reverse of the order on disk; `None` without ORDER BY.
    pub(crate) order: Option<bool>,
    pub(crate) limit: Option<usize>,
    pub(crate) per_partition: Option<usize>,
    pub(crate) page: Option<u32>,
}

impl Select {
    pub(crate) fn text(&self, table: &Table, token: impl Fn(&[V]) -> i64) -> String {
        let name = |at: usize| table.name(at);
        let shows = self.shows.iter().map(|show| match show {
            Show::Column(at) => name(*at).to_owned(),
            Show::WriteTime(at) => format!("writetime({})", name(*at)),
            Show::Ttl(at) => format!("ttl({})", name(*at)),
        });
        let shows = match self.count {
            Some(None) => "count(*)".to_owned(),
            Some(Some(at)) => format!("count({})", name(at)),
            None if self.shows.is_empty() => "*".to_owned(),
            None => shows.collect::<Vec<_>>().join(", "),
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
        relations.extend(self.filters.iter().map(|(at, op, v)| format!("{} {op} {}", name(*at), v.text())));
        let mut text = format!("SELECT {}{shows} FROM t", if self.distinct { "DISTINCT " } else { "" });
        if !relations.is_empty() {
            let _ = write!(text, " WHERE {}", relations.join(" AND "));
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
