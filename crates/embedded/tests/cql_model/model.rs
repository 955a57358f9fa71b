//! Model of the data model, as simple as possible: it keeps every cell with its timestamp, and
//! computes each result from all of them.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::data::{
    Column, If, Kind, Op, Partitions, Select, Show, Table, Total, Ty, V, Verb, View, Where, Write,
    combinations,
};

/// Cell, live or dead.
#[derive(Clone, Debug)]
struct Cell {
    timestamp: i64,
    value: Option<V>,
    /// Time to live, and the second of its end.
    expiry: Option<(i64, i64)>,
    bytes: Vec<u8>,
}

impl Cell {
    fn beats(&self, other: &Cell) -> bool {
        if self.timestamp != other.timestamp {
            return self.timestamp > other.timestamp;
        }
        let lasts = |cell: &Cell| cell.value.is_some() && cell.expiry.is_none();
        match (&self.value, &other.value) {
            _ if lasts(self) != lasts(other) => lasts(other),
            (None, _) => true,
            (Some(_), None) => false,
            _ => (self.expiry.map(|e| e.1), &self.bytes) > (other.expiry.map(|e| e.1), &other.bytes),
        }
    }

    fn is_live(&self, now_s: i64) -> bool {
        self.value.is_some() && self.expiry.is_none_or(|(_, at)| at > now_s)
    }
}

/// Position of a cell in its column.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Path {
    Whole,
    Key(V),
    At(i64),
}

#[derive(Clone, Default, Debug)]
struct Row {
    marker: Option<(i64, Option<(i64, i64)>)>,
    deleted: Option<i64>,
    cells: BTreeMap<(String, Path), Cell>,
    /// Timestamps at which collections of elements were deleted or overwritten, by column.
    emptied: BTreeMap<String, i64>,
}

#[derive(Clone, Default, Debug)]
struct Partition {
    deleted: Option<i64>,
    ranges: Vec<(Where, i64)>,
    statics: Row,
    rows: BTreeMap<Vec<V>, Row>,
}

/// Time of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) us: i64,
}

impl Now {
    fn s(self) -> i64 {
        self.us / 1_000_000
    }
}

/// Expected result.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Answer {
    /// Success of a write without a condition.
    Done,
    /// Result of a write with a condition: true if it was applied.
    Applied(bool),
    Rows(Vec<Vec<String>>),
    /// Error whose text contains this.
    Refused(&'static str),
}

/// One table and its rows.
#[derive(Clone, Default, Debug)]
pub(crate) struct Model {
    pub(crate) table: Table,
    pub(crate) views: Vec<View>,
    partitions: BTreeMap<Vec<V>, Partition>,
    /// Number of list elements so far, which gives them their order.
    elements: i64,
}

/// Microseconds between statements.
pub(crate) const STATEMENT_US: i64 = 10_000;

fn deleted(partition: &Partition, at: &[V]) -> Option<i64> {
    let own = partition.rows.get(at).and_then(|row| row.deleted);
    let ranges =
        partition.ranges.iter().filter(|(range, _)| range.contains(at)).map(|(_, timestamp)| *timestamp);
    ranges.chain(own).chain(partition.deleted).max()
}

/// Live cells of a row, by column.
struct Seen<'a> {
    row: &'a Row,
    deleted: Option<i64>,
    now_s: i64,
}

impl Seen<'_> {
    fn cells(&self, name: &str) -> Vec<(&Path, &Cell)> {
        let floor = self.row.emptied.get(name).copied().max(self.deleted);
        let own = self.row.cells.iter().filter(|((column, _), _)| column == name);
        let own = own.filter(|((_, path), cell)| {
            let floor = if *path == Path::Whole { self.deleted } else { floor };
            cell.is_live(self.now_s) && floor.is_none_or(|floor| cell.timestamp > floor)
        });
        own.map(|((_, path), cell)| (path, cell)).collect()
    }

    fn value(&self, name: &str, ty: Ty) -> V {
        let cells = self.cells(name);
        let values = || cells.iter().map(|(_, cell)| cell.value.clone().expect("a live cell"));
        let key = |path: &Path| match path {
            Path::Key(key) => key.clone(),
            _ => unreachable!("an element with a key"),
        };
        match ty {
            _ if cells.is_empty() => V::Null,
            Ty::List(false) => V::List(values().collect()),
            Ty::Set(false) => V::Set(cells.iter().map(|(path, _)| key(path)).collect()),
            Ty::Map(false) => V::Map(cells.iter().map(|(path, _)| key(path)).zip(values()).collect()),
            _ => values().next().expect("one cell"),
        }
    }

    fn is_there(&self, table: &Table) -> bool {
        let marker = self.row.marker.is_some_and(|(timestamp, expiry)| {
            self.deleted.is_none_or(|deleted| timestamp > deleted)
                && expiry.is_none_or(|(_, at)| at > self.now_s)
        });
        marker || table.columns.iter().any(|column| !self.cells(&column.name).is_empty())
    }
}

/// Returns true if a comparison of two values that are not null holds.
fn holds(op: &str, value: &V, other: &V) -> bool {
    match op {
        "=" => value == other,
        "!=" => value != other,
        "<" => value < other,
        "<=" => value <= other,
        ">" => value > other,
        ">=" => value >= other,
        "CONTAINS" => match value {
            V::List(own) => own.contains(other),
            V::Set(own) => own.contains(other),
            V::Map(own) => own.values().any(|v| v == other),
            _ => false,
        },
        "[]" => match (value, other) {
            (V::Map(own), V::Map(pair)) => pair.iter().all(|(key, value)| own.get(key) == Some(value)),
            _ => false,
        },
        "CONTAINS KEY" => matches!(value, V::Map(own) if own.contains_key(other)),
        _ => unreachable!("an operator: {op}"),
    }
}

/// Rows of one result row: their partition keys and clustering keys. `None`: static columns alone.
type Group<'a> = Vec<(&'a Vec<V>, Option<&'a Vec<V>>)>;

impl Model {
    pub(crate) fn new(table: Table) -> Model {
        Model { table, ..Model::default() }
    }

    /// Returns the rows of a view, as a table of its own.
    pub(crate) fn view(&self, view: &View, now: Now) -> Model {
        let mut rows = Model::new(view.table.clone());
        let place = |at: usize| {
            let is_it = |column: &Column| column.name == view.table.name(at);
            self.table.columns.iter().position(is_it).expect("a column of the table")
        };
        for (key, partition) in &self.partitions {
            for at in partition.rows.keys() {
                let Some(seen) = self.seen(partition, at, now) else { continue };
                let values = |columns: Vec<usize>| -> Vec<V> {
                    let value = |own| self.show(key, Some(at), Show::Column(place(own)), now);
                    columns.into_iter().map(value).collect()
                };
                let (own_key, own_at) = (values(view.table.partition()), values(view.table.clustering()));
                if own_key.iter().chain(&own_at).any(|value| *value == V::Null) {
                    continue;
                }
                let mut row = Row { marker: Some((0, None)), ..Row::default() };
                for column in view.table.columns.iter().filter(|column| column.kind == Kind::Regular) {
                    let cells = seen.cells(&column.name).into_iter();
                    let own =
                        |(path, cell): (&Path, &Cell)| ((column.name.clone(), path.clone()), cell.clone());
                    row.cells.extend(cells.map(own));
                }
                rows.partitions.entry(own_key).or_default().rows.insert(own_at, row);
            }
        }
        rows
    }

    pub(crate) fn truncate(&mut self) {
        self.partitions.clear();
    }

    pub(crate) fn drop_column(&mut self, name: &str) {
        self.table.columns.retain(|column| column.name != name);
        for row in self.partitions.values_mut().flat_map(|own| own.rows.values_mut()) {
            row.cells.retain(|(column, _), _| column != name);
            row.emptied.remove(name);
        }
    }

    /// Returns the token of a partition key.
    pub(crate) fn token(&self, key: &[V]) -> i64 {
        let parts: Vec<_> = self
            .table
            .partition()
            .into_iter()
            .zip(key)
            .map(|(at, v)| self.table.columns[at].ty.bytes(v))
            .collect();
        let bytes = match &parts[..] {
            [one] => one.clone(),
            many => many
                .iter()
                .flat_map(|part| [&(part.len() as u16).to_be_bytes()[..], &part[..], &[0]].concat())
                .collect(),
        };
        schema::token::token(&bytes)
    }

    fn seen<'a>(&self, partition: &'a Partition, at: &[V], now: Now) -> Option<Seen<'a>> {
        let row = partition.rows.get(at)?;
        let seen = Seen { row, deleted: deleted(partition, at), now_s: now.s() };
        seen.is_there(&self.table).then_some(seen)
    }

    /// Applies the writes of a batch. They have the same time, and read the data before the batch.
    pub(crate) fn batch(&mut self, all: &[Write], now: Now) -> Answer {
        let before = self.clone();
        for write in all {
            let written = self.write_after(&before, write, now);
            if matches!(written, Answer::Refused(_)) {
                *self = before;
                return written;
            }
        }
        Answer::Done
    }

    /// Applies a write.
    pub(crate) fn write(&mut self, write: &Write, now: Now) -> Answer {
        self.write_after(&self.clone(), write, now)
    }

    /// Applies a write that reads the data `before`.
    fn write_after(&mut self, before: &Model, write: &Write, now: Now) -> Answer {
        let keys = combinations(&write.key);
        if let Some(condition) = &write.condition {
            let (key, at) = (&keys[0], write.rows.keys().remove(0));
            let none = Partition::default();
            let partition = self.partitions.get(key).unwrap_or(&none);
            let seen = self.seen(partition, &at, now);
            let is_met = match condition {
                If::NotExists => seen.is_none(),
                If::Exists => seen.is_some(),
                If::Columns(all) => all.iter().all(|(column, op, other)| {
                    let column = &self.table.columns[*column];
                    let value = seen.as_ref().map_or(V::Null, |seen| seen.value(&column.name, column.ty));
                    match (*op, &value, other) {
                        ("=" | "!=", _, _) => holds(op, &value, other),
                        (_, V::Null, _) => false,
                        _ => holds(op, &value, other),
                    }
                }),
            };
            if !is_met {
                return Answer::Applied(false);
            }
        }
        // A conditional write takes its timestamp under a lock, so it exceeds a client's timestamp
        // that is equal to the statement's time.
        let own_us = now.us + i64::from(write.condition.is_some());
        let timestamp = write.ago.map_or(own_us, |ago| now.us - ago * STATEMENT_US);
        let expiry = write.ttl.filter(|ttl| *ttl > 0).map(|ttl| (ttl, now.s() + ttl));
        for key in &keys {
            if let Err(refused) = self.write_partition(before, write, key, timestamp, expiry, now) {
                *self = before.clone();
                return Answer::Refused(refused);
            }
        }
        if write.condition.is_some() { Answer::Applied(true) } else { Answer::Done }
    }

    fn write_partition(
        &mut self,
        before: &Model,
        write: &Write,
        key: &[V],
        timestamp: i64,
        expiry: Option<(i64, i64)>,
        now: Now,
    ) -> Result<(), &'static str> {
        let kinds: Vec<Kind> = self.table.columns.iter().map(|column| column.kind).collect();
        let clustering = self.table.clustering().len();
        let mut partition = self.partitions.remove(key).unwrap_or_default();
        let (nothing, none) = (Partition::default(), Row::default());
        let old = before.partitions.get(key).unwrap_or(&nothing);
        let is_of_rows = write.rows.chosen() == clustering;
        if write.verb == Verb::Delete && write.ops.is_empty() {
            if write.rows.is_empty() {
                partition.deleted = partition.deleted.max(Some(timestamp));
            } else if is_of_rows {
                for at in write.rows.keys() {
                    let row = partition.rows.entry(at).or_default();
                    row.deleted = row.deleted.max(Some(timestamp));
                }
            } else {
                partition.ranges.push((write.rows.clone(), timestamp));
            }
        }
        let mut result = Ok(());
        if is_of_rows {
            for at in write.rows.keys() {
                if write.verb == Verb::Insert {
                    let row = partition.rows.entry(at.clone()).or_default();
                    let rank =
                        |(at, expiry): &(i64, Option<(i64, i64)>)| (*at, expiry.map(|(ttl, end)| (end, ttl)));
                    row.marker = row.marker.into_iter().chain([(timestamp, expiry)]).max_by_key(rank);
                }
                let row = old.rows.get(&at).unwrap_or(&none);
                let seen = Seen { row, deleted: deleted(old, &at), now_s: now.s() };
                for (column, op) in write.ops.iter().filter(|own| kinds[own.0] == Kind::Regular) {
                    let row = partition.rows.entry(at.clone()).or_default();
                    result = result.and(self.change(row, *column, op, (timestamp, expiry), &seen));
                }
            }
        }
        let seen = Seen { row: &old.statics, deleted: old.deleted, now_s: now.s() };
        for (column, op) in write.ops.iter().filter(|own| kinds[own.0] == Kind::Static) {
            let row = &mut partition.statics;
            result = result.and(self.change(row, *column, op, (timestamp, expiry), &seen));
        }
        self.partitions.insert(key.to_vec(), partition);
        result
    }

    fn change(
        &mut self,
        row: &mut Row,
        column: usize,
        op: &Op,
        (timestamp, expiry): (i64, Option<(i64, i64)>),
        old: &Seen<'_>,
    ) -> Result<(), &'static str> {
        let (name, ty) = (self.table.columns[column].name.clone(), self.table.columns[column].ty);
        let list: Vec<(Path, V)> = match ty {
            Ty::List(false) => old
                .cells(&name)
                .into_iter()
                .map(|(p, c)| (p.clone(), c.value.clone().expect("live")))
                .collect(),
            _ => Vec::new(),
        };
        let count = if ty == Ty::Counter { old.value(&name, ty) } else { V::Null };
        let mut put = |path: Path, value: Option<V>| {
            let of = if let (Ty::Map(false), Path::Key(_)) = (ty, &path) { Ty::Text } else { ty };
            let bytes = match (&value, ty) {
                (Some(value), Ty::List(_) | Ty::Map(_)) => of.bytes(value),
                (Some(_), Ty::Set(false)) | (None, _) => Vec::new(),
                (Some(value), _) => of.bytes(value),
            };
            let expiry = expiry.filter(|_| value.is_some());
            let new = Cell { timestamp, value, expiry, bytes };
            let place = (name.clone(), path);
            if row.cells.get(&place).is_none_or(|old| new.beats(old)) {
                row.cells.insert(place, new);
            }
        };
        let elements = &mut self.elements;
        let mut next = || {
            *elements += 1;
            *elements
        };
        match (ty, op) {
            (Ty::Counter, Op::Add(V::Int(more))) => {
                let V::Int(sum) = (if count == V::Null { V::Int(0) } else { count }) else {
                    unreachable!("a count")
                };
                put(Path::Whole, Some(V::Int(sum + more)));
            }
            (_, Op::Put(value)) if ty.has_elements() => {
                match value {
                    V::List(own) => own.iter().for_each(|v| put(Path::At(next()), Some(v.clone()))),
                    V::Set(own) => own.iter().for_each(|v| put(Path::Key(v.clone()), Some(V::Null))),
                    V::Map(own) => own.iter().for_each(|(k, v)| put(Path::Key(k.clone()), Some(v.clone()))),
                    _ => {}
                }
                let emptied = row.emptied.entry(name).or_insert(i64::MIN);
                *emptied = (*emptied).max(timestamp - 1);
            }
            (_, Op::Delete) if ty.has_elements() => {
                let emptied = row.emptied.entry(name).or_insert(i64::MIN);
                *emptied = (*emptied).max(timestamp);
            }
            (_, Op::Put(V::Null) | Op::Delete) => put(Path::Whole, None),
            (_, Op::Put(value)) => put(Path::Whole, Some(value.clone())),
            (_, Op::Add(V::List(own))) => own.iter().for_each(|v| put(Path::At(next()), Some(v.clone()))),
            (_, Op::Prepend(V::List(own))) => {
                let first = -next() * 1000;
                (first..).zip(own).for_each(|(at, v)| put(Path::At(at), Some(v.clone())));
            }
            (_, Op::Add(V::Set(own))) => own.iter().for_each(|v| put(Path::Key(v.clone()), Some(V::Null))),
            (_, Op::Add(V::Map(own))) => {
                own.iter().for_each(|(k, v)| put(Path::Key(k.clone()), Some(v.clone())))
            }
            (Ty::List(_), Op::Remove(V::List(gone))) => {
                list.iter().filter(|(_, v)| gone.contains(v)).for_each(|(path, _)| put(path.clone(), None));
            }
            (_, Op::Remove(V::Set(gone))) => gone.iter().for_each(|k| put(Path::Key(k.clone()), None)),
            (Ty::List(_), Op::Entry(V::Int(at), _) | Op::DeleteEntry(V::Int(at))) => {
                let Some((path, _)) = list.get(*at as usize) else { return Err("list") };
                let value = if let Op::Entry(_, value) = op { Some(value.clone()) } else { None };
                put(path.clone(), value.filter(|value| *value != V::Null));
            }
            (_, Op::Entry(k, v)) => put(Path::Key(k.clone()), Some(v.clone()).filter(|v| *v != V::Null)),
            (_, Op::DeleteEntry(k)) => put(Path::Key(k.clone()), None),
            other => unreachable!("a change: {other:?}"),
        }
        Ok(())
    }

    fn disk_order(&self, one: &[V], other: &[V]) -> Ordering {
        let columns = self.table.clustering().into_iter().zip(one.iter().zip(other));
        let ordered = columns.map(|(at, (a, b))| match self.table.columns[at].kind {
            Kind::Clustering(true) => b.cmp(a),
            _ => a.cmp(b),
        });
        ordered.fold(Ordering::Equal, Ordering::then)
    }

    /// Returns true if a SELECT shows static columns, and of the others those of the partition key
    /// alone.
    fn shows_statics(&self, select: &Select) -> bool {
        let shown = select.shows.iter().filter_map(|show| match show {
            Show::Column(at) | Show::WriteTime(at) | Show::Ttl(at) | Show::Total(_, at) => Some(*at),
            Show::Rows => None,
        });
        let shown: Vec<Kind> = shown.map(|at| self.table.columns[at].kind).collect();
        shown.contains(&Kind::Static)
            && shown.iter().all(|kind| matches!(kind, Kind::Partition | Kind::Static))
    }

    /// Returns the result of a SELECT; `None` if the model does not define it.
    pub(crate) fn select(&self, select: &Select, now: Now) -> Option<Answer> {
        let of_rows = |at: usize| matches!(self.table.columns[at].kind, Kind::Clustering(_));
        let restricts_rows = !select.rows.is_empty() || select.filters.iter().any(|filter| of_rows(filter.0));
        if restricts_rows && !select.distinct && self.shows_statics(select) {
            return Some(Answer::Refused("when selecting only static columns"));
        }
        let mut keys: Vec<&Vec<V>> = self.partitions.keys().collect();
        keys.retain(|key| match &select.partitions {
            Partitions::All => true,
            Partitions::Keys(all) => key.iter().zip(all).all(|(v, values)| values.contains(v)),
            Partitions::Token(op, other) => holds(op, &V::Int(self.token(key)), &V::Int(self.token(other))),
        });
        // Named partitions are in the order of their keys, as the map has them.
        if !matches!(select.partitions, Partitions::Keys(_)) {
            keys.sort_by_key(|key| self.token(key));
        }
        // Groups of rows in the order of the result. Ungrouped rows are groups of one.
        let mut all: Vec<Group<'_>> = Vec::new();
        for key in keys {
            let rows = self.rows_of(key, select, now).into_iter().map(|at| (key, at));
            let rows: Vec<_> = rows.take(if select.distinct { 1 } else { usize::MAX }).collect();
            let prefix =
                |row: &(&Vec<V>, Option<&Vec<V>>)| row.1.map(|at| at[..select.group.unwrap_or(0)].to_vec());
            let groups = rows.chunk_by(|one, other| select.group.is_some() && prefix(one) == prefix(other));
            all.extend(groups.take(select.per_partition.unwrap_or(usize::MAX)).map(<[_]>::to_vec));
        }
        let is_one = select.is_grouped() && select.group.is_none();
        if let (Some(reversed), Partitions::Keys(choices)) = (select.order, &select.partitions)
            && combinations(choices).len() > 1
            && !is_one
        {
            if all.iter().any(|group| group[0].1.is_none()) {
                return None;
            }
            all.sort_by(|one, other| {
                let order = self.disk_order(one[0].1.expect("a row"), other[0].1.expect("a row"));
                if reversed { order.reverse() } else { order }
            });
        }
        if is_one {
            all = vec![all.concat()];
        }
        let shows = match select.shows.is_empty() {
            true => (0..self.table.columns.len()).map(Show::Column).collect(),
            false => select.shows.clone(),
        };
        let row = |group: Group<'_>| shows.iter().map(|show| self.total(&group, *show, now).text()).collect();
        Some(Answer::Rows(all.into_iter().take(select.limit.unwrap_or(usize::MAX)).map(row).collect()))
    }

    /// Returns a result column of a group: an aggregate, or the value of its first row.
    fn total(&self, group: &Group<'_>, show: Show, now: Now) -> V {
        let Show::Total(total, column) = show else {
            return match (show, group.first()) {
                (Show::Rows, _) => V::Int(group.len() as i64),
                (show, Some((key, at))) => self.show(key, *at, show, now),
                (_, None) => V::Null,
            };
        };
        let values = group.iter().map(|(key, at)| self.show(key, *at, Show::Column(column), now));
        let values = values.filter(|value| *value != V::Null);
        match total {
            Total::Count => V::Int(values.count() as i64),
            Total::Min => values.min().unwrap_or(V::Null),
            Total::Max => values.max().unwrap_or(V::Null),
            Total::Sum => V::Int(values.map(|value| if let V::Int(n) = value { n } else { 0 }).sum()),
        }
    }

    fn rows_of<'a>(&'a self, key: &[V], select: &Select, now: Now) -> Vec<Option<&'a Vec<V>>> {
        let partition = &self.partitions[key];
        let mut rows: Vec<&Vec<V>> = partition.rows.keys().collect();
        rows.retain(|at| self.seen(partition, at, now).is_some());
        let statics = Seen { row: &partition.statics, deleted: partition.deleted, now_s: now.s() };
        let has_statics = statics.is_there(&self.table);
        if select.distinct {
            return if rows.is_empty() && !has_statics { Vec::new() } else { vec![None] };
        }
        let is_alone = rows.is_empty() && has_statics;
        let of_rows = |at: usize| matches!(self.table.columns[at].kind, Kind::Clustering(_) | Kind::Regular);
        let is_whole = select.rows.is_empty() && !select.filters.iter().any(|filter| of_rows(filter.0));
        let passes = |at: Option<&Vec<V>>| {
            select.filters.iter().all(|(column, op, other)| {
                let value = self.show(key, at, Show::Column(*column), now);
                value != V::Null && holds(op, &value, other)
            })
        };
        rows.retain(|at| select.rows.contains(at) && passes(Some(at)));
        rows.sort_by(|one, other| self.disk_order(one, other));
        if select.order == Some(true) {
            rows.reverse();
        }
        match is_alone && is_whole && passes(None) {
            true => vec![None],
            false => rows.into_iter().map(Some).collect(),
        }
    }

    fn show(&self, key: &[V], at: Option<&Vec<V>>, show: Show, now: Now) -> V {
        let partition = &self.partitions[key];
        let (Show::Column(column) | Show::WriteTime(column) | Show::Ttl(column)) = show else {
            unreachable!("aggregates are of groups")
        };
        let own = &self.table.columns[column];
        let place =
            |of: Vec<usize>| of.iter().position(|other| *other == column).expect("a column of the key");
        let none = Row::default();
        let (row, deleted) = match (own.kind, at) {
            (Kind::Partition, _) => return key[place(self.table.partition())].clone(),
            (Kind::Clustering(_), Some(at)) => return at[place(self.table.clustering())].clone(),
            (Kind::Clustering(_), None) => return V::Null,
            (Kind::Static, _) => (&partition.statics, partition.deleted),
            (Kind::Regular, None) => (&none, None),
            (Kind::Regular, Some(at)) => (&partition.rows[at], deleted(partition, at)),
        };
        let seen = Seen { row, deleted, now_s: now.s() };
        let cell = seen.cells(&own.name).first().map(|(_, cell)| (*cell).clone());
        match (show, cell) {
            (Show::Column(_), _) => seen.value(&own.name, own.ty),
            (Show::WriteTime(_), Some(cell)) => V::Int(cell.timestamp),
            (Show::Ttl(_), Some(Cell { expiry: Some((_, at)), .. })) => V::Int(at - now.s()),
            _ => V::Null,
        }
    }
}
