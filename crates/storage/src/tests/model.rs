//! A plain model of tables: one map of cells for each partition, every cell with its position. It
//! implements Cassandra's rules a second time, independently of the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

use super::*;

/// A cell, dead or alive.
#[derive(Clone, Debug)]
struct Stored {
    timestamp: i64,
    /// `None`: a tombstone.
    value: Option<Vec<u8>>,
    expiry: Option<Expiry>,
    deleted_at_s: u32,
}

impl Stored {
    fn beats(&self, other: &Stored) -> bool {
        if self.timestamp != other.timestamp {
            return self.timestamp > other.timestamp;
        }
        let lasts = |cell: &Stored| cell.value.is_some() && cell.expiry.is_none();
        match (&self.value, &other.value) {
            _ if lasts(self) != lasts(other) => lasts(other),
            (None, None) => self.deleted_at_s > other.deleted_at_s,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some(ours), Some(theirs)) => {
                let ends = |cell: &Stored| cell.expiry.map(|expiry| expiry.at_s);
                let ttl = |cell: &Stored| cell.expiry.map(|expiry| expiry.ttl_s);
                (ends(self), ours, ttl(self)) > (ends(other), theirs, ttl(other))
            }
        }
    }
}

/// The position of a cell: its row (`None`: static), column and path.
type CellPlace = (Option<Vec<u8>>, u32, Option<Vec<u8>>);

#[derive(Clone, Debug, Default)]
struct Held {
    deleted: Option<i64>,
    ranges: Vec<(Bound<Bytes>, Bound<Bytes>, i64)>,
    rows_deleted: BTreeMap<Vec<u8>, i64>,
    markers: BTreeMap<Vec<u8>, Liveness>,
    cells: BTreeMap<CellPlace, Stored>,
}

fn raise(to: &mut Option<i64>, timestamp: i64) {
    *to = (*to).max(Some(timestamp));
}

impl Held {
    fn put(&mut self, at: Option<&[u8]>, cell: CellRef<'_>) {
        let new = Stored {
            timestamp: cell.timestamp,
            value: cell.value().map(<[u8]>::to_vec),
            expiry: cell.expiry(),
            deleted_at_s: if let CellValue::Dead { deleted_at_s } = cell.value { deleted_at_s } else { 0 },
        };
        let place = (at.map(<[u8]>::to_vec), cell.column, cell.path.map(<[u8]>::to_vec));
        if self.cells.get(&place).is_none_or(|old| new.beats(old)) {
            self.cells.insert(place, new);
        }
    }

    fn mark(&mut self, at: &[u8], new: Liveness) {
        let rank = |l: &Liveness| (l.timestamp, l.expiry.map(|expiry| (expiry.at_s, expiry.ttl_s)));
        if self.markers.get(at).is_none_or(|old| rank(&new) > rank(old)) {
            self.markers.insert(at.to_vec(), new);
        }
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Row(row) => {
                let at = row.clustering();
                row.marker().into_iter().for_each(|marker| self.mark(at, marker));
                row.cells().for_each(|cell| self.put(Some(at), cell));
                if let Some(deletion) = row.deletion() {
                    let deleted = self.rows_deleted.entry(at.to_vec()).or_insert(i64::MIN);
                    *deleted = deletion.timestamp.max(*deleted);
                }
            }
            Change::Static(row) => row.cells().for_each(|cell| self.put(None, cell)),
            Change::DeletePartition(deletion) => raise(&mut self.deleted, deletion.timestamp),
            Change::DeleteRange { start, end, deletion } => {
                self.ranges.push((start.clone(), end.clone(), deletion.timestamp));
            }
        }
    }

    /// Returns the timestamp of the newest deletion that covers a row, or the static cells.
    fn deleted(&self, at: Option<&[u8]>) -> Option<i64> {
        let mut deleted = self.deleted;
        let Some(at) = at else { return deleted };
        self.rows_deleted.get(at).into_iter().for_each(|timestamp| raise(&mut deleted, *timestamp));
        for (start, end, timestamp) in &self.ranges {
            if (start.clone(), end.clone()).contains(&Bytes::copy_from_slice(at)) {
                raise(&mut deleted, *timestamp);
            }
        }
        deleted
    }

    fn live_cells(&self, at: Option<&[u8]>, now_s: u32) -> Vec<SeenCell> {
        let deleted = self.deleted(at);
        let mut seen = Vec::new();
        for ((row, column, path), cell) in &self.cells {
            if row.as_deref() != at || deleted.is_some_and(|deleted| cell.timestamp <= deleted) {
                continue;
            }
            // The tombstone of the whole collection. A deletion that shadows it would shadow the
            // element too.
            let whole = self.cells.get(&(row.clone(), *column, None)).filter(|whole| whole.value.is_none());
            if path.is_some() && whole.is_some_and(|whole| cell.timestamp <= whole.timestamp) {
                continue;
            }
            if let Some(value) = &cell.value
                && cell.expiry.is_none_or(|expiry| expiry.at_s > now_s)
            {
                seen.push((*column, path.clone(), cell.timestamp, value.clone(), cell.expiry));
            }
        }
        seen
    }

    fn live_marker(&self, at: &[u8], now_s: u32) -> Option<Liveness> {
        let marker = *self.markers.get(at)?;
        let shadowed = self.deleted(Some(at)).is_some_and(|deleted| marker.timestamp <= deleted);
        let expired = marker.expiry.is_some_and(|expiry| expiry.at_s <= now_s);
        (!shadowed && !expired).then_some(marker)
    }

    fn see(&self, now_s: u32) -> Seen {
        let with_cells = self.cells.keys().filter_map(|(row, _, _)| row.as_ref());
        let places: BTreeSet<&Vec<u8>> = with_cells.chain(self.markers.keys()).collect();
        let row = |at: &Vec<u8>| {
            let marker = self.live_marker(at, now_s);
            let cells = self.live_cells(Some(at), now_s);
            (marker.is_some() || !cells.is_empty()).then(|| (Bytes::from(at.clone()), marker, cells))
        };
        Seen { statics: self.live_cells(None, now_s), rows: places.into_iter().filter_map(row).collect() }
    }
}

/// Partitions by table, token and key.
#[derive(Clone, Debug, Default)]
pub(super) struct Store(BTreeMap<(TableId, i64, Bytes), Held>);

impl Store {
    pub(super) fn apply(&mut self, mutations: &[Mutation]) {
        for mutation in mutations {
            let place = (mutation.table, mutation.token, mutation.key.clone());
            let held = self.0.entry(place).or_default();
            mutation.changes.iter().for_each(|change| held.change(change));
        }
    }

    pub(super) fn truncate(&mut self, table: TableId) {
        self.0.retain(|(own, _, _), _| *own != table);
    }

    /// Deletes a table's partitions whose tokens match.
    pub(super) fn truncate_where(&mut self, table: TableId, tokens: impl Fn(i64) -> bool) {
        self.0.retain(|(own, token, _), _| *own != table || !tokens(*token));
    }

    pub(super) fn see(&self, table: TableId, token: i64, key: &Bytes, now_s: u32) -> Seen {
        self.0.get(&(table, token, key.clone())).map(|held| held.see(now_s)).unwrap_or_default()
    }

    /// Returns the live partitions of a table, in order.
    pub(super) fn scan(&self, table: TableId, now_s: u32) -> Vec<(i64, Bytes, Seen)> {
        let own = self.0.iter().filter(|((own, _, _), _)| *own == table);
        let seen = own.map(|((_, token, key), held)| (*token, key.clone(), held.see(now_s)));
        seen.filter(|(_, _, seen)| *seen != Seen::default()).collect()
    }
}
