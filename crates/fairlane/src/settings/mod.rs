//! Settings from four places, the later winning: defaults, `fairlane.toml`, environment, flags. A key or flag that is not
//! known is an error that names the nearest that is: a setting that is misspelt must not be passed over.
//!
//! Environment variables of ours that are not known are warned of only: an orchestrator may make some by itself from
//! the name of a service (`FAIRLANE_PORT`), and must not keep the server from starting.

mod table;
mod values;

pub(crate) use table::{Cores, Settings};
pub(crate) use values::{REQUEST_MEMORY_BYTES_MIN, commit};

use std::path::{Path, PathBuf};

use table::{SETTINGS, Setting};

/// The variable with the first superuser's password. It is no setting, so that nothing prints it.
pub(crate) const PASSWORD_VARIABLE: &str = "FAIRLANE_ADMIN_PASSWORD";
/// Variables with our prefix that are no settings; the last is for tests, which hand it to us with the rest.
const OTHER_VARIABLES: [&str; 3] = [PASSWORD_VARIABLE, "FAIRLANE_CONFIG", "FAIRLANE_BIN"];
/// Read if it is there and no other file is named.
const FILE: &str = "fairlane.toml";

/// Where a value came from.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Source {
    Default,
    File(PathBuf),
    Environment,
    Flag,
}

/// Settings, each with its text and its source, in the table's order.
pub(crate) struct Loaded {
    /// As checked.
    pub(crate) settings: Settings,
    /// What to tell the operator.
    pub(crate) warnings: Vec<String>,
    texts: Vec<(String, Source)>,
}

/// What a command line asks for.
pub(crate) enum Asked {
    /// To go on with these.
    Settings(Box<Loaded>),
    /// The help.
    Help,
}

/// Reads all four places.
///
/// # Errors
/// One sentence for the operator.
pub(crate) fn load(args: &[String], environment: &[(String, String)]) -> Result<Asked, String> {
    let Some((file, flags)) = flags(args)? else { return Ok(Asked::Help) };
    let mut loaded = Loaded {
        settings: Settings::default(),
        warnings: Vec::new(),
        texts: SETTINGS.iter().map(|setting| (setting.default.to_string(), Source::Default)).collect(),
    };
    let named =
        || environment.iter().find(|(name, _)| name == "FAIRLANE_CONFIG").map(|(_, value)| value.into());
    if let Some((path, text)) = file_text(file.or_else(named))? {
        for (key, value) in file_values(&path, &text)? {
            let setting = find(&key, |setting| setting.name.into())
                .map_err(|nearest| format!("{}: there is no setting `{key}`; {nearest}", path.display()))?;
            let place = format!("{}: {key}", path.display());
            loaded.put(setting, value, Source::File(path.clone()), &place)?;
        }
    }
    for (name, value) in environment.iter().filter(|(name, _)| name.starts_with("FAIRLANE_")) {
        match find(name, variable) {
            Ok(setting) => loaded.put(setting, value.clone(), Source::Environment, name)?,
            Err(_) if OTHER_VARIABLES.contains(&name.as_str()) => {}
            Err(nearest) => loaded.warnings.push(format!("{name} is no variable of ours; {nearest}")),
        }
    }
    for (setting, value) in flags {
        loaded.put(setting, value, Source::Flag, &flag(setting))?;
    }
    Ok(Asked::Settings(Box::new(loaded)))
}

impl Loaded {
    fn put(&mut self, setting: usize, value: String, source: Source, place: &str) -> Result<(), String> {
        let set = (SETTINGS[setting].set)(&mut self.settings, &value);
        set.map_err(|reason| format!("{place}: `{value}` will not do: {reason}."))?;
        self.texts[setting] = (value, source);
        Ok(())
    }

    /// All settings as a `fairlane.toml`, each with its help, its other names and where its value came from.
    pub(crate) fn print(&self) -> String {
        let mut out = String::from("# The settings in effect. This text is itself a valid fairlane.toml.\n");
        out.push_str(&format!("# Not a setting: {PASSWORD_VARIABLE}, the first superuser's password.\n"));
        for (index, (setting, (text, source))) in SETTINGS.iter().zip(&self.texts).enumerate() {
            let source = match source {
                Source::Default => "default".to_string(),
                Source::File(path) => format!("from {}", path.display()),
                Source::Environment => "from the environment".to_string(),
                Source::Flag => "from the command line".to_string(),
            };
            out.push_str(&format!("\n# {}\n", setting.help));
            out.push_str(&format!("# {} {}, or {}; ", flag(index), setting.value, variable(setting)));
            out.push_str(&format!("default {}\n", setting.default));
            out.push_str(&format!("{} = {}  # {source}\n", setting.name, toml_value(text)));
        }
        out
    }
}

/// The settings as help for the command line.
pub(crate) fn help() -> String {
    let mut out = String::new();
    for (index, setting) in SETTINGS.iter().enumerate() {
        out.push_str(&format!("  {} {}\n", flag(index), setting.value).replace(" \n", "\n"));
        out.push_str(&format!("        {} [{}]\n", setting.help, setting.default));
    }
    out.push_str(
        "  --config FILE\n        The file to read settings from. [./fairlane.toml if it is there]\n",
    );
    out
}

fn flag(setting: usize) -> String {
    format!("--{}", SETTINGS[setting].name.replace('_', "-"))
}

fn variable(setting: &Setting) -> String {
    format!("FAIRLANE_{}", setting.name.to_uppercase())
}

/// The file named by `--config`, and flags in their order; none when help is asked for.
type Flags = (Option<PathBuf>, Vec<(usize, String)>);

fn flags(args: &[String]) -> Result<Option<Flags>, String> {
    let (mut file, mut found) = (None, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--help" || arg == "-h" {
            return Ok(None);
        }
        let Some(long) = arg.strip_prefix("--") else {
            return Err(format!("What is `{arg}` for? See --help."));
        };
        let (name, inline) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (long, None),
        };
        let mut value = || {
            let next = inline.clone().or_else(|| args.next().cloned());
            next.ok_or_else(|| format!("--{name} wants a value. See --help."))
        };
        if name == "config" {
            file = Some(PathBuf::from(value()?));
            continue;
        }
        let spelt = |setting: &Setting| format!("--{}", setting.name.replace('_', "-"));
        let setting = find(&format!("--{name}"), spelt)
            .map_err(|nearest| format!("There is no flag --{name}; {nearest}"))?;
        let value = if SETTINGS[setting].value.is_empty() {
            inline.unwrap_or_else(|| "true".into())
        } else {
            value()?
        };
        found.push((setting, value));
    }
    Ok(Some((file, found)))
}

/// The setting of that name in one of its spellings; else the sentence that says which is nearest.
fn find(name: &str, spelt: impl Fn(&Setting) -> String) -> Result<usize, String> {
    if let Some(found) = SETTINGS.iter().position(|setting| spelt(setting) == name) {
        return Ok(found);
    }
    let nearest = SETTINGS.iter().map(&spelt).min_by_key(|known| distance(name, known));
    Err(format!("did you mean `{}`?", nearest.unwrap_or_default()))
}

/// Levenshtein's: how many letters to put in, take out or change.
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

/// The settings file's path and text, if there is one. A file that was asked for must be there.
fn file_text(named: Option<PathBuf>) -> Result<Option<(PathBuf, String)>, String> {
    let path = named.clone().unwrap_or_else(|| FILE.into());
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => Ok(None),
        Err(error) => Err(format!("The settings file {} cannot be read: {error}.", path.display())),
    }
}

/// Keys and values of the file, as text.
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
                Some(nearest) => format!("{place}: there is no setting `{key}`; {nearest}"),
                None => format!("{place}: {key} wants a text, a whole number, or true or false."),
            })
        }
    };
    table.into_iter().map(value).collect()
}

/// Numbers and switches bare, everything else quoted.
fn toml_value(text: &str) -> String {
    if text.parse::<i64>().is_ok() || text.parse::<bool>().is_ok() {
        return text.into();
    }
    // JSON's escapes are a part of TOML's.
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
