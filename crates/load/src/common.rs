//! Flags that several command lines of `fairlane load` have in common.

use crate::LoadError;
use crate::flags::{Flag, flag, password_file as read_password};

/// Options with what these flags set.
pub(crate) trait Common {
    fn set_hosts(&mut self, hosts: Vec<String>);
    fn user(&mut self) -> &mut Option<String>;
    fn password(&mut self) -> &mut Option<String>;
    fn json(&mut self) -> &mut Option<String>;
    fn quiet(&mut self) -> &mut bool;
    fn help(&mut self) -> &mut bool;
}

fn given(place: &mut Option<String>, value: &str) -> Result<(), LoadError> {
    *place = Some(value.to_string());
    Ok(())
}

fn switched_on(place: &mut bool) -> Result<(), LoadError> {
    *place = true;
    Ok(())
}

pub(crate) const fn hosts<O: Common>(default: &'static str) -> Flag<O> {
    flag!("hosts", "HOST:PORT,…", default, "servers; connections are spread over them", |o: &mut O, v| {
        o.set_hosts(v.split(',').filter(|host| !host.is_empty()).map(str::to_string).collect());
        Ok(())
    })
}

pub(crate) const fn user<O: Common>(default: &'static str) -> Flag<O> {
    flag!("user", "NAME", default, "user to log in as", |o: &mut O, v| given(o.user(), v))
}

pub(crate) const fn password<O: Common>() -> Flag<O> {
    let help = "their password (others on this machine may see it)";
    flag!("password", "WORD", "FAIRLANE_PASSWORD", help, |o: &mut O, v| given(o.password(), v))
}

pub(crate) const fn password_file<O: Common>() -> Flag<O> {
    let help = "file whose first line is the password";
    flag!("password-file", "FILE", "none", help, |o: &mut O, v| given(o.password(), &read_password(v)?))
}

pub(crate) const fn json<O: Common>() -> Flag<O> {
    let help = "write the report as JSON (`-` for standard output)";
    flag!("json", "FILE", "none", help, |o: &mut O, v| given(o.json(), v))
}

pub(crate) const fn quiet<O: Common>() -> Flag<O> {
    flag!("quiet", "", "off", "no progress on standard error", |o: &mut O, _| switched_on(o.quiet()))
}

pub(crate) const fn help<O: Common>() -> Flag<O> {
    flag!("help", "", "", "this text", |o: &mut O, _| switched_on(o.help()))
}

/// The password that was given, or the environment's.
pub(crate) fn password_or_environment(given: Option<&String>) -> Option<String> {
    given.cloned().or_else(|| std::env::var("FAIRLANE_PASSWORD").ok())
}
