//! Demo of the space that a major compaction needs. A table of many fragments with two versions of
//! each row is compacted into one run, and the space of its files is sampled 20 times a second. The
//! engine runs in this process, without a server.
//!
//! 1. Write all rows and compact: the table is one run.
//! 2. Write all rows again and flush: the table has its old run and new ones.
//! 3. Compact, and sample the space.
//!
//! The table's options prevent other compactions.

use std::cell::RefCell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use embedded::Embedded;
use engine::{Engine, Execution, ParsedTree, Plan, Request, StatementOutcome as Answer, Value};
use lanes::{Config, Group, Lanes, Reporter};
use load::StopFlag;
use storage::StorageOptions;

use crate::error::DemoError;
use crate::metrics::now_s;
use crate::results::{Chapter, Machine, SpacePoint, Window};
use crate::server::Folder;

/// Strategies: class, id of the chapter, title.
pub(crate) const STRATEGIES: [(&str, &str, &str); 2] = [
    ("IncrementalCompactionStrategy", "incremental", "Incremental: inputs are freed while output is sealed"),
    ("SizeTieredCompactionStrategy", "size_tiered", "Size-tiered: inputs are freed at the end"),
];

const KEYSPACE: &str =
    "CREATE KEYSPACE demo WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
const INSERT: &str = "INSERT INTO demo.t (k, v) VALUES (?, ?)";

/// Least number of fragments of the table for which the goal is set.
const FRAGMENTS_MIN: f64 = 50.0;
/// Bytes of a value. They are random and do not compress.
const VALUE_BYTES: usize = 256;
/// Rows written between two checks for Ctrl-C.
const BATCH: u64 = 10_000;
/// Writes in flight.
const IN_FLIGHT: u64 = 256;
/// `min_threshold` of the table: more runs than it gets, so that no compaction starts by itself.
const RUNS_MIN: u32 = 32;
/// Interval of samples of the space.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// Sampling time after a compaction, until removed files are freed.
const AFTER: Duration = Duration::from_millis(500);

/// Sizes of a run.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    rows: u64,
    fragment_mib: u64,
    memtable_bytes: usize,
}

/// 72 fragments of 1 MiB, more than [`FRAGMENTS_MIN`].
const QUICK: Sizes = Sizes { rows: 250_000, fragment_mib: 1, memtable_bytes: 16 << 20 };
/// Four times as large.
const FULL: Sizes = Sizes { rows: 1_000_000, fragment_mib: 4, memtable_bytes: 64 << 20 };

thread_local! {
    /// Engine of this demo's lane.
    static ENGINE: RefCell<Option<Rc<Embedded>>> = const { RefCell::new(None) };
}

/// Engine, open on its own lane.
struct Store(Lanes);

fn engine() -> Rc<Embedded> {
    ENGINE.with_borrow(Clone::clone).expect("the engine is open until its store is closed")
}

fn failed(error: impl std::fmt::Display) -> DemoError {
    DemoError::Failed(error.to_string())
}

impl Store {
    fn open(dir: &Path, cores: &[usize], sizes: Sizes) -> Result<Store, DemoError> {
        std::fs::create_dir_all(dir).map_err(failed)?;
        // Reports about stalls do not matter without clients, and would mix with the demo's own
        // lines.
        let config = Config {
            cores: cores.to_vec(),
            disk_dir: Some(dir.to_path_buf()),
            reporter: Reporter::new(|_| ()),
            ..Config::detect()
        };
        let store = Store(Lanes::start(config).map_err(failed)?);
        let options =
            StorageOptions { memtable_bytes_max: sizes.memtable_bytes, ..StorageOptions::in_dir(dir, 0, 1) };
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

    /// Writes all rows, with values derived from `seed`.
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

    /// Runs a major compaction of the table.
    fn compact(&self) -> Result<(), DemoError> {
        let compact = || async { engine().compact("demo", "t").await.map_err(|error| error.to_string()) };
        self.0.block_on(0, Group::CONTROL, compact).map_err(DemoError::Failed)
    }

    fn close(self) -> Result<(), DemoError> {
        let close = || async move {
            let engine = ENGINE.take().expect("the engine is open");
            engine.shutdown().await.map_err(|error| error.to_string())
        };
        self.0.block_on(0, Group::CONTROL, close).map_err(DemoError::Failed)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

fn prepare(text: &str) -> Result<Rc<dyn Plan>, String> {
    let statement = ParsedTree::parse(text).map_err(|error| error.to_string())?;
    engine().prepare(Arc::new(statement), None).map_err(|error| error.to_string())
}

async fn write(keys: std::ops::Range<u64>, seed: u64) -> Result<(), String> {
    let (engine, plan) = (engine(), prepare(INSERT)?);
    let mut waiting = None;
    let last = keys.end - 1;
    for key in keys {
        let (k, v) = (key.to_be_bytes(), value(key ^ seed));
        let values = [Value::Bytes(&k), Value::Bytes(&v)];
        let execution = engine.execute(&plan, &Request { values: &values, ..Request::EMPTY });
        // Waiting for a write also waits for all writes before it.
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

/// Returns random bytes of the generator splitmix64.
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

/// Returns the space of the table files below a folder. Files that are removed meanwhile do not
/// count.
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

/// Samples the space of the table files below a folder during `work` and for [`AFTER`].
pub(crate) fn watch<T>(
    dir: &Path,
    every: Duration,
    work: impl FnOnce() -> Result<T, DemoError>,
) -> Result<(T, Vec<SpacePoint>), DemoError> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sample = || {
            let mut points = vec![space(dir)];
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(every);
                points.push(space(dir));
            }
            points
        };
        let sampling = scope.spawn(sample);
        let result = work();
        std::thread::sleep(AFTER);
        stop.store(true, Ordering::Relaxed);
        let points = sampling.join().expect("sampling does not panic");
        result.map(|found| (found, points))
    })
}

/// Removes the points after the last change, but for ten.
fn without_rest(mut points: Vec<SpacePoint>) -> Vec<SpacePoint> {
    let end = points.last().copied().unwrap_or_default();
    let settled = points.iter().rposition(|point| (point.bytes, point.files) != (end.bytes, end.files));
    points.truncate(settled.map_or(points.len(), |last| last + 10));
    points
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
        // Only the incremental strategy has fragments.
        let fragments = match self.strategy == STRATEGIES[0].0 {
            true => format!(", 'sstable_size_in_mb': {}", self.sizes.fragment_mib),
            false => String::new(),
        };
        let compaction = format!("{{'class': '{}', 'min_threshold': {RUNS_MIN}{fragments}}}", self.strategy);
        format!("CREATE TABLE demo.t (k bigint PRIMARY KEY, v blob) WITH compaction = {compaction}")
    }

    fn run(&self) -> Result<Vec<SpacePoint>, DemoError> {
        let store = Store::open(&self.dir, self.cores, self.sizes)?;
        [KEYSPACE.to_string(), self.table()].into_iter().try_for_each(|text| store.cql(text))?;
        store.fill(self.sizes.rows, 0, self.stop)?;
        store.compact()?;
        store.fill(self.sizes.rows, 1 << 32, self.stop)?;
        store.flush()?;
        let ((), points) = watch(&self.dir, SAMPLE_EVERY, || store.compact())?;
        store.close()?;
        Ok(points)
    }
}

/// Returns a note if the table has fewer fragments than the goal requires.
pub(crate) fn too_few(chapter: &Chapter) -> Option<String> {
    let files = chapter.space.first().map_or(0.0, |point| point.files);
    (chapter.id == STRATEGIES[0].1 && files < FRAGMENTS_MIN).then(|| {
        format!("Invalid: the table of the incremental strategy had {files:.0} files, less than {FRAGMENTS_MIN:.0} \
                 fragments.")
    })
}

/// Measures all strategies.
pub(crate) fn chapters(
    quick: bool,
    machine: &Machine,
    folder: &Folder,
    stop: &StopFlag,
) -> Result<Vec<Chapter>, DemoError> {
    let sizes = if quick { QUICK } else { FULL };
    let mut chapters = Vec::new();
    for (strategy, id, title) in STRATEGIES {
        eprintln!("── {id}: writing {} rows twice, then a major compaction", sizes.rows);
        let dir = folder.file(id);
        let experiment = Experiment { dir: dir.clone(), cores: &machine.server_cores, sizes, strategy, stop };
        let space = without_rest(experiment.run()?);
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
                "A table of {} rows of {VALUE_BYTES} random bytes, each written twice, in files of {} MiB. Then a \
                 major compaction merges all files into one run.",
                sizes.rows, sizes.fragment_mib
            ),
            windows: vec![window],
            space,
            ..Chapter::default()
        };
        if let Some(part) = chapter.temporary_space() {
            eprintln!("   at most {:.1} % more space than before", part * 100.0);
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
    fn few_fragments_are_noted() {
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
    fn points_after_the_last_change_are_removed() {
        let mut all = vec![3.0, 4.0];
        all.extend([2.0; 40]);
        assert_eq!(without_rest(points(&all)).len(), 11);
        assert_eq!(without_rest(points(&[1.0; 5])).len(), 5);
    }

    #[test]
    fn values_differ_and_have_the_configured_length() {
        assert_eq!(value(1).len(), VALUE_BYTES);
        assert_ne!(value(1), value(2));
    }
}
