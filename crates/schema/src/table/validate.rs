//! Validation of definitions. The code that creates or reads a definition validates it once. All
//! other code relies on that.

use std::collections::HashSet;
use std::fmt;

use super::{ColumnDef, ColumnKind, KeyspaceDef, TableDef};
use crate::types::{CLASS_BYTES_MAX, TYPE_DEPTH_MAX, TYPE_PARTS_MAX};
use crate::{CqlType, UdtType};

/// Most characters of the name of a keyspace.
pub const NAME_CHARS_MAX: usize = 48;

/// Most characters of the name of a table. Cassandra's, whose files have names of 255 bytes with
/// it.
const TABLE_NAME_CHARS_MAX: usize = 222;

/// Characters of a refused name that its error repeats.
const SHOWN_CHARS_MAX: usize = 1000;

/// Most bytes of the name of a column or field. The protocol writes the length as `u16`.
const COLUMN_NAME_BYTES_MAX: usize = u16::MAX as usize;

/// Longest default TTL: 20 years of 365 days, as in Cassandra.
pub const TTL_SECONDS_MAX: u32 = 20 * 365 * 24 * 60 * 60;

/// Reason for rejecting a definition.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the message of each variant describes it and its fields")]
pub enum DefinitionError {
    LongName { what: &'static str, chars_max: usize, chars: usize, name: String },
    BadName { what: &'static str, name: String },
    BadTableName { keyspace: String, name: String },
    BadColumnName { length: usize },
    NoPartitionKey { table: String },
    DuplicateColumn { column: String, table: String },
    DuplicateField { field: String, udt: String },
    MixedCounters,
    CounterTimeToLive,
    TimeToLive { seconds: u32 },
    UselessStatic,
    UnsuitedKeyColumn { ty: &'static str, column: String },
    NonFrozenKeyColumn { what: &'static str, ty: String, column: String },
    NonFrozenInside { what: &'static str, ty: String },
    CounterInside { ty: String },
    CounterInTuple,
    DurationInside { what: &'static str, ty: String },
    UdtField { what: &'static str },
    TypeTooBig { column: String },
    LongVectorName { ty: String },
    Inconsistent { table: String, why: &'static str },
}

impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use DefinitionError as E;
        match self {
            E::LongName { what, chars_max, chars, name } => write!(
                f,
                "{what} name must not be more than {chars_max} characters long (got {chars} characters for \
                 \"{name}\")"
            ),
            E::BadName { what, name } => write!(
                f,
                "{what} name must not be empty and must contain alphanumeric or underscore characters only \
                 (got \"{name}\")"
            ),
            E::BadTableName { keyspace, name } => write!(
                f,
                "{keyspace}.{name}: Table name must not be empty or not contain non-alphanumeric-underscore \
                 characters (got \"{name}\")"
            ),
            E::BadColumnName { length } => {
                write!(f, "Column name must have 1 to {COLUMN_NAME_BYTES_MAX} bytes (got {length})")
            }
            E::NoPartitionKey { table } => write!(f, "Missing partition keys for table {table}"),
            E::DuplicateColumn { column, table } => {
                write!(f, "Duplicate column '{column}' declaration for table '{table}'")
            }
            E::DuplicateField { field, udt } => write!(f, "Duplicate field name '{field}' in type '{udt}'"),
            E::MixedCounters => f.write_str("Cannot mix counter and non counter columns in the same table"),
            E::CounterTimeToLive => f.write_str("Cannot set default_time_to_live on a table with counters"),
            E::TimeToLive { seconds } => {
                write!(f, "default_time_to_live must be less than or equal to {TTL_SECONDS_MAX} (got {seconds})")
            }
            E::UselessStatic => f.write_str(
                "Static columns are only useful (and thus allowed) if the table has at least one clustering column",
            ),
            E::UnsuitedKeyColumn { ty, column } => {
                write!(f, "{ty} type is not supported for PRIMARY KEY column '{column}'")
            }
            E::NonFrozenKeyColumn { what, ty, column } => {
                write!(f, "Invalid non-frozen {what} type {ty} for PRIMARY KEY column '{column}'")
            }
            E::NonFrozenInside { what, ty } => {
                write!(f, "Non-frozen {what} are not allowed inside collections: {ty}")
            }
            E::CounterInside { ty } => write!(f, "Counters are not allowed inside collections: {ty}"),
            E::CounterInTuple => f.write_str("Counters are not allowed inside tuples"),
            E::DurationInside { what, ty } => write!(f, "Durations are not allowed {what}: {ty}"),
            E::UdtField { what } => write!(f, "A user type cannot contain {what}"),
            E::TypeTooBig { column } => write!(
                f,
                "The type of '{column}' is too big: at most {TYPE_DEPTH_MAX} levels and {TYPE_PARTS_MAX} types"
            ),
            E::LongVectorName { ty } => write!(
                f,
                "expected the class of a vector in at most {CLASS_BYTES_MAX} bytes, got {ty}: choose fewer or shorter \
                 fields"
            ),
            E::Inconsistent { table, why } => write!(f, "The definition of table {table} is inconsistent: {why}"),
        }
    }
}

impl std::error::Error for DefinitionError {}

impl KeyspaceDef {
    /// Checks the definition.
    pub fn validate(&self) -> Result<(), DefinitionError> {
        validate_name("Keyspace", NAME_CHARS_MAX, &self.name)
    }
}

impl UdtType {
    /// Checks the definition. The user types in it must have been validated before.
    pub fn validate(&self) -> Result<(), DefinitionError> {
        // Any quoted name names a type.
        validate_column_name(&self.name)?;
        let mut seen = HashSet::new();
        let mut depth = 1;
        let mut parts = 1;
        for (name, ty) in &self.fields {
            validate_column_name(name)?;
            if !seen.insert(name) {
                return Err(DefinitionError::DuplicateField { field: name.clone(), udt: self.name.clone() });
            }
            let size = ty.size();
            (depth, parts) = (depth.max(size.0 + 1), parts + size.1);
            if depth > TYPE_DEPTH_MAX || parts > TYPE_PARTS_MAX {
                return Err(DefinitionError::TypeTooBig { column: name.clone() });
            }
            match ty {
                CqlType::Counter => return Err(DefinitionError::UdtField { what: "counters" }),
                CqlType::Udt(_) => return Err(DefinitionError::UdtField { what: "non-frozen UDTs" }),
                ty => validate_type(ty)?,
            }
        }
        Ok(())
    }
}

impl TableDef {
    /// Checks the definition. Error texts are those of Cassandra where it has them.
    pub fn validate(&self) -> Result<(), DefinitionError> {
        validate_name("Keyspace", NAME_CHARS_MAX, &self.keyspace)?;
        validate_name("Table", TABLE_NAME_CHARS_MAX, &self.name).map_err(|error| match error {
            DefinitionError::BadName { name, .. } => {
                DefinitionError::BadTableName { keyspace: self.keyspace.clone(), name }
            }
            error => error,
        })?;
        let table = || format!("{}.{}", self.keyspace, self.name);
        let mut seen = HashSet::new();
        for column in &self.columns {
            validate_column_name(&column.name)?;
            if !seen.insert(&column.name) {
                return Err(DefinitionError::DuplicateColumn { column: column.name.clone(), table: table() });
            }
            validate_column(column)?;
        }
        if self.partition_key().next().is_none() {
            return Err(DefinitionError::NoPartitionKey { table: table() });
        }
        let has_static = self.columns.iter().any(|c| c.kind == ColumnKind::Static);
        if has_static && self.clustering().next().is_none() {
            return Err(DefinitionError::UselessStatic);
        }
        self.validate_counters()?;
        let seconds = self.options.default_time_to_live;
        if seconds > TTL_SECONDS_MAX {
            return Err(DefinitionError::TimeToLive { seconds });
        }
        match self.inconsistency() {
            Some(why) => Err(DefinitionError::Inconsistent { table: table(), why }),
            None => Ok(()),
        }
    }

    /// Returns true for a counter table, which has only counters apart from its key.
    pub fn is_counter(&self) -> bool {
        self.columns.iter().any(|c| c.ty == CqlType::Counter)
    }

    fn validate_counters(&self) -> Result<(), DefinitionError> {
        if !self.is_counter() {
            return Ok(());
        }
        let is_value = |c: &&ColumnDef| matches!(c.kind, ColumnKind::Static | ColumnKind::Regular);
        if self.columns.iter().filter(is_value).any(|c| c.ty != CqlType::Counter) {
            return Err(DefinitionError::MixedCounters);
        }
        if self.options.default_time_to_live > 0 {
            return Err(DefinitionError::CounterTimeToLive);
        }
        Ok(())
    }

    /// Returns an inconsistency that no statement can cause. It is due to a bug or to damaged
    /// storage.
    fn inconsistency(&self) -> Option<&'static str> {
        let mut ids = HashSet::new();
        if !self.columns.iter().all(|c| c.id < self.next_column_id && ids.insert(c.id)) {
            return Some("a column number is used twice, or not below the next one");
        }
        let partition = self.partition_key().enumerate().all(|(i, c)| c.kind == ColumnKind::PartitionKey(i));
        let clustering = self
            .clustering()
            .enumerate()
            .all(|(i, c)| matches!(c.kind, ColumnKind::Clustering(at, _) if at == i));
        if !(partition && clustering) {
            return Some("key columns are not in their order");
        }
        None
    }
}

fn validate_name(what: &'static str, chars_max: usize, name: &str) -> Result<(), DefinitionError> {
    let shown = || name.chars().take(SHOWN_CHARS_MAX).collect();
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(DefinitionError::BadName { what, name: shown() });
    }
    match name.len() <= chars_max {
        true => Ok(()),
        false => Err(DefinitionError::LongName { what, chars_max, chars: name.len(), name: shown() }),
    }
}

fn validate_column_name(name: &str) -> Result<(), DefinitionError> {
    match name.len() {
        1..=COLUMN_NAME_BYTES_MAX => Ok(()),
        length => Err(DefinitionError::BadColumnName { length }),
    }
}

fn validate_column(column: &ColumnDef) -> Result<(), DefinitionError> {
    let ColumnDef { name, ty, kind, .. } = column;
    let (depth, parts) = ty.size();
    if depth > TYPE_DEPTH_MAX || parts > TYPE_PARTS_MAX {
        return Err(DefinitionError::TypeTooBig { column: name.clone() });
    }
    validate_type(ty)?;
    if matches!(kind, ColumnKind::PartitionKey(_) | ColumnKind::Clustering(..)) {
        let unsuited = [(CqlType::Counter, "counter"), (CqlType::Duration, "duration")];
        if let Some((_, ty)) = unsuited.iter().find(|(unsuited, _)| contains(ty, unsuited)) {
            return Err(DefinitionError::UnsuitedKeyColumn { ty, column: name.clone() });
        }
        if ty.is_multi_cell() {
            let (what, ty) = match ty {
                CqlType::Udt(udt) => ("user-defined", format!("\"{}.{}\"", udt.keyspace, udt.name)),
                ty => ("collection", ty.to_string()),
            };
            return Err(DefinitionError::NonFrozenKeyColumn { what, ty, column: name.clone() });
        }
    }
    Ok(())
}

/// Returns true if this type or a type inside it is `wanted`. Cassandra does not look into vectors.
fn contains(ty: &CqlType, wanted: &CqlType) -> bool {
    let is_vector = matches!(ty, CqlType::Vector(..));
    ty == wanted || (!is_vector && ty.inner().into_iter().any(|inner| contains(inner, wanted)))
}

/// Checks which types are inside which. Types inside `frozen<>` and tuples count as frozen.
fn validate_type(ty: &CqlType) -> Result<(), DefinitionError> {
    if let CqlType::Vector(element, _) = ty {
        validate_type(element)?;
    }
    let is_open = matches!(ty, CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..));
    if is_open && let Some(inner) = ty.inner().into_iter().find(|inner| inner.is_multi_cell()) {
        let what = if inner.is_collection() { "collections" } else { "UDTs" };
        return Err(DefinitionError::NonFrozenInside { what, ty: ty.to_string() });
    }
    validate_inside(ty)
}

fn validate_inside(ty: &CqlType) -> Result<(), DefinitionError> {
    let shown = ty;
    let ty = ty.thawed();
    // Cassandra does not look into tuples and user types here.
    let duration = |inside: &CqlType, what| match *inside == CqlType::Duration {
        true => Err(DefinitionError::DurationInside { what, ty: shown.to_string() }),
        false => Ok(()),
    };
    let collection = match ty {
        CqlType::Frozen(inner) => inner,
        ty => ty,
    };
    match collection {
        CqlType::Set(element) => duration(element, "inside sets")?,
        CqlType::Map(key, _) => duration(key, "as map keys")?,
        CqlType::Vector(..) if ty.class_bytes(CLASS_BYTES_MAX) > CLASS_BYTES_MAX => {
            return Err(DefinitionError::LongVectorName { ty: ty.to_string() });
        }
        _ => {}
    }
    for inner in ty.inner() {
        match ty {
            _ if *inner != CqlType::Counter => validate_inside(inner)?,
            CqlType::Vector(..) => {}
            CqlType::Tuple(_) => return Err(DefinitionError::CounterInTuple),
            _ => return Err(DefinitionError::CounterInside { ty: shown.to_string() }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::{ClusteringOrder, TableOptions};

    fn table(columns: &[(&str, &str, ColumnKind)]) -> TableDef {
        let column = |(id, &(name, ty, kind)): (usize, &(&str, &str, ColumnKind))| ColumnDef {
            id: id as u32,
            name: name.into(),
            ty: CqlType::parse(ty, &|name| (name == "u").then(user_type)).unwrap(),
            kind,
        };
        TableDef {
            id: Uuid::from_u128(7),
            keyspace: "ks".into(),
            name: "t".into(),
            columns: columns.iter().enumerate().map(column).collect(),
            next_column_id: columns.len() as u32,
            data: None,
            dropped: Default::default(),
            masks: Default::default(),
            indexes: Vec::new(),
            views: Vec::new(),
            options: TableOptions::default(),
        }
    }

    fn user_type() -> Arc<UdtType> {
        Arc::new(UdtType::new("ks", "u", vec![("f".into(), CqlType::Int)]))
    }

    const PK: ColumnKind = ColumnKind::PartitionKey(0);
    const CK: ColumnKind = ColumnKind::Clustering(0, ClusteringOrder::Desc);
    use ColumnKind::{Regular, Static};

    fn check(columns: &[(&str, &str, ColumnKind)], expected: &str) {
        let found = table(columns).validate().map_or_else(|error| error.to_string(), |()| String::new());
        assert_eq!(found, expected);
    }

    #[test]
    fn valid_tables_are_accepted() {
        check(&[("k", "blob", PK)], "");
        check(
            &[
                ("k", "blob", PK),
                ("c", "frozen<list<int>>", CK),
                ("s", "int", Static),
                ("v", "duration", Regular),
            ],
            "",
        );
        check(
            &[("k", "frozen<u>", PK), ("c", "int", CK), ("n", "counter", Regular), ("m", "counter", Static)],
            "",
        );
        check(&[("k", "int", PK), ("v", "map<text, frozen<list<u>>>", Regular), ("w", "u", Regular)], "");
        check(&[("k", "tuple<int, list<int>>", PK), ("v", "list<duration>", Regular)], "");
    }

    #[test]
    fn invalid_tables_are_rejected() {
        check(&[], "Missing partition keys for table ks.t");
        check(
            &[("k", "int", PK), ("k", "int", Regular)],
            "Duplicate column 'k' declaration for table 'ks.t'",
        );
        check(
            &[("k", "int", PK), ("n", "counter", Regular), ("v", "int", Regular)],
            "Cannot mix counter and non counter columns in the same table",
        );
        check(
            &[("k", "int", PK), ("s", "int", Static)],
            "Static columns are only useful (and thus allowed) if the table has at least one clustering column",
        );
        check(&[("k", "counter", PK)], "counter type is not supported for PRIMARY KEY column 'k'");
        check(
            &[("k", "frozen<list<duration>>", PK)],
            "duration type is not supported for PRIMARY KEY column 'k'",
        );
        check(
            &[("k", "frozen<set<duration>>", PK)],
            "Durations are not allowed inside sets: frozen<set<duration>>",
        );
        check(
            &[("k", "set<int>", PK)],
            "Invalid non-frozen collection type set<int> for PRIMARY KEY column 'k'",
        );
        check(&[("k", "u", PK)], "Invalid non-frozen user-defined type \"ks.u\" for PRIMARY KEY column 'k'");
        let check_value = |ty, expected| check(&[("k", "int", PK), ("v", ty, Regular)], expected);
        check_value(
            "list<set<int>>",
            "Non-frozen collections are not allowed inside collections: list<set<int>>",
        );
        check_value("set<u>", "Non-frozen UDTs are not allowed inside collections: set<u>");
        check_value("list<counter>", "Counters are not allowed inside collections: list<counter>");
        check_value("set<duration>", "Durations are not allowed inside sets: set<duration>");
        check_value(
            "frozen<list<frozen<map<duration, int>>>>",
            "Durations are not allowed as map keys: frozen<map<duration, int>>",
        );
        check(&[("k", "int", PK), ("", "int", Regular)], "Column name must have 1 to 65535 bytes (got 0)");
    }

    #[test]
    fn names_and_options_beyond_bounds_are_rejected() {
        let mut def = table(&[("k", "int", PK)]);
        def.name = "x".repeat(222);
        assert_eq!(def.validate(), Ok(()));
        def.name = "x".repeat(223);
        let expected = format!(
            "Table name must not be more than 222 characters long (got 223 characters for \"{}\")",
            def.name
        );
        assert_eq!(def.validate().unwrap_err().to_string(), expected);
        for name in [String::new(), "a-b".into(), "é".into()] {
            def.name = name.clone();
            let expected = format!(
                "ks.{name}: Table name must not be empty or not contain non-alphanumeric-underscore characters \
                 (got \"{name}\")"
            );
            assert_eq!(def.validate().unwrap_err().to_string(), expected);
        }
        def.name = "t".into();
        def.options.default_time_to_live = 630_720_001;
        assert_eq!(
            def.validate().unwrap_err().to_string(),
            "default_time_to_live must be less than or equal to 630720000 (got 630720001)"
        );
        def.options.default_time_to_live = 0;
        def.columns[0].kind = ColumnKind::PartitionKey(1);
        assert!(matches!(def.validate(), Err(DefinitionError::Inconsistent { .. })));
        let keyspace = KeyspaceDef { name: "k s".into(), replication: BTreeMap::new(), durable_writes: true };
        assert!(matches!(keyspace.validate(), Err(DefinitionError::BadName { what: "Keyspace", .. })));
    }

    #[test]
    fn nesting_of_user_types_is_bounded() {
        let wrap = |inner: CqlType, copies: usize| {
            let fields =
                (0..copies).map(|i| (format!("f{i}"), CqlType::Frozen(Box::new(inner.clone())))).collect();
            Arc::new(UdtType::new("ks", "u", fields))
        };
        for copies in [1, 8] {
            let mut ty = CqlType::Int;
            let rejected = (0..20).find_map(|_| {
                let udt = wrap(ty.clone(), copies);
                ty = CqlType::Udt(udt.clone());
                udt.validate().err()
            });
            assert!(matches!(rejected, Some(DefinitionError::TypeTooBig { .. })), "{copies}");
        }
        let bad = |ty| UdtType { fields: vec![("f".into(), ty)], ..(*user_type()).clone() }.validate();
        assert_eq!(bad(CqlType::Counter), Err(DefinitionError::UdtField { what: "counters" }));
        assert_eq!(
            bad(CqlType::Udt(user_type())),
            Err(DefinitionError::UdtField { what: "non-frozen UDTs" })
        );
    }

    #[test]
    fn definitions_survive_serialization() {
        let mut def =
            table(&[("k", "frozen<u>", PK), ("c", "tuple<int, text>", CK), ("v", "map<int, text>", Regular)]);
        def.options.other.insert("compaction".into(), "{'class': 'x'}".into());
        let text = serde_json::to_string(&def).unwrap();
        assert_eq!(serde_json::from_str::<TableDef>(&text).unwrap(), def);
    }
}
