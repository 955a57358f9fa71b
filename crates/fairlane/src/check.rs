//! `fairlane check FOLDER`: whether a data folder is sound.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use lanes::{Config, Group, Lanes, Reporter};
use storage::{Checked, Options, StorageError};

use crate::done;

const USAGE: &str = "\
fairlane check FOLDER

Reads everything in a data folder that no server has open: the manifest, every block of every table file, the log. Prints what is there, and
each damage with its file and place. Exit code 0: sound, 1: damaged or not to be read. Nothing is changed.
";

/// Runs the command.
pub(crate) fn run(args: &[String]) -> ExitCode {
    match args {
        [flag] if flag == "--help" || flag == "-h" => done(USAGE),
        [folder] if !folder.starts_with('-') => match look(PathBuf::from(folder)) {
            Ok(all) => tell(&all),
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

/// One lane for a task of the command line, which has this process for itself.
pub(crate) fn lane() -> Result<Lanes, String> {
    let mut config = Config::detect();
    config.cores.truncate(1);
    config.pin = false;
    config.reporter = Reporter::new(|_| ());
    Lanes::start(config).map_err(|error| format!("the lanes cannot start ({error})"))
}

fn look(folder: PathBuf) -> Result<Vec<Checked>, String> {
    let lanes = lane()?;
    let progress = std::io::stderr().is_terminal();
    let all = lanes.block_on(0, Group::CONTROL, move || async move {
        let said = |checked: &Checked| {
            if progress {
                eprint!("\rshard {}: {} of {} files ", checked.shard, checked.files_done, checked.files);
            }
        };
        storage::check(&folder, Options::in_memory().groups, said).await
    });
    lanes.shutdown();
    if progress {
        eprint!("\r\x1b[K");
    }
    all.map_err(|error| error.to_string())
}

fn tell(all: &[Checked]) -> ExitCode {
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
    let told: usize = all.iter().map(|shard| shard.damages.len()).sum();
    if damages > told as u64 {
        text.push_str(&format!("and {} more\n", damages - told as u64));
    }
    let _ = done(&text);
    if damages == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
