//! Data folders of earlier versions (see `fixtures/README.md`) are opened, with all that is in
//! them, and continued in the present formats. A folder with another layout version is refused and
//! stays as it is. A table file format that changes without a new version number fails here.
#![expect(clippy::disallowed_methods, reason = "copies folders, outside the lanes")]

use std::fs;
use std::path::Path;

use lanes::Group;
use storage::{CellRef, Shard, StorageOptions, TableId};
use testkit::Folder;

/// A time at which the expiring cells of the fixtures are dead, in Unix seconds.
const NOW_S: u32 = 1_795_260_000;

/// Returns a copy of a fixture.
fn copy_of(fixture: &str) -> Folder {
    let folder = Folder::new("formats");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture), &folder);
    folder
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let to = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).expect("copied");
        }
    }
}

/// Live partitions and rows of each table: the two of the fixtures, and one that does not exist.
const EXPECTED: [(u128, (usize, usize)); 3] = [(1, (40, 40)), (2, (3, 3 * 55)), (9, (0, 0))];

/// Counts the live partitions and rows. Opens the folder twice, as the first start may rewrite it.
fn check_counts(fixture: &'static str) {
    let folder = copy_of(fixture);
    let dir = folder.to_path_buf();
    let lanes = testkit::start_lanes(1);
    lanes.block_on(0, Group::CONTROL, move || async move {
        for start in ["first", "second"] {
            let shard = Shard::open(StorageOptions::in_dir(&dir, 0, 1)).await.expect("it opens");
            for (table, expected) in EXPECTED {
                let (mut partitions, mut rows) = (0, 0);
                let mut scan = shard.scan(TableId(table), i64::MIN..=i64::MAX, None, NOW_S);
                while let Some((_, _, view)) = scan.next().await.expect("it is read") {
                    (partitions, rows) = (partitions + 1, rows + view.rows().count());
                }
                assert_eq!((partitions, rows), expected, "{fixture}, table {table}, {start} start");
            }
            shard.shutdown().await.expect("it closes");
        }
    });
    lanes.shutdown();
}

/// Compares all values with those that `examples/fixture.rs` wrote.
fn check_values(fixture: &'static str) {
    let folder = copy_of(fixture);
    let dir = folder.to_path_buf();
    let lanes = testkit::start_lanes(1);
    lanes.block_on(0, Group::CONTROL, move || async move {
        let shard = Shard::open(StorageOptions::in_dir(&dir, 0, 1)).await.expect("it opens");
        let value = |cell: Option<CellRef<'_>>| cell.and_then(|cell| cell.value().map(<[u8]>::to_vec));
        let mut scan = shard.scan(TableId(1), i64::MIN..=i64::MAX, None, NOW_S);
        while let Some((_, key, view)) = scan.next().await.expect("it is read") {
            let number = u64::from_be_bytes(key[..].try_into().expect("eight bytes"));
            let row = view.get(&[]).expect("a row");
            assert_eq!(value(row.cell(1)), Some((number * 1000).to_be_bytes().to_vec()));
            let text = format!("this is what row {number} says, again and again");
            assert_eq!(value(row.cell(2)), Some(text.into_bytes()));
        }
        let mut scan = shard.scan(TableId(2), i64::MIN..=i64::MAX, None, NOW_S);
        while let Some((_, key, view)) = scan.next().await.expect("it is read") {
            let number = u64::from_be_bytes(key[..].try_into().expect("eight bytes"));
            assert_eq!(value(view.static_cell(7)), Some(format!("static {number}").into_bytes()));
            for row in view.rows() {
                let at = row.clustering()[0];
                assert!(!(5..=9).contains(&at), "row {at} was deleted");
                assert_eq!(value(row.cell(3)), Some(format!("value {number} {at}").into_bytes()));
                assert_eq!((value(row.cell(4)), value(row.cell(5))), (None, None));
                let elements: Vec<_> = row.elements(6).map(|cell| cell.path.map(<[u8]>::to_vec)).collect();
                assert_eq!(elements, [Some(b"a".to_vec()), Some(b"b".to_vec())]);
            }
        }
        shard.shutdown().await.expect("it closes");
    });
    lanes.shutdown();
}

#[test]
fn folder_with_lz4_opens_with_all_values() {
    check_counts("lz4");
    check_values("lz4");
}

#[test]
fn folder_with_zstd_opens_with_all_values() {
    check_counts("zstd");
    check_values("zstd");
}

#[test]
fn folder_with_another_layout_version_is_refused() {
    let folder = copy_of("lz4");
    let list = folder.join("shards");
    let text = fs::read_to_string(&list).expect("it is there").replace("layout 2", "layout 1");
    fs::write(&list, &text).expect("written");
    let dir = folder.to_path_buf();
    let lanes = testkit::start_lanes(1);
    lanes.block_on(0, Group::CONTROL, move || async move {
        let refused =
            Shard::open(StorageOptions::in_dir(&dir, 0, 1)).await.expect_err("another version").to_string();
        assert!(refused.contains("format version 1, expected 2"), "{refused}");
    });
    lanes.shutdown();
    assert_eq!(fs::read_to_string(&list).expect("it is there"), text);
}
