//! Flags that several command lines of `fairlane load` have in common.

use crate::LoadError;
use crate::flags::{Flag, flag, password_file as read_password};

/// What these flags set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Common {
    /// Servers, where they were given.
    pub(crate) hosts: Option<Vec<String>>,
    /// User to log in as.
    pub(crate) user: Option<String>,
    /// Their password, where it was given.
    pub(crate) password: Option<String>,
    /// Where the report goes as JSON.
    pub(crate) json: Option<String>,
    /// No progress on standard error.
    pub(crate) quiet: bool,
    /// Print the help and leave.
    pub(crate) help: bool,
}

impl Common {
    /// The servers, or the one that is usual.
    pub(crate) fn hosts(&self, usual: &str) -> Vec<String> {
        self.hosts.clone().unwrap_or_else(|| vec![usual.to_string()])
    }

    /// The password that was given, or the environment's.
    pub(crate) fn password(&self) -> Option<String> {
        self.password.clone().or_else(|| std::env::var("FAIRLANE_PASSWORD").ok())
    }
}

fn given(place: &mut Option<String>, value: &str) -> Result<(), LoadError> {
    *place = Some(value.to_string());
    Ok(())
}

fn switched_on(place: &mut bool) -> Result<(), LoadError> {
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
    flag!("user", "NAME", default, "user to log in as", |o: &mut O, v| given(&mut o.as_mut().user, v))
}

pub(crate) const fn password<O: AsMut<Common>>() -> Flag<O> {
    let help = "their password (others on this machine may see it)";
    flag!("password", "WORD", "FAIRLANE_PASSWORD", help, |o: &mut O, v| given(&mut o.as_mut().password, v))
}

pub(crate) const fn password_file<O: AsMut<Common>>() -> Flag<O> {
    let help = "file whose first line is the password";
    flag!("password-file", "FILE", "none", help, |o: &mut O, v| given(
        &mut o.as_mut().password,
        &read_password(v)?
    ))
}

pub(crate) const fn json<O: AsMut<Common>>() -> Flag<O> {
    let help = "write the report as JSON (`-` for standard output)";
    flag!("json", "FILE", "none", help, |o: &mut O, v| given(&mut o.as_mut().json, v))
}

pub(crate) const fn quiet<O: AsMut<Common>>() -> Flag<O> {
    flag!("quiet", "", "off", "no progress on standard error", |o: &mut O, _| switched_on(
        &mut o.as_mut().quiet
    ))
}

pub(crate) const fn help<O: AsMut<Common>>() -> Flag<O> {
    flag!("help", "", "", "this text", |o: &mut O, _| switched_on(&mut o.as_mut().help))
}
