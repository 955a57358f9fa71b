//! Weight of definitions: the memory that they take, so that a server can bound its whole schema.
//!
//! A definition contains the user types that it uses in full. They are counted at each use: a
//! schema that was read from its rows shares nothing.

use crate::index::IndexDef;
use crate::table::{ColumnDef, ColumnMask, KeyspaceDef, TableDef, ViewDef};
use crate::types::{CqlType, UdtType};

/// Bytes of a table without its names, columns and options.
const TABLE_BYTES: u64 = 512;
/// Bytes of a keyspace without its names and options.
const KEYSPACE_BYTES: u64 = 512;
/// Bytes of an option without its name and value: two strings and their place in a map.
const OPTION_BYTES: u64 = 64;
/// Bytes of a name: the string and the overhead of its allocation.
const NAME_BYTES: u64 = 40;

/// Weight of definitions, counted up to a limit, so that the work is proportional to the limit.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    bytes: u64,
    limit: u64,
}

impl Weight {
    /// Creates a weight of nothing. Counting stops above `limit` bytes.
    #[must_use]
    pub fn up_to(limit: u64) -> Weight {
        Weight { bytes: 0, limit }
    }

    /// Returns the bytes counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if the limit is exceeded.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.bytes > self.limit
    }

    /// Adds a keyspace, without its contents.
    pub fn keyspace(&mut self, def: &KeyspaceDef) {
        self.add(KEYSPACE_BYTES);
        self.name(&def.name);
        self.options(&def.replication);
    }

    /// Adds a table.
    pub fn table(&mut self, def: &TableDef) {
        self.add(TABLE_BYTES);
        self.name(&def.keyspace);
        self.name(&def.name);
        self.name(&def.options.comment);
        self.options(&def.options.other);
        for index in &def.indexes {
            self.add(size_of::<IndexDef>() as u64);
            self.name(&index.name);
            self.name(&index.column);
            self.options(&index.options);
        }
        for view in &def.views {
            let columns = view.partition_key.len()
                + view.clustering.len()
                + view.others.as_ref().map_or(0, |others| others.len());
            self.add((size_of::<ViewDef>() + columns * size_of::<u64>()) as u64);
            self.name(&view.name);
            self.name(&view.where_clause);
            self.name(&view.options.comment);
            self.options(&view.options.other);
        }
        let dropped = def.dropped.values().map(|dropped| &dropped.column);
        for column in def.columns.iter().chain(dropped) {
            if self.is_over() {
                return;
            }
            self.add(size_of::<ColumnDef>() as u64);
            self.name(&column.name);
            self.ty(&column.ty);
        }
        for mask in def.masks.values() {
            self.add(size_of::<ColumnMask>() as u64);
            self.name(&mask.function);
            for argument in &mask.arguments {
                self.add(NAME_BYTES + argument.value.as_ref().map_or(0, |value| value.len() as u64));
                self.ty(&argument.ty);
            }
        }
    }

    /// Adds a user type, with the types in it.
    pub fn user_type(&mut self, udt: &UdtType) {
        self.add(size_of::<UdtType>() as u64);
        self.name(&udt.keyspace);
        self.name(&udt.name);
        for (name, ty) in &udt.fields {
            if self.is_over() {
                return;
            }
            self.name(name);
            self.ty(ty);
        }
    }

    fn ty(&mut self, ty: &CqlType) {
        self.add(size_of::<CqlType>() as u64);
        match ty {
            CqlType::List(e) | CqlType::Set(e) | CqlType::Frozen(e) | CqlType::Vector(e, _) => self.ty(e),
            CqlType::Map(k, v) => {
                self.ty(k);
                self.ty(v);
            }
            CqlType::Tuple(es) => {
                for ty in es {
                    if self.is_over() {
                        return;
                    }
                    self.ty(ty);
                }
            }
            CqlType::Udt(udt) => self.user_type(udt),
            _ => {}
        }
    }

    fn options(&mut self, options: &std::collections::BTreeMap<String, String>) {
        for (name, value) in options {
            self.add(OPTION_BYTES + (name.len() + value.len()) as u64);
        }
    }

    fn name(&mut self, name: &str) {
        self.add(NAME_BYTES + name.len() as u64);
    }

    fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn udt(fields: usize, ty: &CqlType) -> UdtType {
        let fields = (0..fields).map(|n| (format!("f{n}"), ty.clone())).collect();
        UdtType::new("ks", "u", fields)
    }

    fn weight_of(udt: &UdtType, limit: u64) -> u64 {
        let mut weight = Weight::up_to(limit);
        weight.user_type(udt);
        weight.bytes()
    }

    #[test]
    fn types_are_counted_at_each_use() {
        let inner = udt(10, &CqlType::Int);
        let one = weight_of(&inner, u64::MAX);
        assert!(one >= 10 * (NAME_BYTES + 2), "{one}");
        let frozen = CqlType::Frozen(Box::new(CqlType::Udt(Arc::new(inner))));
        let outer = weight_of(&udt(100, &frozen), u64::MAX);
        assert!(outer >= 100 * one, "{outer}");
        assert!(weight_of(&udt(100, &frozen), 5_000) < 5_000 + 2 * one, "counting stops at the limit");
        let tuple = CqlType::Tuple(vec![frozen; 100]);
        assert!(weight_of(&udt(1, &tuple), u64::MAX) >= 100 * one);
    }
}
