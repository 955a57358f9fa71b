//! Command line of `fairlane demo`, and the rules that one flag alone cannot check.

use std::ops::RangeInclusive;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::options::{DemoOptions, FlushOptions, OlapOptions, Program, Shape};
use crate::results::Subject;

/// Longest phase of the demo of queries, seconds.
const SECONDS_MAX: f64 = 3600.0;
/// Phases of the demo of flushes, seconds. A phase must be long enough for some flushes after its
/// warm-up.
const FLUSH_SECONDS: RangeInclusive<f64> = 5.0..=120.0;

/// Parses the arguments after `demo`. The error may be the text of `--help`.
pub(crate) fn parse(args: &[String], program: &Program) -> Result<DemoOptions, clap::Error> {
    let name = std::iter::once("fairlane demo");
    let mut options = DemoOptions::try_parse_from(name.chain(args.iter().map(String::as_str)))?;
    let wrong = |kind, reason: String| Err(DemoOptions::command().error(kind, reason));
    if let Err(reason) = of_subject(&mut options, program) {
        return wrong(ErrorKind::ValueValidation, reason);
    }
    match fault(&options, program) {
        Some(reason) => wrong(ErrorKind::ArgumentConflict, reason.to_owned()),
        None => Ok(options),
    }
}

/// Checks the values whose bounds depend on the subject or the program, and hands flags of several
/// subjects to their own.
fn of_subject(options: &mut DemoOptions, program: &Program) -> Result<(), String> {
    let expected = |form: &str, got: &dyn std::fmt::Display| format!("expected {form}, got `{got}`.");
    match (options.subject, options.seconds) {
        (Subject::Flush, Some(found)) if found.fract() != 0.0 || !FLUSH_SECONDS.contains(&found) => {
            let (least, most) = FLUSH_SECONDS.into_inner();
            return Err(format!(
                "--seconds: {}",
                expected(&format!("whole seconds, {least} to {most}"), &found)
            ));
        }
        (_, Some(found)) if !(found > 0.0 && found <= SECONDS_MAX) => {
            let form = format!("a number above 0, at most {SECONDS_MAX}");
            return Err(format!("--seconds: {}", expected(&form, &found)));
        }
        (Subject::Flush, found) => options.flush.seconds = found,
        (_, found) => options.olap.seconds = found,
    }
    match options.subject {
        Subject::Olap => options.olap.is_published = options.published,
        _ => options.flush.is_published = options.published,
    }
    let mode = options.flush.commit.as_deref();
    mode.map_or(Ok(()), |mode| {
        (program.check_commit)(mode).map_err(|form| format!("--commit: {form}; not `{mode}`."))
    })
}

/// Returns the reason to refuse flags that do not belong to the subject.
fn fault(options: &DemoOptions, program: &Program) -> Option<&'static str> {
    let subject = options.subject;
    let faults = [
        (
            subject != Subject::Levels && options.shape != Shape::Slices,
            "--shape belongs to the demo of service levels: `fairlane demo`.",
        ),
        (
            !matches!(subject, Subject::Levels | Subject::Batching | Subject::Overload | Subject::Cluster)
                && options.picture.is_some(),
            "--picture belongs to the demos of service levels, of batches, of overload and of a cluster: `fairlane \
             demo`, `fairlane demo batching`, `fairlane demo overload`, `fairlane demo cluster`.",
        ),
        (
            subject != Subject::Cluster && options.node_window.is_some(),
            "--node-window belongs to the demo of a cluster: `fairlane demo cluster`.",
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
    ];
    faults.into_iter().find(|(is_fault, _)| *is_fault).map(|(_, reason)| reason)
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
        check("--json", Err("a value is required for '--json <FILE>'"));
        check("--from a.json --report b.html", Ok((false, "b.html", None)));
        check("--from a.json --quick", Err("--from"));
        check("--fast", Err("--fast"));
        check("--shape round", Err("round"));
        check("flush --quick", Ok((true, "report.html", None)));
        check("compaction --shape published", Err("--shape"));
        check("flush --from a.json", Err("--from"));
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
            check(&format!("flush --rate {rate}"), Err("expected a number above 0"));
        }
        check("--rate 20000", Err("fairlane demo flush"));
        check("flush --commit now", Err("is wanted; not `now`"));
        check("--commit batch", Err("fairlane demo flush"));
        check("olap --phases 30", Err("fairlane demo flush"));
        check("olap --only cap --rows 5 --scale 0.5 --seconds 2.5", Ok((false, "report.html", None)));
        check("cluster --quick --picture a.svg --node-window 8", Ok((true, "report.html", None)));
        check("cluster --node-window 0", Err("at most 32768"));
        check("cluster --shape published", Err("--shape"));
        check("--node-window 8", Err("fairlane demo cluster"));
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
        assert_eq!(subject("cluster"), Subject::Cluster);
        assert_eq!(subject("--quick"), Subject::Levels);
    }

    #[test]
    fn queries_need_sql() {
        let program = Program { has_sql: false, ..PROGRAM };
        let refused = parse(&["olap".to_string()], &program).expect_err("no SQL").to_string();
        assert!(refused.contains("feature `sql`"), "{refused}");
    }
}
