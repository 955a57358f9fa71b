//! Tables of the report: loads, use of the cores, and times inside the server.

use crate::listing::{self, percentiles, phase, usage};
use crate::results::DemoResults;
use charts::numbers::{percent, rate, time};
use charts::{close_table as close, heading, open_table as open, row};

const DASH: &str = "–";

/// Writes all loads with their latencies.
pub(super) fn loads(out: &mut String, outcome: &DemoResults) {
    out.push_str("<h2>Every load</h2>");
    let names = percentiles(&load::Latency::default()).map(|(name, _)| name);
    let columns = [&["Load", "answered a second"], &names[..]].concat();
    open(out, &columns);
    let mut part = String::new();
    for entry in listing::loads(outcome) {
        if entry.part != part {
            heading(out, columns.len(), &entry.part);
            part.clone_from(&entry.part);
        }
        let times = percentiles(&entry.latency).map(|(_, us)| time(us));
        row(out, &entry.load, &[&[rate(entry.per_s)], &times[..]].concat());
    }
    close(out);
    out.push_str(
        "<p class=\"soft\">In open loops (interactive, throttled, writes) latency starts when a request is due, so \
         that a stall also counts for requests that could not be sent. In closed loops latency is requests in flight \
         over throughput. A load that runs through several phases has one latency for all of them.</p>",
    );
}

/// Writes the use of the cores.
pub(super) fn cores(out: &mut String, outcome: &DemoResults) {
    out.push_str(
        "<h2>Use of the cores</h2><p>Use by all processes, and by the server's process. A large difference means \
         that other programs used the server's cores. A sender above 80 % of its core also measures itself. Its \
         lag is the delay of requests that no limit delayed, and is part of the latency of an open loop.</p>",
    );
    let columns =
        ["Phase", "server's cores", "server's process", "loads' cores", "busiest sender", "its lag, p99"];
    open(out, &columns);
    let shown = |part: Option<f64>| part.map_or(DASH.to_string(), percent);
    for usage in usage(outcome) {
        let numbers = [
            percent(usage.busy),
            percent(usage.process),
            shown(usage.loads),
            shown(usage.sender),
            usage.lag_us.map_or(DASH.to_string(), time),
        ];
        row(out, &usage.part, &numbers);
    }
    close(out);
}

/// Writes each offered rate of the demo of overload.
pub(super) fn offered(out: &mut String, outcome: &DemoResults) {
    if outcome.chapters.iter().all(|chapter| chapter.offered.is_empty()) {
        return;
    }
    out.push_str(
        "<h2>Every offered rate</h2><p>Numbers a second. In time: answers within the time limit, counted from when \
         the request was due. Told to wait: not sent, since the client's last refusal named a later time. Not sent: \
         the client already had its most requests in flight. p50 and p99 are those of all answers.</p>",
    );
    let columns = [
        "Offered",
        "due",
        "in time",
        "late",
        "refused",
        "failed",
        "told to wait",
        "not sent",
        "p50",
        "p99",
        "steady p99",
        "in flight",
        "CPU an answer",
        "generator",
    ];
    open(out, &columns);
    for chapter in outcome.chapters.iter().filter(|chapter| !chapter.offered.is_empty()) {
        heading(out, columns.len(), &chapter.title);
        for offered in &chapter.offered {
            let numbers = [
                rate(offered.due_per_s),
                rate(offered.goodput_per_s),
                rate((offered.answered_per_s - offered.goodput_per_s).max(0.0)),
                rate(offered.refused_per_s),
                rate(offered.failed_per_s),
                rate(offered.turned_away_per_s),
                rate(offered.unsent_per_s),
                time(offered.latency.p50_us),
                time(offered.latency.p99_us),
                time(offered.steady.p99_us),
                rate(offered.in_flight),
                format!("{:.1}\u{a0}µs", offered.cpu_us),
                percent(offered.generator_cpu),
            ];
            row(out, &offered.label(), &numbers);
        }
    }
    close(out);
}

/// Writes the server's own measurements of requests, if there are any.
pub(super) fn served(out: &mut String, outcome: &DemoResults) {
    let phases = outcome.chapters.iter().flat_map(|chapter| &chapter.windows);
    if phases.clone().all(|window| window.cpu.served.is_empty()) {
        return;
    }
    out.push_str(
        "<h2>In the server</h2><p>Times of each level's requests, as the server measures them: service time S, and \
         time in the queue. A client's latency also includes the network, and the time until the server reads the \
         request.</p>",
    );
    let columns = ["Level", "S mean", "S p99", "queue mean", "queue p99", "client p99"];
    open(out, &columns);
    for chapter in &outcome.chapters {
        for window in chapter.windows.iter().filter(|window| !window.cpu.served.is_empty()) {
            heading(out, columns.len(), &phase(chapter, &window.label));
            for (level, times) in &window.cpu.served {
                let client = window.latency(level).map_or(DASH.to_string(), |latency| time(latency.p99_us));
                let numbers = [
                    time(times.service_mean_us),
                    time(times.service_p99_us),
                    time(times.queue_mean_us),
                    time(times.queue_p99_us),
                    client,
                ];
                row(out, level, &numbers);
            }
        }
    }
    close(out);
}
