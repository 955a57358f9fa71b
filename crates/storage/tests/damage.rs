//! Damage to the files of a real folder: a start refuses or reports it, and removes nothing. The
//! simulated disk has every file and every position (`src/tests/file_kinds.rs`).
#![expect(clippy::disallowed_methods, reason = "damages files, outside the lanes")]

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use lanes::{Group, Lanes};
use storage::{CellRef, EventSink, Pick, RowBuilder, Shard, StorageOptions, TableId};
use testkit::Folder;

const TABLE: TableId = TableId(1 << 64);
const ROWS: u64 = 40;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let to = to.join(path.file_name().expect("a name"));
        if path.is_dir() { copy(&path, &to) } else { fs::copy(&path, &to).map(|_| ()).expect("copied") }
    }
}

async fn put(shard: &Rc<Shard>, number: u64) {
    let key = number.to_be_bytes();
    let mut row = RowBuilder::new(&key, &[], 1);
    row.push(CellRef::live(0, 1, &[number as u8; 2000]));
    shard.put(TABLE, number as i64, &key, &row.draft()).expect("accepted").await.expect("durable");
}

/// Fills a folder, and copies it to `older` and `crashed` as it is at two moments.
fn fill(lanes: &Lanes, dir: &Path, older: &Path, crashed: &Path) {
    let dir = dir.to_owned();
    let older = older.to_owned();
    let crashed = crashed.to_owned();
    lanes.block_on(0, Group::CONTROL, move || async move {
        let options = StorageOptions { segment_bytes: 64 << 10, ..StorageOptions::in_dir(&dir, 0, 1) };
        let shard = Shard::open(options).await.expect("opens");
        for number in 0..ROWS / 2 {
            put(&shard, number).await;
        }
        shard.flush_all().await.expect("flushed");
        put(&shard, ROWS / 2).await;
        copy(&dir, &older);
        for number in ROWS / 2 + 1..ROWS {
            put(&shard, number).await;
        }
        // The mark states about once a second what is durable. An edit of the manifest follows.
        let marked = |dir: &Path| fs::read(dir.join("marks/shard-0000")).expect("there");
        let before = marked(&dir);
        while marked(&dir) == before {
            put(&shard, ROWS - 1).await;
            lanes::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        shard.truncate(TableId(2 << 64)).await.expect("truncated");
        copy(&dir, &crashed);
        shard.shutdown().await.expect("closes");
    });
}

/// Opens a folder. Returns the first error, of the start or of a read, and the reported events.
fn start(lanes: &Lanes, dir: &Path) -> (Option<String>, Vec<String>) {
    let events: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = events.clone();
    let event_sink = EventSink::new(move |event| {
        if event.is_bad() {
            sink.lock().expect("whole").push(event.to_string());
        }
    });
    let options = StorageOptions { segment_bytes: 64 << 10, event_sink, ..StorageOptions::in_dir(dir, 0, 1) };
    let error = lanes.block_on(0, Group::CONTROL, move || async move {
        let shard = match Shard::open(options).await {
            Ok(shard) => shard,
            Err(error) => return Some(error.to_string()),
        };
        let mut failed = None;
        for number in 0..ROWS {
            let key = number.to_be_bytes();
            match shard.read_row(TABLE, number as i64, &key, &[], Pick::ALL, 0).wait().await {
                Ok(row) => assert!(row.is_some(), "row {number} is lost in silence"),
                Err(error) => failed = Some(error.to_string()),
            }
        }
        shard.shutdown().await.expect("closes");
        failed
    });
    let events = events.lock().expect("whole").clone();
    (error, events)
}

/// Returns a file of each kind: the segment is one with records that are not flushed.
fn files(dir: &Path) -> Vec<PathBuf> {
    let within = |folder: &str, end: &str| -> Vec<PathBuf> {
        let all = fs::read_dir(dir.join(folder)).expect("there").map(|entry| entry.expect("an entry").path());
        all.filter(|path| path.to_string_lossy().ends_with(end)).collect()
    };
    let last = [ROWS as u8 - 1; 500];
    let has_last = |path: &PathBuf| fs::read(path).expect("there").windows(500).any(|bytes| bytes == last);
    let segment = within("shard-0000/log", ".log").into_iter().find(has_last).expect("it was written");
    let mut files = vec![dir.join("shard-0000/manifest"), segment, dir.join("shards")];
    files.extend(within("shard-0000/tables", ".table"));
    files
}

#[test]
fn damage_to_real_files_is_refused_or_reported() {
    let folder = Folder::new("whole");
    let older = Folder::new("older");
    let crashed = Folder::new("crashed");
    let lanes = testkit::start_lanes(1);
    fill(&lanes, &folder, &older, &crashed);
    let (error, events) = {
        let dir = Folder::new("undamaged");
        copy(&crashed, &dir);
        start(&lanes, &dir)
    };
    assert_eq!((error, events), (None, Vec::new()), "without damage");
    for path in files(&crashed) {
        let below = path.strip_prefix(&*crashed).expect("in the folder").to_owned();
        let whole = fs::read(&path).expect("there");
        let mut contents = vec![Some(Vec::new()), None];
        contents.extend(
            [whole.len() / 2, whole.len() - 512.min(whole.len() / 3)].map(|end| Some(whole[..end].to_vec())),
        );
        contents.extend(fs::read(older.join(&below)).ok().filter(|older| *older != whole).map(Some));
        for content in contents {
            let what = format!(
                "{} with {:?} of {} bytes",
                below.display(),
                content.as_ref().map(Vec::len),
                whole.len()
            );
            let dir = Folder::new("damaged");
            copy(&crashed, &dir);
            let damaged = dir.join(&below);
            match &content {
                Some(bytes) => fs::write(&damaged, bytes).expect("written"),
                None => fs::remove_file(&damaged).expect("removed"),
            }
            let before = files_in(&dir);
            let (error, events) = start(&lanes, &dir);
            let error = error.unwrap_or_else(|| panic!("{what}: nothing was noticed, {events:?}"));
            assert!(
                error.contains(&*dir.to_string_lossy()) && error.contains("restore a snapshot"),
                "{what}: {error}"
            );
            let after = files_in(&dir);
            let is_table = |path: &&PathBuf| path.extension().is_some_and(|end| end == "table");
            let gone: Vec<_> = before.iter().filter(is_table).filter(|path| !after.contains(path)).collect();
            assert!(gone.is_empty(), "{what}: {gone:?}");
        }
    }
    lanes.shutdown();
}

/// Returns all files below a folder, as paths below it.
fn files_in(dir: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}
