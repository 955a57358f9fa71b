//! Settings of a session, for `SET`, `SHOW` and `RESET`. Most exist because clients set them when
//! they connect. These have an effect: `service_level`, `bypass_cache`, `statement_timeout`,
//! `idle_session_timeout`, `idle_in_transaction_session_timeout`, `search_path` and `TimeZone`, and
//! in front of a cluster `consistency`.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::Consistency;

use crate::engine::plan::POSTGRES_VERSION;
use crate::failure::{Failure, state};

/// Longest value of a setting, bytes.
const VALUE_BYTES_MAX: usize = 1024;

/// Values that a setting accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SettingKind {
    Text,
    Switch,
    /// A duration, in milliseconds unless it has a unit.
    Time,
    /// This value only.
    Only(&'static str),
    /// None: the setting is read-only.
    Fixed,
    /// A consistency level of reads. Servers in front of a cluster only have it.
    Consistency,
}

struct Setting {
    name: &'static str,
    default: &'static str,
    kind: SettingKind,
    /// Clients are informed when they connect and when it changes.
    is_reported: bool,
}

const fn setting(name: &'static str, default: &'static str, kind: SettingKind, is_reported: bool) -> Setting {
    Setting { name, default, kind, is_reported }
}

const SETTINGS: [Setting; 31] = [
    setting("service_level", "", SettingKind::Text, false),
    setting("bypass_cache", "off", SettingKind::Switch, false),
    setting("consistency", "LOCAL_ONE", SettingKind::Consistency, false),
    setting("statement_timeout", "0", SettingKind::Time, false),
    setting("search_path", "public", SettingKind::Text, true),
    setting("TimeZone", "UTC", SettingKind::Text, true),
    setting("application_name", "", SettingKind::Text, true),
    setting("client_encoding", "UTF8", SettingKind::Only("utf8"), true),
    setting("DateStyle", "ISO, MDY", SettingKind::Text, true),
    setting("IntervalStyle", "postgres", SettingKind::Text, true),
    setting("standard_conforming_strings", "on", SettingKind::Only("on"), true),
    setting("server_version", POSTGRES_VERSION, SettingKind::Fixed, true),
    setting("server_encoding", "UTF8", SettingKind::Fixed, true),
    setting("integer_datetimes", "on", SettingKind::Fixed, true),
    setting("in_hot_standby", "off", SettingKind::Fixed, true),
    setting("default_transaction_read_only", "on", SettingKind::Only("on"), true),
    setting("transaction_read_only", "on", SettingKind::Only("on"), false),
    setting("transaction_isolation", "read committed", SettingKind::Text, false),
    setting("default_transaction_isolation", "read committed", SettingKind::Text, false),
    setting("server_version_num", "160006", SettingKind::Fixed, false),
    setting("max_identifier_length", "63", SettingKind::Fixed, false),
    setting("extra_float_digits", "1", SettingKind::Text, false),
    setting("bytea_output", "hex", SettingKind::Only("hex"), false),
    setting("client_min_messages", "notice", SettingKind::Text, false),
    setting("lock_timeout", "0", SettingKind::Time, false),
    setting("idle_in_transaction_session_timeout", "0", SettingKind::Time, false),
    setting("idle_session_timeout", "0", SettingKind::Time, false),
    setting("row_security", "on", SettingKind::Switch, false),
    setting("synchronize_seqscans", "on", SettingKind::Switch, false),
    setting("geqo", "off", SettingKind::Switch, false),
    setting("jit", "off", SettingKind::Switch, false),
];

/// Settings of one session.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Values that differ from their defaults.
    set: BTreeMap<&'static str, String>,
    /// True in front of a cluster.
    is_front: bool,
}

impl Settings {
    /// Creates the settings of a new session. `is_front`: the server stands in front of a cluster.
    pub(crate) fn new(is_front: bool) -> Settings {
        Settings { set: BTreeMap::new(), is_front }
    }

    fn known(&self) -> impl Iterator<Item = &'static Setting> {
        let is_front = self.is_front;
        SETTINGS.iter().filter(move |setting| is_front || setting.kind != SettingKind::Consistency)
    }

    fn find(&self, name: &str) -> Result<&'static Setting, Failure> {
        self.known().find(|setting| setting.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
            Failure::new(state::NO_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
        })
    }

    /// Sets a setting, or resets it if `value` is `None`. Returns the new value if clients must be
    /// informed.
    ///
    /// # Errors
    /// The setting does not exist, or does not accept the value.
    pub(crate) fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
    ) -> Result<Option<(&'static str, String)>, Failure> {
        let setting = self.find(name)?;
        match value {
            Some(value) => {
                let value = accepted(setting, value)?;
                self.set.insert(setting.name, value);
            }
            None => drop(self.set.remove(setting.name)),
        }
        Ok(setting.is_reported.then(|| (setting.name, self.get(setting.name).to_owned())))
    }

    /// Returns the name and value of a setting.
    ///
    /// # Errors
    /// The setting does not exist.
    pub(crate) fn show(&self, name: &str) -> Result<(&'static str, String), Failure> {
        let setting = self.find(name)?;
        Ok((setting.name, self.get(setting.name).to_owned()))
    }

    /// Returns all settings with their values.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.known().map(|setting| (setting.name, self.get(setting.name)))
    }

    /// Returns the settings to send to clients when they connect.
    pub(crate) fn reported(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let reported = SETTINGS.iter().filter(|setting| setting.is_reported);
        reported.map(|setting| (setting.name, self.get(setting.name)))
    }

    /// Returns the value of a known setting.
    fn get(&self, name: &str) -> &str {
        let default = || SETTINGS.iter().find(|setting| setting.name == name).map_or("", |s| s.default);
        self.set.get(name).map_or_else(default, String::as_str)
    }

    /// Returns the chosen level. `None`: the role's level applies.
    pub(crate) fn service_level(&self) -> Option<&str> {
        Some(self.get("service_level")).filter(|level| !level.is_empty())
    }

    pub(crate) fn bypass_cache(&self) -> bool {
        self.get("bypass_cache") == "on"
    }

    /// Returns the consistency of the pages of scans in front of a cluster.
    pub(crate) fn consistency(&self) -> Consistency {
        consistency(self.get("consistency")).expect("a value that was accepted, or the default")
    }

    /// Returns a time limit. `None` if it is 0, which means unlimited.
    fn time(&self, name: &str) -> Option<Duration> {
        let ms: u64 = self.get(name).parse().unwrap_or(0);
        (ms > 0).then(|| Duration::from_millis(ms))
    }

    pub(crate) fn statement_timeout(&self) -> Option<Duration> {
        self.time("statement_timeout")
    }

    /// Returns how long the session may be idle, in or outside of a transaction, and the failure
    /// that ends it afterwards. `of_server` applies if the session has no limit of its own.
    pub(crate) fn idle_limit(
        &self,
        in_transaction: bool,
        of_server: Option<Duration>,
    ) -> Option<(Duration, Failure)> {
        let (name, code, what) = match in_transaction {
            true => ("idle_in_transaction_session_timeout", "25P03", "idle-in-transaction"),
            false => ("idle_session_timeout", state::IDLE, "idle-session"),
        };
        let failure = Failure::fatal(code, format!("terminating connection due to {what} timeout"));
        self.time(name).or(of_server).map(|limit| (limit, failure))
    }

    /// Returns the keyspace of unqualified names: the first of the search path.
    pub(crate) fn schema(&self) -> String {
        first_of(self.search_path()).to_owned()
    }

    pub(crate) fn search_path(&self) -> &str {
        self.get("search_path")
    }

    pub(crate) fn application_name(&self) -> &str {
        self.get("application_name")
    }

    /// Returns the zone for converting texts and dates to timestamps.
    pub(crate) fn time_zone(&self) -> String {
        self.get("TimeZone").to_owned()
    }
}

/// Returns the first name of a search path.
pub(crate) fn first_of(path: &str) -> &str {
    path.split(',').next().unwrap_or_default().trim().trim_matches('"')
}

/// Validates and normalizes a value.
fn accepted(setting: &Setting, value: &str) -> Result<String, Failure> {
    let invalid = || {
        let text = format!("invalid value for parameter \"{}\": \"{value}\"", setting.name);
        Failure::new(state::INVALID, text)
    };
    if value.len() > VALUE_BYTES_MAX {
        return Err(Failure::new(state::LIMIT, format!("a value is longer than {VALUE_BYTES_MAX} bytes")));
    }
    match setting.kind {
        SettingKind::Text => Ok(value.to_owned()),
        SettingKind::Switch => switch(value).map(str::to_owned).ok_or_else(invalid),
        SettingKind::Time => Ok(milliseconds(value).ok_or_else(invalid)?.to_string()),
        SettingKind::Only(only) => {
            let plain = value.to_lowercase().replace('-', "");
            let same = plain == only || switch(value) == Some(only) || (only == "utf8" && plain == "unicode");
            if same { Ok(setting.default.to_owned()) } else { Err(invalid()) }
        }
        SettingKind::Consistency => consistency(value).map(|level| level.to_string()).ok_or_else(|| {
            let names = consistencies().map(|level| level.to_string()).collect::<Vec<_>>().join(", ");
            invalid().with_hint(&format!("Available values: {names}."))
        }),
        SettingKind::Fixed => {
            let text = format!("parameter \"{}\" cannot be changed", setting.name);
            Err(Failure::new("55P02", text))
        }
    }
}

/// Returns the levels of reads of many partitions: SERIAL reads one at a time, ANY is for writes.
fn consistencies() -> impl Iterator<Item = Consistency> {
    Consistency::ALL.into_iter().filter(|level| !level.is_serial() && *level != Consistency::Any)
}

fn consistency(name: &str) -> Option<Consistency> {
    consistencies().find(|level| level.to_string().eq_ignore_ascii_case(name))
}

fn switch(value: &str) -> Option<&'static str> {
    match value.to_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some("on"),
        "off" | "false" | "no" | "0" => Some("off"),
        _ => None,
    }
}

fn milliseconds(value: &str) -> Option<u64> {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: u64 = value[..digits].parse().ok()?;
    let unit = match value[digits..].trim() {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(unit).filter(|ms| *ms <= i32::MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, value: &str, expected: Result<&str, &str>) {
        let mut settings = Settings::new(true);
        let set = settings.set(name, Some(value)).map(|_| settings.show(name).unwrap().1);
        assert_eq!(set.map_err(|failure| failure.code), expected.map(str::to_owned));
    }

    #[test]
    fn values_are_checked_by_kind() {
        check("bypass_cache", "TRUE", Ok("on"));
        check("bypass_cache", "perhaps", Err(state::INVALID));
        check("statement_timeout", "5s", Ok("5000"));
        check("statement_timeout", "1 min", Ok("60000"));
        check("statement_timeout", "100d", Err(state::INVALID));
        check("statement_timeout", "-1", Err(state::INVALID));
        check("timezone", "Europe/Rome", Ok("Europe/Rome"));
        check("client_encoding", "UTF-8", Ok("UTF8"));
        check("client_encoding", "LATIN1", Err(state::INVALID));
        check("server_version", "17", Err("55P02"));
        check("default_transaction_read_only", "off", Err(state::INVALID));
        check("no_such_thing", "1", Err(state::NO_OBJECT));
        check("consistency", "local_quorum", Ok("LOCAL_QUORUM"));
        check("consistency", "SERIAL", Err(state::INVALID));
    }

    #[test]
    fn consistency_is_a_setting_in_front_of_a_cluster_only() {
        let mut settings = Settings::new(true);
        assert_eq!(settings.consistency(), Consistency::LocalOne);
        settings.set("consistency", Some("quorum")).unwrap();
        assert_eq!(settings.consistency(), Consistency::Quorum);
        assert!(settings.all().any(|(name, value)| (name, value) == ("consistency", "QUORUM")));
        let mut settings = Settings::new(false);
        let unknown = settings.set("consistency", Some("QUORUM")).expect_err("it has no effect");
        assert_eq!(unknown.code, state::NO_OBJECT);
        assert!(settings.all().all(|(name, _)| name != "consistency"));
    }

    #[test]
    fn a_reset_setting_has_its_default() {
        let mut settings = Settings::new(false);
        settings.set("statement_timeout", Some("250")).unwrap();
        assert_eq!(settings.statement_timeout(), Some(Duration::from_millis(250)));
        settings.set("statement_timeout", None).unwrap();
        assert_eq!(settings.statement_timeout(), None);
        settings.set("search_path", Some("\"Shop\", public")).unwrap();
        assert_eq!(settings.schema(), "Shop");
    }
}
