//! The limiter of the windows of nodes in simulated time. Each found window is compared with the
//! best of a ladder of fixed ones, over the same nodes and the same load.
//!
//! ```text
//!   clients ─▶ fronts: queue ─ part of the window ─▶ nodes: shared or queued capacity, cost, pauses
//!                 ▲ waits at most its time limit          ▲ other clients
//! ```
//!
//! The same seed gives the same numbers. Time at nodes is the only time: networks and the CPU of
//! fronts take none.

mod cluster;
mod front;
mod node;

use crate::cluster::{Change, Cluster, Kind, Load, MS, Pause, SECOND, Setup, Tenth};
use crate::front::Window;
use crate::node::NodeModel;

const LADDER: [u32; 9] = [4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// Tenths of a second until a window is at rest.
const START_TENTHS: usize = 50;
/// Runs whose mean is compared.
const SEEDS: u64 = 3;

/// Point reads and pages of scans, ten to one, so that pages are nine tenths of the work.
fn setup(capacity: f64) -> Setup {
    Setup {
        seed: 7,
        seconds: 40,
        nodes: 1,
        fronts: 1,
        busy_fronts: 1,
        model: NodeModel { capacity, has_queue: false, speed: 1.0, sigma: 0.0, kappa: 0.0 },
        kinds: vec![Kind { weight: 10, mean_ns: 2e5 }, Kind { weight: 1, mean_ns: 2e7 }],
        load: Load::Saturated,
        window: Window::Found,
        changes: Vec::new(),
        others_per_second: 0.0,
        pause: None,
    }
}

fn with_fronts(capacity: f64, fronts: usize) -> Setup {
    Setup { fronts, busy_fronts: fronts, ..setup(capacity) }
}

fn mean(tenths: &[Tenth], value: impl Fn(&Tenth) -> f64) -> f64 {
    tenths.iter().map(value).sum::<f64>() / tenths.len() as f64
}

fn served(tenths: &[Tenth]) -> f64 {
    mean(tenths, |tenth| tenth.served)
}

/// Returns the best throughput of the ladder, and the least window with 95 % of it.
fn best_of_ladder(setup: &Setup) -> (f64, u32) {
    let run = |window| {
        let setup = Setup { window: Window::Fixed(window), seconds: 5, ..setup.clone() };
        served(&Cluster::run(&setup)[10..])
    };
    let ladder = LADDER.map(run);
    let best = ladder.into_iter().fold(0.0, f64::max);
    let least = ladder.into_iter().position(|throughput| throughput >= 0.95 * best).unwrap();
    (best, LADDER[least])
}

/// Checks throughput and window at rest against the ladder.
fn check_rest(name: &str, setup: &Setup) {
    let (best, least) = best_of_ladder(setup);
    let run = |seed| Cluster::run(&Setup { seed, ..setup.clone() }).split_off(START_TENTHS);
    let rest: Vec<Tenth> = (0..SEEDS).flat_map(run).collect();
    let part = served(&rest) / best;
    let window = mean(&rest, |tenth| tenth.window);
    let times = window / f64::from(least);
    println!("{name}: {:.1} % of the best, W {window:.1}, {times:.2} x {least}", 100.0 * part);
    assert!(part >= 0.95, "{name}: {part} of {best}");
    assert!(times <= 2.0, "{name}: window {window}, least {least}");
}

#[test]
fn same_seed_gives_the_same_results() {
    let run = || format!("{:?}", Cluster::run(&Setup { seconds: 5, nodes: 3, ..with_fronts(16.0, 2) }));
    assert_eq!(run(), run());
}

#[test]
fn window_is_found_for_any_capacity() {
    for capacity in [2.0, 4.0, 8.0, 16.0, 64.0] {
        check_rest(&format!("capacity {capacity}"), &setup(capacity));
    }
}

#[test]
fn window_is_found_for_nodes_with_a_queue() {
    for capacity in [4.0, 16.0, 64.0] {
        let mut setup = setup(capacity);
        setup.model.has_queue = true;
        check_rest(&format!("queue behind {capacity}"), &setup);
    }
}

#[test]
fn window_is_found_where_concurrency_costs() {
    for (sigma, kappa) in [(0.005, 0.0), (0.01, 0.0), (0.0, 1e-4), (0.01, 1e-4)] {
        let mut setup = setup(32.0);
        (setup.model.sigma, setup.model.kappa) = (sigma, kappa);
        check_rest(&format!("σ {sigma}, κ {kappa}"), &setup);
    }
}

#[test]
fn window_is_found_despite_pauses() {
    for (length_ns, every_ns) in [(50 * MS, SECOND), (200 * MS, 3 * SECOND)] {
        let setup = Setup { pause: Some(Pause { every_ns, length_ns }), ..setup(16.0) };
        check_rest(&format!("pauses of {} ms", length_ns / MS), &setup);
    }
}

#[test]
fn window_is_found_beside_other_clients() {
    // 30 % of the capacity.
    check_rest("others", &Setup { others_per_second: 24_000.0, ..setup(16.0) });
}

#[test]
fn fronts_find_one_window_together() {
    for (capacity, fronts) in [(16.0, 2), (64.0, 2), (64.0, 4), (16.0, 8), (64.0, 8)] {
        check_rest(&format!("capacity {capacity}, {fronts} fronts"), &with_fronts(capacity, fronts));
    }
}

/// Fronts without clients publish no window: theirs has stayed where they started.
#[test]
fn idle_fronts_do_not_hold_the_window() {
    for busy_fronts in [1, 3] {
        check_rest(&format!("{busy_fronts} of 8 fronts"), &Setup { busy_fronts, ..with_fronts(64.0, 8) });
    }
}

#[test]
fn window_is_found_at_a_hundred_nodes() {
    // Ten times the work, so that there are fewer events.
    let kinds = vec![Kind { weight: 10, mean_ns: 2e6 }, Kind { weight: 1, mean_ns: 2e8 }];
    check_rest("100 nodes, 8 fronts", &Setup { nodes: 100, kinds, seconds: 40, ..with_fronts(16.0, 8) });
}

/// Regression: bases that are measured at the full window take in the waits of a node that is
/// always full. A least mean of ten minutes grew the window by about √W each ten minutes.
#[test]
fn window_does_not_drift_in_an_hour() {
    let kinds = vec![Kind { weight: 1, mean_ns: 2e7 }];
    let tenths = Cluster::run(&Setup { kinds, seconds: 3600, ..setup(16.0) });
    let tens = tenths[START_TENTHS..].chunks(6000);
    let windows: Vec<f64> = tens.map(|tenths| mean(tenths, |tenth| tenth.window)).collect();
    assert!(windows.iter().all(|window| (16.0..26.0).contains(window)), "{windows:?}");
    assert!(served(&tenths) > 0.95 * 16.0);
}

/// Returns the seconds from a time until half a second has 95 % of this throughput.
fn seconds_until(tenths: &[Tenth], from_second: usize, throughput: f64) -> f64 {
    let reached = |tenths: &[Tenth]| served(tenths) >= 0.95 * throughput;
    tenths[from_second * 10..].windows(5).position(reached).map_or(f64::MAX, |tenths| tenths as f64 / 10.0)
}

#[test]
fn new_window_fills_the_node_in_five_seconds() {
    for (capacity, fronts) in [(16.0, 1), (64.0, 4), (256.0, 8)] {
        let tenths = Cluster::run(&Setup { seconds: 8, ..with_fronts(capacity, fronts) });
        let seconds = seconds_until(&tenths, 0, capacity);
        println!("{capacity}, {fronts} fronts: full after {seconds} s");
        assert!(seconds <= 5.0);
    }
}

/// Halves the capacity of the node, or its speed, from second 25 to second 45.
fn check_recovery(capacity: f64, fronts: usize, half: impl Fn(NodeModel) -> NodeModel) {
    let setup = with_fronts(capacity, fronts);
    let change = |second, model| Change { at_ns: second * SECOND, model };
    let changes = vec![change(25, half(setup.model)), change(45, setup.model)];
    let tenths = Cluster::run(&Setup { changes, seconds: 55, ..setup });
    let fallen = seconds_until(&tenths, 25, capacity / 2.0);
    let half = served(&tenths[350..450]) / (capacity / 2.0);
    let back = seconds_until(&tenths, 45, capacity);
    println!("{capacity}, {fronts} fronts: {:.1} % at half, back after {back} s", 100.0 * half);
    assert!(fallen <= 5.0 && half >= 0.95, "{capacity}, {fronts} fronts: {fallen} s, {half}");
    assert!(back <= 5.0, "{capacity}, {fronts} fronts: {back} s");
}

#[test]
fn capacity_that_comes_back_is_used_in_five_seconds() {
    for (capacity, fronts) in [(16.0, 1), (128.0, 4)] {
        check_recovery(capacity, fronts, |model| NodeModel { capacity: model.capacity / 2.0, ..model });
    }
}

/// Regression: with the bases of a faster node, a node that runs at half of its speed gets the
/// lowest window.
#[test]
fn slower_node_gets_new_bases() {
    for (capacity, fronts) in [(16.0, 1), (128.0, 4)] {
        check_recovery(capacity, fronts, |model| NodeModel { speed: model.speed / 2.0, ..model });
    }
}

/// Returns the results of an open load, as a multiple of this throughput, from the sixth second on.
fn open(setup: &Setup, window: Window, best: f64, times: f64) -> Vec<Tenth> {
    let weights: u64 = setup.kinds.iter().map(|kind| kind.weight).sum();
    let work_ns =
        setup.kinds.iter().map(|kind| kind.weight as f64 * kind.mean_ns).sum::<f64>() / weights as f64;
    let load = Load::Open { per_second: times * best * SECOND as f64 / work_ns, time_limit_ns: 500 * MS };
    Cluster::run(&Setup { load, window, seconds: 10, ..setup.clone() }).split_off(START_TENTHS)
}

#[test]
fn goodput_is_flat_under_overload() {
    for (nodes, fronts) in [(1, 1), (1, 4), (6, 4)] {
        let setup = Setup { nodes, ..with_fronts(16.0, fronts) };
        let (best, _) = best_of_ladder(&setup);
        for times in [1.0, 2.0, 10.0] {
            let part = mean(&open(&setup, Window::Found, best, times), |tenth| tenth.good) / best;
            println!("{nodes} nodes, {fronts} fronts, {times} times: {:.1} %", 100.0 * part);
            assert!(part >= 0.95, "{nodes} nodes, {fronts} fronts, {times} times: {part}");
        }
    }
}

/// Prints the table of `docs/cluster.md`.
#[test]
fn prediction_for_twenty_nodes_and_four_fronts() {
    let setup = Setup { nodes: 20, ..with_fronts(8.0, 4) };
    let (best, least) = best_of_ladder(&Setup { nodes: 1, ..setup.clone() });
    let best = best * 20.0;
    println!("least window with 95 % of the best throughput: {least}");
    println!("load, window: goodput, time of a read of 0.2 ms at a node, W");
    for times in [0.5, 1.0, 2.0, 10.0] {
        for window in [Window::Fixed(8), Window::Fixed(128), Window::Found] {
            let tenths = open(&setup, window, best, times);
            let good = mean(&tenths, |tenth| tenth.good) / best;
            let read_ns =
                mean(&tenths, |tenth| tenth.reads_ns as f64) / mean(&tenths, |tenth| tenth.reads as f64);
            let found = mean(&tenths, |tenth| tenth.window);
            println!("{times} {window:?}: {:.1} %, {:.2} ms, {found:.1}", 100.0 * good, read_ns / MS as f64);
            assert!(window != Window::Found || good >= 0.95 * times.min(1.0), "{times}: {good}");
        }
    }
}
