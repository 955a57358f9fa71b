//! Report as one HTML page without scripts, fonts or images. It is light or dark as the reader's
//! system, and light on paper. Colours are those of Okabe and Ito, which colour-blind readers can
//! distinguish, darker on white for text. Lines also have names, dashes and marks.

mod batching;
mod cpu;
mod figure;
mod notes;
mod olap;
mod overload;
mod picture;
mod storage;
mod tables;

use std::fmt::Write as _;

use crate::compare::published_by;
use crate::headline;
use crate::listing::machine_line;
use crate::names::INTERACTIVE;
use crate::results::{Chapter, DemoResults, Subject, Window};
use charts::numbers::{percent, rate};
use charts::{begin, draw, end, escaped, figure_element, notes_element};

pub(crate) use picture::picture;

/// Returns the page.
pub(crate) fn page(outcome: &DemoResults) -> String {
    let mut out = begin("fairlane demo");
    head(&mut out, outcome);
    let shown = main_figure(&mut out, outcome);
    comparison(&mut out, outcome);
    about(&mut out, outcome);
    for chapter in &outcome.chapters[shown..] {
        section(&mut out, outcome, chapter);
    }
    // The demo of compactions has no loads.
    if outcome.subject != Subject::Compaction {
        tables::loads(&mut out, outcome);
        tables::cores(&mut out, outcome);
    }
    tables::offered(&mut out, outcome);
    tables::nodes(&mut out, outcome);
    tables::served(&mut out, outcome);
    end(&mut out);
    out
}

fn head(out: &mut String, outcome: &DemoResults) {
    // Writing to a String cannot fail.
    let _ = write!(out, "<h1>{}</h1>", escaped(&headline::headline(outcome)));
    for sentence in [Some(headline::sentence(outcome)), headline::batch(outcome)].into_iter().flatten() {
        let _ = write!(out, "<p class=\"lead\">{}</p>", escaped(&sentence));
    }
    let heading = if outcome.invalid() { "Invalid in part: do not quote" } else { "Notes" };
    notes_element(out, heading, &outcome.notes);
}

/// Writes the circumstances of the run.
fn about(out: &mut String, outcome: &DemoResults) {
    let form = if outcome.quick { "quick: phases of seconds, coarse results" } else { "full" };
    let shape = if outcome.shape == "published" {
        "published: single-row reads, 200 in flight at 20 % of capacity beside 1800 unbounded"
    } else {
        "slices: single-row reads beside slices of 100 rows"
    };
    let command = if outcome.command.is_empty() { "fairlane demo" } else { &outcome.command };
    let duration = if outcome.seconds > 0.0 { format!(", {:.0} s", outcome.seconds) } else { String::new() };
    let mut rows = vec![
        ("Command", format!("<code>{}</code>", escaped(command))),
        (
            "Form",
            if outcome.subject == Subject::Levels { format!("{form}; {shape}") } else { form.to_string() },
        ),
        ("Version", format!("fairlane {}", escaped(&outcome.version))),
        ("Date", format!("{}{duration}", units::minute_text(outcome.started_unix_ms / 1000))),
        ("Machine", escaped(&machine_line(&outcome.machine))),
    ];
    let capacity = capacity(outcome);
    if !capacity.is_empty() {
        rows.push(("Capacity, alone", escaped(&capacity)));
    }
    out.push_str("<h2>The run</h2><dl>");
    for (name, value) in rows {
        let _ = write!(out, "<dt>{name}</dt><dd>{value}</dd>");
    }
    out.push_str("</dl>");
}

fn capacity(outcome: &DemoResults) -> String {
    let runs = [&outcome.capacity.reads, &outcome.capacity.batch, &outcome.capacity.writes];
    let capacities = runs
        .into_iter()
        .flatten()
        .map(|run| format!("{} a second: {}", rate(run.throughput_per_s), run.load));
    let mut capacities: Vec<String> = capacities.collect();
    let interactive = outcome.capacity.interactive;
    if interactive.per_s > 0.0 {
        let alone = outcome.chapter("one_level").and_then(|chapter| chapter.window("before"));
        let of = alone.map_or(String::new(), |window| {
            format!(", which alone take {} of the server's CPU", percent(window.cpu.server_part()))
        });
        capacities.push(format!("the interactive load requests {} a second{of}", rate(interactive.per_s)));
    }
    capacities.join("; ")
}

fn comparison(out: &mut String, outcome: &DemoResults) {
    let rows = &outcome.comparison;
    let published = rows.iter().any(|row| !row.published.is_empty());
    let heading = if published { "Compared with published results" } else { "Compared with the goals" };
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
            "<tr><td>{}<small>{}</small></td><td class=\"seen\" data-name=\"here\">{}</td><td \
             data-name=\"goal\">{}</td><td data-name=\"published\">{}</td>{verdict}</tr>",
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
    let _ = write!(
        out,
        "<p class=\"soft\">Published: {}. That is another system on other machines, so that only ratios are \
         comparable. Each ratio here is computed within one run, over the phase alone with the lower p99.</p>",
        escaped(published_by(outcome.subject))
    );
}

/// Writes two chapters side by side, on the same axes, or the first chapter. Returns the number of
/// chapters that need no section of their own.
fn main_figure(out: &mut String, outcome: &DemoResults) -> usize {
    let Some(pair) = picture::pair(outcome) else {
        let first = outcome.chapters.first();
        first.into_iter().for_each(|chapter| section(out, outcome, chapter));
        return usize::from(first.is_some());
    };
    let heading = match outcome.subject {
        Subject::Overload => "Without and with a limit",
        Subject::Petabyte => "Large and small data",
        Subject::Batching => "Partitions in parallel, and batches",
        _ => "Without and with service levels",
    };
    let _ = write!(out, "<div class=\"wide\"><h2>{heading}</h2><div class=\"pair\">");
    for (title, figure) in &pair {
        let _ = write!(out, "<figure><h3>{}</h3>{}</figure>", escaped(title), draw(figure, &charts::HALF));
    }
    out.push_str("</div><p class=\"soft\">Both have the same axes. Each is drawn larger below.</p></div>");
    0
}

/// Returns a remark on a chapter whose interactive load got less than its requested rate.
fn remark(chapter: &Chapter) -> &'static str {
    let behind = |window: &Window| {
        let load = window.loads.iter().find(|load| load.load == INTERACTIVE);
        load.is_some_and(|load| {
            load.held_back > 0 || load.asked_per_s.is_some_and(|asked| load.throughput_per_s < 0.97 * asked)
        })
    };
    if chapter.window("beside").is_some_and(behind) {
        " The two loads request more than the server can do, and an open loop does not yield: its backlog grows \
         while the batch load runs, and latency starts when a request is due. So the factor depends on the length \
         of the phase."
    } else {
        ""
    }
}

fn section(out: &mut String, outcome: &DemoResults, chapter: &Chapter) {
    let _ = write!(
        out,
        "<h2 id=\"{}\">{}</h2><p>{}{}</p>",
        escaped(&chapter.id),
        escaped(&chapter.title),
        escaped(&chapter.what),
        remark(chapter)
    );
    let caption = match outcome.subject {
        Subject::Levels | Subject::Cluster => "Shaded: measured phases. Loads join and leave between them.",
        Subject::Flush => "Shaded: measured phases. Servers start and warm up between them.",
        Subject::Compaction => "Shaded: the compaction, from its first to its last second.",
        Subject::Batching => {
            "Shaded: measured phases. Between them all commands end, and the rows are compared with sequential \
             execution."
        }
        Subject::Petabyte => "Shaded: measured phases. Rates and settings change between them.",
        Subject::Overload => "Lines that end early: the generator was the limit, or nothing was answered.",
        Subject::Olap => "Shaded: measured phases. Clients log in and warm up between them.",
    };
    figure_element(out, &figure::of(outcome, chapter), caption);
}

#[cfg(test)]
mod tests;
