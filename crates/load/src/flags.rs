//! Command line of `fairlane load`. Parsing, help and tests read one table of flags.

use crate::common::{self, Common};
use crate::flag::{Flag, flag, list, number, rates, read, seconds, usage, whole};
use crate::spec::{Pacing, Spec, Step, ValueSizes, Workload};
use crate::sweep::flags::{self as sweep, SweepFlags};
use crate::usl::flags::{self as usl, LadderFlags};
use crate::usl::{Plan, Target};
use crate::{Distribution, LoadError};

/// Parsed flags. [`Options::spec`] derives pacing and row layout after the last flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    spec: Spec,
    rate: Option<Vec<(f64, Option<f64>)>>,
    in_flight: Option<usize>,
    duration_s: Option<f64>,
    columns: Option<usize>,
    value_bytes: Option<usize>,
    rows_per_partition: Option<u64>,
    pub(crate) common: Common,
    /// File for the raw histograms.
    pub(crate) hdr: Option<String>,
    warmup_s: Option<f64>,
    pub(crate) ladder: LadderFlags,
    pub(crate) sweep: SweepFlags,
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

fn slice(text: &str) -> Result<(u64, u64), LoadError> {
    let parts = text
        .split_once('/')
        .ok_or_else(|| usage(format!("expected a slice I/N such as 1/4, got `{text}`")))?;
    Ok((number(parts.0)?, number(parts.1)?))
}

/// All flags, in the order of the help.
static FLAGS: &[Flag<Options>] = &[
    common::hosts("127.0.0.1:9042"),
    common::user("none"),
    common::password(),
    common::password_file(),
    flag!(
        "rate",
        "RATE[:TIME],…",
        "closed loop",
        "open loop: requests a second with Poisson arrivals, step after step",
        |o, v| {
            o.rate = Some(rates(v)?);
            Ok(())
        }
    ),
    flag!("in-flight", "N", "64", "closed loop: requests in flight over all connections", |o, v| {
        o.in_flight = Some(whole(v)? as usize);
        Ok(())
    }),
    flag!("duration", "TIME", "30s", "time to measure (each step without a time of its own)", |o, v| {
        o.duration_s = Some(seconds(v)?);
        Ok(())
    }),
    flag!("warmup", "TIME", "0s", "send at the first rate before measuring begins", |o, v| {
        o.warmup_s = Some(seconds(v)?);
        Ok(())
    }),
    flag!("drain", "TIME", "5s", "wait for answers after the last request", |o, v| {
        o.spec.drain_s = seconds(v)?;
        Ok(())
    }),
    flag!("connections", "N", "16", "connections, over all hosts", |o, v| {
        o.spec.connections = whole(v)? as usize;
        Ok(())
    }),
    flag!("streams", "N", "1024", "most requests in flight on one connection", |o, v| {
        o.spec.streams = whole(v)? as usize;
        Ok(())
    }),
    flag!(
        "max-in-flight",
        "N",
        "10000",
        "most requests in flight over all connections; reaching it is reported",
        |o, v| {
            o.spec.max_in_flight = whole(v)? as usize;
            Ok(())
        }
    ),
    flag!("threads", "N", "1", "event loops, one core each", |o, v| {
        o.spec.threads = whole(v)? as usize;
        Ok(())
    }),
    flag!("keys", "N", "100000", "partitions in the key space", |o, v| {
        o.spec.keys.population = whole(v)?;
        Ok(())
    }),
    flag!("distribution", "NAME", "uniform", "uniform, gaussian, zipfian[:THETA] or sequential", |o, v| {
        o.spec.keys.distribution = Distribution::parse(v)?;
        Ok(())
    }),
    flag!("slice", "I/N", "1/1", "use the I-th of N parts of the key space, from 1", |o, v| {
        o.spec.keys.slice = slice(v)?;
        Ok(())
    }),
    flag!("columns", "N", "5", "blob columns in a row (1 when only --value-size is given)", |o, v| {
        o.columns = Some(whole(v)? as usize);
        Ok(())
    }),
    flag!("value-size", "BYTES", "34", "bytes in each column", |o, v| {
        o.value_bytes = Some(whole(v)? as usize);
        Ok(())
    }),
    flag!("value-sizes", "NAME", "fixed", "fixed, or exponential with --value-size as the mean", |o, v| {
        o.spec.rows.value_sizes = match v {
            "fixed" => ValueSizes::Fixed,
            "exponential" => ValueSizes::Exponential,
            _ => return Err(usage(format!("--value-sizes: expected fixed or exponential, got `{v}`"))),
        };
        Ok(())
    }),
    flag!("compressibility", "0..1", "0", "share of each value that is one repeated byte", |o, v| {
        o.spec.rows.compressibility = number(v)?;
        Ok(())
    }),
    flag!(
        "rows-per-partition",
        "N",
        "100 for slices",
        "rows under each key, in the table `slices`",
        |o, v| {
            o.rows_per_partition = Some(whole(v)?);
            Ok(())
        }
    ),
    flag!("slice-rows", "N", "100", "most rows a slice reads", |o, v| {
        o.spec.rows.slice_rows = whole(v)?;
        Ok(())
    }),
    flag!("write-ratio", "0..1", "0.5", "share of writes in a mixed load", |o, v| {
        o.spec.write_ratio = number(v)?;
        Ok(())
    }),
    flag!("bypass-cache", "", "off", "read with BYPASS CACHE", |o, _| {
        o.spec.bypass_cache = true;
        Ok(())
    }),
    flag!("consistency", "LEVEL", "ONE", "consistency level", |o, v| {
        o.spec.consistency = v.to_string();
        Ok(())
    }),
    flag!("keyspace", "NAME", "keyspace1", "keyspace of the tables", |o, v| {
        o.spec.rows.keyspace = v.to_string();
        Ok(())
    }),
    flag!("replication", "N", "1", "replication factor of a keyspace created here", |o, v| {
        o.spec.rows.replication = number(v)?;
        Ok(())
    }),
    flag!("no-create", "", "off", "do not create keyspace and table", |o, _| {
        o.spec.create = false;
        Ok(())
    }),
    flag!("no-routing", "", "off", "do not send requests to the shard that owns their key", |o, _| {
        o.spec.route = false;
        Ok(())
    }),
    flag!("seed", "N", "1", "seed of keys, values and arrival times", |o, v| {
        o.spec.seed = whole(v)?;
        Ok(())
    }),
    flag!("metrics", "HOST:PORT", "none", "the server's metrics, to report its own service times", |o, v| {
        o.spec.metrics = Some(v.to_string());
        Ok(())
    }),
    usl::ladder(),
    usl::rounds(),
    usl::svg(),
    sweep::from(),
    sweep::peak(),
    sweep::runs(),
    common::html(),
    common::json(),
    flag!("hdr", "FILE", "none", "write the raw histograms, for `merge`", |o, v| {
        o.hdr = Some(v.to_string());
        Ok(())
    }),
    common::quiet(),
    common::help(),
];

/// Returns the help, generated from the table.
pub(crate) fn help() -> String {
    let mut out = String::from(
        "fairlane load: open- and closed-loop load over the CQL native protocol\n\n\
         fairlane load WORKLOAD [flags]\n\
         fairlane load usl [WORKLOAD] [flags]      closed loops of growing concurrency, fitted to the scalability\n\
         \x20                                         law; each has 2s of warm-up and 8s measured by default\n\
         fairlane load usl sql [flags]             the same for queries over the Postgres protocol\n\
         fairlane load sweep [WORKLOAD] [flags]    open loops at 4, 40 and 100 % of the peak; each has 2s of warm-up\n\
         \x20                                         and 20s measured by default, with at most 4096 in flight\n\
         fairlane load sweep sql [flags]           the same for queries over the Postgres protocol\n\
         fairlane load plan --from FILE [flags]    cores and concurrency for a rate, from the JSON of `usl`\n\
         fairlane load merge FILES… [--json FILE]  one report from the raw histograms of several generators\n\
         fairlane load tpch [flags]                writes the tables of TPC-H, through CQL or as CSV\n\
         fairlane load hits [flags]                writes a synthetic table with the columns of ClickBench's `hits`\n\
         fairlane load sql [flags]                 queries over the Postgres protocol, open or closed loop\n\n\
         Workloads\n",
    );
    for (_, name, what) in Workload::ALL {
        out.push_str(&format!("  {name:<10}{what}\n"));
    }
    out + &list(&FLAGS.iter().collect::<Vec<_>>())
}

/// Parses flags given as `--name value` or `--name=value`. Returns the other words, in order.
///
/// # Errors
/// [`LoadError::Usage`] for a flag that is unknown, lacks its value or has a wrong one.
pub(crate) fn parse(args: &[String], options: &mut Options) -> Result<Vec<String>, LoadError> {
    read(args, options, &FLAGS.iter().collect::<Vec<_>>(), "fairlane load")
}

/// Returns an open loop of these rates a second. A rate without a time lasts `duration_s`.
pub(crate) fn open_loop(rates: &[(f64, Option<f64>)], duration_s: f64) -> Pacing {
    let step =
        |(rate, time): &(f64, Option<f64>)| Step { rate_per_s: *rate, seconds: time.unwrap_or(duration_s) };
    Pacing::Open(rates.iter().map(step).collect())
}

impl Options {
    /// Returns the ladder of concurrencies that these options describe.
    ///
    /// # Errors
    /// [`LoadError::Usage`].
    pub(crate) fn plan(&self, workload: Workload) -> Result<Plan, LoadError> {
        if self.rate.is_some() || self.in_flight.is_some() {
            return Err(usage("`usl` runs closed loops; give --ladder, not --rate or --in-flight".into()));
        }
        // The ladder replaces the concurrency.
        let in_flight = Some(self.spec.threads.max(1));
        let mut spec = Options { in_flight, ..self.clone() }.spec(workload)?;
        spec.warmup_s = self.warmup_s.unwrap_or(usl::WARMUP_S);
        let (seed, metrics) = (spec.seed, spec.metrics.take());
        let seconds = self.duration_s.unwrap_or(usl::SECONDS);
        self.ladder.plan(Target::Cql(spec), seconds, seed, metrics)
    }

    /// Returns the sweep that these options describe.
    ///
    /// # Errors
    /// [`LoadError::Usage`], and those of [`SweepFlags::plan`].
    pub(crate) fn sweep(&self, workload: Workload) -> Result<crate::sweep::Plan, LoadError> {
        if self.rate.is_some() || self.in_flight.is_some() {
            return Err(usage("`sweep` chooses its rates; give --peak, not --rate or --in-flight".into()));
        }
        // The rates replace the concurrency.
        let in_flight = Some(self.spec.threads.max(1));
        let mut spec = Options { in_flight, ..self.clone() }.spec(workload)?;
        spec.warmup_s = self.warmup_s.unwrap_or(sweep::WARMUP_S);
        let bound = spec.max_in_flight.min(sweep::BOUND);
        let (seed, metrics) = (spec.seed, spec.metrics.take());
        let seconds = self.duration_s.unwrap_or(sweep::SECONDS);
        self.sweep.plan(Target::Cql(spec), (seconds, bound), seed, metrics)
    }

    /// Returns the checked spec that these options describe.
    ///
    /// # Errors
    /// [`LoadError::Usage`].
    pub(crate) fn spec(&self, workload: Workload) -> Result<Spec, LoadError> {
        let mut spec = self.spec.clone();
        spec.workload = workload;
        spec.hosts = self.common.hosts("127.0.0.1:9042");
        spec.user = self.common.user.clone();
        spec.password = self.common.password();
        spec.warmup_s = self.warmup_s.unwrap_or(0.0);
        let duration = self.duration_s.unwrap_or(30.0);
        spec.pacing = match (&self.rate, self.in_flight) {
            (Some(_), Some(_)) => {
                return Err(usage(
                    "--rate is an open loop and --in-flight a closed loop; give one of them".into(),
                ));
            }
            (Some(rates), None) => open_loop(rates, duration),
            (None, in_flight) => Pacing::Closed { in_flight: in_flight.unwrap_or(64), seconds: duration },
        };
        let clustered = self.rows_per_partition.is_some() || workload == Workload::Slice;
        spec.rows.per_partition = if clustered { self.rows_per_partition.unwrap_or(100) } else { 0 };
        let alone = self.value_bytes.is_some() || clustered;
        spec.rows.columns = self.columns.unwrap_or(if alone { 1 } else { 5 });
        spec.rows.value_bytes = self.value_bytes.unwrap_or(34);
        if clustered && spec.rows.columns != 1 {
            return Err(usage("table `slices` has one column; omit --columns".into()));
        }
        spec.check()?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(line: &str) -> Result<Spec, LoadError> {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        let mut options = Options::default();
        let words = parse(&args, &mut options)?;
        let found =
            Workload::ALL.iter().find(|(_, name, _)| Some(*name) == words.first().map(String::as_str));
        options.spec(found.expect("a workload").0)
    }

    fn check_error(line: &str, expected: &str) {
        let error = spec(line).expect_err(line).to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn help_lists_every_flag_with_its_value() {
        let help = help();
        for flag in FLAGS {
            assert!(help.contains(&format!("--{}", flag.name)) && help.contains(flag.help), "{}", flag.name);
            assert!(FLAGS.iter().filter(|other| other.name == flag.name).count() == 1, "{} twice", flag.name);
            let alone = parse(&[format!("--{}", flag.name)], &mut Options::default());
            assert_eq!(alone.is_err(), !flag.value.is_empty(), "--{}", flag.name);
        }
    }

    #[test]
    fn defaults_in_the_help_are_those_of_the_spec() {
        let plain = spec("read").expect("no flags");
        let values = [
            "keys",
            "connections",
            "streams",
            "max-in-flight",
            "threads",
            "seed",
            "slice-rows",
            "write-ratio",
            "consistency",
            "keyspace",
            "replication",
            "compressibility",
            "distribution",
            "slice",
            "warmup",
            "drain",
            "hosts",
            "in-flight",
            "duration",
            "columns",
        ];
        for name in values {
            let flag = FLAGS.iter().find(|flag| flag.name == name).expect("a flag");
            let given = spec(&format!("read --{name} {}", flag.default)).expect("the default parses");
            assert_eq!(given, plain, "--{name}");
        }
    }

    #[test]
    fn rates_and_durations_become_pacing() {
        let open = spec("read --rate 4000:60s,40k:1m,0:500ms,7 --duration=2s").expect("four steps");
        let step = |rate_per_s, seconds| Step { rate_per_s, seconds };
        let steps = vec![step(4000.0, 60.0), step(40_000.0, 60.0), step(0.0, 0.5), step(7.0, 2.0)];
        assert_eq!(open.pacing, Pacing::Open(steps));
        let closed = spec("mixed --in-flight 256 --duration 1h").expect("a closed loop");
        assert_eq!(closed.pacing, Pacing::Closed { in_flight: 256, seconds: 3600.0 });
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
        check_error("read --quiet=yes", "no value");
        check_error("read --duration -1s", "--duration");
        check_error("read --slice 2", "--slice");
        check_error("read --keys many", "--keys");
        check_error("prefill --rate 100", "prefill");
        check_error("slice --columns 2", "--columns");
        let plan = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
            let mut options = Options::default();
            parse(&args, &mut options).and_then(|_| options.plan(Workload::Read))
        };
        assert!(plan("--rate 5").is_err_and(|error| error.to_string().contains("--ladder")));
        let plan = plan("--threads 100 --connections 200 --metrics x:1").expect("a ladder");
        assert_eq!((plan.rungs[0], plan.seconds, plan.metrics.as_deref()), (128, 8.0, Some("x:1")));
        let sweep = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
            let mut options = Options::default();
            parse(&args, &mut options).and_then(|_| options.sweep(Workload::Read))
        };
        assert!(sweep("--rate 5 --peak 9").is_err_and(|error| error.to_string().contains("--peak")));
        let found = sweep("--peak 9k --max-in-flight 100 --metrics x:1").expect("a sweep");
        assert_eq!((found.bound, found.seconds, found.runs, found.peak_per_s), (100, 20.0, 5, 9000.0));
        assert_eq!(sweep("--peak 9k").map(|found| found.bound).ok(), Some(4096));
        check_error("read --password-file /nonexistent/file", "/nonexistent/file");
    }
}
