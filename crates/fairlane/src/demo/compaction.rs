//! The space that a major compaction needs: a table of many fragments, every row of it written twice, merged into one run, while
//! the space of its files is looked at twenty times a second. No server and no client: the engine alone, in this process.
//!
//! ```text
//!   1. every row is written, and everything is merged: the table is one run
//!   2. every row is written again, and flushed: the table has its old run, and new ones beside it
//!   3. everything is merged while the space is watched
//! ```
//!
//! The table's options are such that nothing is merged by itself meanwhile.

use std::cell::RefCell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use embedded::Embedded;
use engine::{Engine, Execution, Outcome as Answer, Plan, Request, Value};
use lanes::{Config, Group, Lanes, Reporter};
use load::StopFlag;
use storage::Options;

use super::DemoError;
use super::figures::{Chapter, Machine, SpacePoint, Window};
use super::metrics::now_s;
use super::server::Folder;

/// What is compared: the strategy's class, its chapter's short name and its title.
pub(super) const STRATEGIES: [(&str, &str, &str); 2] = [
    ("IncrementalCompactionStrategy", "incremental", "Incremental: inputs are freed as output is sealed"),
    ("SizeTieredCompactionStrategy", "size_tiered", "Size-tiered: inputs are freed in the end"),
];

const KEYSPACE: &str =
    "CREATE KEYSPACE demo WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
const INSERT: &str = "INSERT INTO demo.t (k, v) VALUES (?, ?)";

/// What the goal speaks of is a table of so many fragments at least.
const FRAGMENTS_MIN: f64 = 50.0;
/// Bytes of a value: nothing of them compresses, so that the table is as large as it looks.
const VALUE_BYTES: usize = 256;
/// Rows written in one go, between looks at Ctrl-C.
const BATCH: u64 = 10_000;
/// Writes in flight.
const IN_FLIGHT: u64 = 256;
/// As many runs of similar size wait without being merged: more than there are.
const NEVER: u32 = 32;
/// Between two looks at the space.
const LOOK: Duration = Duration::from_millis(50);
/// So long the space is looked at after a merge, until what was removed is free.
const AFTER: Duration = Duration::from_millis(500);

/// Sizes of a run.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    rows: u64,
    fragment_mib: u64,
    memtable_bytes: usize,
}

/// 72 fragments of a MiB: over the fifty that the goal speaks of.
const QUICK: Sizes = Sizes { rows: 250_000, fragment_mib: 1, memtable_bytes: 16 << 20 };
/// The same four times as large.
const FULL: Sizes = Sizes { rows: 1_000_000, fragment_mib: 4, memtable_bytes: 64 << 20 };

thread_local! {
    /// The engine of this demo's lane.
    static ENGINE: RefCell<Option<Rc<Embedded>>> = const { RefCell::new(None) };
}

/// The engine, open on a lane of its own.
struct Store(Lanes);

fn engine() -> Rc<Embedded> {
    ENGINE.with_borrow(Clone::clone).expect("it is open until its store is closed")
}

fn failed(error: impl std::fmt::Display) -> DemoError {
    DemoError::Failed(error.to_string())
}

impl Store {
    fn open(dir: &Path, cores: &[usize], sizes: Sizes) -> Result<Store, DemoError> {
        std::fs::create_dir_all(dir).map_err(failed)?;
        // Stalls of a lane without clients are nobody's; they would only be mixed with the demo's own lines.
        let config = Config {
            cores: cores.to_vec(),
            disk_dir: Some(dir.to_path_buf()),
            reporter: Reporter::new(|_| ()),
            ..Config::detect()
        };
        let store = Store(Lanes::start(config).map_err(failed)?);
        let options = Options { memtable_bytes_max: sizes.memtable_bytes, ..Options::in_dir(dir, 0, 1) };
        let open = move || async move {
            let engine = Embedded::open(options).await.map_err(|error| error.to_string())?;
            ENGINE.set(Some(engine));
            Ok::<(), String>(())
        };
        store.0.block_on(0, Group::CONTROL, open).map_err(DemoError::Failed)?;
        Ok(store)
    }

    fn cql(&self, text: String) -> Result<(), DemoError> {
        let run = move || async move {
            let plan = prepare(&text)?;
            let engine = engine();
            let done = engine.execute(&plan, &Request::EMPTY).outcome(&*engine).await;
            done.map_err(|error| error.to_string())
        };
        self.0.block_on(0, Group::DEFAULT, run).map(|_: Answer| ()).map_err(DemoError::Failed)
    }

    /// Writes every row, with values that follow from `seed`.
    fn fill(&self, rows: u64, seed: u64, stop: &StopFlag) -> Result<(), DemoError> {
        for first in (0..rows).step_by(BATCH as usize) {
            if stop.is_set() {
                return Err(DemoError::Interrupted);
            }
            let keys = first..rows.min(first + BATCH);
            self.0.block_on(0, Group::DEFAULT, move || write(keys, seed)).map_err(DemoError::Failed)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DemoError> {
        let flush = || async { engine().flush().await.map_err(|error| error.to_string()) };
        self.0.block_on(0, Group::CONTROL, flush).map_err(DemoError::Failed)
    }

    /// Merges all of the table.
    fn compact(&self) -> Result<(), DemoError> {
        let merge = || async { engine().compact("demo", "t").await.map_err(|error| error.to_string()) };
        self.0.block_on(0, Group::CONTROL, merge).map_err(DemoError::Failed)
    }

    fn close(self) -> Result<(), DemoError> {
        let shut = || async move {
            let engine = ENGINE.take().expect("it is open");
            engine.shutdown().await.map_err(|error| error.to_string())
        };
        self.0.block_on(0, Group::CONTROL, shut).map_err(DemoError::Failed)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

fn prepare(text: &str) -> Result<Rc<dyn Plan>, String> {
    let statement = cql::parse(text).map_err(|error| error.to_string())?;
    engine().prepare(Rc::new(statement), None).map_err(|error| error.to_string())
}

async fn write(keys: std::ops::Range<u64>, seed: u64) -> Result<(), String> {
    let (engine, plan) = (engine(), prepare(INSERT)?);
    let mut waiting = None;
    let last = keys.end - 1;
    for key in keys {
        let (k, v) = (key.to_be_bytes(), value(key ^ seed));
        let values = [Value::Bytes(&k), Value::Bytes(&v)];
        let execution = engine.execute(&plan, &Request { values: &values, ..Request::EMPTY });
        // Waiting for one write of many waits for those before it.
        match execution {
            Execution::Written(write) => waiting = Some(write),
            other => drop(other.outcome(&*engine).await.map_err(|error| error.to_string())?),
        }
        if key % IN_FLIGHT == 0 || key == last {
            let written = waiting.take().map(Execution::Written);
            if let Some(written) = written {
                written.outcome(&*engine).await.map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}

/// Bytes without any order, by the generator splitmix64.
fn value(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    (0..VALUE_BYTES / 8).flat_map(|_| next().to_le_bytes()).collect()
}

/// The space that table files below a folder take now. A file that goes meanwhile is not counted.
fn space(dir: &Path) -> SpacePoint {
    let (mut bytes, mut files) = (0, 0);
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, Ok(about)) = (entry.path(), entry.metadata()) else { continue };
            if about.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "table") {
                bytes += about.blocks() * 512;
                files += 1;
            }
        }
    }
    SpacePoint { at_s: now_s(), bytes: bytes as f64, files: f64::from(files) }
}

/// Looks at the space, again and again, while something is done and for a moment afterwards.
fn watch(dir: &Path, work: impl FnOnce() -> Result<(), DemoError>) -> Result<Vec<SpacePoint>, DemoError> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let look = || {
            let mut points = vec![space(dir)];
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
                points.push(space(dir));
            }
            points
        };
        let looking = scope.spawn(look);
        let done = work();
        std::thread::sleep(AFTER);
        over.store(true, Ordering::Relaxed);
        let points = looking.join().expect("it only looks");
        done.map(|()| points)
    })
}

/// Without the time in which nothing changed any more, but for its first moments.
fn active(mut points: Vec<SpacePoint>) -> Vec<SpacePoint> {
    let end = points.last().copied().unwrap_or_default();
    let settled = points.iter().rposition(|point| (point.bytes, point.files) != (end.bytes, end.files));
    points.truncate(settled.map_or(points.len(), |last| last + 10));
    points
}

/// What a compaction took beyond what there was before, as a part of that.
pub(super) fn temporary(chapter: &Chapter) -> Option<f64> {
    let before = chapter.space.first()?.bytes;
    let most = chapter.space.iter().map(|point| point.bytes).fold(0.0, f64::max);
    (before > 0.0).then(|| most / before - 1.0)
}

struct Experiment<'a> {
    dir: PathBuf,
    cores: &'a [usize],
    sizes: Sizes,
    strategy: &'a str,
    stop: &'a StopFlag,
}

impl Experiment<'_> {
    fn table(&self) -> String {
        // Only one of the strategies knows of fragments.
        let fragments = match self.strategy == STRATEGIES[0].0 {
            true => format!(", 'sstable_size_in_mb': {}", self.sizes.fragment_mib),
            false => String::new(),
        };
        let compaction = format!("{{'class': '{}', 'min_threshold': {NEVER}{fragments}}}", self.strategy);
        format!("CREATE TABLE demo.t (k bigint PRIMARY KEY, v blob) WITH compaction = {compaction}")
    }

    fn run(&self) -> Result<Vec<SpacePoint>, DemoError> {
        let store = Store::open(&self.dir, self.cores, self.sizes)?;
        [KEYSPACE.to_string(), self.table()].into_iter().try_for_each(|text| store.cql(text))?;
        store.fill(self.sizes.rows, 0, self.stop)?;
        store.compact()?;
        store.fill(self.sizes.rows, 1 << 32, self.stop)?;
        store.flush()?;
        let points = watch(&self.dir, || store.compact())?;
        store.close()?;
        Ok(points)
    }
}

/// A table of few fragments says little of one of many: a sentence when it is such a one.
pub(super) fn too_few(chapter: &Chapter) -> Option<String> {
    let files = chapter.space.first().map_or(0.0, |point| point.files);
    (chapter.id == STRATEGIES[0].1 && files < FRAGMENTS_MIN).then(|| {
        format!("Invalid: the table of the incremental strategy had {files:.0} files, not {FRAGMENTS_MIN:.0} fragments or more.")
    })
}

/// Every strategy, one after the other.
pub(super) fn chapters(
    quick: bool,
    machine: &Machine,
    folder: &Folder,
    stop: &StopFlag,
) -> Result<Vec<Chapter>, DemoError> {
    let sizes = if quick { QUICK } else { FULL };
    let mut chapters = Vec::new();
    for (strategy, id, title) in STRATEGIES {
        eprintln!("── {id}: {} rows twice, then everything is merged", sizes.rows);
        let dir = folder.file(id);
        let experiment = Experiment { dir: dir.clone(), cores: &machine.server_cores, sizes, strategy, stop };
        let space = active(experiment.run()?);
        // The next one has the disk to itself.
        std::fs::remove_dir_all(&dir).map_err(failed)?;
        let (begin_s, end_s) = (space.first().map_or(0.0, |p| p.at_s), space.last().map_or(0.0, |p| p.at_s));
        let window = Window {
            id: "compaction".into(),
            label: "compaction".into(),
            begin_s,
            end_s,
            ..Window::default()
        };
        let chapter = Chapter {
            id: id.into(),
            title: title.to_string(),
            what: format!(
                "A table of {} rows of {VALUE_BYTES} bytes that compress to nothing, every row written twice, in files of {} MiB; then all of it \
                 is merged into one run.",
                sizes.rows, sizes.fragment_mib
            ),
            windows: vec![window],
            space,
            ..Chapter::default()
        };
        if let Some(temporary) = temporary(&chapter) {
            eprintln!("   {:.1} % more than before at most", temporary * 100.0);
        }
        chapters.push(chapter);
    }
    Ok(chapters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(bytes: &[f64]) -> Vec<SpacePoint> {
        bytes.iter().map(|bytes| SpacePoint { bytes: *bytes, files: 1.0, ..SpacePoint::default() }).collect()
    }

    #[test]
    fn temporary_space_is_what_came_on_top() {
        let of = |bytes: &[f64]| temporary(&Chapter { space: points(bytes), ..Chapter::default() });
        assert_eq!(of(&[100.0, 150.0, 125.0, 60.0]), Some(0.5));
        assert_eq!(of(&[100.0, 60.0]), Some(0.0));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn few_fragments_are_told() {
        let chapter = |id: &str, files: f64| Chapter {
            id: id.into(),
            space: vec![SpacePoint { files, ..SpacePoint::default() }],
            ..Chapter::default()
        };
        assert!(too_few(&chapter("incremental", 49.0)).expect("few").starts_with("Invalid"));
        assert_eq!(too_few(&chapter("incremental", 50.0)), None);
        assert_eq!(too_few(&chapter("size_tiered", 2.0)), None);
    }

    #[test]
    fn the_rest_after_the_end_is_left_out() {
        let mut all = vec![3.0, 4.0];
        all.extend([2.0; 40]);
        assert_eq!(active(points(&all)).len(), 11);
        assert_eq!(active(points(&[1.0; 5])).len(), 5);
    }

    #[test]
    fn values_differ_and_are_as_long_as_said() {
        assert_eq!(value(1).len(), VALUE_BYTES);
        assert_ne!(value(1), value(2));
    }
}
