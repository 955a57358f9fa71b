//! The results beside the published ones, as text.

use super::stages::{Measured, MeasuredLoad};

/// Names of the stages.
pub(super) const BATCH_ALONE: &str = "200 alone";
pub(super) const ALONE: &str = "OLTP alone";
pub(super) const ONE_LEVEL: &str = "OLTP and OLAP, one level";
pub(super) const TWO_LEVELS: &str = "OLTP and OLAP, a level each";
pub(super) const SHARES: [&str; 3] = ["200:400", "200:800", "200:400:800"];

/// Roles of the loads, which are the names of their levels.
pub(super) const OLTP: &str = "oltp";
pub(super) const OLAP: &str = "olap";
pub(super) const LOADS: [&str; 3] = ["load200", "load400", "load800"];

/// Source of the published results.
const PUBLISHED_BY: &str = "ScyllaDB, \"Running OLAP and OLTP Workloads on the Same Cluster with Workload \
                            Prioritization\", scylladb.com, 23 May 2019";
/// Published ratios of operations, in the order of [`SHARES`].
const PUBLISHED_SHARES: [&str; 3] = ["1:1.42", "1:2.71", "1:2.44:3.33"];

/// Least fraction of its CPUs that the server uses if it is the limit: it also sleeps between the
/// packets of its clients.
const BUSY_MIN: f64 = 0.9;

/// Returns the table of all loads.
pub(super) fn loads(stages: &[Measured]) -> String {
    let header = ["stage", "load", "op/s", "mean ms", "median", "p95", "p99", "p99.9", "max", "server busy"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for stage in stages {
        for load in &stage.loads {
            let mut row = vec![stage.stage.to_owned(), load.role.to_owned()];
            row.push(or_dash(load.rate_per_s.map(|rate| format!("{rate:.0}"))));
            let found = load.results.as_ref();
            let latencies = found.map(|r| [r.mean_ms, r.median_ms, r.p95_ms, r.p99_ms, r.p999_ms, r.max_ms]);
            let shown = latencies.map(|all| all.map(|ms| Some(format!("{ms:.1}")))).unwrap_or_default();
            row.extend(shown.map(or_dash));
            row.push(percent(stage.busy));
            rows.push(row);
        }
    }
    table(&rows)
}

/// Returns the table of ratios beside the published ones.
pub(super) fn ratios(stages: &[Measured]) -> String {
    let stage = |name: &str| stages.iter().find(|stage| stage.stage == name);
    let mut rows = vec![["what", "here", "published", "server busy"].map(str::to_owned).to_vec()];
    let mut add = |what: String, here: Option<String>, published: &str, in_stage: &str| {
        // Stages that were left out have no row.
        if let Some(stage) = stage(in_stage) {
            let undecided = if stage.busy < BUSY_MIN { ": undecided" } else { "" };
            let busy = format!("{}{undecided}", percent(stage.busy));
            rows.push(vec![what, or_dash(here), published.to_owned(), busy]);
        }
    };
    let of = |name: &str, role: &str, value: fn(&MeasuredLoad) -> Option<f64>| {
        stage(name).and_then(|stage| stage.load(role)).and_then(value)
    };
    let p99 = |load: &MeasuredLoad| load.results.as_ref().map(|results| results.p99_ms);
    let rate = |load: &MeasuredLoad| load.rate_per_s;
    for (name, how, p99_published, kept_published) in
        [(ONE_LEVEL, "one level", "×6", "–"), (TWO_LEVELS, "a level each", "×2 to ×3.5", "90 to 97 %")]
    {
        let here = ratio(of(name, OLTP, p99), of(ALONE, OLTP, p99)).map(|value| format!("×{value:.2}"));
        add(format!("p99 of OLTP, beside/alone, {how}"), here, p99_published, name);
        let here = ratio(of(name, OLTP, rate), of(ALONE, OLTP, rate)).map(percent);
        add(format!("throughput kept by OLTP, {how}"), here, kept_published, name);
    }
    let kept = ratio(of(TWO_LEVELS, OLAP, rate), of(BATCH_ALONE, LOADS[0], rate));
    let lost = kept.map(|kept| percent(1.0 - kept));
    add("throughput lost by OLAP, a level each".to_owned(), lost, "4 to 18 %", TWO_LEVELS);
    for (name, published) in SHARES.into_iter().zip(PUBLISHED_SHARES) {
        let loads = stage(name).map_or(&[][..], |stage| &stage.loads);
        let operations: Option<Vec<f64>> = loads.iter().map(rate).collect();
        add(format!("operations, shares {name}"), operations.and_then(over_first), published, name);
        let cpu = loads.iter().map(|load| load.cpu_s).collect();
        add(format!("CPU of the server, shares {name}"), over_first(cpu), "–", name);
    }
    table(&rows)
}

/// Returns the paragraph below the tables.
pub(super) fn notes(scaled: &str) -> String {
    format!(
        "Published: {PUBLISHED_BY}, figures 6 to 13. That is another system on other machines, so that only \
         ratios are comparable.\n\
         Scaled: {scaled} As published are the tool, 200 threads with a throttle and a Gaussian \
         distribution for OLTP, and 900 threads without a throttle for OLAP and for each load with shares. \
         Other options are the tool's defaults, all loads read, and the levels of OLTP and OLAP have 1000 and \
         100 shares.\n\
         Undecided: the server is not busy, so there is nothing to divide by shares. The loads are the limit, \
         and a row shows how they share their own CPUs. Use a machine with more CPUs, and `--cores 1`.\n"
    )
}

fn ratio(value: Option<f64>, base: Option<f64>) -> Option<f64> {
    let (value, base) = value.zip(base)?;
    (base > 0.0).then(|| value / base)
}

/// Returns the values over the first one, such as `1:2.00`.
fn over_first(values: Vec<f64>) -> Option<String> {
    let (first, rest) = values.split_first()?;
    let ratios =
        rest.iter().map(|value| ratio(Some(*value), Some(*first)).map(|ratio| format!(":{ratio:.2}")));
    Some(format!("1{}", ratios.collect::<Option<String>>()?))
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

/// Returns rows as a table of Markdown whose columns are aligned. The first row is the header.
fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cells = row.iter().enumerate().map(|(column, cell)| format!(" {cell:<0$} |", width(column)));
        text += &format!("|{}\n", cells.collect::<String>());
        if index == 0 {
            let rules = (0..row.len()).map(|column| format!("{}|", "-".repeat(width(column) + 2)));
            text += &format!("|{}\n", rules.collect::<String>());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::output::Results;
    use super::*;

    fn load(role: &'static str, rate_per_s: f64, p99_ms: f64, cpu_s: f64) -> MeasuredLoad {
        let results = Some(Results { p99_ms, ..Results::default() });
        MeasuredLoad { role, rate_per_s: Some(rate_per_s), cpu_s, results }
    }

    fn stage(stage: &'static str, loads: Vec<MeasuredLoad>) -> Measured {
        Measured { stage, busy: 0.95, loads }
    }

    #[test]
    fn ratios_are_of_the_load_alone_and_of_the_first_load() {
        let idle = vec![load(LOADS[0], 100.0, 9.0, 1.0), load(LOADS[1], 150.0, 9.0, 2.0)];
        let stages = [
            stage(BATCH_ALONE, vec![load(LOADS[0], 1000.0, 9.0, 1.0)]),
            stage(ALONE, vec![load(OLTP, 100.0, 2.0, 0.0)]),
            stage(TWO_LEVELS, vec![load(OLTP, 96.0, 5.0, 1.0), load(OLAP, 900.0, 9.0, 1.0)]),
            stage(SHARES[1], vec![load(LOADS[0], 100.0, 9.0, 1.0), load(LOADS[2], 410.0, 9.0, 4.0)]),
            Measured { stage: SHARES[0], busy: 0.4, loads: idle },
        ];
        let text = ratios(&stages);
        let found: Vec<Vec<&str>> =
            text.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        let expected = [
            ["p99 of OLTP, beside/alone, a level each", "×2.50", "×2 to ×3.5", "95 %"],
            ["throughput kept by OLTP, a level each", "96 %", "90 to 97 %", "95 %"],
            ["throughput lost by OLAP, a level each", "10 %", "4 to 18 %", "95 %"],
            ["operations, shares 200:400", "1:1.50", "1:1.42", "40 %: undecided"],
            ["CPU of the server, shares 200:400", "1:2.00", "–", "40 %: undecided"],
            ["operations, shares 200:800", "1:4.10", "1:2.71", "95 %"],
            ["CPU of the server, shares 200:800", "1:4.00", "–", "95 %"],
        ];
        assert_eq!(found.len(), expected.len() + 2, "{text}");
        for (row, expected) in found[2..].iter().zip(expected) {
            assert_eq!(row[1..5], expected, "{text}");
        }
    }

    #[test]
    fn missing_values_are_dashes() {
        let mut olap = load(OLAP, 1.0, 1.0, 0.0);
        (olap.rate_per_s, olap.results) = (None, None);
        let text = loads(&[stage(ONE_LEVEL, vec![olap])]);
        assert!(text.contains("| olap | –    | –       |"), "{text}");
        assert_eq!(over_first(vec![0.0, 1.0]), None);
        assert_eq!(over_first(vec![]), None);
    }
}
