//! Checks for disturbances that make results doubtful: a sender that used most of its core, other
//! programs on the server's cores, or a server that was not full although loads competed. Each is a
//! sentence at the head of the report.

use crate::listing::phase;
use crate::names::{DIRECT, SHORT};
use crate::results::{Chapter, Cpu, DemoResults, Subject, Window, WindowLoad};
use charts::numbers::percent;

/// A sender above this fraction of its core also measures itself.
pub(crate) const GENERATOR_MAX: f64 = 0.8;
/// Largest use of the server's cores by other programs, as a fraction, with which goals are judged.
pub(crate) const OTHERS_MAX: f64 = 0.1;
/// Use by other programs from which it is reported.
const OTHERS_REPORTED: f64 = 0.05;
/// Largest delay of a sender, as a fraction of the latency that it measures.
const LAG_MAX: f64 = 0.5;
/// Least use of the server's cores by all processes if loads compete.
const FULL_MIN: f64 = 0.9;
/// Use of the cores of the loads above which a front on one of them adds to latencies.
const FRONT_MAX: f64 = 0.9;

/// Returns the use of the server's cores by other programs, as a fraction.
pub(crate) fn others(cpu: &Cpu) -> f64 {
    (cpu.busy_part() - cpu.server_part()).max(0.0)
}

/// Returns true if the sender's own delay is most of the latency that it measured.
pub(crate) fn is_late(load: &WindowLoad) -> bool {
    let p99_us = load.latency.map_or(0.0, |latency| latency.p99_us);
    p99_us > 0.0 && load.generator_lag_p99_us > LAG_MAX * p99_us
}

/// Returns the disturbances as sentences. Sentences about invalid results start with "Invalid".
pub(crate) fn doubts(outcome: &DemoResults) -> Vec<String> {
    let mut out = Vec::new();
    senders(outcome, &mut out);
    let phases: Vec<(String, &Window, bool)> = outcome
        .chapters
        .iter()
        .flat_map(|chapter| {
            // A few connections with short queries need not fill a server, and their results do not
            // rely on it.
            // The demo of overload has rates below capacity.
            let fills = !SHORT.contains(&chapter.id.as_str())
                && !matches!(outcome.subject, Subject::Overload | Subject::Petabyte);
            chapter.windows.iter().map(move |window| (phase(chapter, &window.label), window, fills))
        })
        .collect();
    let worst = phases.iter().max_by(|a, b| others(&a.1.cpu).total_cmp(&others(&b.1.cpu)));
    if let Some((phase, window, _)) = worst {
        let used = others(&window.cpu);
        if used > OTHERS_REPORTED {
            let invalid = if used > OTHERS_MAX { "Invalid in affected phases: other" } else { "Other" };
            out.push(format!(
                "{invalid} programs used up to {} of the server's cores (most in “{phase}”). Run the demo on a \
                 quiet machine.",
                percent(used)
            ));
        }
    }
    let empty = |(_, window, fills): &&(String, &Window, bool)| {
        let busy = window.cpu.busy_part();
        *fills && window.contended() && busy > 0.0 && busy < FULL_MIN
    };
    for (phase, window, _) in phases.iter().filter(empty) {
        out.push(format!(
            "Invalid: the server was only {} busy in “{phase}”, so the loads did not compete.",
            percent(window.cpu.busy_part())
        ));
    }
    out.extend(full_front(outcome));
    out
}

/// Returns a sentence about the phase in which the core that front and loads share was fullest.
fn full_front(outcome: &DemoResults) -> Option<String> {
    let machine = &outcome.machine;
    machine.front_cores.iter().find(|core| machine.load_cores.contains(core))?;
    let windows = outcome.chapters.iter().filter(|chapter| chapter.id != DIRECT).flat_map(|chapter| {
        let part = |window: &Window| window.cpu.loads_busy / machine.load_cores.len() as f64;
        chapter.windows.iter().map(move |window| (part(window), phase(chapter, &window.label)))
    });
    let (part, phase) = windows.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(part, _)| *part > FRONT_MAX)?;
    Some(format!(
        "Front and loads used up to {} of the core that they share (in “{phase}”): p99 there includes waiting for it, \
         which on a machine with four cores is not so.",
        percent(part)
    ))
}

fn senders(outcome: &DemoResults, out: &mut Vec<String>) {
    let mut lates = Vec::new();
    let mut check = |what: &str, used: f64| {
        if used > GENERATOR_MAX {
            out.push(format!(
                "Invalid: the sender of {what} used {} of its core. Above {} it also measures itself.",
                percent(used),
                percent(GENERATOR_MAX)
            ));
        }
    };
    let capacity = &outcome.capacity;
    for run in [&capacity.reads, &capacity.batch, &capacity.writes].into_iter().flatten() {
        check(&format!("“{}” (capacity)", run.load), run.generator_cpu);
    }
    // The demo of overload leaves out what its generator limited, and says so beside the goal.
    let judged = |chapter: &&Chapter| chapter.offered.is_empty();
    for chapter in outcome.chapters.iter().filter(judged) {
        for window in &chapter.windows {
            for load in &window.loads {
                check(&format!("“{}” ({})", load.load, phase(chapter, &window.label)), load.generator_cpu);
                if is_late(load) {
                    lates.push(phase(chapter, &window.label));
                }
            }
        }
        for run in &chapter.runs {
            check(&format!("“{}” ({})", run.load, phase(chapter, "all phases")), run.generator_cpu);
        }
    }
    if !lates.is_empty() {
        out.push(format!(
            "Invalid latencies: the sender itself was late by more than half of the p99 that it measured, for \
             example since other programs used its core, in: {}.",
            lates.join("; ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(process: f64, busy: f64, generator_cpu: f64) -> DemoResults {
        let load = |name: &str| WindowLoad {
            load: name.into(),
            throughput_per_s: 9.0,
            generator_cpu,
            ..WindowLoad::default()
        };
        let cpu = Cpu { process, busy, cores: 1, ..Cpu::default() };
        let window = Window { cpu, loads: vec![load("a"), load("b")], ..Window::default() };
        let chapter = Chapter { title: "T".into(), windows: vec![window], ..Chapter::default() };
        DemoResults { chapters: vec![chapter], ..DemoResults::default() }
    }

    fn check(outcome: &DemoResults, expected: &str) {
        let found = doubts(outcome);
        match expected {
            "" => assert!(found.is_empty(), "{found:?}"),
            _ => assert!(found.iter().any(|doubt| doubt.contains(expected)), "{found:?}"),
        }
    }

    #[test]
    fn full_core_of_front_and_loads_is_reported() {
        let of = |front: usize, loads_busy: f64, id: &str| {
            let mut outcome = outcome(0.99, 1.0, 0.5);
            (outcome.machine.front_cores, outcome.machine.load_cores) = (vec![front], vec![2, 3]);
            outcome.chapters[0].windows[0].cpu.loads_busy = loads_busy;
            outcome.chapters[0].id = id.to_string();
            outcome
        };
        check(&of(2, 1.9, "two_levels"), "up to 95.0\u{a0}% of the core that they share");
        check(&of(2, 1.7, "two_levels"), "");
        check(&of(1, 1.9, "two_levels"), "");
        check(&of(2, 1.9, DIRECT), "");
    }

    #[test]
    fn disturbances_are_reported() {
        check(&outcome(0.99, 1.0, 0.5), "");
        check(&outcome(0.99, 1.0, 0.9), "Invalid: the sender of “a”");
        check(&outcome(0.92, 1.0, 0.5), "Other programs used up to 8.0\u{a0}%");
        check(&outcome(0.7, 1.0, 0.5), "Invalid in affected phases");
        check(&outcome(0.6, 0.6, 0.5), "did not compete");
        let mut short = outcome(0.6, 0.6, 0.5);
        short.chapters[0].id = SHORT[0].to_string();
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
