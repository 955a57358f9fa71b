//! `fairlane check FOLDER`: verifies or repairs a data folder that no server has open.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use lanes::{Config, Group, Lanes, Reporter};
use storage::{Checked, EventSink, Scrubbed, StorageError, StorageOptions, TableId};

use crate::output::print;

const USAGE: &str = "\
fairlane check FOLDER
fairlane check --repair FOLDER

Reads all files of a data folder that no server has open: the manifest, every block of every table
file, the log. Prints their sizes, and each damage with its file and offset. Changes nothing.
Exit code 0: no damage, 1: damage, or the folder cannot be read.

With --repair, the readable data of damaged table files is written to new files, for a server that does
not start because a system table is damaged. A damaged file stays beside the new one as
ID.table.damaged. A damaged log or manifest is not repaired: restore a snapshot. `fairlane scrub` does
the same for a table of a running server.
";

/// Runs the command.
pub(crate) fn run(args: &[String]) -> ExitCode {
    match args {
        [flag] if flag == "--help" || flag == "-h" => print(USAGE),
        [flag, folder] if flag == "--repair" && !folder.starts_with('-') => {
            match repair(PathBuf::from(folder)) {
                Ok(text) => print(&text),
                Err(reason) => {
                    eprintln!("fairlane: {reason}.");
                    ExitCode::FAILURE
                }
            }
        }
        [folder] if !folder.starts_with('-') => match check(PathBuf::from(folder)) {
            Ok(all) => report(&all),
            Err(reason) => {
                eprintln!("fairlane: {reason}.");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Starts one core for a command that runs in a process of its own.
///
/// # Errors
/// The reason, without a full stop.
pub(crate) fn lane() -> Result<Lanes, String> {
    let mut config = Config::detect();
    config.cores.truncate(1);
    config.pin = false;
    config.reporter = Reporter::new(|_| ());
    Lanes::start(config).map_err(|error| format!("the lanes cannot start ({error})"))
}

/// Checks all shards of a folder, with progress on standard error if that is a terminal.
fn check(folder: PathBuf) -> Result<Vec<Checked>, String> {
    let lanes = lane()?;
    let progress = std::io::stderr().is_terminal();
    let all = lanes.block_on(0, Group::CONTROL, move || async move {
        let show = |checked: &Checked| {
            if progress {
                eprint!("\rshard {}: {} of {} files ", checked.shard, checked.files_done, checked.files);
            }
        };
        storage::check(&folder, StorageOptions::in_memory().groups, show).await
    });
    lanes.shutdown();
    if progress {
        eprint!("\r\x1b[K");
    }
    all.map_err(|error| error.to_string())
}

/// Repairs the table files of a folder. Returns the text for standard output.
fn repair(folder: PathBuf) -> Result<String, String> {
    let lanes = lane()?;
    let progress = std::io::stderr().is_terminal();
    let repaired = lanes.block_on(0, Group::CONTROL, move || async move {
        let show = |shard, table: TableId| {
            if progress {
                eprint!("\rshard {shard}: table {:032x} ", table.0);
            }
        };
        let event_sink = EventSink::new(|event| {
            if event.is_bad() {
                eprintln!("{event}");
            }
        });
        storage::repair(&folder, event_sink, show).await
    });
    lanes.shutdown();
    if progress {
        eprint!("\r\x1b[K");
    }
    let repaired = repaired.map_err(|error| error.to_string())?;
    let mut text = format!("{} files read, {} of them damaged\n", repaired.files, repaired.damaged.len());
    if !repaired.damaged.is_empty() {
        let Scrubbed { files_lost, blocks_lost, rows_lost, rows_saved, partitions_saved, .. } = repaired;
        text.push_str(&format!("lost: {files_lost} files, {blocks_lost} blocks, {rows_lost} rows\n"));
        text.push_str(&format!(
            "saved of the damaged files: {rows_saved} rows of {partitions_saved} partitions\n"
        ));
    }
    Ok(text)
}

/// Prints a table of the shards and their damages.
fn report(all: &[Checked]) -> ExitCode {
    let mut text = format!(
        "{:>5}  {:>7}  {:>14}  {:>9}  {:>12}  {:>11}  {:>7}\n",
        "shard", "files", "bytes", "blocks", "partitions", "log records", "damages"
    );
    for shard in all {
        text.push_str(&format!(
            "{:>5}  {:>7}  {:>14}  {:>9}  {:>12}  {:>11}  {:>7}\n",
            shard.shard,
            shard.files,
            shard.bytes,
            shard.blocks,
            shard.partitions,
            shard.records,
            shard.damages_count
        ));
    }
    for error in all.iter().flat_map(|shard| &shard.damages) {
        match error {
            StorageError::Corrupt { path, what } => text.push_str(&format!("{}: {what}\n", path.display())),
            other => text.push_str(&format!("{other}\n")),
        }
    }
    let damages: u64 = all.iter().map(|shard| shard.damages_count).sum();
    let listed: usize = all.iter().map(|shard| shard.damages.len()).sum();
    if damages > listed as u64 {
        text.push_str(&format!("and {} more\n", damages - listed as u64));
    }
    let _ = print(&text);
    if damages == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
