//! Every kind of file × every kind of damage: cut at each block and some bytes off, emptied,
//! removed, replaced by an older copy, swapped with another shard's. A start refuses, contains the
//! damage, or moves the file aside, or everything acknowledged is there. Nothing that may hold
//! acknowledged data is removed. The outcomes are the table in `docs/troubleshooting.md`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;

use schema::Sharding;

use super::*;
use crate::log::replay::Replay;
use crate::manifest::layout::Layout;
use crate::recovery::check::check_in;
use crate::recovery::shard_files::read_manifest;
use crate::table::file::table_name;

const USERS: TableId = TableId(1 << 64);
const SYSTEM: TableId = TableId(1);
const SHARDS: u32 = 2;
/// Rows of each table.
const ROWS: u64 = 48;
/// Marks around the table in the document.
const BEGIN: &str = "<!-- damage: begin -->\n";
const END: &str = "<!-- damage: end -->";

fn sizes() -> StorageOptions {
    let table = TableOptions { block_bytes: 512, fragment_bytes: 1 << 20, ..TableOptions::default() };
    StorageOptions { memtable_bytes_max: 1 << 20, segment_bytes: 24 << 10, table, ..options() }
}

fn place(table: TableId, number: u64) -> (usize, i64, [u8; 8]) {
    let token = (number as i64).wrapping_mul(0x1e37_79b9_7f4a_7c15);
    let sharding = Sharding { shards: SHARDS, ignore_msb: IGNORE_MSB };
    let shard = if table == SYSTEM { 0 } else { sharding.shard_of(token) as usize };
    (shard, token, number.to_be_bytes())
}

fn put(shards: &[Rc<Shard>], numbers: std::ops::Range<u64>) {
    for (number, table) in numbers.flat_map(|number| [(number, USERS), (number, SYSTEM)]) {
        let (shard, token, key) = place(table, number);
        let mut row = RowBuilder::new(&key, &[], 1);
        row.push(CellRef::live(0, 1, &[number as u8; 100]));
        block_on(shards[shard].put(table, token, &key, &row.draft()).expect("accepted")).expect("durable");
    }
}

/// Opens all shards. Returns the first error.
fn open_shards(sim: &Arc<Sim>, options: &StorageOptions) -> Result<Vec<Rc<Shard>>, StorageError> {
    (0..SHARDS).map(|shard| open(sim, &StorageOptions { shard, shards: SHARDS, ..options.clone() })).collect()
}

/// Contents of a disk, by path.
type Contents = BTreeMap<PathBuf, Bytes>;

/// A data folder without damage.
struct Base {
    files: Contents,
    /// Earlier contents, oldest first.
    earlier: Vec<Contents>,
    /// Table files and log segments that a start needs.
    needed: BTreeSet<PathBuf>,
}

fn needed(sim: &Arc<Sim>) -> BTreeSet<PathBuf> {
    let mut needed = BTreeSet::new();
    for shard in 0..SHARDS {
        block_on(async {
            let root = Path::new("/data");
            let layout = Layout::read(&**sim, root).await.expect("reads").expect("a data folder");
            let dir = layout.shard_dir(root, shard);
            let manifest = read_manifest(&**sim, &dir, shard, SHARDS).await.expect("reads");
            needed.extend(manifest.files().map(|(_, file)| dir.join("tables").join(table_name(file.id))));
            let mut replay = Replay::open(&**sim, &dir.join("log"), shard, &manifest).await.expect("opens");
            replay.finish().await.expect("nothing is missing");
            needed.extend(replay.found.into_iter().map(|found| found.path));
        });
    }
    needed
}

/// Makes a folder with files of every kind. After a crash it has a log and leftovers, after an
/// orderly stop it has neither. A resharded one was made by one shard.
fn base(sim: &Arc<Sim>, crashed: bool, resharded: bool) -> Base {
    let mut earlier = Vec::new();
    if resharded {
        let shard = open(sim, &sizes()).expect("opens");
        block_on(shard.shutdown()).expect("closed");
        drop_tasks();
        earlier.push(contents(sim).into_iter().collect::<Contents>());
    }
    let mut shards = open_shards(sim, &sizes()).expect("opens");
    let step_on = || (0..60).for_each(|_| step());
    for numbers in [0..8, 8..16, 16..24] {
        put(&shards, numbers);
        shards.iter().for_each(|shard| block_on(shard.flush_all()).expect("flushed"));
        earlier.push(contents(sim).into_iter().collect::<Contents>());
    }
    for table in [USERS, SYSTEM] {
        shards.iter().for_each(|shard| block_on(shard.compact_all(table)).expect("compacted"));
    }
    put(&shards, 24..26);
    earlier.push(contents(sim).into_iter().collect());
    let before = &earlier[earlier.len() - 2];
    let removed: Contents = before.iter().filter(|(path, _)| is_table(path)).map(own).collect();
    for number in 26..ROWS {
        put(&shards, number..number + 1);
        step_on();
        earlier.push(contents(sim).into_iter().collect());
    }
    if !crashed {
        shards.iter().for_each(|shard| block_on(shard.shutdown()).expect("closed"));
    }
    shards.clear();
    drop_tasks();
    let mut files: Contents = contents(sim).into_iter().collect();
    if crashed {
        // A crash may lose the removal of files that were compacted.
        let gone: Vec<_> = removed.into_iter().filter(|(path, _)| !files.contains_key(path)).collect();
        assert!(gone.len() >= 4, "files of both shards were compacted");
        files.extend(gone);
    }
    set(sim, &files);
    let needed = needed(sim);
    drop_tasks();
    Base { files, earlier, needed }
}

fn own<'a>((path, bytes): (&'a PathBuf, &'a Bytes)) -> (PathBuf, Bytes) {
    (path.clone(), bytes.clone())
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "table")
}

fn set(sim: &Sim, files: &Contents) {
    restore(sim, &files.iter().map(own).collect::<Vec<_>>());
}

/// Kinds of files, in the order of the table.
const KINDS: [&str; 8] = [
    "`shards`",
    "`manifest`",
    "`marks/…`",
    "table file",
    "table file, not in use",
    "log segment",
    "log segment, not in use",
    "`reserve`",
];

fn kind(base: &Base, path: &Path) -> usize {
    let name = path.file_name().expect("named").to_string_lossy().into_owned();
    let in_folder = |folder: &str| path.parent().is_some_and(|parent| parent.ends_with(folder));
    match () {
        () if name == "shards" => 0,
        () if name == "manifest" => 1,
        () if in_folder("marks") => 2,
        () if in_folder("tables") => 4 - usize::from(base.needed.contains(path)),
        () if in_folder("log") => 6 - usize::from(base.needed.contains(path)),
        () if name == "reserve" => 7,
        () => panic!("{path:?} is of no known kind"),
    }
}

/// Kinds of damage, in the order of the table.
const DAMAGES: [&str; 5] = ["cut", "emptied", "removed", "older copy", "swapped"];

/// Returns all damages to a file: the kind of each, and the damaged folder.
fn damages(base: &Base, path: &PathBuf) -> Vec<(usize, Contents)> {
    let bytes = &base.files[path];
    let with = |bytes: Option<Bytes>| {
        let mut files = base.files.clone();
        match bytes {
            Some(bytes) => drop(files.insert(path.clone(), bytes)),
            None => drop(files.remove(path)),
        }
        files
    };
    let mut all = Vec::new();
    // A sector for manifests and table files, a block for the log and marks.
    let unit = if path.ends_with("manifest") || is_table(path) { 512 } else { 4096 };
    let edges = (0..bytes.len()).step_by(unit).flat_map(|at| [at, at + 1, at + 300, at + unit - 1]);
    let ends: BTreeSet<usize> =
        edges.chain(bytes.len().checked_sub(1)).filter(|end| (1..bytes.len()).contains(end)).collect();
    all.extend(ends.into_iter().map(|end| (0, with(Some(bytes.slice(..end))))));
    if !bytes.is_empty() {
        all.push((1, with(Some(Bytes::new()))));
    }
    all.push((2, with(None)));
    let older: BTreeSet<&Bytes> =
        base.earlier.iter().filter_map(|files| files.get(path)).filter(|older| *older != bytes).collect();
    all.extend(older.into_iter().map(|older| (3, with(Some(older.clone())))));
    let shard = |path: &Path| path.to_string_lossy().contains("shard-0001");
    let is_other = |other: &&PathBuf| kind(base, other) == kind(base, path) && shard(other) && !shard(path);
    for other in base.files.keys().filter(is_other) {
        let mut files = with(Some(base.files[other].clone()));
        files.insert(other.clone(), bytes.clone());
        all.push((4, files));
    }
    all
}

/// Outcomes, the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum DamageOutcome {
    Refused,
    Contained,
    Aside,
    Remade,
    Harmless,
}

const OUTCOMES: [&str; 5] = ["refused", "contained", "aside", "remade", "harmless"];

/// Reads all rows. Returns the outcome of a start that succeeded.
fn read_all(shards: &[Rc<Shard>], events: &[Event]) -> Result<DamageOutcome, String> {
    let mut failed = 0;
    for (number, table) in (0..ROWS).flat_map(|number| [(number, USERS), (number, SYSTEM)]) {
        let (shard, token, key) = place(table, number);
        let row = block_on(shards[shard].read_row(table, token, &key, &[], Pick::ALL, 0).wait());
        match row {
            Ok(Some(_)) => {}
            Ok(None) => return Err(format!("row {number} of {table:?} is lost in silence")),
            Err(error) if error.to_string().contains(".table is damaged") => failed += 1,
            Err(error) => return Err(error.to_string()),
        }
    }
    let has = |is: fn(&Event) -> bool| events.iter().any(is);
    match () {
        () if has(|event| matches!(event, Event::FileDamaged { .. })) => Ok(DamageOutcome::Contained),
        () if failed > 0 => Err(format!("{failed} rows cannot be read, and the start did not notice")),
        () if has(|event| matches!(event, Event::MarkLost { .. })) => Ok(DamageOutcome::Remade),
        () if has(|event| matches!(event, Event::MovedAside { .. })) => Ok(DamageOutcome::Aside),
        () => Ok(DamageOutcome::Harmless),
    }
}

/// Starts on a damaged folder.
///
/// # Errors
/// The start loses anything without an error, or the check does not find what the start finds.
fn outcome(sim: &Arc<Sim>, base: &Base, damaged: &Contents) -> Result<DamageOutcome, String> {
    set(sim, damaged);
    let checked = block_on(check_in(&**sim, Path::new("/data"), |_| ()));
    let found = checked.as_ref().map_or(1, |all| all.iter().map(|shard| shard.damages_count).sum());
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let sink = events.clone();
    let event_sink = EventSink::new(move |event| sink.lock().expect("whole").push(event.clone()));
    let opened = open_shards(sim, &StorageOptions { event_sink, ..sizes() });
    let outcome = match &opened {
        Err(error @ StorageError::Corrupt { .. }) if error.to_string().contains("/data/") => {
            DamageOutcome::Refused
        }
        Err(error) => return Err(error.to_string()),
        Ok(shards) => read_all(shards, &events.lock().expect("whole"))?,
    };
    if (found > 0) != (outcome < DamageOutcome::Harmless) {
        return Err(format!("{outcome:?}, and the check found {checked:?}"));
    }
    drop(opened);
    drop_tasks();
    let left: BTreeSet<Bytes> = contents(sim).into_iter().map(|(_, bytes)| bytes).collect();
    let is_data = |path: &Path| is_table(path) || path.extension().is_some_and(|end| end == "log");
    for (path, bytes) in damaged.iter().filter(|(path, _)| is_data(path)) {
        // A swap gives what is needed the name of something that is not.
        let was_needed = base.needed.iter().any(|needed| base.files[needed] == *bytes);
        if !left.contains(bytes) && (was_needed || base.needed.contains(path)) {
            return Err(format!("{outcome:?}, and {path:?} of {} bytes is gone", bytes.len()));
        }
    }
    Ok(outcome)
}

/// Returns the rows of the table: for each kind of file the outcomes of each damage.
fn run(bases: &[(Arc<Sim>, Base)]) -> Vec<Vec<BTreeSet<DamageOutcome>>> {
    let mut failures = Vec::new();
    let mut table = vec![vec![BTreeSet::new(); DAMAGES.len()]; KINDS.len()];
    for (sim, base) in bases {
        for path in base.files.keys() {
            let kind = kind(base, path);
            for (number, (damage, files)) in damages(base, path).into_iter().enumerate() {
                let bytes = files.get(path).map(Bytes::len);
                let what = format!("{}, {} {number} of {path:?}: {bytes:?}", KINDS[kind], DAMAGES[damage]);
                match outcome(sim, base, &files) {
                    Ok(outcome) => drop(table[kind][damage].insert(outcome)),
                    Err(failure) => failures.push(format!("{what}: {failure}")),
                }
                drop_tasks();
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    table
}

fn render(table: &[Vec<BTreeSet<DamageOutcome>>]) -> String {
    let mut text = format!("| file | {} |\n|---|{}\n", DAMAGES.join(" | "), "---|".repeat(DAMAGES.len()));
    for (kind, row) in KINDS.iter().zip(table) {
        let cell = |outcomes: &BTreeSet<DamageOutcome>| {
            let names: Vec<_> = outcomes.iter().map(|outcome| OUTCOMES[*outcome as usize]).collect();
            if names.is_empty() { "–".to_owned() } else { names.join(", ") }
        };
        writeln!(text, "| {kind} | {} |", row.iter().map(cell).collect::<Vec<_>>().join(" | "))
            .expect("text");
    }
    text
}

#[test]
fn damage_of_every_kind_to_every_file_is_found() {
    let bases = [(true, false), (true, true), (false, false)].map(|(crashed, resharded)| {
        let sim = Arc::new(Sim::new(if crashed { 2 } else { 4 }));
        let base = base(&sim, crashed, resharded);
        (sim, base)
    });
    for (sim, base) in &bases {
        assert_eq!(outcome(sim, base, &base.files), Ok(DamageOutcome::Harmless));
    }
    let text = render(&run(&bases));
    let document = include_str!("../../../../docs/troubleshooting.md");
    let there = document.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    let (there, _) = there.expect("docs/troubleshooting.md has the table between its marks");
    assert!(
        there == text,
        "docs/troubleshooting.md has another table between its marks than this run:\n\n{text}"
    );
}

/// The window that no other file can close at no cost for a write: the mark states what is durable
/// once a second.
#[test]
fn older_copy_of_the_log_loses_at_most_what_no_mark_states() {
    let sim = Arc::new(Sim::new(6));
    let shards = open_shards(&sim, &sizes()).expect("opens");
    put(&shards, 0..3);
    (0..60).for_each(|_| step());
    let copy: Contents =
        contents(&sim).into_iter().filter(|(path, _)| path.to_string_lossy().contains("/log/")).collect();
    put(&shards, 3..4);
    let early: Contents = contents(&sim).into_iter().collect();
    (0..60).for_each(|_| step());
    let late: Contents = contents(&sim).into_iter().collect();
    drop(shards);
    drop_tasks();
    let start = |mut files: Contents| {
        files.extend(copy.clone());
        set(&sim, &files);
        let opened = open_shards(&sim, &sizes()).map(drop);
        drop_tasks();
        opened
    };
    start(early).expect("an earlier state of the last second, which nothing tells from a crash");
    let error = start(late).expect_err("the mark states that a record is missing").to_string();
    assert!(
        error.contains("which were durable, are missing: the log was cut, or is an older copy"),
        "{error}"
    );
}

/// Unfinished files of crashes must not accumulate.
#[test]
fn leftovers_of_crashes_are_removed_and_nothing_is_moved_aside() {
    let sim = Arc::new(Sim::new(8));
    for round in 0..12 {
        let shards = open_shards(&sim, &sizes()).expect("opens");
        put(&shards, round * 4..round * 4 + 4);
        sim.disk.crash_at(sim.disk.steps() + 4 + 3 * round);
        let flushes = async {
            for shard in &shards {
                shard.flush_all().await.expect("flushed");
            }
        };
        crate::sim::run(&sim, flushes);
        drop(shards);
        sim.crash();
    }
    drop(open_shards(&sim, &sizes()).expect("opens"));
    drop_tasks();
    let needed = needed(&sim);
    let tables: BTreeSet<PathBuf> = sim.disk.files().into_iter().filter(|path| is_table(path)).collect();
    assert!(tables.is_subset(&needed), "{tables:?} and {needed:?}");
    assert!(!sim.disk.files().iter().any(|path| path.starts_with("/data/aside")));
}
