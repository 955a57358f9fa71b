//! Flags shared by the commands of `fairlane load`.

use crate::LoadError;
use crate::flag::{Flag, flag, password_file as read_password};

/// Values of the shared flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct Common {
    /// Servers. `None`: the default.
    pub(crate) hosts: Option<Vec<String>>,
    /// User to log in as.
    pub(crate) user: Option<String>,
    /// Password of the user. `None`: the environment's.
    pub(crate) password: Option<String>,
    /// File for the report as JSON.
    pub(crate) json: Option<String>,
    /// File for the report as a page.
    pub(crate) html: Option<String>,
    /// True to print no progress on standard error.
    pub(crate) quiet: bool,
    /// True to print the help and exit.
    pub(crate) help: bool,
}

impl Common {
    /// Returns the servers, or `default` if none were given.
    pub(crate) fn hosts(&self, default: &str) -> Vec<String> {
        self.hosts.clone().unwrap_or_else(|| vec![default.to_string()])
    }

    /// Returns the given password, or that of the variable FAIRLANE_PASSWORD.
    pub(crate) fn password(&self) -> Option<String> {
        self.password.clone().or_else(|| std::env::var("FAIRLANE_PASSWORD").ok())
    }
}

fn set_text(place: &mut Option<String>, value: &str) -> Result<(), LoadError> {
    *place = Some(value.to_string());
    Ok(())
}

fn switch_on(place: &mut bool) -> Result<(), LoadError> {
    *place = true;
    Ok(())
}

pub(crate) const fn hosts<O: AsMut<Common>>(default: &'static str) -> Flag<O> {
    flag!("hosts", "HOST:PORT,…", default, "servers; connections are spread over them", |o: &mut O, v| {
        let hosts = v.split(',').filter(|host| !host.is_empty()).map(str::to_string);
        o.as_mut().hosts = Some(hosts.collect());
        Ok(())
    })
}

pub(crate) const fn user<O: AsMut<Common>>(default: &'static str) -> Flag<O> {
    flag!("user", "NAME", default, "user to log in as", |o: &mut O, v| set_text(&mut o.as_mut().user, v))
}

pub(crate) const fn password<O: AsMut<Common>>() -> Flag<O> {
    let help = "password of the user (other users of this machine may see it)";
    flag!("password", "WORD", "FAIRLANE_PASSWORD", help, |o: &mut O, v| set_text(&mut o.as_mut().password, v))
}

pub(crate) const fn password_file<O: AsMut<Common>>() -> Flag<O> {
    let help = "file whose first line is the password";
    flag!("password-file", "FILE", "none", help, |o: &mut O, v| set_text(
        &mut o.as_mut().password,
        &read_password(v)?
    ))
}

pub(crate) const fn json<O: AsMut<Common>>() -> Flag<O> {
    let help = "write the report as JSON (`-` for standard output)";
    flag!("json", "FILE", "none", help, |o: &mut O, v| set_text(&mut o.as_mut().json, v))
}

pub(crate) const fn html<O: AsMut<Common>>() -> Flag<O> {
    let help = "`usl`, `sweep` and `plan`: write the report as a page with charts";
    flag!("html", "FILE", "none", help, |o: &mut O, v| set_text(&mut o.as_mut().html, v))
}

pub(crate) const fn quiet<O: AsMut<Common>>() -> Flag<O> {
    flag!("quiet", "", "off", "print no progress on standard error", |o: &mut O, _| switch_on(
        &mut o.as_mut().quiet
    ))
}

pub(crate) const fn help<O: AsMut<Common>>() -> Flag<O> {
    flag!("help", "", "", "print this text", |o: &mut O, _| switch_on(&mut o.as_mut().help))
}
