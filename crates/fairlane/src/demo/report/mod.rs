//! The report as one page of HTML: no script, no font, no image from anywhere; light or dark as the reader's
//! system is, light on paper. Colours are those of Okabe and Ito, told apart by the colour-blind (darker on
//! white, so that text in them can be read), and every line carries its name, its dashes and its marks.

mod figure;
mod olap;
mod picture;
mod storage;

use std::fmt::Write as _;

use super::chart::{Figure, NARROW, WIDE, draw, escaped};
use super::compare::Row;
use super::figures::{Chapter, Machine, Outcome, Subject, Window};
use super::headline;
use super::listing::{fullness, loads, percentiles};
use super::units::{date, percent, rate, time};

pub(super) use picture::picture;

const COLOURS: &str = include_str!("colours.css");
const CHART: &str = include_str!("chart.css");
const PAGE: &str = include_str!("page.css");

/// The page.
pub(super) fn page(outcome: &Outcome) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>fairlane demo</title><style>{COLOURS}{CHART}{PAGE}</style></head><body>"
    );
    head(&mut out, outcome);
    comparison(&mut out, &outcome.comparison);
    main_figure(&mut out, outcome);
    for chapter in &outcome.chapters {
        section(&mut out, outcome, chapter);
    }
    // A compaction is shown without loads.
    if outcome.subject != Subject::Compaction {
        all_loads(&mut out, outcome);
        full(&mut out, outcome);
    }
    served(&mut out, outcome);
    out.push_str("</body></html>\n");
    out
}

fn cores(cores: &[usize]) -> String {
    let list: Vec<String> = cores.iter().map(usize::to_string).collect();
    format!("{} {}", if list.len() == 1 { "core" } else { "cores" }, list.join(", "))
}

/// Processor, kernel, and whose cores are whose.
fn machine_line(machine: &Machine) -> String {
    format!(
        "{}, Linux {}; server on {}, loads on {}.",
        if machine.model.is_empty() { "unknown processor" } else { &machine.model },
        machine.kernel,
        cores(&machine.server_cores),
        cores(&machine.load_cores)
    )
}

fn head(out: &mut String, outcome: &Outcome) {
    let _ = write!(out, "<h1>{}</h1>", escaped(&headline::sentence(outcome)));
    if let Some(batch) = headline::batch(outcome) {
        let _ = write!(out, "<p class=\"lead\">{}</p>", escaped(&batch));
    }
    if !outcome.notes.is_empty() {
        let heading =
            if outcome.invalid() { "Invalid in part; not to be quoted" } else { "Before believing it" };
        let _ = write!(out, "<div class=\"doubts\"><h2>{heading}</h2><ul>");
        for note in &outcome.notes {
            let _ = write!(out, "<li>{}</li>", escaped(note));
        }
        out.push_str("</ul></div>");
    }
    let form = if outcome.quick { "quick: phases of seconds, coarse figures" } else { "full" };
    let shape = if outcome.shape == "published" {
        "published: single-row reads, 200 in flight at 20 % of capacity beside 1800 unbounded"
    } else {
        "slices: single-row reads beside slices of 100 rows"
    };
    let command = if outcome.command.is_empty() { "fairlane demo" } else { &outcome.command };
    let lasted = if outcome.seconds > 0.0 { format!(", {:.0} s", outcome.seconds) } else { String::new() };
    let mut rows = vec![
        ("Command", format!("<code>{}</code>", escaped(command))),
        (
            "Form",
            if outcome.subject == Subject::Levels { format!("{form}; {shape}") } else { form.to_string() },
        ),
        ("Version", format!("fairlane {}", escaped(&outcome.version))),
        ("Date", format!("{}{lasted}", date(outcome.started_unix_ms))),
        ("Machine", escaped(&machine_line(&outcome.machine))),
    ];
    let capacity = capacity(outcome);
    if !capacity.is_empty() {
        rows.push(("Capacity, alone", escaped(&capacity)));
    }
    out.push_str("<dl>");
    for (name, value) in rows {
        let _ = write!(out, "<dt>{name}</dt><dd>{value}</dd>");
    }
    out.push_str("</dl>");
}

fn capacity(outcome: &Outcome) -> String {
    let runs = [&outcome.capacity.reads, &outcome.capacity.batch, &outcome.capacity.writes];
    let told = runs
        .into_iter()
        .flatten()
        .map(|run| format!("{} a second: {}", rate(run.throughput_per_s), run.load));
    let mut told: Vec<String> = told.collect();
    let interactive = outcome.capacity.interactive;
    if interactive.per_s > 0.0 {
        let alone = outcome.chapter("one_level").and_then(|chapter| chapter.window("before"));
        let of = alone.map_or(String::new(), |window| {
            let part = window.cpu.process / window.cpu.cores.max(1) as f64;
            format!(", which alone take {} of the server's CPU", percent(part))
        });
        told.push(format!("the interactive load asks for {} a second{of}", rate(interactive.per_s)));
    }
    told.join("; ")
}

fn comparison(out: &mut String, rows: &[Row]) {
    let published = rows.iter().any(|row| !row.published.is_empty());
    let heading = if published { "Beside what others have published" } else { "Beside the goals" };
    let _ = write!(out, "<h2>{heading}</h2>");
    out.push_str(
        "<div class=\"wide-table\"><table class=\"compare\"><thead><tr><th>What</th><th>Here</th>\
         <th>Goal</th><th>Published</th><th></th></tr></thead><tbody>",
    );
    for row in rows {
        let verdict = match row.met {
            Some(true) => "<td class=\"met\">✓ met</td>".to_string(),
            Some(false) => "<td class=\"missed\">✗ not met</td>".to_string(),
            None => format!("<td class=\"soft\">{}</td>", row.verdict()),
        };
        let or_dash = |text: &str| if text.is_empty() { "–".to_string() } else { escaped(text) };
        let _ = write!(
            out,
            "<tr><td>{}<small>{}</small></td><td class=\"seen\" data-name=\"here\">{}</td><td data-name=\"goal\">{}</td>\
             <td data-name=\"published\">{}</td>{verdict}</tr>",
            escaped(&row.what),
            escaped(&row.detail),
            escaped(&row.seen),
            or_dash(&row.goal),
            or_dash(&row.published)
        );
    }
    out.push_str("</tbody></table></div>");
    if !published {
        return;
    }
    out.push_str(
        "<p class=\"soft\">Published figures are those of another system on other machines; only ratios compare. \
         Each ratio here is taken within one run, over the quieter of the phases alone.</p>",
    );
}

/// A figure twice: for a page, and for a telephone, where text would be too small otherwise.
fn figure_element(out: &mut String, figure: &Figure, caption: &str) {
    let _ = write!(
        out,
        "<figure><div class=\"wide\">{}</div><div class=\"narrow\">{}</div><figcaption>{caption}</figcaption></figure>",
        draw(figure, &WIDE),
        draw(&Figure { tips: Vec::new(), ..figure.clone() }, &NARROW)
    );
}

/// Without and with levels, side by side on the same axes.
fn main_figure(out: &mut String, outcome: &Outcome) {
    let Some(pair) = picture::pair(outcome) else { return };
    out.push_str("<div class=\"wide\"><h2>Without and with service levels</h2><div class=\"pair\">");
    for (title, figure) in &pair {
        let _ = write!(out, "<figure><h3>{}</h3>{}</figure>", escaped(title), draw(figure, &picture::HALF));
    }
    out.push_str("</div><p class=\"soft\">Both on the same axes; each is drawn larger below.</p></div>");
}

/// What a reader of the chapter must know, from its figures.
fn remark(chapter: &Chapter) -> &'static str {
    let behind = |window: &Window| {
        let load = window.loads.iter().find(|load| load.load == super::phases::INTERACTIVE);
        load.is_some_and(|load| {
            load.held_back > 0 || load.asked_per_s.is_some_and(|asked| load.throughput_per_s < 0.97 * asked)
        })
    };
    if chapter.window("beside").is_some_and(behind) {
        " The two together ask for more than there is, and an open loop does not give way: what it could not send piles up for as long as the \
         batch load stays, and latency counts from the moment a request was due. So the factor tells how long the phase was; that it grows at all is the harm."
    } else {
        ""
    }
}

fn section(out: &mut String, outcome: &Outcome, chapter: &Chapter) {
    let _ = write!(
        out,
        "<h2 id=\"{}\">{}</h2><p>{}{}</p>",
        escaped(&chapter.id),
        escaped(&chapter.title),
        escaped(&chapter.what),
        remark(chapter)
    );
    let caption = match outcome.subject {
        Subject::Levels => {
            "Shaded: measured phases. Between them loads join and leave, and nothing is counted."
        }
        Subject::Flush => {
            "Shaded: measured phases. Between them the next server starts and warms up, and nothing is counted."
        }
        Subject::Compaction => "Shaded: the compaction, from its first to its last second.",
        Subject::Olap => {
            "Shaded: measured phases. Between them clients log in and warm up, and nothing is counted."
        }
    };
    figure_element(out, &figure::of(outcome, chapter), caption);
}

fn all_loads(out: &mut String, outcome: &Outcome) {
    out.push_str("<h2>Every load</h2><div class=\"wide-table\"><table><thead><tr><th>Load</th><th class=\"n\">answered a second</th>");
    for (name, _) in percentiles(&load::Latency::default()) {
        let _ = write!(out, "<th class=\"n\">{name}</th>");
    }
    out.push_str("</tr></thead><tbody>");
    let mut last = String::new();
    for entry in loads(outcome) {
        if entry.part != last {
            let _ = write!(out, "<tr class=\"part\"><td colspan=\"8\">{}</td></tr>", escaped(&entry.part));
            last.clone_from(&entry.part);
        }
        let _ =
            write!(out, "<tr><td>{}</td><td class=\"n\">{}</td>", escaped(&entry.load), rate(entry.per_s));
        for (_, us) in percentiles(&entry.latency) {
            let _ = write!(out, "<td class=\"n\">{}</td>", time(us));
        }
        out.push_str("</tr>");
    }
    out.push_str(
        "</tbody></table></div><p class=\"soft\">Open loops (interactive, throttled) count latency from the moment a request was due, so a \
         server that stalls is charged for everything that should have been sent meanwhile. In closed loops latency is requests in \
         flight over throughput. Where phases follow one another within one run of a load, its latency is given for all of them.</p>",
    );
}

fn full(out: &mut String, outcome: &Outcome) {
    out.push_str(
        "<h2>Who was the limit?</h2><p>How full the cores were, by whomever they were used, and the part of it that was the server's process. \
         When the server's cores are much fuller than its process, other programs took part of them; a sender above 80 % of its core measures itself. Its lag is how late it sent what no limit \
         held back, which is part of the latency of an open loop.</p>\
         <div class=\"wide-table\"><table><thead><tr><th>Phase</th><th class=\"n\">server's cores</th><th class=\"n\">server's process</th>\
         <th class=\"n\">loads' cores</th><th class=\"n\">busiest sender</th><th class=\"n\">its lag, p99</th></tr></thead><tbody>",
    );
    let told = |part: Option<f64>| part.map_or("–".to_string(), percent);
    for full in fullness(outcome) {
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escaped(&full.part),
            percent(full.busy),
            percent(full.process),
            told(full.loads),
            told(full.sender),
            full.lag_us.map_or("–".to_string(), time)
        );
    }
    out.push_str("</tbody></table></div>");
}

/// The server's own view, where it was measured.
fn served(out: &mut String, outcome: &Outcome) {
    let phases = outcome.chapters.iter().flat_map(|chapter| &chapter.windows);
    if phases.clone().all(|window| window.cpu.served.is_empty()) {
        return;
    }
    out.push_str(
        "<h2>In the server</h2><p>What the server itself counts of each level's requests: the time of service S, and the time in its queue before. \
         What a client sees beyond both is the way to the server and back, and the wait until the server reads.</p>\
         <div class=\"wide-table\"><table><thead><tr><th>Level</th><th class=\"n\">S mean</th><th class=\"n\">S p99</th>\
         <th class=\"n\">queue mean</th><th class=\"n\">queue p99</th><th class=\"n\">client p99</th></tr></thead><tbody>",
    );
    for chapter in &outcome.chapters {
        for window in chapter.windows.iter().filter(|window| !window.cpu.served.is_empty()) {
            let part = format!("{}: {}", chapter.id.replace('_', " "), window.label);
            let _ = write!(out, "<tr class=\"part\"><td colspan=\"6\">{}</td></tr>", escaped(&part));
            for (level, times) in &window.cpu.served {
                let client = window.latency(level).map_or("–".to_string(), |latency| time(latency.p99_us));
                let cells =
                    [times.service_mean_us, times.service_p99_us, times.queue_mean_us, times.queue_p99_us]
                        .map(time);
                let _ = write!(out, "<tr><td>{}</td>", escaped(level));
                for cell in cells.iter().chain([&client]) {
                    let _ = write!(out, "<td class=\"n\">{cell}</td>");
                }
                out.push_str("</tr>");
            }
        }
    }
    out.push_str("</tbody></table></div>");
}

#[cfg(test)]
mod tests;
