//! Whether the figures are the server's: a sender that used most of its core, other programs on the server's
//! cores, or a server that was not full where it should have been, make a run say something else. Each is a
//! sentence at the head of the report, with what it makes doubtful.

use super::figures::{Cpu, Outcome, Window, WindowLoad};
use super::listing::phase;
use super::olap;
use super::units::percent;

/// A sender above this part of its core measures itself as well as the server.
pub(super) const GENERATOR_MAX: f64 = 0.8;
/// Above this part of the server's cores in others' hands, times are theirs as much as the server's, and no
/// goal counts as met or missed by them.
pub(super) const OTHERS_MAX: f64 = 0.1;
/// From this part on it is told.
const OTHERS_TOLD: f64 = 0.05;
/// A sender late by this part of the latency it measures is most of that latency.
const LAG_MAX: f64 = 0.5;
/// A server below this was not full.
const FULL_MIN: f64 = 0.9;

/// The part of the server's cores that other programs had.
pub(super) fn others(cpu: &Cpu) -> f64 {
    ((cpu.busy - cpu.process) / cpu.cores.max(1) as f64).max(0.0)
}

/// Whether the sender's own delay is most of the latency it measured.
pub(super) fn late(load: &WindowLoad) -> bool {
    let p99_us = load.latency.map_or(0.0, |latency| latency.p99_us);
    p99_us > 0.0 && load.generator_lag_p99_us > LAG_MAX * p99_us
}

/// What makes figures doubtful, as sentences; those that make them invalid begin with that word.
pub(super) fn doubts(outcome: &Outcome) -> Vec<String> {
    let mut out = Vec::new();
    senders(outcome, &mut out);
    let phases: Vec<(String, &Window, bool)> = outcome
        .chapters
        .iter()
        .flat_map(|chapter| {
            // Few connections of short queries need not fill a server, and no figure of theirs rests on it.
            let fills = !olap::is_short(chapter);
            chapter.windows.iter().map(move |window| (phase(chapter, &window.label), window, fills))
        })
        .collect();
    let worst = phases.iter().max_by(|a, b| others(&a.1.cpu).total_cmp(&others(&b.1.cpu)));
    if let Some((phase, window, _)) = worst {
        let taken = others(&window.cpu);
        if taken > OTHERS_TOLD {
            let invalid = if taken > OTHERS_MAX { "Invalid where it was so: other" } else { "Other" };
            out.push(format!(
                "{invalid} programs took up to {} of the server's cores (most in “{phase}”). Run the demo on a quiet machine.",
                percent(taken)
            ));
        }
    }
    let empty = |(_, window, fills): &&(String, &Window, bool)| {
        let full = window.cpu.busy / window.cpu.cores.max(1) as f64;
        *fills && window.contended() && full > 0.0 && full < FULL_MIN
    };
    for (phase, window, _) in phases.iter().filter(empty) {
        out.push(format!(
            "Invalid: the server was only {} busy in “{phase}”, so the loads did not contend.",
            percent(window.cpu.busy / window.cpu.cores.max(1) as f64)
        ));
    }
    out
}

fn senders(outcome: &Outcome, out: &mut Vec<String>) {
    let mut lates = Vec::new();
    let mut told = |what: &str, used: f64| {
        if used > GENERATOR_MAX {
            out.push(format!(
                "Invalid: the sender of {what} used {} of its core; above {} it measures itself as well as the server.",
                percent(used),
                percent(GENERATOR_MAX)
            ));
        }
    };
    let capacity = &outcome.capacity;
    for run in [&capacity.reads, &capacity.batch, &capacity.writes].into_iter().flatten() {
        told(&format!("“{}” (capacity)", run.load), run.generator_cpu);
    }
    for chapter in &outcome.chapters {
        for window in &chapter.windows {
            for load in &window.loads {
                told(&format!("“{}” ({})", load.load, phase(chapter, &window.label)), load.generator_cpu);
                if late(load) {
                    lates.push(phase(chapter, &window.label));
                }
            }
        }
        for run in &chapter.runs {
            told(&format!("“{}” ({})", run.load, phase(chapter, "all phases")), run.generator_cpu);
        }
    }
    if !lates.is_empty() {
        out.push(format!(
            "Invalid latencies where the sender itself was late by more than half of the p99 it measured, as when other programs have its core: {}.",
            lates.join("; ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Chapter;
    use super::*;

    fn outcome(process: f64, busy: f64, generator_cpu: f64) -> Outcome {
        let load = |name: &str| WindowLoad {
            load: name.into(),
            throughput_per_s: 9.0,
            generator_cpu,
            ..WindowLoad::default()
        };
        let cpu = Cpu { process, busy, cores: 1, ..Cpu::default() };
        let window = Window { cpu, loads: vec![load("a"), load("b")], ..Window::default() };
        let chapter = Chapter { title: "T".into(), windows: vec![window], ..Chapter::default() };
        Outcome { chapters: vec![chapter], ..Outcome::default() }
    }

    fn check(outcome: &Outcome, expected: &str) {
        let found = doubts(outcome);
        match expected {
            "" => assert!(found.is_empty(), "{found:?}"),
            _ => assert!(found.iter().any(|doubt| doubt.contains(expected)), "{found:?}"),
        }
    }

    #[test]
    fn what_disturbs_is_told() {
        check(&outcome(0.99, 1.0, 0.5), "");
        check(&outcome(0.99, 1.0, 0.9), "Invalid: the sender of “a”");
        check(&outcome(0.92, 1.0, 0.5), "Other programs took up to 8.0\u{a0}%");
        check(&outcome(0.7, 1.0, 0.5), "Invalid where it was so");
        check(&outcome(0.6, 0.6, 0.5), "did not contend");
        let mut short = outcome(0.6, 0.6, 0.5);
        short.chapters[0].id = olap::SHORT[0].0.to_string();
        check(&short, "");
        let mut late = outcome(0.99, 1.0, 0.5);
        let load = &mut late.chapters[0].windows[0].loads[0];
        load.latency = Some(load::Latency { p99_us: 1000.0, ..load::Latency::default() });
        check(&late, "");
        late.chapters[0].windows[0].loads[0].generator_lag_p99_us = 600.0;
        check(&late, "Invalid latencies");
        let mut alone = outcome(0.5, 0.5, 0.5);
        alone.chapters[0].windows[0].loads.truncate(1);
        check(&alone, "");
    }
}
