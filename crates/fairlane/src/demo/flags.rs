//! The command line of `fairlane demo`.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::figures::Subject;
use super::loads::Shape;
use super::olap::{self, Part};
use super::{DemoError, flush};
use crate::settings;

/// What `--help` prints.
pub(super) const HELP: &str = "fairlane demo: what the server does, shown on this machine with real load

fairlane demo [flags]              transactions and analytics, without and with service levels
fairlane demo flush [flags]        writes beside flushes and compactions, and on a server that flushes nothing
fairlane demo compaction [flags]   the space that a major compaction needs
fairlane demo olap [flags]         queries beside queries: shares, a hard limit, latency beside others

  --quick          under one minute (olap three) instead of some (levels 4, flush 15, compaction 2, olap 7); coarser figures
  --shape NAME     slices (default): the batch load reads 100 rows a request;
                   published: single rows, interactive at 20 % of capacity beside 1800 in flight
  --report FILE    the report to open in a browser [report.html]
  --json FILE      every figure, for programs
  --only NAME      of olap only shares, cap or latency
  --rows N         of olap: rows of the table in the shape of ClickBench's [200000, quick 50000]
  --scale N        of olap: scale of TPC-H [0.05, quick 0.01]
  --seconds N      of olap: length of a phase; those of shares are three times as long [8, quick 2];
                   of flush: length of a phase, whole seconds from 5 to 120, shortened to what memory holds [30, quick 5]
  --phases N       of flush: phases with controllers, and half as many without, 2 at least [16, quick 4]
  --commit MODE    of flush: the server's; with periodic:MS no write waits for the disk, and what flushes and compactions
                   take of the core is seen by itself [batch]
  --rate N         of flush: writes a second [40 % of what the server takes for long, which is measured first]
  --picture FILE   the main figure alone, as an SVG file (levels only)
  --from FILE      run nothing: table and report again from the figures that --json wrote
  --keep           leave the temporary folder behind, with the server's log and data
  --help           this text
";

/// What the command line said.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Options {
    pub(super) subject: Subject,
    pub(super) quick: bool,
    pub(super) shape: Shape,
    pub(super) report: String,
    pub(super) json: Option<String>,
    /// Where the main figure goes as a file of its own.
    pub(super) picture: Option<String>,
    /// Figures of an earlier run, to be shown again.
    pub(super) from: Option<String>,
    pub(super) keep: bool,
    pub(super) help: bool,
    /// Sizes and parts of the demo of queries.
    pub(super) olap: olap::Asked,
    /// Phases of the demo of flushes.
    pub(super) flush: flush::Asked,
}

/// The subject that the first word names, and the flags behind it.
fn subject(args: &[String]) -> (Subject, &[String]) {
    let named = |word: &String| Subject::WORDS.iter().find(|(name, _)| name == word);
    match args.first().and_then(named) {
        Some((_, subject)) => (*subject, &args[1..]),
        None => (Subject::Levels, args),
    }
}

/// What no demo needs more of: rows that fill memory, a scale of terabytes, phases of hours.
const ROWS_MAX: u64 = 1_000_000_000;
const SCALE_MAX: f64 = 1000.0;
const SECONDS_MAX: f64 = 3600.0;
const PHASES_MAX: usize = 1000;
const RATE_MAX: f64 = 1e9;
/// Phases of the demo of flushes, seconds: long enough to flush memtables after the warm-up.
const FLUSH_SECONDS: RangeInclusive<u32> = 5..=120;

/// A number above zero, up to the most it may be.
fn positive<N: FromStr + PartialOrd + Default + Display>(
    name: &str,
    text: &str,
    most: N,
) -> Result<N, DemoError> {
    let found = text.parse::<N>().ok().filter(|found| *found > N::default() && *found <= most);
    found.ok_or_else(|| {
        DemoError::Usage(format!("{name} wants a number above 0, and at most {most}: not `{text}`."))
    })
}

fn flush_seconds(name: &str, text: &str) -> Result<f64, DemoError> {
    let found = text.parse().ok().filter(|found| FLUSH_SECONDS.contains(found));
    found.map(f64::from).ok_or_else(|| {
        let (least, most) = FLUSH_SECONDS.into_inner();
        DemoError::Usage(format!(
            "{name} of the demo of flushes wants whole seconds, {least} to {most}: not `{text}`."
        ))
    })
}

fn flush_phases(name: &str, text: &str) -> Result<usize, DemoError> {
    let found = positive(name, text, PHASES_MAX)?;
    let enough = (found >= flush::PHASES_MIN).then_some(found);
    enough.ok_or_else(|| {
        DemoError::Usage(format!(
            "{name} wants {} at least, so that there are two to compare: not `{text}`.",
            flush::PHASES_MIN
        ))
    })
}

/// As `fairlane serve` takes it.
fn commit(name: &str, text: String) -> Result<String, DemoError> {
    match settings::commit(&text) {
        Ok(_) => Ok(text),
        Err(why) => Err(DemoError::Usage(format!("{name}: {why}; not `{text}`."))),
    }
}

fn part(word: &str) -> Result<Part, DemoError> {
    let named = Part::WORDS.iter().find(|(name, _)| *name == word);
    named.map(|(_, part)| *part).ok_or_else(|| {
        DemoError::Usage(format!("--only: there is no `{word}`; give shares, cap or latency."))
    })
}

/// Reads the flags.
pub(super) fn parse(args: &[String]) -> Result<Options, DemoError> {
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
        olap: olap::Asked::default(),
        flush: flush::Asked::default(),
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (name, inline) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (arg.as_str(), None),
        };
        let mut value = || {
            let found = inline.clone().or_else(|| args.next().cloned());
            found.ok_or_else(|| DemoError::Usage(format!("{name} wants a value.")))
        };
        match name {
            "--report" => options.report = value()?,
            "--json" => options.json = Some(value()?),
            "--picture" => options.picture = Some(value()?),
            "--from" => options.from = Some(value()?),
            "--shape" => options.shape = Shape::parse(&value()?)?,
            "--only" => options.olap.only = Some(part(&value()?)?),
            "--rows" => options.olap.rows = Some(positive(name, &value()?, ROWS_MAX)?),
            "--scale" => options.olap.scale = Some(positive(name, &value()?, SCALE_MAX)?),
            "--seconds" if subject == Subject::Flush => {
                options.flush.seconds = Some(flush_seconds(name, &value()?)?);
            }
            "--commit" => options.flush.commit = Some(commit(name, value()?)?),
            "--rate" => options.flush.rate_per_s = Some(positive(name, &value()?, RATE_MAX)?),
            "--phases" => options.flush.phases = Some(flush_phases(name, &value()?)?),
            "--seconds" => options.olap.seconds = Some(positive(name, &value()?, SECONDS_MAX)?),
            "--quick" => options.quick = true,
            "--keep" => options.keep = true,
            "--help" | "-h" => options.help = true,
            _ => {
                let why = format!("What is `{arg}` for? See `fairlane demo --help`.");
                return Err(DemoError::Usage(why));
            }
        }
    }
    if options.subject != Subject::Levels && (options.shape != Shape::Slices || options.picture.is_some()) {
        let why = "--shape and --picture are of the demo of service levels alone.";
        return Err(DemoError::Usage(why.to_string()));
    }
    if options.subject != Subject::Olap && options.olap != olap::Asked::default() {
        let why = "--only, --rows, --scale and --seconds are of the demo of queries (--seconds of that of flushes too): `fairlane demo olap`.";
        return Err(DemoError::Usage(why.to_string()));
    }
    if options.subject == Subject::Olap && !cfg!(feature = "sql") {
        let why = "this program was built without SQL, which the demo of queries needs: build it with the cargo \
                   feature `sql`.";
        return Err(DemoError::Usage(why.to_string()));
    }
    if options.subject != Subject::Flush && options.flush != flush::Asked::default() {
        let why = "--phases, --commit and --rate are of the demo of flushes alone: `fairlane demo flush`.";
        return Err(DemoError::Usage(why.to_string()));
    }
    if options.from.is_some() && options.subject != Subject::Levels {
        let why = "--from shows the subject of its file; leave the word out.";
        return Err(DemoError::Usage(why.to_string()));
    }
    if options.from.is_some() && (options.quick || options.keep) {
        let why = "--from runs nothing, so --quick and --keep say nothing beside it.";
        return Err(DemoError::Usage(why.to_string()));
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<(bool, &str, Option<&str>), &str>) {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        match (parse(&args), expected) {
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
    fn flags() {
        check("", Ok((false, "report.html", None)));
        check("--quick --json=a.json --report b.html", Ok((true, "b.html", Some("a.json"))));
        check("--json", Err("wants a value"));
        check("--from a.json --report b.html", Ok((false, "b.html", None)));
        check("--from a.json --quick", Err("--from"));
        check("--fast", Err("--fast"));
        check("--shape round", Err("round"));
        check("flush --quick", Ok((true, "report.html", None)));
        check("compaction --shape published", Err("--shape"));
        check("flush --from a.json", Err("leave the word out"));
        check("flash", Err("flash"));
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
            check(&format!("flush --rate {rate}"), Err("--rate wants a number above 0"));
        }
        check("--rate 20000", Err("fairlane demo flush"));
        check("flush --commit now", Err("periodic:10, is wanted; not `now`"));
        check("--commit batch", Err("fairlane demo flush"));
        check("olap --phases 30", Err("fairlane demo flush"));
        check("olap --only cap --rows 5 --scale 0.5 --seconds 2.5", Ok((false, "report.html", None)));
    }

    #[test]
    fn the_first_word_names_the_subject() {
        let subject = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
            parse(&args).expect("a command line").subject
        };
        assert_eq!(subject("flush --keep"), Subject::Flush);
        assert_eq!(subject("compaction"), Subject::Compaction);
        assert_eq!(subject("olap --only latency"), Subject::Olap);
        assert_eq!(subject("--quick"), Subject::Levels);
    }
}
