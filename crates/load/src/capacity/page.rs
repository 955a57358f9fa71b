//! Page of `fairlane load plan`: the answer, throughput over cores by each law, and the table.

use std::fmt::Write as _;

use crate::capacity::{Needed, NeededCores};
use crate::usl::Usl;

use charts::numbers::{rate, time};
use charts::{Across, Figure, Line, Panel, Rule, Scale, escaped};
use charts::{begin, close_table, end, figure_element, notes_element, open_table, row};

/// Points of a curve from one power of two to the next.
const FINE: usize = 8;
/// Most cores that are drawn.
const CORES_MAX: f64 = 1024.0;

/// Returns the page.
pub(crate) fn page(plan: &Needed) -> String {
    let mut out = begin("fairlane load plan");
    head(&mut out, plan);
    notes_element(&mut out, "Notes", &plan.notes);
    out.push_str("<h2>Throughput over cores</h2>");
    let caption =
        "Thick: by the law of the ladder. Thin: by the ends of its 95 % interval. The lower one decides.";
    figure_element(&mut out, &figure(plan), caption);
    rows(&mut out, plan);
    measured(&mut out, plan);
    end(&mut out);
    out
}

fn head(out: &mut String, plan: &Needed) {
    let goal = &plan.goal;
    let target = goal.p99_us.map_or("none".to_string(), |us| format!("at most {}", time(us)));
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<h1>{}</h1><dl><dt>Rate</dt><dd>{}/s</dd><dt>With headroom</dt><dd>{}/s ({:.0} % more)</dd>\
         <dt>Target of p99</dt><dd>{}</dd></dl>",
        escaped(&plan.advice()),
        rate(goal.rate_per_s),
        rate(plan.demand_per_s),
        goal.headroom * 100.0,
        escaped(&target)
    );
}

/// Returns the number of cores at the end of the axis: twice what is needed or measured.
fn cores_end(plan: &Needed) -> f64 {
    let needed = plan.rows.iter().filter_map(|row| row.cores);
    let measured = plan.measured.iter().map(|operating| operating.cores as u64);
    let most = needed.chain(measured).max().unwrap_or(1) as f64;
    (2.0 * most).clamp(2.0, CORES_MAX)
}

fn figure(plan: &Needed) -> Figure {
    let end = cores_end(plan).log2();
    let steps = (end * FINE as f64).ceil() as usize;
    let curve = |name: String, class: usize, thin: bool, law: &Usl| {
        let at = |step: usize| end * step as f64 / steps as f64;
        let points = (0..=steps).map(|step| (at(step), law.throughput(at(step).exp2())));
        Line { name, class, thin, points: points.collect() }
    };
    let mut lines = Vec::new();
    for (class, (name, [low, value, high])) in plan.laws().iter().enumerate() {
        lines.push(curve((*name).to_string(), class, false, value));
        lines.push(curve(format!("{name}, lower end"), class, true, low));
        lines.push(curve(format!("{name}, upper end"), class, true, high));
    }
    let mut panel = Panel::of_lines("X: answers a second", Scale::Log, lines, rate);
    panel.tall = 2.0;
    panel.rules = vec![Rule { value: plan.demand_per_s, label: format!("{}/s", rate(plan.demand_per_s)) }];
    let powers = (0..).map(|exponent| 1_u64 << exponent).take_while(|cores| (*cores as f64).log2() <= end);
    Figure {
        label: "throughput over cores".to_string(),
        bands: Vec::new(),
        panels: vec![panel],
        across: Across::Values {
            title: "cores (logarithmic)",
            marks: powers.map(|cores| ((cores as f64).log2(), cores.to_string())).collect(),
        },
        tips: Vec::new(),
    }
}

fn rows(out: &mut String, plan: &Needed) {
    out.push_str("<h2>Cores and concurrency</h2>");
    open_table(
        out,
        &[
            "Law over cores",
            "cost of a request",
            "cores",
            "in flight",
            "cores by the law",
            "by the upper end",
        ],
    );
    let shown =
        |number: Option<u64>, none: &str| number.map_or(none.to_string(), |number| number.to_string());
    for found in &plan.rows {
        let NeededCores { law, cores, cores_by_value, cores_by_high, concurrency, .. } = found;
        let cells = [
            found.cost_label(),
            shown(*cores, "never"),
            shown(*concurrency, "–"),
            shown(*cores_by_value, "never"),
            shown(*cores_by_high, "never"),
        ];
        row(out, law, &cells);
    }
    close_table(out);
    out.push_str(
        "<p class=\"soft\">Never: by that law no number of cores of one server reaches the rate.</p>",
    );
}

fn measured(out: &mut String, plan: &Needed) {
    out.push_str("<h2>Measured</h2>");
    let columns =
        ["Ladder", "load", "cores", "in flight", "linear up to", "answers a second", "95 % interval", "p99"];
    open_table(out, &columns);
    for operating in &plan.measured {
        let x = &operating.throughput_per_s;
        let cells = [
            escaped(&operating.load),
            operating.cores.to_string(),
            operating.n.to_string(),
            operating.linear_end.to_string(),
            rate(x.value),
            format!("{} to {}", rate(x.low), rate(x.high)),
            format!("{} with {} in flight", time(operating.p99_us), operating.p99_n),
        ];
        row(out, &operating.file, &cells);
    }
    close_table(out);
}

#[cfg(test)]
mod tests {
    use crate::capacity::{Goal, Operating, needed};
    use crate::usl::Estimate;

    use super::*;

    #[test]
    fn page_has_answer_chart_and_brackets() {
        let throughput_per_s = Estimate { value: 30_000.0, low: 28_000.0, high: 32_000.0 };
        let operating = Operating {
            file: "<usl>.json".into(),
            load: "read".into(),
            cores: 2,
            n: 12,
            linear_end: 12,
            throughput_per_s,
            p99_n: 16,
            p99_us: 900.0,
        };
        let goal = Goal { rate_per_s: 100_000.0, p99_us: Some(2000.0), headroom: 0.3 };
        let shown = page(&needed(goal, vec![operating.clone()]));
        for words in
            ["<h1>Plan: 10 cores with 60 in flight (linear)", "<svg", "σ = 5 %", "+20 %", "&lt;usl&gt;"]
        {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        let never = page(&needed(Goal { rate_per_s: 1e9, ..goal }, vec![operating]));
        assert!(never.contains("never"), "{never}");
        assert!(!shown.contains("NaN") && !never.contains("NaN") && !never.contains("inf<"));
    }
}
