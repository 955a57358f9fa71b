//! Verification and snapshots of folders: every damaged byte is reported, and a snapshot is a
//! complete folder.

use std::future::Future;
use std::path::Path;
use std::task::Context;

use super::reshard::{check_all, fill, open_all};
use super::*;
use crate::recovery::check::check_in;
use crate::recovery::snapshot::snapshot_in;

fn checked(sim: &Sim, dir: &str) -> Vec<Checked> {
    block_on(check_in(sim, Path::new(dir), |_| ())).expect("a folder of ours")
}

fn damages(all: &[Checked]) -> Vec<String> {
    all.iter().flat_map(|shard| &shard.damages).map(ToString::to_string).collect()
}

fn close(shards: Vec<Rc<Shard>>) {
    shards.iter().for_each(|shard| block_on(shard.shutdown()).expect("closed"));
    drop(shards);
    drop_tasks();
}

/// Ends like a killed process: data in memory is also in the log.
fn kill(shards: Vec<Rc<Shard>>) {
    drop(shards);
    drop_tasks();
}

#[test]
fn check_reports_damage_in_any_file() {
    let sim = Arc::new(Sim::default());
    let shards = open_all(&sim, &options(), 2);
    fill(&shards, &mut Random::new(3));
    kill(shards);
    let sound = checked(&sim, "/data");
    assert_eq!(damages(&sound), [""; 0]);
    assert!(
        sound.iter().all(|shard| shard.files > 0 && shard.blocks > 1 && shard.partitions > 1),
        "{sound:?}"
    );
    assert!(sound.iter().map(|shard| shard.records).sum::<u64>() > 0, "nothing in the logs: {sound:?}");
    let (mut flips, mut reported) = (0, 0);
    let is_checked =
        |path: &PathBuf| path.ends_with("manifest") || path.extension().is_some_and(|e| e == "table");
    for path in sim.disk.files().into_iter().filter(is_checked) {
        let size = sim.disk.size(&path);
        for at in (0..size).step_by((size as usize / 40).max(1)) {
            sim.disk.flip(&path, at, 3);
            let damages = damages(&checked(&sim, "/data"));
            flips += 1;
            reported +=
                u32::from(damages.iter().any(|damage| damage.contains(path.to_str().expect("UTF-8"))));
            sim.disk.flip(&path, at, 3);
        }
    }
    // Some bytes have no meaning: padding between the columns of a block.
    assert!(reported * 100 >= flips * 95 && flips > 200, "{reported} of {flips} damages were reported");
    assert_eq!(damages(&checked(&sim, "/data")), [""; 0]);
}

#[test]
fn snapshot_contains_the_data_of_its_moment() {
    for seed in 0..6 {
        let sim = Arc::new(Sim::new(seed));
        let mut random = Random::new(seed);
        let shards = open_all(&sim, &options(), 2);
        let mut model = fill(&shards, &mut random);
        for shard in &shards {
            block_on(shard.snapshot(Path::new("/running"))).expect("made");
        }
        let then = model.clone();
        for timestamp in 1000..1060 {
            let mutations = vec![super::reshard::spread_mutation(&mut random, timestamp, 1000)];
            super::reshard::write_all(&shards, &mutations);
            model.records.push(mutations);
        }
        if seed % 2 == 0 {
            close(shards);
        } else {
            kill(shards);
        }
        block_on(snapshot_in(&*sim, Path::new("/data"), Path::new("/stopped"))).expect("made");
        // A crash must not affect the files that the snapshot shares with the folder.
        sim.crash();
        for (dir, model) in [("/data", &model), ("/running", &then), ("/stopped", &model)] {
            let what = format!("{dir} with seed {seed}");
            assert_eq!(damages(&checked(&sim, dir)), [""; 0], "{what}");
            let shards =
                open_all(&sim, &StorageOptions { dir: Some(dir.into()), ..options() }, 1 + seed as u32 % 3);
            check_all(&shards, model, 1000, &what);
            close(shards);
        }
    }
}

#[test]
fn check_refuses_other_folders_and_folders_in_use() {
    let sim = Arc::new(Sim::default());
    let shards = open_all(&sim, &options(), 2);
    let busy = block_on(check_in(&*sim, Path::new("/data"), |_| ())).unwrap_err();
    assert!(matches!(busy, StorageError::Locked { .. }), "{busy}");
    close(shards);
    block_on(sim.disk.create_dir_all(Path::new("/other"))).unwrap();
    let none = block_on(check_in(&*sim, Path::new("/other"), |_| ())).unwrap_err().to_string();
    assert!(none.contains("no data folder"), "{none}");
    assert!(sim.disk.files().iter().all(|path| !path.starts_with("/other")), "it was left as it is");
}

#[test]
fn held_acknowledgements_delay_writes() {
    let sim = Arc::new(Sim::new(1));
    let shards = open_all(&sim, &options(), 1);
    let mut random = Random::new(1);
    shards[0].hold_acks(true);
    let written = shards[0].apply(vec![super::reshard::spread_mutation(&mut random, 1, 1000)]);
    let mut commit = std::pin::pin!(written.expect("applied"));
    block_on(shards[0].log.as_ref().expect("on disk").sync()).expect("durable");
    let polled = commit.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
    assert!(polled.is_pending());
    shards[0].hold_acks(false);
    block_on(commit).expect("acknowledged");
    close(shards);
}
