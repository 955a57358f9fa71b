//! Comparison of a shard with the model, by every kind of read.

use super::model::Store;
use super::*;

/// Number of keys in use.
pub(super) const KEYS: u64 = 10;

pub(super) fn differs<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}:\n found {found:?}\nwanted {wanted:?}")) }
}

/// Compares all tables of a shard with the model. Errors of the shard count as differences.
pub(super) async fn compare(
    shard: &Rc<Shard>,
    store: &Store,
    tables: u64,
    random: &mut Random,
    now_s: u32,
) -> Result<(), String> {
    for table in (0..tables).map(|id| TableId(u128::from(id))) {
        for number in 0..KEYS {
            let (token, key) = key(number);
            let wanted = store.see(table, token, &key, now_s);
            partition(shard, table, token, &key, &wanted, random, now_s).await?;
            rows(shard, table, token, &key, &wanted, random, now_s).await?;
        }
        scan(shard, store, table, random, now_s).await?;
    }
    Ok(())
}

pub(super) async fn partition(
    shard: &Rc<Shard>,
    table: TableId,
    token: i64,
    key: &Bytes,
    wanted: &Seen,
    random: &mut Random,
    now_s: u32,
) -> Result<(), String> {
    let what = format!("{table:?} {key:?}");
    let read = shard.read_partition(table, token, key, now_s).wait().await;
    let Some(view) = read.map_err(|error| format!("{what}: {error}"))? else {
        return differs(&what, &Seen::default(), wanted);
    };
    differs(&what, &seen(&view), wanted)?;
    differs(&what, view.is_empty(), *wanted == Seen::default())?;
    let edge = |random: &mut Random| Bytes::from(vec![random.below(20) as u8]);
    let (start, end) = (bound(random, edge), bound(random, edge));
    for reversed in [false, true] {
        let inside = |at: &Bytes| std::ops::RangeBounds::contains(&(start.clone(), end.clone()), at);
        let mut rows: Vec<_> = wanted.rows.iter().map(|row| row.0.clone()).filter(inside).collect();
        if reversed {
            rows.reverse();
        }
        let slice = view.range(start.as_ref().map(|b| &b[..]), end.as_ref().map(|b| &b[..]), reversed);
        let found = slice.map(|row| Bytes::copy_from_slice(row.clustering())).collect();
        differs(&format!("{what} from {start:?} to {end:?}, reversed {reversed}"), found, rows)?;
    }
    Ok(())
}

/// Returns a random bound.
pub(super) fn bound(random: &mut Random, edge: impl Fn(&mut Random) -> Bytes) -> Bound<Bytes> {
    match random.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(edge(random)),
        _ => Bound::Excluded(edge(random)),
    }
}

pub(super) async fn rows(
    shard: &Rc<Shard>,
    table: TableId,
    token: i64,
    key: &Bytes,
    wanted: &Seen,
    random: &mut Random,
    now_s: u32,
) -> Result<(), String> {
    let other = Bytes::from(vec![random.below(20) as u8]);
    for at in wanted.rows.iter().map(|row| &row.0).chain([&other, &Bytes::new()]) {
        let what = format!("{table:?} {key:?} row {at:?}");
        let read = shard.read_row(table, token, key, at, Pick::ALL, now_s).wait().await;
        let row = read.map_err(|error| format!("{what}: {error}"))?;
        let wanted = wanted.rows.iter().find(|row| row.0 == *at);
        let found = row.as_ref().map(|row| (row.liveness(), row.cells().map(seen_cell).collect()));
        differs(&what, found, wanted.map(|(_, marker, cells)| (*marker, cells.clone())))?;
        let columns: Vec<u32> = (0..5).filter(|_| random.below(3) == 0).collect();
        let pick = Pick { columns: Some(&columns), bypass_cache: random.below(2) == 0 };
        let read = shard.read_row(table, token, key, at, pick, now_s).wait().await;
        picked(format!("{what} by columns {columns:?}"), &columns, read, wanted)?;
        let (Some(row), Some((_, _, cells))) = (row, wanted) else { continue };
        for column in 0..4 {
            let of_column = |path: bool| {
                let own = move |cell: &&SeenCell| cell.0 == column && cell.1.is_some() == path;
                cells.iter().filter(own).cloned().collect::<Vec<_>>()
            };
            let simple: Vec<_> = row.cell(column).map(seen_cell).into_iter().collect();
            let what = format!("{what} column {column}");
            differs(&what, simple, of_column(false))?;
            differs(&what, row.elements(column).map(seen_cell).collect(), of_column(true))?;
        }
    }
    Ok(())
}

/// Compares a row that was read by some of its columns. It exists if any of its columns is live.
fn picked(
    what: String,
    columns: &[u32],
    read: Result<Option<RowView>, StorageError>,
    wanted: Option<&(Bytes, Option<Liveness>, Vec<SeenCell>)>,
) -> Result<(), String> {
    let row = read.map_err(|error| format!("{what}: {error}"))?;
    let own = |cell: &SeenCell| columns.contains(&cell.0);
    let found = row.map(|row| row.cells().map(seen_cell).filter(|cell| own(cell)).collect::<Vec<_>>());
    let wanted = wanted.map(|(_, _, cells)| cells.iter().filter(|cell| own(cell)).cloned().collect());
    differs(&what, found, wanted)
}

/// Scans a range of tokens in pages.
async fn scan(
    shard: &Rc<Shard>,
    store: &Store,
    table: TableId,
    random: &mut Random,
    now_s: u32,
) -> Result<(), String> {
    let tokens = match random.below(3) {
        0 => key(random.below(KEYS)).0..=key(KEYS).0,
        _ => i64::MIN..=i64::MAX,
    };
    let mut wanted = store.scan(table, now_s);
    wanted.retain(|(token, _, _)| tokens.contains(token));
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let mut scan = shard.scan(table, tokens.clone(), after.take(), now_s);
        for _ in 0..1 + random.below(6) {
            let next = scan.next().await.map_err(|error| format!("scan of {table:?}: {error}"))?;
            let Some((token, key, view)) = next else {
                return differs(&format!("scan of {table:?} over {tokens:?}"), found, wanted);
            };
            found.push((token, key.clone(), seen(&view)));
            after = Some((token, key));
        }
    }
}
