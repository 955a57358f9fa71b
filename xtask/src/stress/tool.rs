//! cassandra-stress: where it comes from, and its command lines.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cpus;
use super::process::Process;
use super::server::{ADMIN, StressedServer};
use crate::child;

const NAME: &str = "apache-cassandra-4.0-alpha2";
const ARTIFACT: &str = "org.apache.cassandra:apache-cassandra:4.0-alpha2:tar.gz:bin";
/// Parts of the archive that the tool needs, with its examples of profiles.
const PARTS: [&str; 3] = ["lib", "conf", "tools"];
/// Timeout of a download of 51 MiB over a slow network.
const FETCH_TIMEOUT: Duration = Duration::from_secs(15 * 60);
const UNPACK_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// Consistency level of all operations. One server answers all levels alike.
const CONSISTENCY: &str = "cl=QUORUM";

/// A load that reads: one process of the tool.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// Its role, which is the name of its service level too.
    pub(super) role: &'static str,
    pub(super) threads: usize,
    /// Operations a second; `None`: unlimited.
    pub(super) throttle_per_s: Option<f64>,
}

/// The unpacked tool.
pub(super) struct Stress {
    home: PathBuf,
    folder: PathBuf,
    /// CPUs of the loads, as a list.
    cpus: String,
    /// Number of rows.
    rows: u64,
    /// The tool runs operations that it does not count first, and Java compiles in full. Without,
    /// a load of seconds compiles less.
    warms_up: bool,
}

/// Downloads and unpacks the tool into `folder`, once, and returns its own folder.
pub(super) fn fetch(folder: &Path) -> Result<PathBuf, String> {
    let home = folder.join(NAME);
    if home.join("tools/cqlstress-example.yaml").exists() {
        return Ok(home);
    }
    println!("      fetching {ARTIFACT}");
    let output = format!("-DoutputDirectory={}", folder.display());
    let mut fetch = Command::new("mvn");
    fetch.args(["-B", "-q", "dependency:copy", &format!("-Dartifact={ARTIFACT}"), &output]);
    child::run(&mut fetch, FETCH_TIMEOUT)?;
    // Renamed in the end, so that an incomplete folder is not used.
    let (archive, unpacked) = (folder.join(format!("{NAME}-bin.tar.gz")), folder.join("unpacked"));
    let failed = |error| format!("{} cannot be written: {error}.", folder.display());
    std::fs::create_dir_all(&unpacked).map_err(failed)?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(&archive).arg("-C").arg(&unpacked);
    unpack.args(PARTS.map(|part| format!("{NAME}/{part}")));
    child::run(&mut unpack, UNPACK_TIMEOUT)?;
    if home.exists() {
        std::fs::remove_dir_all(&home).map_err(failed)?;
    }
    std::fs::rename(unpacked.join(NAME), &home).map_err(failed)?;
    // Maven keeps a copy of its own.
    std::fs::remove_dir(&unpacked).and_then(|()| std::fs::remove_file(&archive)).map_err(failed)?;
    Ok(home)
}

impl Stress {
    /// Fetches the tool into `folder`.
    pub(super) fn new(folder: &Path, cpus: &[usize], rows: u64, warms_up: bool) -> Result<Stress, String> {
        let home = fetch(folder)?;
        let cpus = cpus::list(cpus);
        Ok(Stress { home, folder: folder.to_owned(), cpus, rows, warms_up })
    }

    /// Returns the options of the prefill.
    pub(super) fn prefill(&self, threads: usize) -> Vec<String> {
        let rows = self.rows;
        let words = format!(
            "write no-warmup n={rows} {CONSISTENCY} -pop seq=1..{rows} -rate threads={threads} \
             -schema replication(factor=1)"
        );
        words.split_whitespace().map(str::to_owned).collect()
    }

    /// Returns the options of a load that reads for `seconds`.
    pub(super) fn read(&self, load: &Load, seconds: u64) -> Vec<String> {
        let warm_up = if self.warms_up { "" } else { " no-warmup" };
        let rate = load.throttle_per_s.map(|rate| format!(" throttle={rate:.0}/s")).unwrap_or_default();
        let words = format!(
            "read{warm_up} duration={seconds}s {CONSISTENCY} -pop dist=gaussian(1..{}) -rate threads={}{rate}",
            self.rows, load.threads
        );
        words.split_whitespace().map(str::to_owned).collect()
    }

    /// Starts the tool. Its output is the file `NAME.log` of the folder.
    pub(super) fn start(
        &self,
        server: &StressedServer,
        options: &[String],
        role: &str,
        name: &str,
    ) -> Result<Process, String> {
        let mut command = Command::new("taskset");
        command.args(["-c", &self.cpus, "java", "-Xmx512m", "-Duser.language=en"]);
        if !self.warms_up {
            command.arg("-XX:TieredStopAtLevel=1");
        }
        let home = self.home.display();
        command.arg("-cp").arg(format!("{home}/conf:{home}/tools/lib/stress.jar:{home}/lib/*"));
        command.arg(format!("-Dcassandra.storagedir={}", self.folder.display()));
        command.args(["-Dlogback.configurationFile=logback-tools.xml", "org.apache.cassandra.stress.Stress"]);
        command.args(options).args(["-node", &server.host, "-port", &format!("native={}", server.port)]);
        command.args(["-mode", "native", "cql3", &format!("user={role}")]);
        command.arg(format!("password={}", server.password)).current_dir(&self.folder);
        Process::start(&mut command, &self.folder.join(format!("{name}.log")))
    }

    /// Fills the table, as the superuser.
    pub(super) fn fill(
        &self,
        server: &StressedServer,
        threads: usize,
        limit: Duration,
    ) -> Result<String, String> {
        let mut process = self.start(server, &self.prefill(threads), ADMIN, "prefill")?;
        process.wait(limit)?;
        process.text()
    }
}
