//! Plan as text.

use std::fmt::Write as _;

use super::cores::{Needed, NeededCores};
use super::operating::Operating;
use crate::text::time;

impl Needed {
    /// Formats the plan as text.
    pub fn text(&self) -> String {
        let goal = &self.goal;
        let target = goal.p99_us.map_or(String::new(), |us| format!(", p99 of at most {}", time(us)));
        // Writing to a String cannot fail.
        let mut out = format!(
            "Plan for {:.0}/s with {:.0} % headroom, {:.0}/s in all{target}\n\n",
            goal.rate_per_s,
            goal.headroom * 100.0,
            self.demand_per_s
        );
        for operating in &self.measured {
            measured(&mut out, operating);
        }
        if let Some(law) = &self.fitted {
            let _ = writeln!(
                out,
                "Over cores: λ {:.0}/s for one, σ {:.4}, κ {:.6}",
                law.lambda, law.sigma, law.kappa
            );
        }
        let _ = writeln!(
            out,
            "\n{:<12}{:>16}{:>8}{:>11}{:>13}{:>13}",
            "over cores", "cost a request", "cores", "in flight", "by the law", "upper end"
        );
        for row in &self.rows {
            line(&mut out, row);
        }
        let _ = writeln!(
            out,
            "Cores by the lower end of the interval of X, with the concurrency for them; then by the law and by the \
             upper end\n"
        );
        let _ = writeln!(out, "{}", self.advice());
        for note in &self.notes {
            let _ = writeln!(out, "! {note}");
        }
        out
    }

    /// Returns the plan as one sentence.
    pub fn advice(&self) -> String {
        let plain = || self.rows.iter().filter(|row| row.cost == 1.0);
        let named = |row: &NeededCores| match (row.cores, row.concurrency) {
            (Some(cores), Some(n)) => Some(format!("{cores} cores with {n} in flight ({})", row.law)),
            _ => None,
        };
        let found: Vec<String> = plain().filter_map(named).collect();
        if found.is_empty() {
            return "No number of cores of one server suffices.".to_string();
        }
        format!("Plan: {}", found.join(", "))
    }
}

fn measured(out: &mut String, operating: &Operating) {
    let x = &operating.throughput_per_s;
    let _ = writeln!(
        out,
        "{}, {}: {} cores, {} in flight (linear up to {}): {:.0} [{:.0}, {:.0}]/s, p99 {} with {} in flight",
        operating.file,
        operating.load,
        operating.cores,
        operating.n,
        operating.linear_end,
        x.value,
        x.low,
        x.high,
        time(operating.p99_us),
        operating.p99_n
    );
}

impl NeededCores {
    /// Returns the cost of a request in words: `as measured`, or the difference.
    pub fn cost_label(&self) -> String {
        match self.cost {
            1.0 => "as measured".to_string(),
            cost => format!("{:+.0} %", (cost - 1.0) * 100.0),
        }
    }
}

fn line(out: &mut String, row: &NeededCores) {
    let cost = row.cost_label();
    let shown = |cores: Option<u64>| cores.map_or("never".to_string(), |cores| cores.to_string());
    let concurrency = row.concurrency.map_or("-".to_string(), |n| n.to_string());
    let _ = writeln!(
        out,
        "{:<12}{cost:>16}{:>8}{concurrency:>11}{:>13}{:>13}",
        row.law,
        shown(row.cores),
        shown(row.cores_by_value),
        shown(row.cores_by_high)
    );
}

#[cfg(test)]
mod tests {
    use super::super::cores::{Goal, needed};
    use super::super::operating::operating;
    use super::super::operating::tests::{LAW, ladder};

    fn check(goal: Goal, expected: &[&str]) {
        let operating = operating("usl.json", &ladder(LAW, 4096), 2, goal.p99_us).expect("a law");
        let text = needed(goal, vec![operating]).text();
        assert!(expected.iter().all(|words| text.contains(words)), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn report_has_the_plan_and_its_brackets() {
        let goal = Goal { rate_per_s: 100_000.0, p99_us: Some(2000.0), headroom: 0.3 };
        let expected = [
            "Plan for 100000/s with 30 % headroom, 130000/s in all, p99 of at most 2.00 ms",
            "usl.json, read over 1000 keys: 2 cores, 12 in flight (linear up to 12)",
            "Plan: 9 cores with 54 in flight (linear), 15 cores with 90 in flight (σ = 5 %)",
            "as measured",
            "+20 %",
            "-20 %",
            "σ = 5 %",
            "! 1 core count determines no law",
        ];
        check(goal, &expected);
        check(Goal { rate_per_s: 1e7, ..goal }, &["never", "in flight (linear)\n"]);
    }
}
