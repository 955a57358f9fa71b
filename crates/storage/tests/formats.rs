//! Folders written by older versions of the program are opened, with all that is in them (see `fixtures/README.md`). Each fixture has
//! table files, records that are in the log only, static columns, times to live, and deletions.
#![expect(clippy::disallowed_methods, reason = "copies folders, outside the lanes")]

use std::fs;
use std::path::{Path, PathBuf};

use lanes::{Config, Group, Lanes};
use storage::{CellRef, Options, Shard, TableId};

/// What the fixtures hold: partitions, rows.
const SIMPLE: (usize, usize) = (25, 25);
const WIDE: (usize, usize) = (4, 31);
const CUT: (usize, usize) = (1, 1);

/// When the fixtures were written, and a time at which what was to live for a second is dead.
const NOW_S: u32 = 1_795_260_000;

struct Folder(PathBuf);

impl Folder {
    /// A copy of a fixture.
    fn of(fixture: &str) -> Folder {
        let name = format!("fairlane-formats-{}-{}", std::process::id(), fixture.replace('/', "-"));
        let folder = Folder(std::env::temp_dir().join(name));
        let _ = fs::remove_dir_all(&folder.0);
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture), &folder.0);
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
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

/// Partitions and rows that are alive, over all shards; opened twice, as the first start may rewrite what it finds.
fn check(fixture: &'static str, shards: u32, tables: [(u128, (usize, usize)); 3]) {
    let folder = Folder::of(fixture);
    let dir = folder.0.clone();
    let lanes = Lanes::start(Config { cores: vec![0], pin: false, ..Config::detect() }).expect("lanes start");
    lanes.block_on(0, Group::CONTROL, move || async move {
        for start in ["first", "second"] {
            let mut found = [(0, 0); 3];
            for shard in 0..shards {
                let shard = Shard::open(Options::in_dir(&dir, shard, shards)).await.expect("it opens");
                for ((table, _), found) in tables.iter().zip(&mut found) {
                    let mut scan = shard.scan(TableId(*table), i64::MIN..=i64::MAX, None, NOW_S);
                    while let Some((_, _, view)) = scan.next().await.expect("it is read") {
                        *found = (found.0 + 1, found.1 + view.rows().count());
                    }
                }
                shard.shutdown().await.expect("it closes");
            }
            assert_eq!(found, tables.map(|(_, expected)| expected), "{fixture}, {start} start");
        }
    });
    lanes.shutdown();
}

#[test]
fn version_1_of_one_shard_killed_while_it_wrote() {
    let simple = 0x3d2d5b08_2b3f_47c8_aa1e_2923f204d8cc;
    let wide = 0x9099ac72_63d1_4588_8c38_9b047d81c6d6;
    let cut = 0xec16196f_ab8b_428f_a271_d49a3cbf1c46;
    check("v1/one", 1, [(simple, SIMPLE), (wide, WIDE), (cut, CUT)]);
}

#[test]
fn version_1_of_two_shards_stopped_in_order() {
    let simple = 0x1f855e94_95bb_45fe_bcbd_48be7d7ed1ae;
    let wide = 0x03481092_528d_4b1f_bce1_be2bee884c30;
    let cut = 0xbe7689d6_eea2_4293_9d4e_ff7b073d8d74;
    check("v1/two", 2, [(simple, SIMPLE), (wide, WIDE), (cut, CUT)]);
}

/// Table files of versions 2 and 3 (see `examples/fixture.rs`), down to the values.
fn check_written(fixture: &'static str) {
    check(fixture, 1, [(1, (40, 40)), (2, (3, 3 * 55)), (9, (0, 0))]);
    let folder = Folder::of(fixture);
    let dir = folder.0.clone();
    let lanes = Lanes::start(Config { cores: vec![0], pin: false, ..Config::detect() }).expect("lanes start");
    lanes.block_on(0, Group::CONTROL, move || async move {
        let shard = Shard::open(Options::in_dir(&dir, 0, 1)).await.expect("it opens");
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
fn table_files_of_version_2() {
    check_written("v2/lz4");
}

#[test]
fn table_files_of_version_3() {
    check_written("v3/zstd");
}
