//! Flags of loads over CQL, in groups, and the specs and plans that they describe.

use clap::Args;

use crate::common_flags::{HistogramFlags, ReportFlags, ServerFlags, TableFlags};
use crate::experiment::{Experiment, RepeatedLoad};
use crate::flag_values::{Rates, seconds, share, size, slice, whole};
use crate::spec::{Keys, Pacing, RowLayout, Spec, ValueSizes, Workload};
use crate::sweep::SweepPlan;
use crate::sweep::flags::{self as sweep, SweepFlags};
use crate::usl::LadderPlan;
use crate::usl::flags::LadderFlags;
use crate::{Distribution, LoadError};

/// Flags of a load over CQL.
#[derive(Args, Clone, Debug)]
pub(crate) struct CqlFlags {
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    pacing: PacingFlags,
    #[command(flatten)]
    connections: ConnectionFlags,
    #[command(flatten)]
    keys: KeyFlags,
    #[command(flatten)]
    rows: RowFlags,
    #[command(flatten)]
    requests: RequestFlags,
    #[command(flatten)]
    pub(crate) report: ReportFlags,
    #[command(flatten)]
    pub(crate) histograms: HistogramFlags,
}

/// Times at which requests are sent.
#[derive(Args, Clone, Debug)]
struct PacingFlags {
    /// Open loop: requests a second with Poisson arrivals, step after step [default: closed loop]
    #[arg(long, value_name = "RATE[:TIME],…")]
    rate: Option<Rates>,
    /// Closed loop: requests in flight over all connections [default: 64]
    #[arg(long, value_name = "N", value_parser = size)]
    in_flight: Option<usize>,
    /// Time to measure (each step without a time of its own)
    #[arg(long = "duration", value_name = "TIME", default_value = "30s", value_parser = seconds)]
    duration_s: f64,
    /// Send at the first rate before measuring begins
    #[arg(long = "warmup", value_name = "TIME", default_value = "0s", value_parser = seconds)]
    warmup_s: f64,
    /// Wait for answers after the last request
    #[arg(long = "drain", value_name = "TIME", default_value = "5s", value_parser = seconds)]
    drain_s: f64,
    /// Open loop: time limit of a request from when it is due. Answers within it are counted
    #[arg(long = "time-limit", value_name = "TIME", value_parser = seconds)]
    time_limit_s: Option<f64>,
}

/// Connections and their limits.
#[derive(Args, Clone, Debug)]
struct ConnectionFlags {
    /// Connections, over all hosts
    #[arg(long, value_name = "N", default_value = "16", value_parser = size)]
    connections: usize,
    /// Most requests in flight on one connection
    #[arg(long, value_name = "N", default_value = "1024", value_parser = size)]
    streams: usize,
    /// Most requests in flight over all connections; reaching it is reported
    #[arg(long, value_name = "N", default_value = "10000", value_parser = size)]
    max_in_flight: usize,
    /// Event loops, one core each
    #[arg(long, value_name = "N", default_value = "1", value_parser = size)]
    threads: usize,
    /// Do not send requests to the shard that owns their key
    #[arg(long)]
    no_routing: bool,
}

/// Key space.
#[derive(Args, Clone, Debug)]
struct KeyFlags {
    /// Partitions in the key space
    #[arg(long = "keys", value_name = "N", default_value = "100000", value_parser = whole)]
    population: u64,
    /// uniform, gaussian, zipfian[:THETA] or sequential
    #[arg(long, value_name = "NAME", default_value = "uniform", value_parser = Distribution::parse)]
    distribution: Distribution,
    /// Use the I-th of N parts of the key space, from 1
    #[arg(long, value_name = "I/N", default_value = "1/1", value_parser = slice)]
    slice: (u64, u64),
}

/// Layout of the rows.
#[derive(Args, Clone, Debug)]
struct RowFlags {
    /// Blob columns in a row (1 when only --value-size is given) [default: 5]
    #[arg(long, value_name = "N", value_parser = size)]
    columns: Option<usize>,
    /// Bytes in each column [default: 34]
    #[arg(long = "value-size", value_name = "BYTES", value_parser = size)]
    value_bytes: Option<usize>,
    /// fixed, or exponential with --value-size as the mean
    #[arg(long, value_name = "NAME", default_value = "fixed", value_enum, hide_possible_values = true)]
    value_sizes: ValueSizes,
    /// Share of each value that is one repeated byte
    #[arg(long, value_name = "0..1", default_value = "0", value_parser = share)]
    compressibility: f64,
    /// Rows under each key, in the table `slices` [default: 100 for slices]
    #[arg(long, value_name = "N", value_parser = whole)]
    rows_per_partition: Option<u64>,
    /// Most rows a slice reads
    #[arg(long, value_name = "N", default_value = "100", value_parser = whole)]
    slice_rows: u64,
    /// Keyspace of the tables
    #[arg(long, value_name = "NAME", default_value = "keyspace1")]
    keyspace: String,
    #[command(flatten)]
    tables: TableFlags,
    /// Do not create keyspace and table
    #[arg(long)]
    no_create: bool,
}

/// Contents of the requests, and the server's own view of them.
#[derive(Args, Clone, Debug)]
struct RequestFlags {
    /// Share of writes in a mixed load
    #[arg(long, value_name = "0..1", default_value = "0.5", value_parser = share)]
    write_ratio: f64,
    /// Read with BYPASS CACHE
    #[arg(long)]
    bypass_cache: bool,
    /// Seed of keys, values and arrival times
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole)]
    seed: u64,
    /// The server's metrics, to report its own service times
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
}

impl RowFlags {
    fn rows(&self, workload: Workload) -> Result<RowLayout, LoadError> {
        let clustered = self.rows_per_partition.is_some() || workload == Workload::Slice;
        let alone = self.value_bytes.is_some() || clustered;
        let columns = self.columns.unwrap_or(if alone { 1 } else { 5 });
        if clustered && columns != 1 {
            return Err(LoadError::Usage("table `slices` has one column; omit --columns".into()));
        }
        Ok(RowLayout {
            keyspace: self.keyspace.clone(),
            columns,
            value_bytes: self.value_bytes.unwrap_or(34),
            value_sizes: self.value_sizes,
            compressibility: self.compressibility,
            per_partition: if clustered { self.rows_per_partition.unwrap_or(100) } else { 0 },
            slice_rows: self.slice_rows,
            replication: self.tables.replication,
        })
    }
}

impl CqlFlags {
    /// Returns the ladder of concurrencies that these flags describe.
    ///
    /// # Errors
    /// [`LoadError::Usage`].
    pub(crate) fn ladder(&self, workload: Workload, ladder: &LadderFlags) -> Result<LadderPlan, LoadError> {
        self.refuse_pacing("`usl` runs closed loops; give --ladder, not --rate or --in-flight")?;
        ladder.plan(self.experiment(workload)?)
    }

    /// Returns the sweep that these flags describe.
    ///
    /// # Errors
    /// [`LoadError::Usage`], and those of [`SweepFlags::plan`].
    pub(crate) fn sweep(&self, workload: Workload, sweep: &SweepFlags) -> Result<SweepPlan, LoadError> {
        self.refuse_pacing("`sweep` chooses its rates; give --peak, not --rate or --in-flight")?;
        sweep.plan(self.experiment(workload)?, self.connections.max_in_flight.min(sweep::BOUND))
    }

    fn refuse_pacing(&self, reason: &str) -> Result<(), LoadError> {
        match (&self.pacing.rate, self.pacing.in_flight) {
            (None, None) => Ok(()),
            _ => Err(LoadError::Usage(reason.to_string())),
        }
    }

    /// Returns the load to repeat. Its valid closed loop is replaced at each step.
    fn experiment(&self, workload: Workload) -> Result<Experiment, LoadError> {
        let seconds = self.pacing.duration_s;
        let pacing = Pacing::Closed { in_flight: self.connections.threads.max(1), seconds };
        let spec = Spec { metrics: None, ..self.paced(workload, pacing)? };
        let metrics = self.requests.metrics.clone();
        Ok(Experiment { load: RepeatedLoad::Cql(spec), seconds, seed: self.requests.seed, metrics })
    }

    /// Returns the checked spec that these flags describe.
    ///
    /// # Errors
    /// [`LoadError::Usage`].
    pub(crate) fn spec(&self, workload: Workload) -> Result<Spec, LoadError> {
        let seconds = self.pacing.duration_s;
        let pacing = match (&self.pacing.rate, self.pacing.in_flight) {
            (Some(_), Some(_)) => {
                return Err(LoadError::Usage(
                    "--rate is an open loop and --in-flight a closed loop; give one of them".into(),
                ));
            }
            (Some(rates), None) => rates.pacing(seconds),
            (None, in_flight) => Pacing::Closed { in_flight: in_flight.unwrap_or(64), seconds },
        };
        self.paced(workload, pacing)
    }

    fn paced(&self, workload: Workload, pacing: Pacing) -> Result<Spec, LoadError> {
        let spec = Spec {
            workload,
            hosts: self.server.hosts()?,
            user: self.server.user.clone(),
            password: self.server.password()?,
            pacing,
            warmup_s: self.pacing.warmup_s,
            connections: self.connections.connections,
            streams: self.connections.streams,
            max_in_flight: self.connections.max_in_flight,
            threads: self.connections.threads,
            keys: Keys {
                population: self.keys.population,
                distribution: self.keys.distribution,
                slice: self.keys.slice,
            },
            rows: self.rows.rows(workload)?,
            write_ratio: self.requests.write_ratio,
            bypass_cache: self.requests.bypass_cache,
            consistency: self.rows.tables.consistency.clone(),
            seed: self.requests.seed,
            create: !self.rows.no_create,
            route: !self.connections.no_routing,
            metrics: self.requests.metrics.clone(),
            drain_s: self.pacing.drain_s,
            time_limit_s: self.pacing.time_limit_s,
            ..Spec::default()
        };
        spec.check()?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::commands::{LoadCommand, OtherCommand, command};
    use crate::spec::RateStep;

    fn parsed(line: &str) -> Result<LoadCommand, LoadError> {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        command(&args).map(|load| load.expect("no help"))
    }

    fn spec(line: &str) -> Result<Spec, LoadError> {
        let load = parsed(line)?;
        load.flags.spec(load.workload.expect("a workload"))
    }

    fn check_error(line: &str, expected: &str) {
        let error = spec(line).expect_err(line).to_string();
        assert!(error.contains(expected), "{error}");
    }

    /// Checks what `clap` asserts in debug builds only.
    fn check_names(command: &clap::Command) {
        let mut names = BTreeSet::new();
        for arg in command.get_arguments() {
            let is_new = names.insert(arg.get_id().to_string());
            assert!(is_new, "`{}` has `{}` twice", command.get_name(), arg.get_id());
        }
        command.get_subcommands().for_each(check_names);
    }

    #[test]
    fn names_of_flags_are_unique_in_each_command() {
        check_names(&LoadCommand::command());
    }

    #[test]
    fn help_lists_the_flags_and_workloads() {
        let help = LoadCommand::command().render_help().to_string();
        for text in
            ["--hosts <HOST:PORT,…>", "[default: 127.0.0.1:9042]", "--hdr", "slice     many rows", "usl"]
        {
            assert!(help.contains(text), "{text}: {help}");
        }
    }

    #[test]
    fn defaults_of_the_flags_are_those_of_the_spec() {
        let password = std::env::var("FAIRLANE_PASSWORD").ok();
        assert_eq!(spec("read").expect("no flags"), Spec { password, ..Spec::default() });
    }

    #[test]
    fn repeated_flag_has_its_last_value() {
        assert_eq!(spec("read --keys 5 --keys 7k").map(|spec| spec.keys.population).ok(), Some(7000));
        let password = |line| spec(line).expect(line).password;
        assert_eq!(password("read --password-file /no/file --password -x").as_deref(), Some("-x"));
    }

    #[test]
    fn rates_and_durations_become_pacing() {
        let open = spec("read --rate 4000:60s,40k:1m,0:500ms,7 --duration=2s").expect("four steps");
        let step = |rate_per_s, seconds| RateStep { rate_per_s, seconds };
        let steps = vec![step(4000.0, 60.0), step(40_000.0, 60.0), step(0.0, 0.5), step(7.0, 2.0)];
        assert_eq!(open.pacing, Pacing::Open(steps));
        let closed = spec("mixed --in-flight 256 --duration 1h").expect("a closed loop");
        assert_eq!(closed.pacing, Pacing::Closed { in_flight: 256, seconds: 3600.0 });
        let limit = |line| spec(line).map(|spec| spec.time_limit_s).ok();
        assert_eq!(
            [limit("read --rate 1"), limit("read --rate 1 --time-limit 500ms")],
            [Some(None), Some(Some(0.5))]
        );
    }

    #[test]
    fn row_flags_choose_the_layout() {
        let rows =
            |line| spec(line).map(|spec| (spec.rows.columns, spec.rows.value_bytes, spec.rows.per_partition));
        assert_eq!(rows("read").ok(), Some((5, 34, 0)));
        assert_eq!(rows("read --value-size 1k").ok(), Some((1, 1000, 0)));
        assert_eq!(rows("read --value-size 100 --columns 3").ok(), Some((3, 100, 0)));
        assert_eq!(rows("slice").ok(), Some((1, 34, 100)));
        assert_eq!(rows("prefill --rows-per-partition 10").ok(), Some((1, 34, 10)));
        let bypasses = |line| spec(line).map(|spec| spec.bypass_cache).ok();
        assert_eq!([bypasses("read"), bypasses("read --bypass-cache")], [Some(false), Some(true)]);
    }

    #[test]
    fn errors_name_the_wrong_flag() {
        check_error("read --frobnicate", "--frobnicate");
        check_error("read --rate", "RATE");
        check_error("read --rate fast", "--rate");
        check_error("read --rate 1 --in-flight 2", "give one");
        check_error("read --quiet=yes", "unexpected value 'yes' for '--quiet'");
        check_error("read --duration -1s", "--duration");
        check_error("read --slice 2", "--slice");
        check_error("read --keys many", "--keys");
        check_error("prefill --rate 100", "prefill");
        check_error("slice --columns 2", "--columns");
        check_error("read --write-ratio 1.5", "expected a number of 0 to 1, got `1.5`");
        check_error("read --password-file /nonexistent/file", "/nonexistent/file");
        check_error("--keys 5 dance", "expected one of read, write, mixed, slice, prefill, got `dance`");
    }

    #[test]
    fn plans_refuse_a_pacing_of_their_own() {
        let ladder = |line: &str| match parsed(line)?.command {
            Some(OtherCommand::Usl(usl)) => usl.flags.ladder(usl.workload, &usl.ladder),
            other => panic!("{other:?}"),
        };
        assert!(ladder("usl --rate 5").is_err_and(|error| error.to_string().contains("--ladder")));
        let plan = ladder("usl read --threads 100 --connections 200 --metrics x:1").expect("a ladder");
        assert_eq!(
            (plan.rungs[0], plan.experiment.seconds, plan.experiment.metrics.as_deref()),
            (128, 8.0, Some("x:1"))
        );
        let sweep = |line: &str| match parsed(line)?.command {
            Some(OtherCommand::Sweep(sweep)) => sweep.flags.sweep(sweep.workload, &sweep.sweep),
            other => panic!("{other:?}"),
        };
        assert!(sweep("sweep --rate 5 --peak 9").is_err_and(|error| error.to_string().contains("--peak")));
        let found = sweep("sweep --peak 9k --max-in-flight 100 write --metrics x:1").expect("a sweep");
        assert_eq!(
            (found.bound, found.experiment.seconds, found.runs, found.peak.per_s),
            (100, 20.0, 5, 9000.0)
        );
        assert_eq!(sweep("sweep --peak 9k").map(|found| found.bound).ok(), Some(4096));
    }
}
