//! Groups of flags that several commands of `fairlane load` share, and the parsing of a command
//! line.

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command};

use crate::LoadError;
use crate::flag_values::CommaList;

/// Server to connect to.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerFlags {
    /// Servers; connections are spread over them
    #[arg(long, value_name = "HOST:PORT,…", default_value = "127.0.0.1:9042")]
    hosts: CommaList,
    /// User to log in as
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Password of the user (other users of this machine may see it) [default: FAIRLANE_PASSWORD]
    #[arg(long, value_name = "WORD", overrides_with = "password_file")]
    password: Option<String>,
    /// File whose first line is the password
    #[arg(long, value_name = "FILE", overrides_with = "password")]
    password_file: Option<String>,
}

impl ServerFlags {
    /// Returns the servers, at least one.
    ///
    /// # Errors
    /// [`LoadError::Usage`] if none is given.
    pub(crate) fn hosts(&self) -> Result<Vec<String>, LoadError> {
        match &self.hosts.0[..] {
            [] => Err(LoadError::Usage("--hosts names no server".into())),
            hosts => Ok(hosts.to_vec()),
        }
    }

    /// Returns the given password, or that of the variable FAIRLANE_PASSWORD.
    ///
    /// # Errors
    /// [`LoadError::File`] for a file that cannot be read.
    pub(crate) fn password(&self) -> Result<Option<String>, LoadError> {
        match (&self.password, &self.password_file) {
            (Some(password), _) => Ok(Some(password.clone())),
            (None, Some(path)) => first_line(path).map(Some),
            (None, None) => Ok(std::env::var("FAIRLANE_PASSWORD").ok()),
        }
    }
}

fn first_line(path: &str) -> Result<String, LoadError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| LoadError::File { path: path.to_string(), reason: error.to_string() })?;
    Ok(text.lines().next().unwrap_or_default().to_string())
}

/// Tables to create, and the consistency of requests to them.
#[derive(Args, Clone, Debug)]
pub(crate) struct TableFlags {
    /// Replication factor of a keyspace created here
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) replication: u32,
    /// Consistency level
    #[arg(long, value_name = "LEVEL", default_value = "ONE")]
    pub(crate) consistency: String,
}

/// Report of a command.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ReportFlags {
    /// Write the report as JSON (`-` for standard output)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<String>,
    /// Print no progress on standard error
    #[arg(long)]
    pub(crate) quiet: bool,
}

impl ReportFlags {
    /// Returns true if the report goes to standard output as text.
    pub(crate) fn prints_text(&self) -> bool {
        self.json.as_deref() != Some("-")
    }
}

/// Raw histograms of a load.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct HistogramFlags {
    /// Write the raw histograms, for `merge`
    #[arg(long, value_name = "FILE")]
    pub(crate) hdr: Option<String>,
}

/// Page of a report.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct PageFlags {
    /// Write the report as a page with charts
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<String>,
}

/// The command line, or the help that it asks for.
pub(crate) enum CommandLine {
    /// The flags.
    Matches(ArgMatches),
    /// The help.
    Help(String),
}

/// Parses a command line, without the name of the program. Of a repeated flag the last counts.
///
/// # Errors
/// [`LoadError::Usage`].
pub(crate) fn parse(command: Command, args: &[String]) -> Result<CommandLine, LoadError> {
    let command = with_any_values(command).no_binary_name(true).args_override_self(true);
    match command.try_get_matches_from(args) {
        Ok(matches) => Ok(CommandLine::Matches(matches)),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            Ok(CommandLine::Help(error.render().to_string()))
        }
        Err(error) => Err(usage(&error)),
    }
}

/// Lets values begin with a hyphen, as passwords may.
fn with_any_values(command: Command) -> Command {
    command
        .mut_args(|arg| {
            let is_flag_with_value = !arg.is_positional() && arg.get_action().takes_values();
            if is_flag_with_value { arg.allow_hyphen_values(true) } else { arg }
        })
        .mut_subcommands(with_any_values)
}

/// Returns the error with its text, which begins with its cause.
pub(crate) fn usage(error: &clap::Error) -> LoadError {
    let text = error.render().to_string();
    LoadError::Usage(text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_string())
}
