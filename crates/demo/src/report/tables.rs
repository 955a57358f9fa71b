//! Tables of the report: loads, use of the cores, offered rates, and times inside the server. Each
//! is data, written by one template.

use crate::listing::{self, ListedLoad, Usage, percentiles, phase, usage};
use crate::results::{Chapter, DemoResults, NodeUse, Offered, Window};
use charts::numbers::{percent, rate, time};
use charts::{close_table as close, heading, open_table as open, row};

const DASH: &str = "–";

/// Rows below one heading. An empty heading is not written.
struct Group {
    heading: String,
    rows: Vec<TableRow>,
}

/// A row: its name, and its cells.
type TableRow = (String, Vec<String>);

/// Writes a table with the elements before and after it.
fn table(out: &mut String, before: &str, columns: &[&str], groups: &[Group], after: &str) {
    out.push_str(before);
    open(out, columns);
    for group in groups {
        if !group.heading.is_empty() {
            heading(out, columns.len(), &group.heading);
        }
        group.rows.iter().for_each(|(name, cells)| row(out, name, cells));
    }
    close(out);
    out.push_str(after);
}

/// Writes all loads with their latencies.
pub(super) fn loads(out: &mut String, outcome: &DemoResults) {
    let names = percentiles(&load::Latency::default()).map(|(name, _)| name);
    let row = |load: &ListedLoad| {
        let times = percentiles(&load.latency).map(|(_, us)| time(us));
        (load.load.clone(), [&[rate(load.per_s)], &times[..]].concat())
    };
    let all = listing::loads(outcome);
    let parts = all.chunk_by(|one, next| one.part == next.part);
    let group =
        |part: &[ListedLoad]| Group { heading: part[0].part.clone(), rows: part.iter().map(row).collect() };
    table(
        out,
        "<h2>Every load</h2>",
        &[&["Load", "answered a second"], &names[..]].concat(),
        &parts.map(group).collect::<Vec<_>>(),
        "<p class=\"soft\">In open loops (interactive, throttled, writes) latency starts when a request is due, so \
         that a stall also counts for requests that could not be sent. In closed loops latency is requests in flight \
         over throughput. A load that runs through several phases has one latency for all of them.</p>",
    );
}

/// Writes the use of the cores.
pub(super) fn cores(out: &mut String, outcome: &DemoResults) {
    let shown = |part: Option<f64>| part.map_or(DASH.to_string(), percent);
    let row = |usage: Usage| {
        let cells = vec![
            percent(usage.busy),
            percent(usage.process),
            shown(usage.loads),
            shown(usage.sender),
            usage.lag_us.map_or(DASH.to_string(), time),
        ];
        (usage.part, cells)
    };
    let rows = usage(outcome).into_iter().map(row).collect();
    table(
        out,
        "<h2>Use of the cores</h2><p>Use by all processes, and by the server's process. A large difference means \
         that other programs used the server's cores. A sender above 80 % of its core also measures itself. Its \
         lag is the delay of requests that no limit delayed, and is part of the latency of an open loop.</p>",
        &["Phase", "server's cores", "server's process", "loads' cores", "busiest sender", "its lag, p99"],
        &[Group { heading: String::new(), rows }],
        "",
    );
}

/// A column: its name, and its cell.
type Column = (&'static str, fn(&Offered) -> String);

/// Columns of an offered rate.
const OFFERED: [Column; 13] = [
    ("due", |offered| rate(offered.due_per_s)),
    ("in time", |offered| rate(offered.goodput_per_s)),
    ("late", |offered| rate((offered.answered_per_s - offered.goodput_per_s).max(0.0))),
    ("refused", |offered| rate(offered.refused_per_s)),
    ("failed", |offered| rate(offered.failed_per_s)),
    ("told to wait", |offered| rate(offered.turned_away_per_s)),
    ("not sent", |offered| rate(offered.unsent_per_s)),
    ("p50", |offered| time(offered.latency.p50_us)),
    ("p99", |offered| time(offered.latency.p99_us)),
    ("steady p99", |offered| time(offered.steady.p99_us)),
    ("in flight", |offered| rate(offered.in_flight)),
    ("CPU an answer", |offered| format!("{:.1}\u{a0}µs", offered.cpu_us)),
    ("generator", |offered| percent(offered.generator_cpu)),
];

/// Writes each offered rate of the demo of overload.
pub(super) fn offered(out: &mut String, outcome: &DemoResults) {
    let row = |offered: &Offered| (offered.label(), OFFERED.map(|(_, cell)| cell(offered)).to_vec());
    let group = |chapter: &Chapter| Group {
        heading: chapter.title.clone(),
        rows: chapter.offered.iter().map(row).collect(),
    };
    let chapters = outcome.chapters.iter().filter(|chapter| !chapter.offered.is_empty());
    let groups: Vec<Group> = chapters.map(group).collect();
    if groups.is_empty() {
        return;
    }
    table(
        out,
        "<h2>Every offered rate</h2><p>Numbers a second. In time: answers within the time limit, counted from when \
         the request was due. Told to wait: not sent, since the client's last refusal named a later time. Not sent: \
         the client already had its most requests in flight. p50 and p99 are those of all answers.</p>",
        &[&["Offered"], &OFFERED.map(|(name, _)| name)[..]].concat(),
        &groups,
        "",
    );
}

/// Writes the use of the node by the levels of a front, if there is one.
pub(super) fn nodes(out: &mut String, outcome: &DemoResults) {
    let row = |level: &NodeUse| {
        let cells = vec![
            rate(level.requests as f64),
            format!("{:.2}\u{a0}s", level.occupancy_s),
            time(level.place_us()),
            level.in_flight.to_string(),
            level.queued.to_string(),
        ];
        (level.level.clone(), cells)
    };
    let group = |(chapter, window): (&Chapter, &Window)| {
        let levels = chapter.nodes.iter().filter(|level| level.phase == window.id);
        Group { heading: phase(chapter, &window.label), rows: levels.map(row).collect() }
    };
    let chapters = outcome.chapters.iter().filter(|chapter| !chapter.nodes.is_empty());
    let phases = chapters.flat_map(|chapter| chapter.windows.iter().map(move |window| (chapter, window)));
    let groups: Vec<Group> = phases.map(group).collect();
    if groups.is_empty() {
        return;
    }
    table(
        out,
        "<h2>In the window of the node</h2><p>Use of the node by each level, as the front counts in \
         <code>system.nodes</code>. Occupancy is the time for which requests held places in the window, summed. In \
         flight and queued: at the end of the phase.</p>",
        &["Level", "requests", "occupancy", "of a request", "in flight", "queued"],
        &groups,
        "",
    );
}

/// Writes the server's own measurements of requests, if there are any.
pub(super) fn served(out: &mut String, outcome: &DemoResults) {
    let rows = |window: &Window| {
        let rows = window.cpu.served.iter().map(|(level, times)| {
            let client = window.latency(level).map_or(DASH.to_string(), |latency| time(latency.p99_us));
            let of_server =
                [times.service_mean_us, times.service_p99_us, times.queue_mean_us, times.queue_p99_us];
            (level.clone(), of_server.map(time).into_iter().chain([client]).collect())
        });
        rows.collect::<Vec<TableRow>>()
    };
    let groups = outcome.chapters.iter().flat_map(|chapter| {
        let windows = chapter.windows.iter().filter(|window| !window.cpu.served.is_empty());
        windows.map(move |window| Group { heading: phase(chapter, &window.label), rows: rows(window) })
    });
    let groups: Vec<Group> = groups.collect();
    if groups.is_empty() {
        return;
    }
    table(
        out,
        "<h2>In the server</h2><p>Times of each level's requests, as the server measures them: service time S, and \
         time in the queue. A client's latency also includes the network, and the time until the server reads the \
         request.</p>",
        &["Level", "S mean", "S p99", "queue mean", "queue p99", "client p99"],
        &groups,
        "",
    );
}
