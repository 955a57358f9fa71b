//! Pages of outcomes made for tests.

use super::*;
use crate::names::{BATCHED, PER_PARTITION};
use crate::results::{
    Batches, ComparisonRow, Cpu, CpuPoint, DiskPoint, InFlight, Machine, NodeUse, OfQuery, Offered, Point,
    Series, SpacePoint, StoragePoint, WindowLoad,
};

fn series(load: &str, count: usize) -> Series {
    let point = |n: usize| Point {
        at_s: n as f64 + 0.5,
        seconds: 1.0,
        rate_per_s: 100.0 * n as f64,
        p50_us: 90.0,
        p99_us: 400.0 + n as f64,
    };
    Series { load: load.into(), points: (0..count).map(point).collect() }
}

fn window(id: &str, label: &str, begin_s: f64, loads: &[&str]) -> Window {
    let load = |name: &&str| WindowLoad {
        load: (*name).to_string(),
        throughput_per_s: 300.0,
        latency: Some(load::Latency { p50_us: 90.0, p99_us: 400.0, ..load::Latency::default() }),
        ..WindowLoad::default()
    };
    let levels = loads.iter().map(|name| ((*name).to_string(), 0.5)).collect();
    let cpu = Cpu { levels, process: 1.0, busy: 1.0, cores: 1, ..Cpu::default() };
    let loads = loads.iter().map(load).collect();
    Window { id: id.into(), label: label.into(), begin_s, end_s: begin_s + 5.0, loads, cpu }
}

fn mixed(id: &str) -> Chapter {
    let cpu = |n: usize| CpuPoint {
        at_s: n as f64 + 0.5,
        levels: [("interactive".to_string(), 0.4), ("analytics".to_string(), 0.6)].into(),
        process: 1.0,
        busy: 1.0,
        ..CpuPoint::default()
    };
    Chapter {
        id: id.into(),
        title: "T & T".into(),
        windows: vec![
            window("before", "alone", 0.0, &["interactive"]),
            window("beside", "both <here>", 7.0, &["interactive", "analytics"]),
        ],
        series: vec![series("interactive", 12), series("analytics", 12)],
        cpu: (0..12).map(cpu).collect(),
        ..Chapter::default()
    }
}

fn outcome() -> DemoResults {
    let row = ComparisonRow {
        what: "what".into(),
        seen: "×1 < ×2".into(),
        met: Some(true),
        ..ComparisonRow::default()
    };
    DemoResults {
        command: "fairlane demo --quick".into(),
        chapters: vec![mixed("one_level"), mixed("two_levels")],
        comparison: vec![row],
        notes: vec!["a <note>".into()],
        ..DemoResults::default()
    }
}

/// Checks the order of a page, the length of its headline, and the titles of its axes.
fn check_layout(page: &str) {
    let (_, headline) = page.split_once("<h1>").expect("a headline");
    let (headline, _) = headline.split_once("</h1>").expect("its end");
    // Groups of digits, and numbers with their units, are one word.
    assert!(headline.split(' ').count() <= 10, "expected at most ten words, got `{headline}`");
    let (figure, table) = (page.find("<figure"), page.find("<table"));
    assert!(figure.is_some() && figure < table, "figure at {figure:?}, table at {table:?}");
    for drawing in page.split("<svg").skip(1) {
        let count = |class: &str| drawing.matches(&format!("class=\"{class}\"")).count();
        assert!(count("across") == 1 && count("title") > 0, "{drawing}");
        assert!(!drawing.contains("></text>"), "an empty text: {drawing}");
    }
}

/// Texts that would load something from elsewhere, or are numbers without a value.
const REFUSED: [&str; 8] = ["http:", "https:", "<script", "url(", "@import", "NaN", "inf\"", "src="];

#[test]
fn page_has_all_parts_and_loads_nothing() {
    let page = page(&outcome());
    check_layout(&page);
    let expected = [
        "T &amp; T",
        "×1 &lt; ×2",
        "a &lt;note&gt;",
        "✓ met",
        ">alone<",
        "1970-01-01 00:00 UTC",
        "demo --quick",
    ];
    for expected in expected {
        assert!(page.contains(expected), "{expected}");
    }
    assert!(!page.contains("both <here>"));
    for refused in REFUSED {
        assert!(!page.contains(refused), "{refused}");
    }
    assert_eq!(page.matches("<svg").count(), 6, "two side by side, and each wide and narrow");
    for element in ["svg", "table", "figure", "div", "tr", "td", "text", "g"] {
        let count = |what: String| page.matches(&what).count();
        let opened = count(format!("<{element}>")) + count(format!("<{element} "));
        assert_eq!(opened, count(format!("</{element}>")), "{element}");
    }
}

/// Returns a chapter about queries with these phases and their loads.
fn of_queries(id: &str, phases: &[(&str, &[&str])]) -> Chapter {
    let phase = |(n, (id, loads)): (usize, &(&str, &[&str]))| {
        let mut window = window(id, id, 7.0 * n as f64, loads);
        let latency = load::Latency { p50_us: 100.0, p99_us: 400.0, ..load::Latency::default() };
        let query = OfQuery { name: "q03".into(), count: 9, latency };
        window.loads.iter_mut().for_each(|load| load.queries = vec![query.clone()]);
        window
    };
    let loads = phases.last().map_or(&[] as &[&str], |(_, loads)| *loads);
    Chapter {
        id: id.into(),
        title: format!("of {id}"),
        windows: phases.iter().enumerate().map(phase).collect(),
        series: loads.iter().map(|load| series(load, 20)).collect(),
        cpu: mixed(id).cpu,
        ..Chapter::default()
    }
}

#[test]
fn queries_have_their_own_figures() {
    let both: &[&str] = &["dashboard", "reports"];
    let (first, capped): (&[&str], &[&str]) = (&["dashboard"], &["capped"]);
    let outcome = DemoResults {
        subject: Subject::Olap,
        chapters: vec![
            of_queries("olap_shares", &[("levels", both), ("one_level", both)]),
            of_queries("olap_cap", &[("1", capped), ("2", capped)]),
            of_queries("olap_tpch", &[("alone", first), ("levels-1", both), ("levels-8", both)]),
        ],
        ..DemoResults::default()
    };
    let page = page(&outcome);
    check_layout(&page);
    for expected in ["1.00 : 1", "mean 100.0", "×1.00", "over alone"] {
        assert!(page.contains(expected), "{expected}");
    }
    for refused in REFUSED {
        assert!(!page.contains(refused), "{refused}");
    }
    assert_eq!(page.matches("<svg").count(), 6, "each wide and narrow");
    for chapter in outcome.chapters {
        check_layout(&super::page(&DemoResults {
            chapters: vec![chapter],
            subject: Subject::Olap,
            ..DemoResults::default()
        }));
    }
}

/// Returns a chapter about commands in order, with two phases.
fn of_commands(id: &str) -> Chapter {
    let phases =
        [window("keys-100", "100 keys", 0.0, &["commands"]), window("keys-1", "1 key", 7.0, &["commands"])];
    let batches = |window: &Window| Batches {
        window: window.id.clone(),
        operations: 30,
        asked: 40,
        rows: 9,
        ..Batches::default()
    };
    let in_flight = |n: usize| InFlight { at_s: n as f64 + 0.5, mean: 3.0, most: 64.0 };
    Chapter {
        id: id.into(),
        title: format!("of {id}"),
        batches: phases.iter().map(batches).collect(),
        windows: phases.to_vec(),
        series: vec![series("commands", 12)],
        in_flight: (0..12).map(in_flight).collect(),
        ..mixed(id)
    }
}

#[test]
fn strategies_of_commands_are_drawn_side_by_side() {
    let outcome = DemoResults {
        subject: Subject::Batching,
        chapters: vec![of_commands(PER_PARTITION), of_commands(BATCHED)],
        ..DemoResults::default()
    };
    let page = page(&outcome);
    check_layout(&page);
    let expected =
        ["Partitions in parallel, and batches", "I/O sent 75.0", "operations in flight", "300/s", "1 key"];
    for expected in expected {
        assert!(page.contains(expected), "{expected}");
    }
    for refused in REFUSED {
        assert!(!page.contains(refused), "{refused}");
    }
    assert_eq!(page.matches("<svg").count(), 6, "two side by side, and each wide and narrow");
    assert!(picture(&outcome).is_some_and(|picture| picture.contains("of batched")));
    let text = serde_json::to_string(&outcome).expect("results are data");
    let again: DemoResults = serde_json::from_str(&text).expect("as they were written");
    assert_eq!(super::page(&again), page);
}

#[test]
fn overload_is_drawn_without_and_with_the_limiter() {
    let offered = |(part, is_limited): (f64, bool)| Offered {
        part,
        is_limited,
        goodput_per_s: 1000.0 * part,
        in_flight: 5.0,
        latency: load::Latency { p50_us: 300.0, p99_us: 900.0, ..load::Latency::default() },
        ..Offered::default()
    };
    let rates = [(0.0, false), (0.4, false), (0.4, true), (10.0, true), (10.0, false)];
    let chapter = Chapter {
        id: "memory".into(),
        title: "Reads from memory".into(),
        offered: rates.into_iter().map(offered).collect(),
        ..Chapter::default()
    };
    let outcome =
        DemoResults { subject: Subject::Overload, chapters: vec![chapter], ..DemoResults::default() };
    let page = page(&outcome);
    check_layout(&page);
    let expected =
        ["Reads from memory, limiter on", "on p99", "off p50", ">1000<", "steady load alone", "0.900"];
    for expected in expected {
        assert!(page.contains(expected), "{expected}");
    }
    for refused in REFUSED {
        assert!(!page.contains(refused), "{refused}");
    }
    assert_eq!(page.matches("<svg").count(), 4, "two side by side, and one wide and narrow");
    assert!(picture(&outcome).is_some_and(|picture| picture.contains("limiter off")));
    let text = serde_json::to_string(&outcome).expect("results are data");
    let again: DemoResults = serde_json::from_str(&text).expect("as they were written");
    assert_eq!(super::page(&again), page);
}

#[test]
fn use_of_the_node_is_listed_by_level() {
    let level = |(name, occupancy_s): (&&str, f64)| NodeUse {
        phase: "200:400:800".into(),
        level: (*name).to_string(),
        requests: 1000,
        occupancy_s,
        queued: 77,
        ..NodeUse::default()
    };
    let mut shares = mixed("shares");
    let loads = crate::names::LOADS;
    shares.windows = vec![window("200:400:800", "200 : 400 : 800", 0.0, &loads)];
    shares.windows[0].cpu.levels = [("default".to_string(), 0.9)].into();
    shares.series = loads.iter().map(|load| series(load, 6)).collect();
    shares.cpu.iter_mut().for_each(|point| point.levels = [("default".to_string(), 0.9)].into());
    shares.nodes = loads.iter().zip([1.25, 2.5, 5.0]).map(level).collect();
    let outcome = DemoResults {
        subject: Subject::Cluster,
        chapters: vec![mixed("one_level"), mixed("two_levels"), shares, mixed("direct")],
        machine: Machine {
            server_cores: vec![0],
            front_cores: vec![1],
            load_cores: vec![2, 3],
            ..Machine::default()
        },
        ..DemoResults::default()
    };
    let page = page(&outcome);
    check_layout(&page);
    let expected = [
        "With levels in front p99 grows",
        "node on core 0, front on core 1, loads on cores 2, 3.",
        "In the window of the node",
        "1.25\u{a0}s",
        "5.00 ms",
        ">77<",
        "all loads",
    ];
    for expected in expected {
        assert!(page.contains(expected) || page.contains(&expected.replace(' ', "\u{a0}")), "{expected}");
    }
    for refused in REFUSED {
        assert!(!page.contains(refused), "{refused}");
    }
    assert_eq!(page.matches("<svg").count(), 10, "two side by side, and each of four wide and narrow");
    assert!(picture(&outcome).is_some());
    let text = serde_json::to_string(&outcome).expect("results are data");
    let again: DemoResults = serde_json::from_str(&text).expect("as they were written");
    assert_eq!(super::page(&again), page);
}

#[test]
fn storage_and_space_are_drawn_above_the_table() {
    let storage = |n: usize| StoragePoint {
        at_s: n as f64 + 0.5,
        flushes: 1.0,
        log_bytes_per_s: 1e6,
        ..StoragePoint::default()
    };
    let space = |n: usize| SpacePoint { at_s: n as f64, bytes: 1e6 + n as f64, files: 60.0 };
    let flushing = |id: &str| Chapter {
        windows: vec![window("a", "flushing", 0.0, &["writes"]), window("b", "in memory", 7.0, &["writes"])],
        series: vec![series("writes", 12)],
        storage: (0..12).map(storage).collect(),
        ..mixed(id)
    };
    let compacted = |id: &str| Chapter {
        id: id.into(),
        windows: vec![Window { end_s: 2.5, label: "compaction".into(), ..Window::default() }],
        space: (0..3).map(space).collect(),
        ..Chapter::default()
    };
    let cases = [
        (Subject::Flush, ["controlled", "uncontrolled"].map(flushing)),
        (Subject::Compaction, ["incremental", "size_tiered"].map(compacted)),
    ];
    for (subject, chapters) in cases {
        for count in [1, 2] {
            let chapters = chapters[..count].to_vec();
            let outcome =
                DemoResults { subject, chapters, notes: vec!["Invalid: a note.".into()], ..outcome() };
            let page = page(&outcome);
            check_layout(&page);
            assert_eq!(page.matches("<svg").count(), 2 * count, "each wide and narrow");
            assert_eq!(page.contains(">5 flushes<"), subject == Subject::Flush);
        }
    }
}

#[test]
fn disk_is_drawn_by_level_and_space_with_its_goal() {
    let disk = |n: usize| DiskPoint {
        at_s: n as f64 + 0.5,
        bytes_per_s: [("users".to_string(), 2e7)].into(),
        queued: [("users".to_string(), 1.5), ("application".to_string(), 0.5)].into(),
    };
    let users = Chapter {
        windows: vec![window("a", "61 %", 0.0, &["application", "users"])],
        series: vec![series("application", 6), series("users", 6)],
        disk: (0..6).map(disk).collect(),
        ..mixed("petabyte_rates")
    };
    let ingest = Chapter {
        windows: vec![window("ingest", "90 %", 0.0, &["user writes"])],
        series: vec![series("user writes", 6)],
        space: [1e6, 1.2e6].map(|bytes| SpacePoint { bytes, ..SpacePoint::default() }).to_vec(),
        ..mixed("petabyte_ingest")
    };
    let outcome = DemoResults { subject: Subject::Petabyte, chapters: vec![users, ingest], ..outcome() };
    let page = page(&outcome);
    check_layout(&page);
    for expected in ["disk of the server's core by level", "the disk's queue by level"] {
        assert_eq!(page.matches(expected).count(), 2, "{expected}, wide and narrow");
    }
    for (expected, count) in
        [("25 % more than the data", 2), ("10 % more than before", 0), ("user writes: rows", 2)]
    {
        assert_eq!(page.matches(expected).count(), count, "{expected}");
    }
}

#[test]
fn stored_results_make_the_same_page() {
    let outcome = outcome();
    let text = serde_json::to_string(&outcome).expect("results are data");
    let again: DemoResults = serde_json::from_str(&text).expect("as they were written");
    assert_eq!(page(&again), page(&outcome));
    let old: DemoResults =
        serde_json::from_str("{\"version\": \"0\"}").expect("missing values count as not measured");
    assert!(page(&old).contains("Every load"));
}

#[test]
fn picture_needs_no_other_file() {
    let picture = picture(&outcome()).expect("both chapters");
    assert!(picture.starts_with("<svg xmlns=") && picture.contains("prefers-color-scheme: dark"));
    assert_eq!(picture.matches("<g ").count(), picture.matches("</g>").count());
    for refused in REFUSED.into_iter().filter(|refused| *refused != "http:") {
        assert!(!picture.contains(refused), "{refused}");
    }
    assert!(super::picture(&DemoResults::default()).is_none(), "an empty outcome has no picture");
}
