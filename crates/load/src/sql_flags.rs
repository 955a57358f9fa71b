//! Flags of loads of SQL queries, and the specs and plans that they describe.

use std::path::PathBuf;

use clap::Args;

use crate::LoadError;
use crate::common_flags::{HistogramFlags, ReportFlags, ServerFlags};
use crate::experiment::{Experiment, RepeatedLoad};
use crate::flag_values::{CommaList, Rates, seconds, size_in, whole};
use crate::spec::{Pacing, is_name, seconds_ok};
use crate::sql::SqlSpec;
use crate::sql::queries;
use crate::sweep::SweepPlan;
use crate::sweep::flags::{self as sweep, SweepFlags};
use crate::usl::LadderPlan;
use crate::usl::flags::LadderFlags;

/// Connections of a ladder and a sweep, the same at each concurrency. PostgreSQL accepts 100 by
/// default. The larger powers of two are multiples.
const CONNECTIONS: usize = 64;
/// Most connections. Each is a socket and a client.
const CONCURRENCY_MAX: usize = 20_000;

/// Flags of a load of SQL queries.
#[derive(Args, Clone, Debug)]
#[command(
    mut_arg("hosts", |arg| arg.default_value("127.0.0.1:5432")),
    mut_arg("user", |arg| arg.default_value("admin"))
)]
pub(crate) struct SqlFlags {
    #[command(flatten)]
    statements: StatementFlags,
    #[command(flatten)]
    pacing: SqlPacingFlags,
    #[command(flatten)]
    server: ServerFlags,
    /// Database to connect to
    #[arg(long, value_name = "NAME", default_value = "fairlane")]
    database: String,
    /// Seed of the arrival times
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole)]
    seed: u64,
    #[command(flatten)]
    pub(crate) report: ReportFlags,
    #[command(flatten)]
    pub(crate) histograms: HistogramFlags,
}

/// Statements to run.
#[derive(Args, Clone, Debug)]
struct StatementFlags {
    /// A .sql file, or a folder of them, with one statement each
    #[arg(long, value_name = "PATH")]
    queries: PathBuf,
    /// Run only these queries of the folder, such as q03 [default: all]
    #[arg(long, value_name = "NAME,…")]
    only: Option<CommaList>,
    /// Schema of unqualified table names, such as tpch
    #[arg(long, value_name = "SCHEMA")]
    search_path: Option<String>,
    /// Statement to run first on every connection; may be repeated
    #[arg(long, value_name = "STATEMENT")]
    setup: Vec<String>,
}

/// Times at which queries are sent.
#[derive(Args, Clone, Debug)]
struct SqlPacingFlags {
    /// Connections, each with one query in flight [default: 1]
    #[arg(long, value_name = "N", value_parser = |text: &str| size_in(text, 1..=CONCURRENCY_MAX))]
    concurrency: Option<usize>,
    /// Open loop: queries a second with Poisson arrivals, step after step [default: closed loop]
    #[arg(long, value_name = "RATE[:TIME],…")]
    rate: Option<Rates>,
    /// Closed loop: end after N runs of every query (0: when the time is up)
    #[arg(long, value_name = "N", default_value = "0", value_parser = whole)]
    rounds: u64,
    /// Time to measure (each step without a time of its own)
    #[arg(long = "duration", value_name = "TIME", default_value = "30s", value_parser = seconds)]
    duration_s: f64,
    /// Run before measuring begins
    #[arg(long = "warmup", value_name = "TIME", default_value = "0s", value_parser = seconds)]
    warmup_s: f64,
    /// Wait for answers at the end, then cancel queries in flight
    #[arg(long = "drain", value_name = "TIME", default_value = "5s", value_parser = seconds)]
    drain_s: f64,
}

impl SqlFlags {
    /// Returns the ladder of concurrencies that these flags describe.
    ///
    /// # Errors
    /// As [`SqlFlags::spec`].
    pub(crate) fn ladder(
        &self,
        ladder: &LadderFlags,
        metrics: Option<String>,
    ) -> Result<LadderPlan, LoadError> {
        self.refuse_pacing("`usl` runs closed loops for a time; omit --rate, --rounds and --hdr")?;
        ladder.plan(self.experiment(ladder.last().clamp(1, CONNECTIONS), metrics)?)
    }

    /// Returns the sweep that these flags describe.
    ///
    /// # Errors
    /// As [`SqlFlags::spec`], and those of [`SweepFlags::plan`].
    pub(crate) fn sweep(&self, sweep: &SweepFlags, metrics: Option<String>) -> Result<SweepPlan, LoadError> {
        self.refuse_pacing("`sweep` chooses its rates; omit --rate, --rounds and --hdr")?;
        sweep.plan(self.experiment(CONNECTIONS, metrics)?, sweep::BOUND)
    }

    fn experiment(&self, connections: usize, metrics: Option<String>) -> Result<Experiment, LoadError> {
        let load = RepeatedLoad::Sql(self.with_connections(connections)?);
        Ok(Experiment { load, seconds: self.pacing.duration_s, seed: self.seed, metrics })
    }

    fn refuse_pacing(&self, reason: &str) -> Result<(), LoadError> {
        let refused = self.pacing.rate.is_some() || self.pacing.rounds > 0 || self.histograms.hdr.is_some();
        if refused { Err(LoadError::Usage(reason.to_string())) } else { Ok(()) }
    }

    /// Returns the checked spec that these flags describe.
    ///
    /// # Errors
    /// [`LoadError::Usage`], or [`LoadError::File`] for missing query files.
    pub(crate) fn spec(&self) -> Result<SqlSpec, LoadError> {
        self.with_connections(1)
    }

    /// Returns the spec with `connections` unless --concurrency is given.
    fn with_connections(&self, connections: usize) -> Result<SqlSpec, LoadError> {
        let refuse =
            |wrong: bool, reason: &str| if wrong { Err(LoadError::Usage(reason.into())) } else { Ok(()) };
        let SqlPacingFlags { rate, rounds, duration_s, warmup_s, drain_s, .. } = &self.pacing;
        let StatementFlags { queries, only, search_path, setup } = &self.statements;
        let concurrency = self.pacing.concurrency.unwrap_or(connections);
        refuse(
            search_path.as_deref().is_some_and(|name| !is_name(name)),
            "--search-path must be letters, digits and underscores",
        )?;
        refuse(rate.is_some() && *rounds > 0, "--rounds needs a closed loop; give it or --rate")?;
        let search_path = search_path.iter().map(|name| format!("SET search_path TO {name}"));
        let spec = SqlSpec {
            hosts: self.server.hosts()?,
            user: self.server.user.clone().unwrap_or_default(),
            password: self.server.password()?,
            database: self.database.clone(),
            queries: queries::read(queries, only.as_ref().map_or(&[], |only| &only.0[..]))?,
            setup: search_path.chain(setup.iter().cloned()).collect(),
            pacing: match rate {
                None => Pacing::Closed { in_flight: concurrency, seconds: *duration_s },
                Some(rates) => rates.pacing(*duration_s),
            },
            rounds: *rounds,
            concurrency,
            pipeline: 1,
            warmup_s: *warmup_s,
            drain_s: *drain_s,
            seed: self.seed,
        };
        let times = spec
            .steps()
            .iter()
            .all(|step| seconds_ok(step.seconds) && (0.0..=1e6).contains(&step.rate_per_s));
        refuse(!times, "--rate expects rates of 0 to 1e6 a second and times of 0 s to 30 days")?;
        refuse(
            !seconds_ok(*warmup_s) || !seconds_ok(*drain_s),
            "--warmup and --drain must be 0 s to 30 days",
        )?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{OtherCommand, SweepTarget, UslTarget, command};
    use crate::spec::RateStep;

    fn parsed(line: &str) -> Result<OtherCommand, LoadError> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/queries");
        let args: Vec<String> = line.split_whitespace().map(|word| word.replace('@', folder)).collect();
        command(&args).map(|load| load.and_then(|load| load.command).expect("a command"))
    }

    fn spec(line: &str) -> Result<SqlSpec, LoadError> {
        match parsed(&format!("sql {line}"))? {
            OtherCommand::Sql(flags) => flags.spec(),
            other => panic!("{other:?}"),
        }
    }

    fn ladder(line: &str) -> Result<LadderPlan, LoadError> {
        match parsed(&format!("usl sql --queries @/tpch {line}"))? {
            OtherCommand::Usl(usl) => {
                let Some(UslTarget::Sql(sql)) = usl.sql else { panic!("{usl:?}") };
                sql.flags.ladder(&sql.ladder, sql.metrics.metrics)
            }
            other => panic!("{other:?}"),
        }
    }

    fn sweep(line: &str) -> Result<SweepPlan, LoadError> {
        match parsed(&format!("sweep sql --queries @/tpch {line}"))? {
            OtherCommand::Sweep(sweep) => {
                let Some(SweepTarget::Sql(sql)) = sweep.sql else { panic!("{sweep:?}") };
                sql.flags.sweep(&sql.sweep, sql.metrics.metrics)
            }
            other => panic!("{other:?}"),
        }
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
        let check = |line: &str, expected: (usize, usize)| {
            let plan = ladder(line).expect(line);
            let RepeatedLoad::Sql(spec) = &plan.experiment.load else { panic!("{plan:?}") };
            assert_eq!((spec.concurrency, plan.rungs[plan.rungs.len() - 1]), expected);
            assert_eq!((spec.warmup_s, plan.experiment.seconds), (2.0, 8.0));
            assert_eq!((&spec.hosts[0][..], &spec.user[..]), ("127.0.0.1:5432", "admin"));
        };
        check("", (64, 4096));
        check("--ladder 1,2,6", (6, 6));
        check("--concurrency 20", (20, 4096));
        check("--concurrency 20 --ladder 1,12", (20, 12));
        for (line, expected) in [("--concurrency 8 --ladder 9000", "--concurrency"), ("--rate 5", "--rate")] {
            let error = ladder(line).expect_err(line).to_string();
            assert!(error.contains(expected), "{error}");
        }
        let plan = sweep("--peak 2k --metrics x:1").expect("a sweep");
        assert_eq!(
            (plan.experiment.load.most_pipelined() / 1024, plan.bound, plan.experiment.seconds),
            (64, 4096, 20.0)
        );
        assert!(sweep("--peak 5 --rate 5").is_err_and(|error| error.to_string().contains("--rate")));
        assert!(sweep("").is_err_and(|error| error.to_string().contains("--peak")));
    }

    #[test]
    fn flags_become_a_spec() {
        let open = spec("--queries @/tpch --only q03,q07 --search-path tpch --rate 2:10s,4 --duration 5s")
            .expect("the flags are valid");
        let step = |rate_per_s, seconds| RateStep { rate_per_s, seconds };
        assert_eq!(open.pacing, Pacing::Open(vec![step(2.0, 10.0), step(4.0, 5.0)]));
        assert_eq!(open.setup, ["SET search_path TO tpch"]);
        let json = serde_json::to_string(&SqlSpec { password: Some("secret".into()), ..open }).expect("data");
        assert!(json.contains("q07") && !json.contains("secret"), "{json}");
    }
}
