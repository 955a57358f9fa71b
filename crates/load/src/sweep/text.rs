//! Sweep as text: a line for each run, the conclusions, and what was left out.

use std::fmt::Write as _;

use super::measure::Sweep;
use super::run::SweepRun;
use crate::text::time;

impl Sweep {
    /// Formats the sweep as text.
    pub fn text(&self) -> String {
        // Writing to a String cannot fail.
        let mut out = format!(
            "Sweep of {} on {}: 100 % is {:.0}/s ({}); {} connections, {} threads, {:.0} s a run, at most {} in \
             flight\n\n",
            self.conditions.load,
            self.conditions.hosts.join(","),
            self.peak.per_s,
            self.peak.from,
            self.conditions.connections,
            self.conditions.threads,
            self.conditions.seconds,
            self.bound
        );
        let _ = writeln!(
            out,
            "{:>6}{:>5}{:>10}{:>11}{:>9}{:>16}{:>7}{:>10}{:>10}{:>8}{:>10}{:>10}{:>8}{:>7}  result",
            "rate",
            "run",
            "due/s",
            "answers/s",
            "N mean",
            "N 5..95 %",
            "N max",
            "R mean",
            "R p99",
            "growth",
            "S mean",
            "lag p99",
            "server",
            "load"
        );
        for run in &self.runs {
            line(&mut out, run);
        }
        let _ = writeln!(
            out,
            "R: response time since a request was due; growth: R of the last quarter over that of the first; S: \
             service time by the\nserver's clock; lag: the generator's own delay, a part of R; CPU of server and \
             load in cores\n"
        );
        for (sentence, _) in self.verdict.sentences() {
            let _ = writeln!(out, "{sentence}");
        }
        let named =
            |run: &SweepRun| format!("run {} at {:.0} %", run.requested.number, run.requested.part * 100.0);
        for run in self.runs.iter().filter(|run| !run.is_valid()) {
            let _ = writeln!(out, "! invalid, not judged: {}: {}", named(run), run.invalid.join("; "));
        }
        for run in self.runs.iter().filter(|run| run.is_valid() && !run.is_stable()) {
            let _ = writeln!(out, "! unstable: {}: {}", named(run), run.unstable.join("; "));
        }
        if self.runs.len() < self.planned {
            let _ = writeln!(out, "! stopped after {} of {} runs", self.runs.len(), self.planned);
        }
        for warning in &self.warnings {
            let _ = writeln!(out, "! {warning}");
        }
        out
    }
}

impl SweepRun {
    /// Returns the result in one word.
    pub fn result(&self) -> &'static str {
        match (self.is_valid(), self.is_stable()) {
            (false, _) => "invalid",
            (true, true) => "stable",
            (true, false) => "unstable",
        }
    }
}

fn line(out: &mut String, run: &SweepRun) {
    let shown = |value: Option<f64>, format: fn(f64) -> String| value.map_or("-".to_string(), format);
    let cores = |value: f64| format!("{value:.2}");
    let _ = writeln!(
        out,
        "{:>6}{:>5}{:>10.0}{:>11.0}{:>9.1}{:>16}{:>7}{:>10}{:>10}{:>8}{:>10}{:>10}{:>8}{:>7.2}  {}",
        format!("{:.0} %", run.requested.part * 100.0),
        run.requested.number,
        run.requested.rate_per_s,
        run.throughput_per_s,
        run.in_flight.n,
        format!("{:.1}..{:.1}", run.in_flight.n_low, run.in_flight.n_high),
        run.in_flight.n_max,
        time(run.response.mean_us),
        time(run.response.p99_us),
        shown(run.growth, |growth| format!("×{growth:.2}")),
        shown(run.server.service_us, time),
        time(run.generator.lag_p99_us),
        shown(run.server.cores, cores),
        run.generator.cpu,
        run.result()
    );
}

#[cfg(test)]
mod tests {
    use super::super::measure::PeakRate;
    use super::super::run::tests::{TestRun, run};
    use super::super::verdict::Verdict;
    use super::*;
    use crate::experiment::Conditions;

    fn sweep(runs: Vec<SweepRun>) -> Sweep {
        Sweep {
            conditions: Conditions {
                load: "read over 1000 keys".into(),
                hosts: vec!["server:9042".into()],
                connections: 16,
                threads: 1,
                seconds: 20.0,
                warmup_s: 2.0,
                seed: 1,
            },
            peak: PeakRate { per_s: 100_000.0, from: "usl.json: X* at N = 99".into() },
            planned: 4,
            bound: 4096,
            verdict: Verdict::of(&runs),
            runs,
            warnings: vec!["no metrics from x".into()],
        }
    }

    fn check(sweep: &Sweep, expected: &[&str], absent: &[&str]) {
        let text = sweep.text();
        assert!(expected.iter().all(|words| text.contains(words)), "{text}");
        assert!(!absent.iter().any(|words| text.contains(words)), "{text}");
        let json = serde_json::to_string(sweep).expect("a sweep serializes");
        let back: Sweep = serde_json::from_str(&json).expect("the JSON parses");
        assert_eq!(back.text(), text);
    }

    #[test]
    fn report_has_every_run_and_the_conclusions() {
        let unstable = TestRun { number: 2, response_us: 900.0, ..TestRun::default() }
            .changed(|s| s.in_flight_max = 4096);
        let runs =
            vec![run(0.04, 1, 100.0, 20.0), run(0.4, 1, 150.0, 21.0), run(1.0, 1, 900.0, 22.0), unstable];
        let all = sweep(runs);
        assert!(all.is_complete());
        let expected = [
            "100 % is 100000/s (usl.json: X* at N = 99)",
            "stable in 1 of 2 runs at 100 %",
            "S from 4 to 40 %: ×1.05, met (within 20 %)",
            "R from 4 to 40 %: ×1.50, met (at most ×1.67)",
            "! unstable: run 2 at 100 %: N reached the bound of 4096",
            "! no metrics",
        ];
        check(&all, &expected, &["invalid", "stopped"]);
    }

    #[test]
    fn stopped_sweep_reports_what_was_measured() {
        let stopped = TestRun {
            part: 0.4,
            response_us: 100.0,
            stopped: true,
            of_seconds_us: Some(&[100.0; 3]),
            ..TestRun::default()
        };
        let stopped = stopped.changed(|_| {});
        let partial = sweep(vec![run(0.04, 1, 100.0, 20.0), stopped]);
        assert!(!partial.is_complete());
        let expected = [
            "no valid run at 100 %",
            "R from 4 to 40 %: not measured",
            "! invalid, not judged: run 1 at 40 %: it was stopped",
            "! stopped after 2 of 4 runs",
        ];
        check(&partial, &expected, &["unstable", "missed"]);
    }
}
