//! Description of a load as data. The command line builds one from flags, and the demo builds its
//! own. Every report contains the spec, so that results always come with their conditions.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{Distribution, LoadError};

/// Kind of requests sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Reads of single rows by key.
    Read,
    /// Writes of whole rows.
    Write,
    /// Reads and writes, mixed by [`Spec::write_ratio`].
    Mixed,
    /// Reads of many rows of one partition in key order.
    Slice,
    /// Writes of every row of the key space, each once. Ends after the last row.
    Prefill,
}

impl Workload {
    /// All workloads, each with its name and description on the command line.
    pub const ALL: [(Workload, &'static str, &'static str); 5] = [
        (Workload::Read, "read", "rows by key"),
        (Workload::Write, "write", "whole rows"),
        (Workload::Mixed, "mixed", "reads and writes (--write-ratio)"),
        (Workload::Slice, "slice", "many rows of one partition (--slice-rows)"),
        (Workload::Prefill, "prefill", "writes every row of the key space once"),
    ];
}

/// One request rate for a duration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateStep {
    /// Requests a second, over all threads. Zero for a pause.
    pub rate_per_s: f64,
    /// Duration, seconds.
    pub seconds: f64,
}

/// Rule for the times at which requests are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pacing {
    /// Open loop: Poisson arrivals, independent of the server. Latency starts when a request is
    /// due.
    Open(
        /// Steps, one after another.
        Vec<RateStep>,
    ),
    /// Closed loop: `in_flight` requests over all connections, each answer followed by a new
    /// request.
    Closed {
        /// Requests in flight.
        in_flight: usize,
        /// Duration, seconds. A prefill ends by itself.
        seconds: f64,
    },
}

/// Key space of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Keys {
    /// Number of partitions.
    pub population: u64,
    /// Distribution of the requested keys.
    pub distribution: Distribution,
    /// Slice `.0` of `.1` of the population, from 1.
    pub slice: (u64, u64),
}

/// Distribution of the sizes of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ValueSizes {
    /// All values have the same size.
    #[default]
    Fixed,
    /// Exponential, at most 8 times the mean, so that one value in 3,000 is cut.
    Exponential,
}

/// Layout of the rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowLayout {
    /// Keyspace of the tables.
    pub keyspace: String,
    /// Blob columns of a row. Five columns are `standard1` of cassandra-stress.
    pub columns: usize,
    /// Bytes in each column, or their mean.
    pub value_bytes: usize,
    /// Distribution of the sizes of values.
    #[serde(default)]
    pub value_sizes: ValueSizes,
    /// Share of each value that is one repeated byte, 0 to 1. The rest is random.
    pub compressibility: f64,
    /// Rows in a partition of table `slices`. Zero: a table without a clustering key.
    pub per_partition: u64,
    /// Most rows a slice reads.
    pub slice_rows: u64,
    /// Replication factor, if this load creates the keyspace.
    pub replication: u32,
}

/// Description of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Kind of requests.
    pub workload: Workload,
    /// HOST:PORT of each server. Connections are spread over them.
    pub hosts: Vec<String>,
    /// User, if the server requires one.
    pub user: Option<String>,
    /// Password of the user. Not part of reports.
    #[serde(skip)]
    pub password: Option<String>,
    /// Times at which requests are sent.
    pub pacing: Pacing,
    /// Warm-up at the first rate before measuring begins, seconds.
    pub warmup_s: f64,
    /// Connections, over all hosts and threads.
    pub connections: usize,
    /// Most requests in flight on one connection, 1 to 32,000.
    pub streams: usize,
    /// True to send the requests of a closed loop over the connections in turn, each as soon as
    /// another is answered. Otherwise each connection has an equal part of them, and with few in
    /// flight some have none.
    #[serde(default)]
    pub in_turn: bool,
    /// Most requests in flight over all connections. The report counts the requests it delayed.
    pub max_in_flight: usize,
    /// Threads, each with an event loop. One thread sends hundreds of thousands of requests a
    /// second.
    pub threads: usize,
    /// Key space.
    pub keys: Keys,
    /// Layout of the rows.
    pub rows: RowLayout,
    /// Share of writes in a mixed load, 0 to 1.
    pub write_ratio: f64,
    /// True to read with `BYPASS CACHE`.
    #[serde(default)]
    pub bypass_cache: bool,
    /// CQL name of the consistency level.
    pub consistency: String,
    /// Seed of keys, values and arrival times.
    pub seed: u64,
    /// True to create keyspace and table if they are missing.
    pub create: bool,
    /// True to send each request to the shard that owns its key, if the server publishes its
    /// sharding.
    pub route: bool,
    /// HOST:PORT of the server's metrics, to report its service times.
    pub metrics: Option<String>,
    /// Time to wait for answers after the last request, seconds.
    pub drain_s: f64,
    /// Time limit of a request of an open loop, from when it is due, seconds. Answers within it are
    /// counted. With it each connection is a client that gives up: a request is not sent if it
    /// cannot be sent at once, nor before the time that the client's last refusal named.
    pub time_limit_s: Option<f64>,
    /// Earliest begin, milliseconds since 1970, so that several loads begin together.
    pub begin_unix_ms: Option<u64>,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            workload: Workload::Read,
            hosts: vec!["127.0.0.1:9042".to_string()],
            user: None,
            password: None,
            pacing: Pacing::Closed { in_flight: 64, seconds: 30.0 },
            warmup_s: 0.0,
            connections: 16,
            streams: 1024,
            in_turn: false,
            max_in_flight: 10_000,
            threads: 1,
            keys: Keys { population: 100_000, distribution: Distribution::Uniform, slice: (1, 1) },
            rows: RowLayout {
                keyspace: "keyspace1".to_string(),
                columns: 5,
                value_bytes: 34,
                value_sizes: ValueSizes::Fixed,
                compressibility: 0.0,
                per_partition: 0,
                slice_rows: 100,
                replication: 1,
            },
            write_ratio: 0.5,
            bypass_cache: false,
            consistency: "ONE".to_string(),
            seed: 1,
            create: true,
            route: true,
            metrics: None,
            drain_s: 5.0,
            time_limit_s: None,
            begin_unix_ms: None,
        }
    }
}

/// Most requests in flight on a connection. Stream ids have 15 bits (32,768). The ids above this
/// bound are reserved for preparing statements again.
pub(crate) const STREAMS_MAX: usize = 32_000;

impl Spec {
    /// Returns true if rows have a clustering key.
    pub(crate) fn clustered(&self) -> bool {
        self.rows.per_partition > 0
    }

    /// Returns the keys of this load's slice.
    pub(crate) fn key_range(&self) -> Range<u64> {
        let (index, of) = self.keys.slice;
        crate::keys::slice(self.keys.population, index, of)
    }

    /// Returns the measured steps, without the warm-up.
    pub(crate) fn steps(&self) -> Vec<RateStep> {
        match &self.pacing {
            Pacing::Open(steps) => steps.clone(),
            Pacing::Closed { seconds, .. } => vec![RateStep { rate_per_s: 0.0, seconds: *seconds }],
        }
    }

    /// Parses the consistency level.
    ///
    /// # Errors
    /// [`LoadError::Usage`] for an unknown name.
    pub(crate) fn consistency_level(&self) -> Result<wire::Consistency, LoadError> {
        consistency_level(&self.consistency)
    }

    /// Checks everything that needs no connection.
    ///
    /// # Errors
    /// [`LoadError::Usage`], naming the flag.
    pub fn check(&self) -> Result<(), LoadError> {
        let refuse = |wrong: bool, reason: &str| if wrong { Err(usage(reason.to_string())) } else { Ok(()) };
        let share = |value: f64| (0.0..=1.0).contains(&value);
        refuse(self.hosts.is_empty(), "--hosts names no server")?;
        refuse(self.threads == 0 || self.threads > 1024, "--threads must be 1 to 1024")?;
        refuse(self.connections < self.threads, "--connections must be at least --threads")?;
        refuse(self.connections > 100_000, "--connections must be at most 100000")?;
        refuse(self.streams == 0 || self.streams > STREAMS_MAX, "--streams must be 1 to 32000")?;
        refuse(self.max_in_flight < self.threads, "--max-in-flight must be at least --threads")?;
        refuse(self.keys.population == 0, "--keys must be at least 1")?;
        let (index, of) = self.keys.slice;
        refuse(index == 0 || index > of, "--slice I/N expects I from 1 to N")?;
        refuse(self.key_range().is_empty(), "--slice leaves no keys: there are fewer keys than slices")?;
        refuse(self.rows.columns == 0 || self.rows.columns > 1000, "--columns must be 1 to 1000")?;
        refuse(self.rows.value_bytes > 16 << 20, "--value-size must be at most 16777216 bytes")?;
        refuse(!share(self.rows.compressibility), "--compressibility must be 0 to 1")?;
        refuse(!share(self.write_ratio), "--write-ratio must be 0 to 1")?;
        refuse(self.rows.slice_rows == 0, "--slice-rows must be at least 1")?;
        refuse(!is_name(&self.rows.keyspace), "--keyspace must be letters, digits and underscores")?;
        refuse(
            !seconds_ok(self.warmup_s) || !seconds_ok(self.drain_s),
            "--warmup and --drain must be 0 s to 30 days",
        )?;
        refuse(
            self.workload == Workload::Slice && !self.clustered(),
            "workload `slice` needs --rows-per-partition of at least 1",
        )?;
        self.check_pacing()?;
        self.consistency_level().map(|_| ())
    }

    fn check_pacing(&self) -> Result<(), LoadError> {
        match &self.pacing {
            Pacing::Open(steps) => {
                if self.workload == Workload::Prefill {
                    return Err(usage(
                        "workload `prefill` runs as a closed loop; give --in-flight, not --rate".into(),
                    ));
                }
                let ok = |step: &RateStep| (0.0..=1e9).contains(&step.rate_per_s) && seconds_ok(step.seconds);
                if steps.is_empty() || !steps.iter().all(ok) {
                    return Err(usage(
                        "--rate expects rates of 0 to 1e9 a second and times of 0 s to 30 days".into(),
                    ));
                }
            }
            Pacing::Closed { in_flight, seconds } => {
                if *in_flight < self.threads || !seconds_ok(*seconds) {
                    return Err(usage(
                        "--in-flight must be at least --threads, and --duration 0 s to 30 days".into(),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Parses the CQL name of a consistency level, in any case.
///
/// # Errors
/// [`LoadError::Usage`] for an unknown name.
pub(crate) fn consistency_level(name: &str) -> Result<wire::Consistency, LoadError> {
    let wanted = name.to_ascii_uppercase();
    let found = wire::Consistency::ALL.into_iter().find(|level| level.to_string() == wanted);
    found.ok_or_else(|| usage(format!("unknown consistency level `{name}`")))
}

pub(crate) fn seconds_ok(seconds: f64) -> bool {
    (0.0..=30.0 * 86_400.0).contains(&seconds)
}

pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= 48 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn usage(reason: String) -> LoadError {
    LoadError::Usage(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl Fn(&mut Spec), expected: &str) {
        let mut spec = Spec::default();
        change(&mut spec);
        let found = spec.check().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{found:?}");
    }

    #[test]
    fn invalid_spec_is_rejected_by_flag() {
        check(|_| {}, "");
        check(|s| s.hosts.clear(), "--hosts");
        check(|s| s.keys.slice = (3, 2), "--slice");
        check(|s| s.keys.slice = (0, 2), "--slice");
        check(|s| (s.keys.population, s.keys.slice) = (1, (1, 2)), "no keys");
        check(|s| s.streams = 40_000, "--streams");
        check(|s| s.rows.compressibility = f64::NAN, "--compressibility");
        check(|s| s.rows.keyspace = "a;b".into(), "--keyspace");
        check(|s| s.consistency = "MOST".into(), "consistency");
        check(|s| s.consistency = "local_quorum".into(), "");
        check(|s| s.workload = Workload::Slice, "--rows-per-partition");
        check(|s| s.pacing = Pacing::Open(vec![]), "--rate");
        check(|s| s.pacing = Pacing::Open(vec![RateStep { rate_per_s: -1.0, seconds: 1.0 }]), "--rate");
        check(|s| s.pacing = Pacing::Closed { in_flight: 0, seconds: 1.0 }, "--in-flight");
    }

    #[test]
    fn report_omits_the_password() {
        let spec = Spec { password: Some("secret".into()), ..Spec::default() };
        assert!(!serde_json::to_string(&spec).expect("a spec serializes").contains("secret"));
    }
}
