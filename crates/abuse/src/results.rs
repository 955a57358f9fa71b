//! The results of a run as a file (JSON), with date, commit and command. Table and chart are made from it.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    /// When it began, UTC.
    pub(crate) date: String,
    /// The commit of the working folder, with `-dirty` when files differ from it; empty outside a repository.
    pub(crate) commit: String,
    pub(crate) command: String,
    pub(crate) cores: usize,
    #[serde(default)]
    pub(crate) entries: Vec<Entry>,
    #[serde(default)]
    pub(crate) loads: Vec<Load>,
}

/// One attack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) listener: String,
    pub(crate) needs: String,
    pub(crate) sends: String,
    /// Why the server failed; none when it withstood the attack.
    pub(crate) reasons: Vec<String>,
    /// Missed figures that the tool or other programs may have caused.
    pub(crate) unclear: Vec<String>,
    pub(crate) resident_mib: u64,
    pub(crate) answers: String,
    pub(crate) poll_units: Option<f64>,
    /// Nothing in the short form.
    pub(crate) timing: Option<Timing>,
}

/// Results that take a clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Timing {
    pub(crate) other: Phases,
    pub(crate) same: Phases,
    /// The longest round of the administrator on each way, milliseconds.
    pub(crate) admin_ms: Vec<(String, f64)>,
    /// CPU before the attack and beside it.
    pub(crate) cpu_before: Cpu,
    pub(crate) cpu_beside: Cpu,
    /// Wake-ups of the tool's own threads after their time, beside the attack, milliseconds.
    pub(crate) late_p99_ms: f64,
    pub(crate) late_max_ms: f64,
}

/// A probe before, beside and after an attack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Phases {
    pub(crate) before: Reads,
    pub(crate) beside: Reads,
    pub(crate) after: Reads,
}

/// Reads of a probe, milliseconds. `net` is without the time in which a thread of the tool waited for a core:
/// the server's part lies between the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reads {
    pub(crate) reads: u64,
    /// Answers that were not rows, with their counts; empty when there was none.
    pub(crate) failures: String,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    pub(crate) net_p99_ms: f64,
    pub(crate) net_max_ms: f64,
}

/// CPU of a phase, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cpu {
    pub(crate) wall_s: f64,
    pub(crate) server_s: f64,
    pub(crate) attacker_s: f64,
    /// Probes and administrator.
    pub(crate) tool_s: f64,
    /// Other programs, the kernel's own threads among them.
    pub(crate) others_s: f64,
    /// Taken by the host.
    pub(crate) stolen_s: f64,
}

/// A run of the load generator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    pub(crate) sent_per_s: f64,
    pub(crate) goodput_per_s: f64,
    /// Goodput over the best one.
    pub(crate) of_best: f64,
    pub(crate) overloaded: u64,
    pub(crate) other_errors: u64,
    pub(crate) lost: u64,
    pub(crate) unsent: u64,
    /// Share of its core that the generator took.
    pub(crate) generator_cpu: f64,
    pub(crate) resident_mib: u64,
    pub(crate) admin_ms: Vec<(String, f64)>,
    /// The generator counts as the attacker.
    pub(crate) cpu: Cpu,
    pub(crate) reasons: Vec<String>,
    /// Missed figures that other programs may have caused.
    pub(crate) unclear: Vec<String>,
}

impl Results {
    /// The head of a run that begins now.
    pub(crate) fn begin() -> Results {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let git = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
        let commit = git.ok().filter(|output| output.status.success()).map(|output| output.stdout);
        Results {
            date: date(seconds),
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

impl Entry {
    pub(crate) fn verdict(&self) -> &'static str {
        match (self.reasons.is_empty(), self.unclear.is_empty()) {
            (false, _) => "FAILED",
            (true, false) => "unclear",
            (true, true) => "withstood",
        }
    }
}

impl Cpu {
    /// The share of the machine that other programs and the host took.
    pub(crate) fn foreign(&self, cores: usize) -> f64 {
        (self.others_s + self.stolen_s) / (self.wall_s * cores as f64).max(f64::MIN_POSITIVE)
    }
}

impl Load {
    /// One line for the terminal.
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

/// `YYYY-MM-DD HH:MM UTC` of seconds since 1970, by Hinnant's `civil_from_days`: years begin in March, so that
/// the leap day is the last one.
fn date(seconds: u64) -> String {
    let (days, minutes) = (seconds / 86_400 + 719_468, seconds % 86_400 / 60);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + carry;
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_764_000_000), "2025-11-24 16:00 UTC");
    }

    #[test]
    fn file_brings_back_what_was_written() {
        let entry = Entry { name: "a".to_owned(), timing: Some(Timing::default()), ..Entry::default() };
        let results = Results { entries: vec![entry], loads: vec![Load::default()], ..Results::begin() };
        let file = std::env::temp_dir().join(format!("fairlane-results-{}.json", std::process::id()));
        results.write(&file).expect("written");
        assert_eq!(Results::read(&file).expect("read"), results);
        std::fs::remove_file(&file).expect("removed");
        assert!(Results::read(&file).is_err());
    }
}
