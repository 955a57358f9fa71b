//! Crashes at every step of the disk in a small workload, which has all kinds of disk requests of a
//! shard. `FAIRLANE_SEEDS=5` repeats each step with five random losses of data that was not
//! durable. `FAIRLANE_SEED=17` runs one case.

use super::crashes::{Trial, number, replayable};
use super::*;

fn trial(sim: Arc<Sim>) -> Trial {
    let mut trial = Trial::new(sim, 3);
    trial.options.commit = CommitMode::Batch;
    trial.options.memtable_bytes_max = 1 << 20;
    trial.options.table.min_threshold = 3;
    trial
}

/// Runs writes, flushes that cause compactions, a truncation and a restart, until the end or a
/// crash.
fn play(trial: &mut Trial) {
    for action in 0..40 {
        match action {
            8 | 15 | 22 | 37 => trial.flush(),
            26 => trial.truncate(1),
            31 => trial.reopen(),
            _ => {
                trial.apply();
                (0..2).for_each(|_| step());
            }
        }
        if trial.sim.disk.is_down() {
            return;
        }
        trial.acknowledge();
    }
}

#[test]
fn crash_at_every_step_keeps_acknowledged_writes() {
    drop_tasks();
    let mut undisturbed = trial(Arc::new(Sim::new(0)));
    undisturbed.open();
    play(&mut undisturbed);
    let steps = undisturbed.sim.disk.steps();
    undisturbed.end();
    assert!((150..2000).contains(&steps), "{steps} steps");
    let chances = number("FAIRLANE_SEEDS").unwrap_or(1);
    let cases = match number("FAIRLANE_SEED") {
        Some(case) => case..case + 1,
        None => 0..steps * chances,
    };
    for case in cases {
        replayable(case, "every_step", |_| {
            let sim = Arc::new(Sim::new(case % chances));
            sim.disk.crash_at(1 + case / chances);
            let mut trial = trial(sim);
            trial.open();
            play(&mut trial);
            while trial.sim.disk.is_down() {
                trial.recover();
            }
            trial.sim.disk.crash_at(u64::MAX);
            (0..5).for_each(|_| trial.apply());
            trial.end();
        });
    }
}
