//! What to run: everything a load is, as data. The command line builds one from flags, the demo builds its
//! own, and the report carries it, so that a figure is never without its conditions.

use serde::{Deserialize, Serialize};

use crate::{Distribution, LoadError};

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Rows by key.
    Read,
    /// Whole rows, written.
    Write,
    /// Reads and writes by [`Spec::write_ratio`].
    Mixed,
    /// Many rows of one partition, read in key order.
    Slice,
    /// Every row of the key space once, written; ends when all are there.
    Prefill,
}

impl Workload {
    /// Every workload, with the word that names it and what it does.
    pub const ALL: [(Workload, &'static str, &'static str); 5] = [
        (Workload::Read, "read", "rows by key"),
        (Workload::Write, "write", "whole rows"),
        (Workload::Mixed, "mixed", "reads and writes (--write-ratio)"),
        (Workload::Slice, "slice", "many rows of one partition (--slice-rows)"),
        (Workload::Prefill, "prefill", "writes every row of the key space once"),
    ];
}

/// One rate for some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Requests a second, over all threads; zero for a pause.
    pub rate_per_s: f64,
    /// How long, seconds.
    pub seconds: f64,
}

/// What decides when a request is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pacing {
    /// Open loop: Poisson arrivals, whatever the server does; latency from the moment a request was due.
    Open(
        /// One after another.
        Vec<Step>,
    ),
    /// Closed loop: so many in flight over all connections, the next one sent when one is answered.
    Closed {
        /// Requests in flight.
        in_flight: usize,
        /// How long, seconds. A prefill ends by itself.
        seconds: f64,
    },
}

/// Which keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Keys {
    /// How many partitions there are.
    pub population: u64,
    /// How they are chosen.
    pub distribution: Distribution,
    /// Slice `.0` of `.1` of the population, from 1.
    pub slice: (u64, u64),
}

/// What a row looks like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// Keyspace of the tables.
    pub keyspace: String,
    /// Blob columns of a row; five of them are cassandra-stress's `standard1`.
    pub columns: usize,
    /// Bytes in each column.
    pub value_bytes: usize,
    /// The share of a value's bytes that compress to nothing, 0 to 1.
    pub compressibility: f64,
    /// Rows in a partition of the table `slices`; zero means rows by key alone, without clustering.
    pub per_partition: u64,
    /// Rows a slice reads at most.
    pub slice_rows: u64,
    /// Replication factor, when the keyspace is created here.
    pub replication: u32,
}

/// A load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// What is sent.
    pub workload: Workload,
    /// HOST:PORT of each server; connections are spread over them.
    pub hosts: Vec<String>,
    /// User, where the server asks for one.
    pub user: Option<String>,
    /// Their password; not part of reports.
    #[serde(skip)]
    pub password: Option<String>,
    /// When requests are sent.
    pub pacing: Pacing,
    /// Seconds at the first rate before measuring begins.
    pub warmup_s: f64,
    /// Connections, over all hosts and threads.
    pub connections: usize,
    /// Requests in flight on one connection, at most; 1 to 32,000.
    pub streams: usize,
    /// Requests in flight over all connections, at most. How often it held a request back is reported.
    pub max_in_flight: usize,
    /// Threads, each with an event loop; one is enough for hundreds of thousands of requests a second.
    pub threads: usize,
    /// Which keys.
    pub keys: Keys,
    /// Which rows.
    pub rows: Rows,
    /// The share of writes in a mixed load, 0 to 1.
    pub write_ratio: f64,
    /// Consistency level, by its CQL name.
    pub consistency: String,
    /// Everything drawn at random follows from it.
    pub seed: u64,
    /// Create keyspace and table where they are missing.
    pub create: bool,
    /// Send each request to the shard that owns its key, where the server tells how its keys are cut.
    pub route: bool,
    /// HOST:PORT of the server's metrics, for its own service times.
    pub metrics: Option<String>,
    /// Seconds to wait for answers after the last request was sent.
    pub drain_s: f64,
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
            max_in_flight: 10_000,
            threads: 1,
            keys: Keys { population: 100_000, distribution: Distribution::Uniform, slice: (1, 1) },
            rows: Rows {
                keyspace: "keyspace1".to_string(),
                columns: 5,
                value_bytes: 34,
                compressibility: 0.0,
                per_partition: 0,
                slice_rows: 100,
                replication: 1,
            },
            write_ratio: 0.5,
            consistency: "ONE".to_string(),
            seed: 1,
            create: true,
            route: true,
            metrics: None,
            drain_s: 5.0,
        }
    }
}

/// Streams are 15 bits; the uppermost are kept for preparing again.
pub(crate) const STREAMS_MAX: usize = 32_000;

impl Spec {
    /// Whether rows have a clustering key.
    pub(crate) fn clustered(&self) -> bool {
        self.rows.per_partition > 0
    }

    /// The keys of this load's slice, as begin and end.
    pub(crate) fn key_range(&self) -> (u64, u64) {
        crate::keys::slice(self.keys.population, self.keys.slice)
    }

    /// Seconds measured, warm-up left out; a prefill has none.
    pub(crate) fn steps(&self) -> Vec<Step> {
        match &self.pacing {
            Pacing::Open(steps) => steps.clone(),
            Pacing::Closed { seconds, .. } => vec![Step { rate_per_s: 0.0, seconds: *seconds }],
        }
    }

    /// The consistency level.
    ///
    /// # Errors
    /// [`LoadError::Usage`] for a name that is none.
    pub(crate) fn consistency_level(&self) -> Result<wire::Consistency, LoadError> {
        let wanted = self.consistency.to_ascii_uppercase();
        let found = wire::Consistency::ALL.into_iter().find(|level| level.to_string() == wanted);
        found.ok_or_else(|| usage(format!("`{}` is no consistency level.", self.consistency)))
    }

    /// Checks everything that can be checked before connecting.
    ///
    /// # Errors
    /// [`LoadError::Usage`], naming the flag.
    pub fn check(&self) -> Result<(), LoadError> {
        let refuse = |wrong: bool, reason: &str| if wrong { Err(usage(reason.to_string())) } else { Ok(()) };
        let share = |value: f64| (0.0..=1.0).contains(&value);
        refuse(self.hosts.is_empty(), "--hosts names no server.")?;
        refuse(self.threads == 0 || self.threads > 1024, "--threads must be 1 to 1024.")?;
        refuse(self.connections < self.threads, "--connections must be at least --threads.")?;
        refuse(self.connections > 100_000, "--connections must be at most 100000.")?;
        refuse(self.streams == 0 || self.streams > STREAMS_MAX, "--streams must be 1 to 32000.")?;
        refuse(self.max_in_flight < self.threads, "--max-in-flight must be at least --threads.")?;
        refuse(self.keys.population == 0, "--keys must be at least 1.")?;
        let (index, of) = self.keys.slice;
        refuse(index == 0 || index > of, "--slice I/N wants I from 1 to N.")?;
        let (begin, end) = self.key_range();
        refuse(begin == end, "--slice leaves no keys: there are fewer keys than slices.")?;
        refuse(self.rows.columns == 0 || self.rows.columns > 1000, "--columns must be 1 to 1000.")?;
        refuse(self.rows.value_bytes > 16 << 20, "--value-size must be at most 16777216 bytes.")?;
        refuse(!share(self.rows.compressibility), "--compressibility must be 0 to 1.")?;
        refuse(!share(self.write_ratio), "--write-ratio must be 0 to 1.")?;
        refuse(self.rows.slice_rows == 0, "--slice-rows must be at least 1.")?;
        refuse(!is_name(&self.rows.keyspace), "--keyspace must be letters, digits and underscores.")?;
        refuse(!seconds_ok(self.warmup_s) || !seconds_ok(self.drain_s), "A time must be 0 s to 30 days.")?;
        refuse(
            self.workload == Workload::Slice && !self.clustered(),
            "A slice load wants --rows-per-partition of at least 1.",
        )?;
        self.check_pacing()?;
        self.consistency_level().map(|_| ())
    }

    fn check_pacing(&self) -> Result<(), LoadError> {
        match &self.pacing {
            Pacing::Open(steps) => {
                if self.workload == Workload::Prefill {
                    return Err(usage(
                        "A prefill runs as a closed loop; give --in-flight, not --rate.".into(),
                    ));
                }
                let ok = |step: &Step| (0.0..=1e9).contains(&step.rate_per_s) && seconds_ok(step.seconds);
                if steps.is_empty() || !steps.iter().all(ok) {
                    return Err(usage(
                        "--rate wants rates of 0 to 1e9 a second and times of 0 s to 30 days.".into(),
                    ));
                }
            }
            Pacing::Closed { in_flight, seconds } => {
                if *in_flight < self.threads || !seconds_ok(*seconds) {
                    return Err(usage(
                        "--in-flight must be at least --threads, and --duration 0 s to 30 days.".into(),
                    ));
                }
            }
        }
        Ok(())
    }
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
    fn what_makes_no_sense_is_refused_by_name() {
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
        check(|s| s.pacing = Pacing::Open(vec![Step { rate_per_s: -1.0, seconds: 1.0 }]), "--rate");
        check(|s| s.pacing = Pacing::Closed { in_flight: 0, seconds: 1.0 }, "--in-flight");
    }

    #[test]
    fn the_password_stays_out_of_reports() {
        let spec = Spec { password: Some("secret".into()), ..Spec::default() };
        assert!(!serde_json::to_string(&spec).expect("a spec is data").contains("secret"));
    }
}
