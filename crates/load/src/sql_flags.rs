//! Command line of `fairlane load sql`, as one table of flags.

use std::path::PathBuf;

use crate::LoadError;
use crate::common::{self, Common};
use crate::flag::{Flag, flag, list, rates, seconds, usage, whole};
use crate::flags::open_loop;
use crate::spec::{Pacing, is_name, seconds_ok};
use crate::sql::SqlSpec;
use crate::sql::queries;
use crate::sweep::flags::{self as sweep, SweepFlags};
use crate::usl::flags::{self as usl, LadderFlags};
use crate::usl::{Plan, Target};

/// Connections of a ladder and a sweep, the same at each concurrency. PostgreSQL accepts 100 by
/// default. The larger powers of two are multiples.
const CONNECTIONS: usize = 64;
/// Most connections. Each is a socket and a client.
const CONCURRENCY_MAX: usize = 20_000;

/// Parsed flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    database: Option<String>,
    queries: Option<PathBuf>,
    only: Vec<String>,
    search_path: Option<String>,
    setup: Vec<String>,
    concurrency: Option<usize>,
    rate: Option<Vec<(f64, Option<f64>)>>,
    rounds: u64,
    duration_s: Option<f64>,
    warmup_s: Option<f64>,
    drain_s: Option<f64>,
    seed: Option<u64>,
    pub(crate) common: Common,
    pub(crate) hdr: Option<String>,
    pub(crate) ladder: LadderFlags,
    pub(crate) sweep: SweepFlags,
    metrics: Option<String>,
}

impl AsMut<Common> for Options {
    fn as_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

impl AsMut<LadderFlags> for Options {
    fn as_mut(&mut self) -> &mut LadderFlags {
        &mut self.ladder
    }
}

impl AsMut<SweepFlags> for Options {
    fn as_mut(&mut self) -> &mut SweepFlags {
        &mut self.sweep
    }
}

/// Further flags of `usl sql`.
const LADDER: &[Flag<Options>] = &[usl::ladder(), usl::rounds(), usl::svg(), common::html()];

/// Further flags of `sweep sql`.
const SWEEP: &[Flag<Options>] = &[sweep::from(), sweep::peak(), sweep::runs(), common::html()];

/// Further flag of both.
const METRICS: &[Flag<Options>] = &[flag!(
    "metrics",
    "HOST:PORT",
    "none",
    "the server's metrics, for its service times and CPU",
    |o, v| {
        o.metrics = Some(v.to_string());
        Ok(())
    }
)];

const FLAGS: &[Flag<Options>] = &[
    flag!("queries", "PATH", "none", "a .sql file, or a folder of them, with one statement each", |o, v| {
        o.queries = Some(PathBuf::from(v));
        Ok(())
    }),
    flag!("only", "NAME,…", "all", "run only these queries of the folder, such as q03", |o, v| {
        o.only = v.split(',').map(str::to_string).collect();
        Ok(())
    }),
    flag!("search-path", "SCHEMA", "none", "schema of unqualified table names, such as tpch", |o, v| {
        o.search_path = Some(v.to_string());
        Ok(())
    }),
    flag!(
        "setup",
        "STATEMENT",
        "none",
        "statement to run first on every connection; may be repeated",
        |o, v| {
            o.setup.push(v.to_string());
            Ok(())
        }
    ),
    flag!("concurrency", "N", "1", "connections, each with one query in flight", |o, v| {
        o.concurrency = Some(whole(v)? as usize);
        Ok(())
    }),
    flag!(
        "rate",
        "RATE[:TIME],…",
        "closed loop",
        "open loop: queries a second with Poisson arrivals, step after step",
        |o, v| {
            o.rate = Some(rates(v)?);
            Ok(())
        }
    ),
    flag!(
        "rounds",
        "N",
        "0",
        "closed loop: end after N runs of every query (0: when the time is up)",
        |o, v| {
            o.rounds = whole(v)?;
            Ok(())
        }
    ),
    flag!("duration", "TIME", "30s", "time to measure (each step without a time of its own)", |o, v| {
        o.duration_s = Some(seconds(v)?);
        Ok(())
    }),
    flag!("warmup", "TIME", "0s", "run before measuring begins", |o, v| {
        o.warmup_s = Some(seconds(v)?);
        Ok(())
    }),
    flag!("drain", "TIME", "5s", "wait for answers at the end, then cancel queries in flight", |o, v| {
        o.drain_s = Some(seconds(v)?);
        Ok(())
    }),
    common::hosts("127.0.0.1:5432"),
    common::user("admin"),
    common::password(),
    common::password_file(),
    flag!("database", "NAME", "fairlane", "database to connect to", |o, v| {
        o.database = Some(v.to_string());
        Ok(())
    }),
    flag!("seed", "N", "1", "seed of the arrival times", |o, v| {
        o.seed = Some(whole(v)?);
        Ok(())
    }),
    common::json(),
    flag!("hdr", "FILE", "none", "write the raw histograms, for `merge`", |o, v| {
        o.hdr = Some(v.to_string());
        Ok(())
    }),
    common::quiet(),
    common::help(),
];

/// Returns the help.
pub(crate) fn help() -> String {
    let what = "fairlane load sql: queries over the Postgres protocol, open or closed loop\n\n\
        fairlane load sql --queries crates/load/queries/tpch --search-path tpch --concurrency 4 --duration 60s\n\n\
        Connections are not encrypted.\n";
    format!("{what}{}", list(&FLAGS.iter().collect::<Vec<_>>()))
}

/// Parses the flags.
///
/// # Errors
/// [`LoadError::Usage`].
pub(crate) fn parse(args: &[String]) -> Result<Options, LoadError> {
    let mut options = Options::default();
    let flags: Vec<&Flag<Options>> = FLAGS.iter().collect();
    let words = crate::flag::read(args, &mut options, &flags, "fairlane load sql")?;
    match words.first() {
        Some(word) => Err(usage(format!("unexpected word `{word}`; see `fairlane load sql --help`"))),
        None => Ok(options),
    }
}

/// Returns the help of `usl sql`.
pub(crate) fn ladder_help() -> String {
    let what = "fairlane load usl sql: throughput of queries over concurrency, fitted to the scalability law\n\n\
        fairlane load usl sql --queries crates/load/queries/tpch --search-path tpch --ladder 1,2,4,8,16\n\n\
        --concurrency connections are open all the time and take turns: 64 by default, or fewer if the last\n\
        concurrency is lower. More queries in flight than connections are sent in a pipeline. A rung has 2s\n\
        warm-up and 8s measured.\n";
    format!("{what}{}", list(&LADDER.iter().chain(METRICS).chain(FLAGS).collect::<Vec<_>>()))
}

/// Returns the help of `sweep sql`.
pub(crate) fn sweep_help() -> String {
    let what = "fairlane load sweep sql: queries in open loops at 4, 40 and 100 % of the peak\n\n\
        fairlane load sweep sql --queries crates/load/queries/tpch --search-path tpch --from usl.json\n\n\
        --concurrency connections are open all the time and take turns, 64 by default. More queries in flight than\n\
        connections, up to 4096, are sent in a pipeline. A run has 2s warm-up and 20s measured.\n";
    format!("{what}{}", list(&SWEEP.iter().chain(METRICS).chain(FLAGS).collect::<Vec<_>>()))
}

/// Parses the flags of `usl sql`.
///
/// # Errors
/// [`LoadError::Usage`].
pub(crate) fn parse_ladder(args: &[String]) -> Result<Options, LoadError> {
    parse_with(args, LADDER, "fairlane load usl sql")
}

/// Parses the flags of `sweep sql`.
///
/// # Errors
/// [`LoadError::Usage`].
pub(crate) fn parse_sweep(args: &[String]) -> Result<Options, LoadError> {
    parse_with(args, SWEEP, "fairlane load sweep sql")
}

fn parse_with(args: &[String], further: &[Flag<Options>], command: &str) -> Result<Options, LoadError> {
    let mut options = Options::default();
    let flags: Vec<&Flag<Options>> = further.iter().chain(METRICS).chain(FLAGS).collect();
    let words = crate::flag::read(args, &mut options, &flags, command)?;
    match words.first() {
        Some(word) => Err(usage(format!("unexpected word `{word}`; see `{command} --help`"))),
        None => Ok(options),
    }
}

impl Options {
    /// Returns the ladder of concurrencies that these options describe.
    ///
    /// # Errors
    /// As [`Options::spec`].
    pub(crate) fn plan(&self) -> Result<Plan, LoadError> {
        if self.rate.is_some() || self.rounds > 0 || self.hdr.is_some() {
            return Err(usage("`usl` runs closed loops for a time; omit --rate, --rounds and --hdr".into()));
        }
        let concurrency = Some(self.concurrency.unwrap_or(self.ladder.last().clamp(1, CONNECTIONS)));
        let mut spec = Options { concurrency, ..self.clone() }.spec()?;
        spec.warmup_s = self.warmup_s.unwrap_or(usl::WARMUP_S);
        let (seed, seconds) = (spec.seed, self.duration_s.unwrap_or(usl::SECONDS));
        self.ladder.plan(Target::Sql(spec), seconds, seed, self.metrics.clone())
    }

    /// Returns the sweep that these options describe.
    ///
    /// # Errors
    /// As [`Options::spec`], and those of [`SweepFlags::plan`].
    pub(crate) fn sweep(&self) -> Result<crate::sweep::Plan, LoadError> {
        if self.rate.is_some() || self.rounds > 0 || self.hdr.is_some() {
            return Err(usage("`sweep` chooses its rates; omit --rate, --rounds and --hdr".into()));
        }
        let concurrency = Some(self.concurrency.unwrap_or(CONNECTIONS));
        let mut spec = Options { concurrency, ..self.clone() }.spec()?;
        spec.warmup_s = self.warmup_s.unwrap_or(sweep::WARMUP_S);
        let (seed, seconds) = (spec.seed, self.duration_s.unwrap_or(sweep::SECONDS));
        self.sweep.plan(Target::Sql(spec), (seconds, sweep::BOUND), seed, self.metrics.clone())
    }

    /// Returns the checked spec that these options describe.
    ///
    /// # Errors
    /// [`LoadError::Usage`], or [`LoadError::File`] for missing query files.
    pub(crate) fn spec(&self) -> Result<SqlSpec, LoadError> {
        let refuse = |wrong: bool, reason: &str| if wrong { Err(usage(reason.into())) } else { Ok(()) };
        let hosts = self.common.hosts("127.0.0.1:5432");
        let concurrency = self.concurrency.unwrap_or(1);
        let duration = self.duration_s.unwrap_or(30.0);
        let drain_s = self.drain_s.unwrap_or(5.0);
        refuse(hosts.is_empty(), "--hosts names no server")?;
        refuse(!(1..=CONCURRENCY_MAX).contains(&concurrency), "--concurrency must be 1 to 20,000")?;
        refuse(
            self.search_path.as_deref().is_some_and(|name| !is_name(name)),
            "--search-path must be letters, digits and underscores",
        )?;
        refuse(self.rate.is_some() && self.rounds > 0, "--rounds needs a closed loop; give it or --rate")?;
        let pacing = match &self.rate {
            None => Pacing::Closed { in_flight: concurrency, seconds: duration },
            Some(rates) => open_loop(rates, duration),
        };
        let mut setup: Vec<String> =
            self.search_path.iter().map(|name| format!("SET search_path TO {name}")).collect();
        setup.extend(self.setup.iter().cloned());
        let path = self
            .queries
            .as_ref()
            .ok_or_else(|| usage("expected --queries with a folder or a file".into()))?;
        let spec = SqlSpec {
            hosts,
            user: self.common.user.clone().unwrap_or_else(|| "admin".to_string()),
            password: self.common.password(),
            database: self.database.clone().unwrap_or_else(|| "fairlane".to_string()),
            queries: queries::read(path, &self.only)?,
            setup,
            pacing,
            rounds: self.rounds,
            concurrency,
            pipeline: 1,
            warmup_s: self.warmup_s.unwrap_or(0.0),
            drain_s,
            seed: self.seed.unwrap_or(1),
        };
        let times = spec
            .steps()
            .iter()
            .all(|step| seconds_ok(step.seconds) && (0.0..=1e6).contains(&step.rate_per_s));
        refuse(!times, "--rate expects rates of 0 to 1e6 a second and times of 0 s to 30 days")?;
        refuse(
            !seconds_ok(spec.warmup_s) || !seconds_ok(drain_s),
            "--warmup and --drain must be 0 s to 30 days",
        )?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Step;

    fn spec(line: &str) -> Result<SqlSpec, LoadError> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/queries");
        let args: Vec<String> = line.split_whitespace().map(|word| word.replace('@', folder)).collect();
        parse(&args)?.spec()
    }

    fn check_error(line: &str, expected: &str) {
        let error = spec(line).expect_err(line).to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn errors_name_the_wrong_flag() {
        check_error("", "--queries");
        check_error("--queries @/tpch --concurrency 0", "--concurrency");
        check_error("--queries @/tpch --rate 5 --rounds 2", "--rounds");
        check_error("--queries @/tpch --search-path a;b", "--search-path");
        check_error("--queries @/tpch --rate 5:x", "--rate");
        check_error("--queries @/tpch --only q23", "q23");
        check_error("--queries @/nowhere", "nowhere");
        check_error("--queries @/tpch twice", "twice");
    }

    #[test]
    fn ladder_has_the_same_connections_at_each_rung() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/queries/tpch");
        let plan = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
            parse_ladder(&[args, vec!["--queries".into(), folder.into()]].concat())?.plan()
        };
        let check = |line: &str, expected: (usize, usize)| {
            let plan = plan(line).expect(line);
            let Target::Sql(spec) = &plan.target else { panic!("{plan:?}") };
            assert_eq!((spec.concurrency, plan.rungs[plan.rungs.len() - 1]), expected);
            assert_eq!((spec.warmup_s, plan.seconds), (2.0, 8.0));
        };
        check("", (64, 4096));
        check("--ladder 1,2,6", (6, 6));
        check("--concurrency 20", (20, 4096));
        check("--concurrency 20 --ladder 1,12", (20, 12));
        for (line, expected) in [("--concurrency 8 --ladder 9000", "--concurrency"), ("--rate 5", "--rate")] {
            let error = plan(line).expect_err(line).to_string();
            assert!(error.contains(expected), "{error}");
        }
        let swept = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
            parse_sweep(&[args, vec!["--queries".into(), folder.into()]].concat())?.sweep()
        };
        let plan = swept("--peak 2k --metrics x:1").expect("a sweep");
        assert_eq!((plan.target.most_pipelined() / 1024, plan.bound, plan.seconds), (64, 4096, 20.0));
        assert!(swept("--peak 5 --rate 5").is_err_and(|error| error.to_string().contains("--rate")));
        assert!(swept("").is_err_and(|error| error.to_string().contains("--peak")));
        let help = sweep_help();
        assert!(SWEEP.iter().chain(METRICS).all(|flag| help.contains(&format!("--{}", flag.name))), "{help}");
        let help = ladder_help();
        assert!(LADDER.iter().all(|flag| help.contains(&format!("--{}", flag.name))), "{help}");
    }

    #[test]
    fn flags_become_a_spec() {
        let open = spec("--queries @/tpch --only q03,q07 --search-path tpch --rate 2:10s,4 --duration 5s")
            .expect("the flags are valid");
        let step = |rate_per_s, seconds| Step { rate_per_s, seconds };
        assert_eq!(open.pacing, Pacing::Open(vec![step(2.0, 10.0), step(4.0, 5.0)]));
        assert_eq!(open.setup, ["SET search_path TO tpch"]);
        let json = serde_json::to_string(&SqlSpec { password: Some("secret".into()), ..open }).expect("data");
        assert!(json.contains("q07") && !json.contains("secret"), "{json}");
        let help = help();
        assert!(FLAGS.iter().all(|flag| help.contains(&format!("--{}", flag.name))), "{help}");
    }
}
