//! Ladder as text: a line for each concurrency, the law, its regions, and what was left out.

use std::fmt::Write as _;

use super::confidence::Estimate;
use super::ladder::Ladder;
use super::rung::Rung;
use super::scaling::Scaling;
use crate::text::time;

impl Ladder {
    /// Formats the ladder as text.
    pub fn text(&self) -> String {
        // Writing to a String cannot fail.
        let mut out = format!(
            "Ladder of {} on {}: {} connections, {} threads, {:.0} s a rung\n\n",
            self.conditions.load,
            self.conditions.hosts.join(","),
            self.conditions.connections,
            self.conditions.threads,
            self.conditions.seconds
        );
        let _ = writeln!(
            out,
            "{:>9}{:>7}{:>9}{:>12}{:>12}{:>10}{:>10}{:>10}{:>10}{:>8}{:>7}",
            "in flight",
            "valid",
            "a conn.",
            "answers/s",
            "by the law",
            "R mean",
            "R p50",
            "R p99",
            "S mean",
            "server",
            "load"
        );
        for n in self.concurrencies() {
            self.line(&mut out, n);
        }
        let _ = writeln!(
            out,
            "R: response time by the client's clock; S: service time by the server's; CPU of server and load in cores\n"
        );
        match &self.scaling {
            None => out.push_str("No law: fewer than four concurrencies have a valid measurement.\n"),
            Some(scaling) => scaling.sentences().iter().for_each(|sentence| {
                let _ = writeln!(out, "{sentence}");
            }),
        }
        for rung in self.rungs.iter().filter(|rung| !rung.is_valid()) {
            let _ = writeln!(
                out,
                "! invalid, not fitted: {} in flight in round {} ({:.0}/s): {}",
                rung.n,
                rung.round,
                rung.throughput_per_s,
                rung.invalid.join("; ")
            );
        }
        for warning in &self.warnings {
            let _ = writeln!(out, "! {warning}");
        }
        out
    }

    /// Returns the measured concurrencies, ascending.
    pub fn concurrencies(&self) -> Vec<usize> {
        let mut out: Vec<usize> = self.rungs.iter().map(|rung| rung.n).collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Returns the mean of a quantity over the valid measurements of one concurrency. `None`: there
    /// is no valid one, or one lacks the quantity.
    pub fn mean(&self, n: usize, quantity: impl Fn(&Rung) -> Option<f64>) -> Option<f64> {
        let valid = || self.rungs.iter().filter(|rung| rung.n == n && rung.is_valid());
        let values: Vec<f64> = valid().map(quantity).collect::<Option<_>>()?;
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    fn line(&self, out: &mut String, n: usize) {
        let all = self.rungs.iter().filter(|rung| rung.n == n);
        let (count, valid) =
            all.fold((0, 0), |(all, valid), rung| (all + 1, valid + usize::from(rung.is_valid())));
        let shown = |value: Option<f64>, format: fn(f64) -> String| value.map_or("-".to_string(), format);
        let whole = |value: f64| format!("{value:.0}");
        let cores = |value: f64| format!("{value:.2}");
        let law = self.scaling.as_ref().map(|scaling| scaling.fitted.law.throughput(n as f64));
        let _ = writeln!(
            out,
            "{n:>9}{:>7}{:>9.2}{:>12}{:>12}{:>10}{:>10}{:>10}{:>10}{:>8}{:>7}",
            format!("{valid}/{count}"),
            n as f64 / self.conditions.connections.max(1) as f64,
            shown(self.mean(n, |rung| Some(rung.throughput_per_s)), whole),
            shown(law, whole),
            shown(self.mean(n, |rung| Some(rung.response.mean_us)), time),
            shown(self.mean(n, |rung| Some(rung.response.p50_us)), time),
            shown(self.mean(n, |rung| Some(rung.response.p99_us)), time),
            shown(self.mean(n, |rung| rung.server.service_us), time),
            shown(self.mean(n, |rung| rung.server.cores), cores),
            shown(self.mean(n, |rung| Some(rung.generator_cpu)), cores),
        );
    }
}

impl Scaling {
    /// Returns the conclusions as sentences, the advice last.
    pub fn sentences(&self) -> Vec<String> {
        let range = |estimate: &Estimate, digits: usize| {
            let Estimate { value, low, high } = estimate;
            format!("{value:.digits$} [{low:.digits$}, {high:.digits$}]")
        };
        let lambda = range(&self.fitted.lambda, 0);
        let sigma = range(&self.fitted.sigma, 4);
        let kappa = range(&self.fitted.kappa, 8);
        let mut out = vec![format!("USL, with 95 % intervals: λ {lambda}/s, σ {sigma}, κ {kappa}")];
        if let Some(each) = self.each_per_s {
            out.push(format!(
                "superlinear start, not fitted: {} in flight. Requests cost less in a deeper queue. At {} in flight \
                 X ÷ N is {each:.0}/s, and the law is fitted from there on",
                list(&self.superlinear),
                self.from_n
            ));
        }
        out.push(format!("linear up to N = {}", range(&self.linear_end, 0)));
        match (&self.peak, &self.saturated_from) {
            (Some(peak), _) => out.push(format!(
                "saturated from N = {}, peak at N = {}: {}/s, retrograde from N = {}",
                range(&peak.saturated_from, 0),
                range(&peak.n, 0),
                range(&peak.throughput_per_s, 0),
                range(&peak.retrograde_from, 0)
            )),
            (None, saturated) => {
                let saturated = saturated.map(|from| format!("saturated from N = {}; ", range(&from, 0)));
                let saturated = saturated.unwrap_or_default();
                out.push(format!("{saturated}no retreat seen up to N = {}", self.up_to_n));
            }
        }
        for misfit in &self.misfits {
            let percent = misfit.residual * 100.0;
            out.push(format!("! the law does not explain {} in flight: measured {percent:+.0} %", misfit.n));
        }
        out.push(match self.advice() {
            Some(n) if self.is_explained() => {
                format!("Stay at {n} in flight or below, in the linear region.")
            }
            Some(n) => format!(
                "Stay at {n} in flight or below: up to there the measured X ÷ N is at least 80 % of that at {}. The \
                 law does not explain all rungs, so nothing is predicted between or beyond them.",
                self.from_n
            ),
            None => "No advice: the law does not explain all rungs.".to_owned(),
        });
        out
    }
}

fn list(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns a ladder with rungs 1, 2, 4 … `last` of this throughput in three rounds, with up to 2 %
/// of noise.
#[cfg(test)]
pub(crate) fn synthetic(last: usize, throughput: impl Fn(f64) -> f64) -> Ladder {
    use super::rung::tests::rung;
    use crate::experiment::Conditions;

    let powers = || (0..).map(|exponent| 1usize << exponent).take_while(|n| *n <= last);
    let noisy = |round: usize, n: usize| {
        rung(round, n, throughput(n as f64) * (0.98 + 0.01 * ((round + n) % 4) as f64))
    };
    let rungs: Vec<Rung> =
        (1..=3).flat_map(|round| powers().map(move |n| (round, n))).map(|(r, n)| noisy(r, n)).collect();
    Ladder {
        conditions: Conditions {
            load: "read over 1000 keys".into(),
            hosts: vec!["server:9042".into()],
            connections: 16,
            threads: 1,
            seconds: 8.0,
            warmup_s: 2.0,
            seed: 1,
        },
        server_core_count: None,
        scaling: Scaling::of(&rungs, 1),
        rungs,
        warnings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::law::Usl;
    use super::*;

    fn ladder(law: Usl) -> Ladder {
        synthetic(4096, |n| law.throughput(n))
    }

    fn check(ladder: &Ladder, expected: &[&str], absent: &[&str]) {
        let text = ladder.text();
        assert!(expected.iter().all(|words| text.contains(words)), "{text}");
        assert!(!absent.iter().any(|words| text.contains(words)), "{text}");
        let json = serde_json::to_string(ladder).expect("a ladder serializes");
        let back: Ladder = serde_json::from_str(&json).expect("the JSON parses");
        assert_eq!(back.text(), text);
    }

    #[test]
    fn report_has_a_peak_or_states_that_none_was_seen() {
        let law = Usl { lambda: 3000.0, sigma: 0.02, kappa: 0.0001 };
        check(&ladder(law), &["peak at N", "retrograde from", "Stay at 12 in flight"], &["no retreat", "!"]);
        let amdahl = Usl { kappa: 0.0, ..law };
        let expected = ["no retreat seen up to N = 4096", "linear up to", "saturated from N = "];
        check(&ladder(amdahl), &expected, &["peak", "retrograde"]);
    }

    #[test]
    fn invalid_rungs_are_shown_with_their_reason() {
        let mut shown = ladder(Usl { lambda: 3000.0, sigma: 0.02, kappa: 0.0001 });
        let last = shown.rungs.iter_mut().find(|rung| rung.n == 4096).expect("the last rung");
        last.invalid = vec!["the generator used 93 % of its core".into()];
        check(&shown, &["2/3", "! invalid, not fitted: 4096 in flight in round 1", "93 %"], &[]);
        shown.scaling = None;
        check(&shown, &["No law"], &["USL", "Stay"]);
    }
}
