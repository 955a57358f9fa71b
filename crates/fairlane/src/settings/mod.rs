//! Settings from four sources, in ascending order of precedence: defaults, `fairlane.toml`,
//! environment, flags. An unknown key or flag is an error that names the nearest known one, because
//! a misspelt setting must not be ignored.
//!
//! An unknown variable with the prefix `FAIRLANE_` is only a warning: an orchestrator may create
//! some from the name of a service (`FAIRLANE_PORT`), and must not keep the server from starting.

mod table;
mod values;

pub(crate) use table::Settings;
#[cfg(feature = "demo")]
pub(crate) use values::commit;
pub(crate) use values::{Cpus, DiskSpeedGiven, EngineKind, REQUEST_MEMORY_BYTES_MIN};

use std::path::{Path, PathBuf};

use table::{SETTINGS, Setting};

/// Environment variable with the first superuser's password. It is not a setting, so that
/// `config --print` does not show it.
pub(crate) const PASSWORD_VARIABLE: &str = "FAIRLANE_ADMIN_PASSWORD";
/// Variable of the password of the role `cluster_user`.
pub(crate) const CLUSTER_PASSWORD_VARIABLE: &str = "FAIRLANE_CLUSTER_PASSWORD";
/// Variables with the prefix `FAIRLANE_` that are not settings of the server. Its clients read
/// `FAIRLANE_PASSWORD`, and the tests of clients set `FAIRLANE_BIN`.
const OTHER_VARIABLES: [&str; 5] =
    [PASSWORD_VARIABLE, CLUSTER_PASSWORD_VARIABLE, "FAIRLANE_CONFIG", "FAIRLANE_PASSWORD", "FAIRLANE_BIN"];
/// Default settings file. It may be missing.
const FILE: &str = "fairlane.toml";

/// Settings of a server in front of a cluster.
const OF_CLUSTER: [&str; 10] = [
    "cluster_user",
    "datacenter",
    "rack",
    "fleet_keyspace",
    "peers",
    "node_window",
    "cluster_ca",
    "cluster_tls_name",
    "cluster_cert",
    "cluster_key",
];

/// Settings of the files to which queries spill. In front of a cluster they need `sql_listen`, as
/// there is no other data.
const OF_SPILLS: [&str; 2] = ["data_dir", "spill_limit"];

/// Settings of the data and of roles, which a server in front of a cluster does not have.
const OF_STORAGE: [&str; 16] = [
    "shard_aware_port",
    "memtable_memory",
    "disk_probe",
    "disk_read_bandwidth",
    "disk_write_bandwidth",
    "disk_read_ops",
    "disk_write_ops",
    "disk_read_latency_us",
    "commit",
    "background_controllers",
    "background_quota",
    "compaction_shares",
    "authenticate",
    "admin_user",
    "auto_snapshot",
    "auto_snapshot_ttl_s",
];

/// The source of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
enum SettingSource {
    Default,
    File(PathBuf),
    Environment,
    Flag,
}

/// All settings with their sources.
pub(crate) struct Loaded {
    pub(crate) settings: Settings,
    /// Warnings for the operator.
    pub(crate) warnings: Vec<String>,
    /// Text and source of each value, in the order of the table.
    texts: Vec<(String, SettingSource)>,
}

/// Result of a command line.
pub(crate) enum CommandLine {
    /// Run with these settings.
    Settings(Box<Loaded>),
    /// Print the help.
    Help,
}

/// Reads all four sources.
///
/// # Errors
/// A sentence for the operator: a source cannot be read, or has an unknown setting or an invalid
/// value.
pub(crate) fn load(args: &[String], environment: &[(String, String)]) -> Result<CommandLine, String> {
    let Some((file, flags)) = flags(args)? else { return Ok(CommandLine::Help) };
    let mut loaded = Loaded {
        settings: Settings::default(),
        warnings: Vec::new(),
        texts: SETTINGS.iter().map(|setting| (setting.default.to_string(), SettingSource::Default)).collect(),
    };
    let named =
        || environment.iter().find(|(name, _)| name == "FAIRLANE_CONFIG").map(|(_, value)| value.into());
    if let Some((path, text)) = file_text(file.or_else(named))? {
        for (key, value) in file_values(&path, &text)? {
            let setting = find(&key, |setting| setting.name.into())
                .map_err(|nearest| format!("{}: unknown setting `{key}`: {nearest}", path.display()))?;
            let place = format!("{}: {key}", path.display());
            loaded.put(setting, value, SettingSource::File(path.clone()), &place)?;
        }
    }
    for (name, value) in environment.iter().filter(|(name, _)| name.starts_with("FAIRLANE_")) {
        match find(name, variable) {
            Ok(setting) => loaded.put(setting, value.clone(), SettingSource::Environment, name)?,
            Err(_) if OTHER_VARIABLES.contains(&name.as_str()) => {}
            Err(nearest) => loaded.warnings.push(format!("unknown variable {name}: {nearest}")),
        }
    }
    for (setting, value) in flags {
        loaded.put(setting, value, SettingSource::Flag, &flag(setting))?;
    }
    loaded.adapt_to_engine();
    loaded.check_engine()?;
    loaded.settings.texts = loaded.listed();
    Ok(CommandLine::Settings(Box::new(loaded)))
}

impl Loaded {
    fn put(
        &mut self,
        setting: usize,
        value: String,
        source: SettingSource,
        place: &str,
    ) -> Result<(), String> {
        let set = (SETTINGS[setting].set)(&mut self.settings, &value);
        set.map_err(|expected| format!("{place}: expected {expected}, got `{value}`."))?;
        self.texts[setting] = (value, source);
        Ok(())
    }

    /// Leaves SQL off in front of a cluster unless it is asked for: several fronts may run on a
    /// machine, beside nodes.
    fn adapt_to_engine(&mut self) {
        let at = SETTINGS.iter().position(|setting| setting.name == "sql_listen").expect("a known name");
        if self.settings.engine == EngineKind::Cluster && self.texts[at].1 == SettingSource::Default {
            self.settings.sql_listen = None;
            "off".clone_into(&mut self.texts[at].0);
        }
    }

    /// Refuses settings that have no effect with the engine: an operator may count on them.
    fn check_engine(&self) -> Result<(), String> {
        let given = |name: &str| {
            let at = SETTINGS.iter().position(|setting| setting.name == name).expect("a known name");
            // A file of `config --print` has all defaults.
            self.texts[at].0 != SETTINGS[at].default
        };
        match self.settings.engine {
            EngineKind::Embedded if !self.settings.contact.is_empty() => {
                Err("--contact names nodes of a cluster: give --engine cluster beside it.".to_owned())
            }
            EngineKind::Cluster if self.settings.contact.is_empty() => {
                Err("--engine cluster needs nodes to connect to: give --contact HOST:PORT,....".to_owned())
            }
            EngineKind::Cluster if self.settings.show_peers && self.has_no_address() => Err(
                "--listen on all addresses does not tell at which one drivers and the other fronts find this one: \
                 give --advertise HOST, or --peers none behind a load balancer."
                    .to_owned(),
            ),
            EngineKind::Cluster => {
                let of_spills = || OF_SPILLS.iter().find(|name| given(name));
                if let Some(name) = OF_STORAGE.iter().find(|name| given(name)) {
                    Err(format!(
                        "{name} has no effect with --engine cluster, which keeps no data: leave it out."
                    ))
                } else if self.settings.sql_listen.is_some() {
                    match given("spill_limit") && !given("data_dir") {
                        true => {
                            Err("spill_limit needs a folder with --engine cluster: give --data-dir."
                                .to_owned())
                        }
                        false => Ok(()),
                    }
                } else if let Some(name) = of_spills() {
                    Err(format!(
                        "{name} has no effect with --engine cluster without --sql-listen: leave it out."
                    ))
                } else {
                    Ok(())
                }
            }
            EngineKind::Embedded => match OF_CLUSTER.iter().find(|name| given(name)) {
                Some(name) => Err(format!("{name} has no effect without --engine cluster: leave it out.")),
                None => Ok(()),
            },
        }
    }

    fn has_no_address(&self) -> bool {
        self.settings.advertise.is_none() && self.settings.listen.ip().is_unspecified()
    }

    /// Returns all settings with their values as texts. Passwords are no settings.
    fn listed(&self) -> Vec<(&'static str, String)> {
        SETTINGS.iter().zip(&self.texts).map(|(setting, (text, _))| (setting.name, text.clone())).collect()
    }

    /// Returns all settings as a `fairlane.toml`, each with its help, flag, variable and source.
    pub(crate) fn print(&self) -> String {
        let mut out = String::from("# The settings in effect. This text is itself a valid fairlane.toml.\n");
        out.push_str(&format!("# Not a setting: {PASSWORD_VARIABLE}, the first superuser's password.\n"));
        for (index, (setting, (text, source))) in SETTINGS.iter().zip(&self.texts).enumerate() {
            let source = match source {
                SettingSource::Default => "default".to_string(),
                SettingSource::File(path) => format!("from {}", path.display()),
                SettingSource::Environment => "from the environment".to_string(),
                SettingSource::Flag => "from the command line".to_string(),
            };
            out.push_str(&format!("\n# {}\n", setting.help));
            out.push_str(&format!("# {} {}, or {}; ", flag(index), setting.value, variable(setting)));
            out.push_str(&format!("default {}\n", setting.default));
            out.push_str(&format!("{} = {}  # {source}\n", setting.name, toml_value(text)));
        }
        out
    }
}

/// Returns the help of all flags.
pub(crate) fn help() -> String {
    let mut out = String::new();
    for (index, setting) in SETTINGS.iter().enumerate() {
        out.push_str(&format!("  {} {}\n", flag(index), setting.value).replace(" \n", "\n"));
        out.push_str(&format!("        {} [{}]\n", setting.help, setting.default));
    }
    out.push_str("  --config FILE\n        The settings file. [./fairlane.toml if it exists]\n");
    out
}

fn flag(setting: usize) -> String {
    format!("--{}", SETTINGS[setting].name.replace('_', "-"))
}

fn variable(setting: &Setting) -> String {
    format!("FAIRLANE_{}", setting.name.to_uppercase())
}

/// File of `--config`, and flags in their order as index of the setting and value.
type Flags = (Option<PathBuf>, Vec<(usize, String)>);

/// Parses the command line. `None`: it contains `--help`.
fn flags(args: &[String]) -> Result<Option<Flags>, String> {
    let (mut file, mut found) = (None, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--help" || arg == "-h" {
            return Ok(None);
        }
        let Some(long) = arg.strip_prefix("--") else {
            return Err(format!("expected a flag, got `{arg}`. See --help."));
        };
        let (name, inline) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (long, None),
        };
        let mut value = || {
            let next = inline.clone().or_else(|| args.next().cloned());
            next.ok_or_else(|| format!("expected a value after --{name}. See --help."))
        };
        if name == "config" {
            file = Some(PathBuf::from(value()?));
            continue;
        }
        let spelt = |setting: &Setting| format!("--{}", setting.name.replace('_', "-"));
        let setting = find(&format!("--{name}"), spelt)
            .map_err(|nearest| format!("unknown flag --{name}: {nearest}"))?;
        let value = if SETTINGS[setting].value.is_empty() {
            inline.unwrap_or_else(|| "true".into())
        } else {
            value()?
        };
        found.push((setting, value));
    }
    Ok(Some((file, found)))
}

/// Names that other databases give to a setting, without dashes.
const OTHER_NAMES: [(&str, &str); 5] =
    [("port", "listen"), ("host", "listen"), ("address", "listen"), ("smp", "cores"), ("threads", "cores")];

/// Returns the index of the setting that `spelt` gives this name. The error is a question with the
/// name that other databases' users mean, or with the nearest one.
fn find(name: &str, spelt: impl Fn(&Setting) -> String) -> Result<usize, String> {
    if let Some(found) = SETTINGS.iter().position(|setting| spelt(setting) == name) {
        return Ok(found);
    }
    let other = name.trim_start_matches('-').to_lowercase();
    let meant = OTHER_NAMES.iter().find(|(known, _)| *known == other);
    let meant = SETTINGS.iter().find(|setting| meant.is_some_and(|(_, meant)| *meant == setting.name));
    let nearest = || SETTINGS.iter().map(&spelt).min_by_key(|known| distance(name, known));
    let nearest = meant.map(&spelt).or_else(nearest);
    Err(format!("did you mean `{}`?", nearest.unwrap_or_default()))
}

/// Returns the Levenshtein distance of two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Returns path and text of the settings file. `None`: the default file is missing. A file named by
/// the user must exist.
fn file_text(named: Option<PathBuf>) -> Result<Option<(PathBuf, String)>, String> {
    let path = named.clone().unwrap_or_else(|| FILE.into());
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => Ok(None),
        Err(error) => Err(format!("the settings file {} cannot be read: {error}.", path.display())),
    }
}

/// Returns keys and values of the file as text.
fn file_values(path: &Path, text: &str) -> Result<Vec<(String, String)>, String> {
    let table: toml::Table = text.parse().map_err(|error| {
        let error: toml::de::Error = error;
        format!("{} is not TOML: {}.", path.display(), error.message())
    })?;
    let value = |(key, value): (String, toml::Value)| match value {
        toml::Value::String(text) => Ok((key, text)),
        toml::Value::Integer(number) => Ok((key, number.to_string())),
        toml::Value::Boolean(switch) => Ok((key, switch.to_string())),
        _ => {
            let place = path.display();
            let unknown = find(&key, |setting| setting.name.into()).err();
            Err(match unknown {
                Some(nearest) => format!("{place}: unknown setting `{key}`: {nearest}"),
                None => format!("{place}: {key}: expected a text, a whole number, true or false."),
            })
        }
    };
    table.into_iter().map(value).collect()
}

/// Returns a value in TOML: numbers and switches bare, everything else quoted.
fn toml_value(text: &str) -> String {
    if text.parse::<i64>().is_ok() || text.parse::<bool>().is_ok() {
        return text.into();
    }
    // TOML has all escapes of JSON.
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
