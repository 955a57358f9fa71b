//! Random schemas and histories.

use std::collections::{BTreeMap, BTreeSet};

use testkit::Random;

use crate::data::{
    Column, If, Kind, Op, Partitions, Range, Select, Show, Step, Table, Total, Ty, V, Verb, View, Where,
    Write,
};

/// Generator of a history from one seed.
pub(crate) struct Generator {
    random: Random,
    table: Table,
    added: u32,
    views: Vec<View>,
    created: u32,
    /// True for a history about indexes: more of them, of filters and of changes of the schema.
    is_indexed: bool,
    /// True if writes have timestamps in the future. There are no conditions then, which exceed
    /// them.
    has_future: bool,
}

/// Schema and the steps that use it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) table: Table,
    pub(crate) steps: Vec<Step>,
    pub(crate) cores: usize,
    pub(crate) is_durable: bool,
}

/// Most views at a time.
const VIEWS_MAX: usize = 3;

/// Number of steps in a history.
const STEPS: u64 = 60;

pub(crate) fn case(seed: u64) -> Case {
    let mut own = Generator {
        random: Random::new(seed),
        table: Table::default(),
        added: 0,
        views: Vec::new(),
        created: 0,
        is_indexed: false,
        has_future: false,
    };
    own.table = own.schema();
    own.is_indexed = !own.table.is_counter() && own.random.one_in(2);
    own.has_future = own.is_indexed && own.random.one_in(3);
    let (table, is_durable) = (own.table.clone(), own.random.one_in(8));
    let cores = 1 + own.random.below(3) as usize;
    let indexed = match own.is_indexed {
        true => 2 + own.random.below(5),
        false if own.table.is_counter() => 0,
        false => own.random.below(3),
    };
    let mut steps: Vec<Step> = (0..indexed).map(|_| own.index()).collect();
    let viewed = if own.table.is_counter() { 0 } else { own.random.below(3) };
    steps.extend((0..viewed).map(|_| own.view()));
    steps.extend((0..STEPS).flat_map(|_| own.steps(is_durable)));
    Case { table, steps, cores, is_durable }
}

impl Generator {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.below(of.len() as u64) as usize]
    }

    fn schema(&mut self) -> Table {
        let keys = [Ty::Int, Ty::BigInt, Ty::Text, Ty::Bool];
        let any = [
            Ty::Int,
            Ty::BigInt,
            Ty::Text,
            Ty::Bool,
            Ty::List(false),
            Ty::Set(false),
            Ty::Map(false),
            Ty::List(true),
            Ty::Set(true),
            Ty::Map(true),
        ];
        let mut columns = Vec::new();
        for at in 0..1 + self.random.below(3) {
            columns.push(Column { name: format!("p{at}"), ty: self.pick(&keys), kind: Kind::Partition });
        }
        let clustering = self.random.below(4);
        for at in 0..clustering {
            let kind = Kind::Clustering(self.random.one_in(2));
            columns.push(Column { name: format!("c{at}"), ty: self.pick(&keys), kind });
        }
        let is_counter = self.random.one_in(12);
        if clustering > 0 && !is_counter {
            for at in 0..self.random.below(3) {
                columns.push(Column { name: format!("s{at}"), ty: self.pick(&any), kind: Kind::Static });
            }
        }
        for at in 0..1 + self.random.below(4) {
            let ty = if is_counter { Ty::Counter } else { self.pick(&any) };
            columns.push(Column { name: format!("v{at}"), ty, kind: Kind::Regular });
        }
        Table { columns }
    }

    /// Returns a value that is not null.
    fn value(&mut self, ty: Ty) -> V {
        let ints = |own: &mut Generator| -> Vec<V> {
            (0..own.random.below(3)).map(|_| V::Int(own.random.below(4) as i64)).collect()
        };
        match ty {
            Ty::Int | Ty::BigInt | Ty::Counter => V::Int(self.random.below(5) as i64 - 1),
            Ty::Text => V::Text(self.pick(&["a", "ab", "b", "B"]).to_owned()),
            Ty::Bool => V::Bool(self.random.one_in(2)),
            Ty::List(_) => V::List(ints(self)),
            Ty::Set(_) => V::Set(ints(self).into_iter().collect()),
            Ty::Map(_) => {
                let pairs: Vec<_> = ints(self).into_iter().map(|k| (k, self.value(Ty::Text))).collect();
                V::Map(pairs.into_iter().collect::<BTreeMap<_, _>>())
            }
        }
    }

    fn values(&mut self, columns: &[usize], several: bool) -> Vec<Vec<V>> {
        let mut all = Vec::new();
        for at in columns {
            let count = if several && self.random.one_in(6) { 2 + self.random.below(2) } else { 1 };
            all.push((0..count).map(|_| self.value(self.table.columns[*at].ty)).collect());
        }
        all
    }

    fn tuple(&mut self, columns: &[usize]) -> Vec<V> {
        columns.iter().map(|at| self.value(self.table.columns[*at].ty)).collect()
    }

    /// Returns bounds on the first of these columns, or on tuples of several of them.
    fn range(&mut self, columns: &[usize]) -> Range {
        let bound = |own: &mut Generator| {
            let width = 1 + own.random.below(columns.len() as u64) as usize;
            own.random.one_in(2).then(|| (own.tuple(&columns[..width]), own.random.one_in(2)))
        };
        (bound(self), bound(self))
    }

    /// Returns restrictions of some clustering columns.
    fn slice(&mut self, several: bool) -> Where {
        let columns = self.table.clustering();
        let length = self.random.below(columns.len() as u64 + 1) as usize;
        let prefix = self.values(&columns[..length], several);
        let mut rows = Where { prefix, is_joined: self.random.one_in(3), ..Where::default() };
        if length < columns.len() && self.random.one_in(4) {
            let width = 1 + self.random.below((columns.len() - length) as u64) as usize;
            let count = 1 + self.random.below(3);
            rows.tuples = Some((0..count).map(|_| self.tuple(&columns[length..length + width])).collect());
        }
        let rest = &columns[rows.chosen()..];
        if !rest.is_empty() && self.random.one_in(2) {
            rows.range = self.range(rest);
        }
        rows
    }

    fn subset(&mut self, of: Vec<usize>) -> Vec<usize> {
        of.into_iter().filter(|_| self.random.one_in(2)).collect()
    }

    /// Returns a change of the schema.
    fn definition(&mut self) -> Step {
        match self.random.below(5) {
            0 => self.index(),
            2 if self.views.len() < VIEWS_MAX => self.view(),
            3 => {
                self.views.clear();
                Step::DropViews
            }
            1 => match self.index() {
                Step::Index(name, ..) => Step::DropIndexes(name),
                step => step,
            },
            _ => self.alter(),
        }
    }

    fn step(&mut self, is_durable: bool) -> Step {
        if self.is_indexed && self.random.one_in(16) {
            return self.definition();
        }
        match self.random.below(100) {
            0..=1 => Step::Flush,
            2 => Step::Compact,
            3 if is_durable => Step::Restart,
            4 if self.is_indexed || self.random.one_in(3) => Step::Truncate,
            5..=6 => Step::Sleep(1 + self.random.below(12) as i64),
            7 if !self.table.is_counter() => self.definition(),
            8..=13 if !self.table.is_counter() => {
                let mut all = Vec::new();
                for _ in 0..2 + self.random.below(3) {
                    let mut write = self.write();
                    write.ops.retain(|(_, op)| !matches!(op, Op::Prepend(_)));
                    write.condition = None;
                    let is_static = |op: &(usize, Op)| self.table.columns[op.0].kind == Kind::Static;
                    if write.verb != Verb::Insert && write.ops.iter().all(is_static) {
                        write.rows = Where::default();
                    }
                    if !write.ops.is_empty() || write.verb == Verb::Insert {
                        all.push(write);
                    }
                }
                if all.is_empty() { self.step(is_durable) } else { Step::Batch(all, self.random.one_in(2)) }
            }
            14..=55 => Step::Write(self.write()),
            56..=75 if !self.views.is_empty() => self.select_view(),
            _ => Step::Select(self.select()),
        }
    }

    /// Returns the next step. A column is dropped after its indexes and the views.
    fn steps(&mut self, is_durable: bool) -> Vec<Step> {
        match self.step(is_durable) {
            Step::Drop(name) => {
                self.views.clear();
                vec![Step::DropIndexes(name.clone()), Step::DropViews, Step::Drop(name)]
            }
            Step::DropIndexes(name) if self.random.one_in(2) => {
                let at = self.table.columns.iter().position(|own| own.name == name).expect("it is there");
                vec![Step::DropIndexes(name), self.index_of(at)]
            }
            step => vec![step],
        }
    }

    fn index(&mut self) -> Step {
        let is_only = self.table.partition().len() == 1;
        let columns = self.table.of(|kind| kind != Kind::Partition || !is_only);
        let at = self.pick(&columns);
        self.index_of(at)
    }

    fn index_of(&mut self, at: usize) -> Step {
        let Column { name, ty, .. } = self.table.columns[at].clone();
        let target = match ty {
            Ty::List(true) | Ty::Set(true) | Ty::Map(true) => format!("full({name})"),
            Ty::Map(false) => format!("{}({name})", self.pick(&["keys", "values", "entries"])),
            _ => name.clone(),
        };
        Step::Index(name, target, self.random.one_in(2))
    }

    /// Creates a view by a random order of the key, with or without one more column.
    fn view(&mut self) -> Step {
        let mut key: Vec<Column> = self.table.columns.clone();
        key.retain(|column| matches!(column.kind, Kind::Partition | Kind::Clustering(_)));
        let mut others = self.table.columns.clone();
        others.retain(|column| column.kind == Kind::Regular && !column.ty.has_elements());
        if !others.is_empty() && !self.random.one_in(3) {
            let at = self.random.below(others.len() as u64) as usize;
            key.push(others.swap_remove(at));
        }
        for at in (1..key.len()).rev() {
            key.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        let partition = 1 + self.random.below(key.len() as u64) as usize;
        for (at, column) in key.iter_mut().enumerate() {
            column.kind = match at < partition {
                true => Kind::Partition,
                false => Kind::Clustering(self.random.one_in(2)),
            };
        }
        let has_statics = !self.table.of(|kind| kind == Kind::Static).is_empty();
        let has_all = !has_statics && self.random.one_in(2);
        for column in self.table.columns.clone() {
            let is_other = column.kind == Kind::Regular && key.iter().all(|own| own.name != column.name);
            if is_other && (has_all || !self.random.one_in(4)) {
                key.push(column);
            }
        }
        self.created += 1;
        let view = View { name: format!("m{}", self.created), table: Table { columns: key }, has_all };
        self.views.push(view.clone());
        Step::CreateView(view)
    }

    fn select_view(&mut self) -> Step {
        let at = self.random.below(self.views.len() as u64) as usize;
        let View { name, table, .. } = self.views[at].clone();
        let base = std::mem::replace(&mut self.table, table);
        let select = self.select();
        self.table = base;
        Step::SelectView(name, select)
    }

    fn alter(&mut self) -> Step {
        let regular = self.table.of(|kind| kind == Kind::Regular);
        if regular.len() > 1 && self.random.one_in(2) {
            let at = self.pick(&regular);
            return Step::Drop(self.table.columns.remove(at).name);
        }
        self.added += 1;
        let ty = self.pick(&[Ty::Int, Ty::Text, Ty::Set(false), Ty::List(false)]);
        let column = Column { name: format!("w{:02}", self.added), ty, kind: Kind::Regular };
        self.table.columns.push(column.clone());
        for view in self.views.iter_mut().filter(|view| view.has_all) {
            view.table.columns.push(column.clone());
        }
        Step::Add(column)
    }

    fn write(&mut self) -> Write {
        let (partition, clustering) = (self.table.partition(), self.table.clustering());
        let verb = match self.random.below(10) {
            _ if self.table.is_counter() => Verb::Update,
            0..=3 => Verb::Insert,
            4..=7 => Verb::Update,
            _ => Verb::Delete,
        };
        let several = verb != Verb::Insert && !self.table.is_counter();
        let mut write = Write {
            verb,
            key: self.values(&partition, several),
            rows: Where { prefix: self.values(&clustering, several), ..Where::default() },
            ops: Vec::new(),
            ago: (self.random.one_in(6)).then(|| {
                let ago = 1 + self.random.below(8) as i64;
                if self.has_future && self.random.one_in(2) { -ago } else { ago }
            }),
            ttl: (verb != Verb::Delete && self.random.one_in(5)).then(|| self.random.below(20) as i64),
            condition: None,
        };
        match verb {
            Verb::Insert => self.insert(&mut write),
            Verb::Update => self.update(&mut write),
            Verb::Delete => self.delete(&mut write),
        }
        if self.table.is_counter() {
            (write.ago, write.ttl, write.condition) = (None, None, None);
        }
        if self.has_future {
            write.condition = None;
        }
        if write.condition.is_some() {
            write.ago = None;
            write.key.iter_mut().chain(&mut write.rows.prefix).for_each(|values| values.truncate(1));
        }
        let length = write.rows.prefix.len();
        if verb != Verb::Insert && length > 0 && write.rows.range == (None, None) && self.random.one_in(4) {
            write.rows.is_joined = self.random.one_in(2);
            write.rows.join(self.random.below(length as u64) as usize);
        }
        write
    }

    fn insert(&mut self, write: &mut Write) {
        let statics = self.table.of(|kind| kind == Kind::Static);
        let of_statics = !statics.is_empty() && self.random.one_in(6);
        let regular = self.table.of(|kind| kind == Kind::Regular);
        let mut columns = self.subset(statics.clone());
        if of_statics {
            write.rows.prefix.clear();
            if columns.is_empty() {
                columns = statics;
            }
        } else {
            columns.extend(self.subset(regular));
        }
        if !of_statics && self.random.one_in(10) {
            columns.retain(|at| self.table.columns[*at].kind == Kind::Regular);
            write.condition = Some(If::NotExists);
        }
        for at in columns {
            let value = self.value(self.table.columns[at].ty);
            write.ops.push((at, Op::Put(if self.random.one_in(8) { V::Null } else { value })));
        }
    }

    fn update(&mut self, write: &mut Write) {
        let statics = self.table.of(|kind| kind == Kind::Static);
        let regular = self.table.of(|kind| kind == Kind::Regular);
        let (mut columns, mut own) = (self.subset(statics), self.subset(regular.clone()));
        if columns.is_empty() && own.is_empty() {
            own.push(self.pick(&regular));
        }
        if own.is_empty() {
            write.rows.prefix.clear();
        }
        if !own.is_empty() && self.random.one_in(7) {
            columns.clear();
            write.condition = Some(self.condition());
        }
        columns.extend(own);
        for at in columns {
            let op = self.op(self.table.columns[at].ty);
            write.ops.push((at, op));
        }
    }

    fn condition(&mut self) -> If {
        let simple = |table: &Table, at: &usize| {
            let ty = table.columns[*at].ty;
            matches!(ty, Ty::Int | Ty::BigInt | Ty::Text)
        };
        let mut columns = self.table.of(|kind| kind == Kind::Regular);
        columns.retain(|at| simple(&self.table, at));
        if columns.is_empty() || self.random.one_in(3) {
            return If::Exists;
        }
        let mut all = Vec::new();
        for at in columns {
            if all.is_empty() || self.random.one_in(3) {
                let op = self.pick(&["=", "!=", "<", "<=", ">", ">="]);
                let is_null = matches!(op, "=" | "!=") && self.random.one_in(4);
                let value = if is_null { V::Null } else { self.value(self.table.columns[at].ty) };
                all.push((at, op, value));
            }
        }
        If::Columns(all)
    }

    fn op(&mut self, ty: Ty) -> Op {
        let value = self.value(ty);
        let null_or = |own: &mut Generator, value: V| if own.random.one_in(8) { V::Null } else { value };
        match (ty, self.random.below(6)) {
            (Ty::Counter, _) => Op::Add(value),
            (Ty::List(false), 0 | 1) => Op::Add(value),
            (Ty::List(false), 2) => Op::Prepend(value),
            (Ty::List(false), 3) => Op::Entry(V::Int(self.random.below(2) as i64), self.value(Ty::Int)),
            (Ty::Set(false) | Ty::Map(false), 0 | 1) => Op::Add(value),
            (Ty::List(false) | Ty::Set(false), 4) => Op::Remove(value),
            (Ty::Map(false), 2 | 3) => {
                let text = self.value(Ty::Text);
                Op::Entry(V::Int(self.random.below(4) as i64), null_or(self, text))
            }
            (Ty::Map(false), 4) => match self.value(Ty::Set(false)) {
                V::Set(keys) => Op::Remove(V::Set(keys)),
                _ => unreachable!("a set"),
            },
            _ => Op::Put(null_or(self, value)),
        }
    }

    fn delete(&mut self, write: &mut Write) {
        let clustering = self.table.clustering().len() as u64;
        match self.random.below(10) {
            0 => write.rows.prefix.clear(),
            1..=3 if clustering > 0 => {
                let length = self.random.below(clustering) as usize;
                write.rows.prefix.truncate(length);
                write.rows.prefix.iter_mut().for_each(|values| values.truncate(1));
                let rest = self.table.clustering().split_off(length);
                write.rows.range = self.range(&rest);
                write.rows.is_joined = self.random.one_in(2);
            }
            4..=6 => {
                if self.random.one_in(6) {
                    write.condition = Some(If::Exists);
                }
            }
            _ => {
                let mut columns = self.subset(self.table.of(|kind| kind == Kind::Regular));
                if columns.is_empty() {
                    columns = self.subset(self.table.of(|kind| kind == Kind::Static));
                    if !columns.is_empty() {
                        write.rows.prefix.clear();
                    }
                }
                for at in columns {
                    let op = match self.table.columns[at].ty {
                        Ty::List(false) if self.random.one_in(3) => {
                            Op::DeleteEntry(V::Int(self.random.below(2) as i64))
                        }
                        Ty::Map(false) | Ty::Set(false) if self.random.one_in(2) => {
                            Op::DeleteEntry(V::Int(self.random.below(4) as i64))
                        }
                        _ => Op::Delete,
                    };
                    write.ops.push((at, op));
                }
            }
        }
    }

    fn select(&mut self) -> Select {
        let (partition, clustering) = (self.table.partition(), self.table.clustering());
        let several = !self.is_indexed;
        let partitions = match self.random.below(if self.is_indexed { 12 } else { 20 }) {
            0..=4 => Partitions::All,
            5..=6 => {
                let key = self.values(&partition, false).into_iter().map(|mut v| v.remove(0)).collect();
                Partitions::Token(self.pick(&["<", "<=", ">", ">=", "="]), key)
            }
            _ => Partitions::Keys(self.values(&partition, several)),
        };
        let by_key = matches!(partitions, Partitions::Keys(_));
        let mut select = Select {
            shows: Vec::new(),
            group: None,
            distinct: false,
            partitions,
            rows: Where::default(),
            filters: Vec::new(),
            order: None,
            limit: self.random.one_in(4).then(|| 1 + self.random.below(5) as usize),
            per_partition: None,
            page: self.random.one_in(2).then(|| 1 + self.random.below(5) as u32),
        };
        let statics = self.table.of(|kind| kind == Kind::Static);
        if self.random.one_in(12) {
            select.distinct = true;
            let columns = [partition, self.subset(statics)].concat();
            select.shows = columns.into_iter().map(Show::Column).collect();
            return select;
        }
        if by_key || self.random.one_in(4) {
            select.rows = self.slice(by_key);
        }
        let others = self.table.of(|kind| matches!(kind, Kind::Static | Kind::Regular));
        let is_filtered = self.random.one_in(4) || self.is_indexed && !self.random.one_in(4);
        if !others.is_empty() && is_filtered && !self.table.is_counter() {
            let at = self.pick(&others);
            let filter = self.filter(at);
            if matches!(filter.1, ">" | ">=") && self.random.one_in(2) {
                select.filters.push((at, self.pick(&["<", "<="]), self.value(self.table.columns[at].ty)));
            }
            select.filters.push(filter);
            let second = self.pick(&others);
            if self.is_indexed && second != at && self.random.one_in(2) {
                let filter = self.filter(second);
                select.filters.push(filter);
            }
        }
        let keys =
            [&partition[..if by_key { 0 } else { partition.len() }], &clustering[select.rows.restricted()..]];
        let keys = keys.concat();
        if !keys.is_empty() && self.random.one_in(5) {
            let at = self.pick(&keys);
            let filter = self.filter(at);
            select.filters.push(filter);
        }
        if by_key && !clustering.is_empty() && self.random.one_in(if self.is_indexed { 12 } else { 3 }) {
            select.order = Some(self.random.one_in(2));
            let Partitions::Keys(keys) = &select.partitions else { unreachable!("by key") };
            if keys.iter().any(|values| values.iter().collect::<BTreeSet<_>>().len() > 1) {
                select.page = None;
            }
        }
        match self.random.below(10) {
            0..=1 => {
                self.shows(&mut select);
                self.totals(&mut select);
                let clustering = clustering.len() as u64;
                select.group = self.random.one_in(2).then(|| self.random.below(clustering + 1) as usize);
            }
            2..=4 => {}
            _ => self.shows(&mut select),
        }
        if (select.group.is_some() || !select.is_grouped()) && self.random.one_in(5) {
            select.per_partition = Some(1 + self.random.below(3) as usize);
        }
        select
    }

    fn shows(&mut self, select: &mut Select) {
        let columns = self.subset((0..self.table.columns.len()).collect());
        for at in columns {
            let column = &self.table.columns[at];
            let is_of_key = matches!(column.kind, Kind::Partition | Kind::Clustering(_));
            let has_time = !is_of_key && !column.ty.has_elements() && column.ty != Ty::Counter;
            select.shows.push(match self.random.below(6) {
                0 if has_time => Show::WriteTime(at),
                1 if has_time => Show::Ttl(at),
                _ => Show::Column(at),
            });
        }
    }

    /// Adds aggregates.
    fn totals(&mut self, select: &mut Select) {
        select.shows.push(Show::Rows);
        for (at, column) in self.table.columns.clone().iter().enumerate() {
            let totals = match column.ty {
                Ty::Int | Ty::BigInt => [Total::Count, Total::Min, Total::Max, Total::Sum],
                Ty::Text | Ty::Bool => [Total::Count, Total::Min, Total::Max, Total::Count],
                _ => [Total::Count; 4],
            };
            if self.random.one_in(2) {
                let total = self.pick(&totals);
                let place = self.random.below(select.shows.len() as u64 + 1) as usize;
                select.shows.insert(place, Show::Total(total, at));
            }
        }
    }

    fn filter(&mut self, at: usize) -> (usize, &'static str, V) {
        let ty = self.table.columns[at].ty;
        match ty {
            Ty::Map(false) if self.random.one_in(3) => {
                let pair = (V::Int(self.random.below(4) as i64), self.value(Ty::Text));
                (at, "[]", V::Map(BTreeMap::from([pair])))
            }
            Ty::Map(_) if self.random.one_in(2) => (at, "CONTAINS KEY", V::Int(self.random.below(4) as i64)),
            Ty::Map(_) => (at, "CONTAINS", self.value(Ty::Text)),
            Ty::List(frozen) | Ty::Set(frozen) => match frozen && self.random.one_in(2) {
                true => (at, "=", self.value(ty)),
                false => (at, "CONTAINS", V::Int(self.random.below(4) as i64)),
            },
            Ty::Bool => (at, "=", self.value(ty)),
            _ => (at, self.pick(&["=", "<", "<=", ">", ">="]), self.value(ty)),
        }
    }
}
