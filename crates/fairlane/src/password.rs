//! `fairlane password ROLE`: sets the password of a role in a data folder that no server has open,
//! for an operator who has lost it.

use std::io::{BufRead, IsTerminal, Read};

use lanes::{Group, Lanes, Reporter};
use storage::EventSink;

use crate::cores::{Cores, access};
use crate::settings::Settings;
use crate::{folder, machine};

/// Longest line that is read as a password, bytes. Roles have shorter ones.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Reads the new password, the first line of standard input, and sets it. Returns a sentence for
/// the operator.
///
/// # Errors
/// One sentence with the remedy. The password is unchanged then.
pub(crate) fn set(settings: &Settings, role: &str) -> Result<String, String> {
    let place = settings.data_dir.display();
    if !folder::has_run(&settings.data_dir) {
        return Err(format!("no server has run in {place}: give its data folder with --data-dir."));
    }
    let input = std::io::stdin();
    if input.is_terminal() {
        // A terminal would show it.
        return Err(format!(
            "expected the new password on standard input: write it to a file that only you can read, and \
             give `fairlane password {role} < FILE`."
        ));
    }
    let mut line = String::new();
    let read = input.lock().take(LINE_BYTES_MAX).read_line(&mut line);
    read.map_err(|error| format!("the password cannot be read from standard input: {error}."))?;
    let password = line.trim_end_matches(['\r', '\n']).to_owned();
    if password.is_empty() {
        return Err("expected a password on standard input, got an empty line.".to_owned());
    }
    folder::keep_files_private();
    let prepared = folder::prepare(&settings.data_dir)?;
    let mut config = machine::lanes(settings)?;
    // A stall of this program hurts no client.
    config.reporter = Reporter::new(|_| ());
    machine::raise_file_limit(config.cores.len())?;
    let lanes = Lanes::start(config).map_err(|error| format!("the lanes cannot start: {error}."))?;
    let memory_bytes = settings.memory_bytes.unwrap_or_else(machine::memory_bytes);
    let result = Cores::open(&lanes, settings, memory_bytes, None, prepared, &EventSink::new(|_| ()))
        .and_then(|cores| {
            let (role, password) = (role.to_owned(), password);
            let set = lanes.block_on(0, Group::CONTROL, move || async move {
                access().set_password(&role, &password).await.map_err(|error| format!("{error}."))
            });
            set.and(cores.close())
        });
    lanes.shutdown();
    result?;
    let mut text = format!("The role {role} has the new password, and may log in.\n");
    if role == settings.admin_user
        && let Some(stale) = folder::remove_password_file(&settings.data_dir)?
    {
        text.push_str(&format!("Removed {}, which had the first one.\n", stale.display()));
    }
    Ok(text)
}
