//! Command line of `fairlane demo`.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::error::DemoError;
use crate::options::{FlushOptions, OlapOptions, OlapPart, Options, Program, Shape};
use crate::results::Subject;

/// Text of `--help`.
pub(crate) const HELP: &str = "fairlane demo: shows the server on this machine with real load

fairlane demo [flags]              transactions and analytics, without and with service levels
fairlane demo flush [flags]        writes beside flushes and compactions, and without
fairlane demo compaction [flags]   the space that a major compaction needs
fairlane demo olap [flags]         queries beside queries: shares, a hard limit, latency
fairlane demo batching [flags]     commands in order over changing keys: partitions in parallel, and batches
fairlane demo overload [flags]     more load than the server can do, without and with max_concurrency = 'auto'
fairlane demo petabyte [flags]     large data next to small: rates, writes, shares, levels, cache, ingest

  --quick          one minute (olap: three) instead of some (levels 4, flush 15, compaction 2,
                   olap 7, batching 4, overload 4, petabyte 22); coarser results
  --shape NAME     slices (default): the batch load reads 100 rows a request;
                   published: single rows, interactive at 20 % of capacity beside 1800 in flight
  --report FILE    the report, to open in a browser [report.html]
  --json FILE      all results, for programs
  --only NAME      olap: only shares, cap or latency
  --rows N         olap: rows of the table in the shape of ClickBench's [200000, quick 50000]
  --scale N        olap: scale of TPC-H [0.05, quick 0.01]
  --seconds N      olap: length of a phase; phases of shares are three times as long [8, quick 2];
                   with --published the length of each phase of Q23 [300, quick 8]
                   flush: length of a phase, 5 to 120 whole seconds, less if the writes do not fit into memory
                   [30, quick 5]
  --phases N       flush: phases with controllers, at least 2; without them half as many [16, quick 4]
  --published      flush: repeats a published experiment: 20,000 writes a second, five minutes with uncontrolled
                   background work and five with the controllers, and both at 80 % of what the core takes, in
                   phases that alternate (25 minutes)
                   olap: repeats the published experiments with workload groups: ClickBench's Q23 for five minutes
                   with shares 2:1 and without caches, for five minutes each under a limit of 50 % by 1, 2 and 4
                   connections, and short queries beside 1 to 8 connections (26 minutes)
  --commit MODE    flush: --commit of the server; with periodic:MS no write waits for the disk, so that only the
                   CPU of flushes and compactions counts [batch, with --published periodic:10000 as published]
  --rate N         flush: writes a second [40 % of what the server takes for long, which is measured first]
  --picture FILE   the main figure as an SVG file (levels, batching and overload)
  --from FILE      runs nothing: prints and writes the report again from results of --json
  --keep           keeps the temporary folder with the server's log and data
  --help           this text
";

/// Returns the subject of the first word, and the flags behind it.
fn subject(args: &[String]) -> (Subject, &[String]) {
    let named = |word: &String| Subject::WORDS.iter().find(|(name, _)| name == word);
    match args.first().and_then(named) {
        Some((_, subject)) => (*subject, &args[1..]),
        None => (Subject::Levels, args),
    }
}

/// Limits of flags, beyond any use: rows that fill memory, a scale of terabytes, phases of hours.
const ROWS_MAX: u64 = 1_000_000_000;
const SCALE_MAX: f64 = 1000.0;
const SECONDS_MAX: f64 = 3600.0;
const PHASES_MAX: usize = 1000;
const RATE_MAX: f64 = 1e9;
/// Phases of the demo of flushes, seconds. A phase must be long enough for some flushes after its
/// warm-up.
const FLUSH_SECONDS: RangeInclusive<u32> = 5..=120;

/// Parses a number above 0, up to `limit`.
fn positive<N: FromStr + PartialOrd + Default + Display>(
    name: &str,
    text: &str,
    limit: N,
) -> Result<N, DemoError> {
    let found = text.parse::<N>().ok().filter(|found| *found > N::default() && *found <= limit);
    found.ok_or_else(|| expected(name, &format!("a number above 0, at most {limit}"), text))
}

fn expected(name: &str, form: &str, text: &str) -> DemoError {
    DemoError::Usage(format!("{name}: expected {form}, got `{text}`."))
}

fn flush_seconds(name: &str, text: &str) -> Result<f64, DemoError> {
    let found = text.parse().ok().filter(|found| FLUSH_SECONDS.contains(found));
    found.map(f64::from).ok_or_else(|| {
        let (least, most) = FLUSH_SECONDS.into_inner();
        expected(name, &format!("whole seconds, {least} to {most}"), text)
    })
}

fn flush_phases(name: &str, text: &str) -> Result<usize, DemoError> {
    let found = positive(name, text, PHASES_MAX)?;
    let least = FlushOptions::PHASES_MIN;
    let enough = (found >= least).then_some(found);
    enough.ok_or_else(|| expected(name, &format!("at least {least}, a pair to compare"), text))
}

fn olap_part(name: &str, word: &str) -> Result<OlapPart, DemoError> {
    let found = OlapPart::WORDS.iter().find(|(part, _)| *part == word);
    found.map(|(_, part)| *part).ok_or_else(|| expected(name, "shares, cap or latency", word))
}

/// Parses the command line.
pub(crate) fn parse(args: &[String], program: &Program) -> Result<Options, DemoError> {
    let (subject, args) = subject(args);
    let mut options = Options {
        subject,
        quick: false,
        shape: Shape::Slices,
        report: "report.html".to_string(),
        json: None,
        picture: None,
        from: None,
        keep: false,
        help: false,
        olap: OlapOptions::default(),
        flush: FlushOptions::default(),
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (name, inline) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (arg.as_str(), None),
        };
        let mut value = || {
            let found = inline.clone().or_else(|| args.next().cloned());
            found.ok_or_else(|| DemoError::Usage(format!("{name}: expected a value.")))
        };
        match name {
            "--report" => options.report = value()?,
            "--json" => options.json = Some(value()?),
            "--picture" => options.picture = Some(value()?),
            "--from" => options.from = Some(value()?),
            "--shape" => options.shape = Shape::parse(&value()?)?,
            "--only" => options.olap.only = Some(olap_part(name, &value()?)?),
            "--rows" => options.olap.rows = Some(positive(name, &value()?, ROWS_MAX)?),
            "--scale" => options.olap.scale = Some(positive(name, &value()?, SCALE_MAX)?),
            "--seconds" if subject == Subject::Flush => {
                options.flush.seconds = Some(flush_seconds(name, &value()?)?);
            }
            "--commit" => {
                let mode = value()?;
                let checked = (program.check_commit)(&mode);
                checked.map_err(|form| DemoError::Usage(format!("{name}: {form}; not `{mode}`.")))?;
                options.flush.commit = Some(mode);
            }
            "--rate" => options.flush.rate_per_s = Some(positive(name, &value()?, RATE_MAX)?),
            "--phases" => options.flush.phases = Some(flush_phases(name, &value()?)?),
            "--seconds" => options.olap.seconds = Some(positive(name, &value()?, SECONDS_MAX)?),
            "--published" if subject == Subject::Olap => options.olap.is_published = true,
            "--published" => options.flush.is_published = true,
            "--quick" => options.quick = true,
            "--keep" => options.keep = true,
            "--help" | "-h" => options.help = true,
            _ => {
                return Err(DemoError::Usage(format!("unknown flag `{arg}`. See `fairlane demo --help`.")));
            }
        }
    }
    check_subject(&options, program)?;
    Ok(options)
}

/// Refuses flags that do not belong to the subject.
fn check_subject(options: &Options, program: &Program) -> Result<(), DemoError> {
    let subject = options.subject;
    let faults = [
        (
            subject != Subject::Levels && options.shape != Shape::Slices,
            "--shape belongs to the demo of service levels: `fairlane demo`.",
        ),
        (
            !matches!(subject, Subject::Levels | Subject::Batching | Subject::Overload)
                && options.picture.is_some(),
            "--picture belongs to the demos of service levels, of batches and of overload: `fairlane demo`, `fairlane \
             demo batching`, `fairlane demo overload`.",
        ),
        (
            subject != Subject::Olap && options.olap != OlapOptions::default(),
            "--only, --rows, --scale and --seconds belong to the demo of queries: `fairlane demo olap`. \
             --seconds also belongs to `fairlane demo flush`.",
        ),
        (
            subject == Subject::Olap && !program.has_sql,
            "the demo of queries needs SQL, and this program was built without it: build it with the cargo feature \
             `sql`.",
        ),
        (
            subject != Subject::Flush && options.flush != FlushOptions::default(),
            "--phases, --commit, --rate and --published belong to the demo of flushes: `fairlane demo flush`. \
             --published also belongs to `fairlane demo olap`.",
        ),
        (
            options.flush.is_published && options.flush.phases.is_some(),
            "--published has its own phases; leave --phases out.",
        ),
        (
            options.from.is_some() && subject != Subject::Levels,
            "--from takes the subject from its file; leave the word out.",
        ),
        (
            options.from.is_some() && (options.quick || options.keep),
            "--from runs nothing, so --quick and --keep have no effect; leave them out.",
        ),
    ];
    match faults.into_iter().find(|(is_fault, _)| *is_fault) {
        Some((_, reason)) => Err(DemoError::Usage(reason.to_string())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program = Program {
        has_sql: true,
        check_commit: |mode| match mode {
            "batch" | "periodic:100" => Ok(()),
            _ => Err("batch, or periodic: and a time, is wanted".to_string()),
        },
    };

    fn check(line: &str, expected: Result<(bool, &str, Option<&str>), &str>) {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        match (parse(&args, &PROGRAM), expected) {
            (Ok(found), Ok((quick, report, json))) => {
                assert_eq!(
                    (found.quick, found.report.as_str(), found.json.as_deref()),
                    (quick, report, json)
                );
            }
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (found, expected) => panic!("{line}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn flags_are_parsed_or_refused() {
        check("", Ok((false, "report.html", None)));
        check("--quick --json=a.json --report b.html", Ok((true, "b.html", Some("a.json"))));
        check("--json", Err("expected a value"));
        check("--from a.json --report b.html", Ok((false, "b.html", None)));
        check("--from a.json --quick", Err("--from"));
        check("--fast", Err("--fast"));
        check("--shape round", Err("round"));
        check("flush --quick", Ok((true, "report.html", None)));
        check("compaction --shape published", Err("--shape"));
        check("flush --from a.json", Err("leave the word out"));
        check("flash", Err("flash"));
        check("batching --quick --picture a.svg", Ok((true, "report.html", None)));
        check("batching --shape published", Err("--shape"));
        check("batching --rate 5", Err("fairlane demo flush"));
        check("batching --seconds 5", Err("fairlane demo olap"));
        check("overload --quick --picture a.svg", Ok((true, "report.html", None)));
        check("overload --seconds 5", Err("fairlane demo olap"));
        check("flush --picture a.svg", Err("--picture"));
        check("--rows 5", Err("fairlane demo olap"));
        check("olap --rows 0", Err("--rows"));
        check("olap --scale NaN", Err("--scale"));
        check("olap --seconds 1e9", Err("--seconds"));
        check("olap --only cpu", Err("cpu"));
        check("flush --seconds 6 --phases 30", Ok((false, "report.html", None)));
        for seconds in ["4", "6.5", "121", "-1"] {
            check(&format!("flush --seconds {seconds}"), Err("whole seconds, 5 to 120"));
        }
        for phases in ["0", "1", "1001", "2.5"] {
            check(&format!("flush --phases {phases}"), Err("--phases"));
        }
        check("flush --rows 5", Err("fairlane demo olap"));
        check("flush --commit periodic:100", Ok((false, "report.html", None)));
        check("flush --rate 20000", Ok((false, "report.html", None)));
        for rate in ["0", "-1", "NaN", "inf", "2e9", "many"] {
            check(&format!("flush --rate {rate}"), Err("--rate: expected a number above 0"));
        }
        check("--rate 20000", Err("fairlane demo flush"));
        check("flush --commit now", Err("is wanted; not `now`"));
        check("--commit batch", Err("fairlane demo flush"));
        check("olap --phases 30", Err("fairlane demo flush"));
        check("olap --only cap --rows 5 --scale 0.5 --seconds 2.5", Ok((false, "report.html", None)));
        check("--published", Err("fairlane demo olap"));
        check("overload --published", Err("fairlane demo flush"));
    }

    #[test]
    fn published_experiments_are_those_of_the_subject() {
        let parsed = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
            let options = parse(&args, &PROGRAM).expect("a command line");
            (options.flush.is_published, options.olap.is_published)
        };
        assert_eq!(parsed("flush --published"), (true, false));
        assert_eq!(parsed("olap --published --quick --only cap --seconds 20"), (false, true));
    }

    #[test]
    fn first_word_is_the_subject() {
        let subject = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
            parse(&args, &PROGRAM).expect("a command line").subject
        };
        assert_eq!(subject("flush --keep"), Subject::Flush);
        assert_eq!(subject("compaction"), Subject::Compaction);
        assert_eq!(subject("olap --only latency"), Subject::Olap);
        assert_eq!(subject("batching --keep"), Subject::Batching);
        assert_eq!(subject("overload --quick"), Subject::Overload);
        assert_eq!(subject("--quick"), Subject::Levels);
    }

    #[test]
    fn queries_need_sql() {
        let program = Program { has_sql: false, ..PROGRAM };
        let refused = parse(&["olap".to_string()], &program).expect_err("no SQL").to_string();
        assert!(refused.contains("feature `sql`"), "{refused}");
    }
}
