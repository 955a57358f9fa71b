//! Results of a run as a JSON file, with date, commit and command. Source of table and chart.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    /// Start, UTC.
    pub(crate) date: String,
    /// Commit of the working folder, with `-dirty` if files differ from it. Empty outside a
    /// repository.
    pub(crate) commit: String,
    pub(crate) command: String,
    pub(crate) cores: usize,
    #[serde(default)]
    pub(crate) entries: Vec<AttackResults>,
    #[serde(default)]
    pub(crate) loads: Vec<Load>,
}

/// Results of one attack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AttackResults {
    pub(crate) name: String,
    pub(crate) listener: String,
    pub(crate) needs: String,
    pub(crate) sends: String,
    /// Reasons why the server failed. Empty: it withstood the attack.
    pub(crate) reasons: Vec<String>,
    /// Missed bounds that the tool or other programs may have caused.
    pub(crate) unclear: Vec<String>,
    pub(crate) resident_mib: u64,
    pub(crate) answers: String,
    pub(crate) poll_units: Option<f64>,
    /// `None` in the short form.
    pub(crate) timing: Option<Timing>,
}

/// Results that need a clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Timing {
    pub(crate) other: Phases,
    pub(crate) same: Phases,
    /// Longest round of the administrator by way of access, milliseconds.
    pub(crate) admin_ms: Vec<(String, f64)>,
    /// CPU before the attack, and beside it.
    pub(crate) cpu_before: Cpu,
    pub(crate) cpu_beside: Cpu,
    /// Delays of wake-ups of the tool's own threads beside the attack, milliseconds.
    pub(crate) late_p99_ms: f64,
    pub(crate) late_max_ms: f64,
}

/// Reads of a probe before, beside and after an attack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Phases {
    pub(crate) before: Reads,
    pub(crate) beside: Reads,
    pub(crate) after: Reads,
}

/// Reads of a probe, milliseconds. `net` excludes the time in which a thread of the tool waited for
/// a core. The server's part is between the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reads {
    pub(crate) reads: u64,
    /// Answers other than rows, with their counts. Empty: none.
    pub(crate) failures: String,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    pub(crate) net_p99_ms: f64,
    pub(crate) net_max_ms: f64,
}

/// CPU time of a phase, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cpu {
    pub(crate) wall_s: f64,
    pub(crate) server_s: f64,
    pub(crate) attacker_s: f64,
    /// Probes and administrator.
    pub(crate) tool_s: f64,
    /// Other programs, including the kernel's own threads.
    pub(crate) others_s: f64,
    /// Stolen by the host.
    pub(crate) stolen_s: f64,
}

/// Results of a run of the load generator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    pub(crate) sent_per_s: f64,
    pub(crate) goodput_per_s: f64,
    /// Goodput divided by the best goodput.
    pub(crate) of_best: f64,
    pub(crate) overloaded: u64,
    pub(crate) other_errors: u64,
    pub(crate) lost: u64,
    pub(crate) unsent: u64,
    /// Share of its core that the generator used.
    pub(crate) generator_cpu: f64,
    pub(crate) resident_mib: u64,
    pub(crate) admin_ms: Vec<(String, f64)>,
    /// CPU time. The generator counts as the attacker.
    pub(crate) cpu: Cpu,
    pub(crate) reasons: Vec<String>,
    /// Missed bounds that other programs may have caused.
    pub(crate) unclear: Vec<String>,
}

impl Results {
    /// Returns the results of a run that begins now, without entries.
    pub(crate) fn begin() -> Results {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let git = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
        let commit = git.ok().filter(|output| output.status.success()).map(|output| output.stdout);
        Results {
            date: units::minute_text(seconds),
            commit: String::from_utf8_lossy(&commit.unwrap_or_default()).trim().to_owned(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            ..Results::default()
        }
    }

    pub(crate) fn write(&self, to: &Path) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("{} cannot be written: {error}", to.display());
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(&error))?;
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        }
        std::fs::write(to, text + "\n").map_err(|error| failed(&error))
    }

    pub(crate) fn read(from: &Path) -> Result<Results, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{} cannot be read: {error}", from.display());
        let text = std::fs::read_to_string(from).map_err(|error| failed(&error))?;
        serde_json::from_str(&text).map_err(|error| failed(&error))
    }
}

impl AttackResults {
    pub(crate) fn verdict(&self) -> &'static str {
        match (self.reasons.is_empty(), self.unclear.is_empty()) {
            (false, _) => "FAILED",
            (true, false) => "unclear",
            (true, true) => "withstood",
        }
    }
}

impl Cpu {
    /// Returns the share of the machine that other programs and the host took.
    pub(crate) fn foreign(&self, cores: usize) -> f64 {
        (self.others_s + self.stolen_s) / (self.wall_s * cores as f64).max(f64::MIN_POSITIVE)
    }
}

impl Load {
    /// Formats the results as one line for the terminal, and one for each reason.
    pub(crate) fn line(&self) -> String {
        let admin: Vec<String> = self.admin_ms.iter().map(|(way, ms)| format!("{way} {ms:.0} ms")).collect();
        let mut line = format!(
            "  {:32} sent {:.0}/s, goodput {:.0}/s ({:.1} % of the best), overloaded {}, other errors {}, lost {}, \
             unsent {}, generator {:.0} % of a core",
            self.name,
            self.sent_per_s,
            self.goodput_per_s,
            self.of_best * 100.0,
            self.overloaded,
            self.other_errors,
            self.lost,
            self.unsent,
            self.generator_cpu * 100.0,
        );
        if !admin.is_empty() {
            line += &format!(", {} MiB, administrator {}", self.resident_mib, admin.join(", "));
        }
        self.reasons.iter().for_each(|reason| line += &format!("\n    {reason}"));
        self.unclear.iter().for_each(|what| line += &format!("\n    unclear: {what}"));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_back_unchanged() {
        let entry = AttackResults {
            name: "a".to_owned(),
            timing: Some(Timing::default()),
            ..AttackResults::default()
        };
        let results = Results { entries: vec![entry], loads: vec![Load::default()], ..Results::begin() };
        let file = std::env::temp_dir().join(format!("fairlane-results-{}.json", std::process::id()));
        results.write(&file).expect("written");
        assert_eq!(Results::read(&file).expect("read"), results);
        std::fs::remove_file(&file).expect("removed");
        assert!(Results::read(&file).is_err());
    }
}
