//! Costs of a change of the number of shards: file names, open files, and the work that ends the
//! sharing.

use super::reshard::{check_all, fill, open_all};
use super::*;

fn close(shards: Vec<Rc<Shard>>) {
    shards.iter().for_each(|shard| block_on(shard.shutdown()).expect("closed"));
    drop(shards);
    drop_tasks();
}

/// Opens shards without compactions, so that files stay as the split made them.
fn open_still(sim: &Arc<Sim>, options: &StorageOptions, count: u32) -> Vec<Rc<Shard>> {
    let table = TableOptions { min_threshold: 64, ..options.table };
    let opened = |shard: u32| {
        let shard =
            open(sim, &StorageOptions { shard, shards: count, table, ..options.clone() }).expect("opens");
        pause_background(&shard, true);
        shard
    };
    (0..count).map(opened).collect()
}

fn files(shards: &[Rc<Shard>]) -> Vec<u64> {
    shards.iter().map(|shard| shard.stats().files).collect()
}

/// Writes a folder with two shards. Returns its contents and the files of each shard.
fn written(sim: &Arc<Sim>) -> (Model, Vec<u64>) {
    let shards = open_still(sim, &options(), 2);
    shards.iter().for_each(|shard| pause_background(shard, false));
    let model = fill(&shards, &mut Random::new(9));
    shards.iter().for_each(|shard| block_on(shard.flush_all()).expect("flushed"));
    let count = files(&shards);
    close(shards);
    (model, count)
}

/// Each file once got sixteen names again.
#[test]
fn returning_shards_have_each_file_once() {
    let sim = Arc::new(Sim::new(1));
    let (model, before) = written(&sim);
    let shards = open_still(&sim, &options(), 16);
    check_all(&shards, &model, 1000, "sixteen shards");
    // A file of one of two shards has tokens of at most eight of sixteen.
    let names: u64 = files(&shards).iter().sum();
    assert!(names <= 8 * before.iter().sum::<u64>(), "{names} names of {before:?} files");
    // A file is open once, whatever number of names it has.
    assert_eq!(sim.shared.open() as u64, before.iter().sum::<u64>());
    close(shards);
    let shards = open_still(&sim, &options(), 2);
    assert_eq!(files(&shards), before);
    check_all(&shards, &model, 1000, "two shards again");
    close(shards);
}

#[test]
fn split_over_the_file_limit_changes_nothing() {
    let sim = Arc::new(Sim::new(2));
    let (model, before) = written(&sim);
    sim.open_files_max.store(256 + before.iter().sum::<u64>() - 1, Ordering::Relaxed);
    let refused = open(&sim, &StorageOptions { shards: 5, ..options() }).unwrap_err();
    assert!(matches!(refused, StorageError::TooManyFiles { folder: 2, asked: 5, .. }), "{refused}");
    drop_tasks();
    let shards = open_still(&sim, &options(), 2);
    assert_eq!(files(&shards), before);
    check_all(&shards, &model, 1000, "as before");
    close(shards);
    sim.open_files_max.store(256 + before.iter().sum::<u64>(), Ordering::Relaxed);
    close(open_still(&sim, &options(), 5));
}

/// `shards` was once replaced before the files that it names were opened.
#[test]
fn split_that_cannot_be_opened_changes_nothing() {
    let sim = Arc::new(Sim::new(3));
    let (model, before) = written(&sim);
    let layout =
        || block_on(crate::manifest::layout::Layout::read(&*sim, &PathBuf::from("/data"))).expect("read");
    // The first of the new names is one too many, after all files were checked.
    sim.table_opens_left.store(before.iter().sum::<u64>(), Ordering::Relaxed);
    let error = open(&sim, &StorageOptions { shards: 3, ..options() }).unwrap_err();
    assert!(error.to_string().contains(".1/tables/"), "{error}");
    drop_tasks();
    assert_eq!(layout().expect("a layout").sharding.shards, 2);
    sim.table_opens_left.store(u64::MAX, Ordering::Relaxed);
    let shards = open_still(&sim, &options(), 2);
    assert_eq!(files(&shards), before);
    check_all(&shards, &model, 1000, "mended");
    close(shards);
}

/// Damage to a file costs its contents, not the start: the new shards contain the damage like the
/// old ones.
#[test]
fn split_keeps_a_damaged_file() {
    for in_footer in [false, true] {
        let sim = Arc::new(Sim::new(5));
        let (model, before) = written(&sim);
        let table = sim.disk.files().into_iter().find(|path| path.extension().is_some_and(|e| e == "table"));
        let table = table.expect("there are files");
        // In the filter or index, which a check of the footer does not find, or in the footer.
        let at = sim.disk.size(&table) - if in_footer { 100 } else { 340 };
        // A name that stays when the old generation is removed.
        let kept = PathBuf::from("/kept/file");
        block_on(sim.disk.create_dir_all(&PathBuf::from("/kept"))).expect("made");
        block_on(sim.disk.hard_link(&table, &kept)).expect("linked");
        sim.disk.flip(&kept, at, 1);
        let shards = open_still(&sim, &options(), 3);
        let damaged =
            |shards: &[Rc<Shard>]| shards.iter().map(|shard| shard.stats().files_damaged).sum::<u64>();
        assert!((1..=3).contains(&damaged(&shards)));
        close(shards);
        let shards = open_still(&sim, &options(), 2);
        assert!(damaged(&shards) >= 1);
        close(shards);
        sim.disk.flip(&kept, at, 1);
        let shards = open_still(&sim, &options(), 2);
        assert_eq!((files(&shards), damaged(&shards)), (before, 0));
        check_all(&shards, &model, 1000, "mended");
        close(shards);
    }
}

#[test]
fn background_work_ends_the_sharing() {
    let sim = Arc::new(Sim::new(4));
    let (model, _) = written(&sim);
    let table = TableOptions { min_threshold: 64, ..options().table };
    let shards = open_all(&sim, &StorageOptions { table, ..options() }, 3);
    let shared = || {
        let of = |shard: &Rc<Shard>| {
            let state = shard.state.borrow();
            let files = state.tables.values().flat_map(|table| table.files.iter());
            files.filter(|file| !file.entry.owners.is_empty()).count()
        };
        shards.iter().map(of).sum::<usize>()
    };
    for _ in 0..20_000 {
        if shared() == 0 {
            break;
        }
        step();
    }
    assert_eq!(shared(), 0, "every file is of one shard");
    check_all(&shards, &model, 1000, "rewritten");
    assert!(shards.iter().map(|shard| shard.stats().compactions).sum::<u64>() >= 3);
    close(shards);
}
