//! The binary: command line, settings, and putting the rooms together.
#![expect(clippy::disallowed_methods, reason = "the command line stands outside the lanes")]

mod audit;
mod certificates;
mod check;
mod checksums;
mod folder;
mod machine;
mod maintenance;
mod probe;
mod rooms;
mod serve;
mod settings;
mod snapshot;
#[cfg_attr(not(feature = "sql"), path = "sql_absent.rs")]
mod sql_listener;
mod stop;

use std::process::ExitCode;

use settings::Asked;

/// Keeps freed memory (see `lanes::keep_freed_memory`), so that threads of the heavy lane make no `mmap` or `munmap` once warm: a thread inside the kernel
/// is not preempted on many kernels, and the fast lane beside it would wait.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The demo starts servers of this program.
const DEMO: demo::Program =
    demo::Program { has_sql: cfg!(feature = "sql"), check_commit: |mode| settings::commit(mode).map(|_| ()) };

const HELP: &str = "\
fairlane: transactions and analytics on the same machine, each workload in its own lane

  fairlane serve [FLAGS]            run a server
  fairlane demo [FLAGS]             transactions and analytics side by side, on this machine, in minutes
  fairlane load WORKLOAD [FLAGS]    put load on a CQL server and report on it
  fairlane probe-disk [FOLDER]      measure the disk, half a minute, for a server that keeps its data there
  fairlane config --print [FLAGS]   every setting, its value, and where that came from
  fairlane check FOLDER             verify a data folder that no server has open, to its last byte
  fairlane snapshot FOLDER NAME     keep what a data folder holds, beside a running server too
  fairlane restore FOLDER NAME [TO] make a data folder of a snapshot
  fairlane compact KEYSPACE.TABLE   merge the files of a table; also `flush` and `scrub`
  fairlane --help | --version

`fairlane COMMAND --help` tells more.
";

/// Exit codes: 0 done, 1 could not, 2 a wrong command line.
fn main() -> ExitCode {
    let args: Vec<String> = match std::env::args_os().skip(1).map(|arg| arg.into_string()).collect() {
        Ok(args) => args,
        Err(arg) => return usage(&format!("{} is not UTF-8.", arg.display())),
    };
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => return usage("What to do?"),
    };
    match command {
        "serve" => with_settings("serve", rest, |loaded| serve::serve(&loaded.settings, &loaded.warnings)),
        "demo" => ExitCode::from(u8::try_from(demo::run(rest, &DEMO)).unwrap_or(1)),
        "load" => ExitCode::from(u8::try_from(load::cli(rest)).unwrap_or(1)),
        "probe-disk" => probe_disk(rest),
        "config" => config(rest),
        "check" => check::run(rest),
        "snapshot" => snapshot::run(rest),
        "restore" => snapshot::restore(rest),
        "compact" => maintenance::run("COMPACT", rest),
        "flush" => maintenance::run("FLUSH", rest),
        "scrub" => maintenance::run("SCRUB", rest),
        "--help" | "-h" | "help" => done(HELP),
        "--version" | "-V" => done(concat!("fairlane ", env!("CARGO_PKG_VERSION"), "\n")),
        other => usage(&format!("There is no command `{other}`.")),
    }
}

/// `config --print`, with any flags of `serve`.
fn config(args: &[String]) -> ExitCode {
    let (print, flags): (Vec<_>, Vec<_>) = args.iter().cloned().partition(|arg| arg == "--print");
    if print.is_empty() && !flags.iter().any(|flag| flag == "--help" || flag == "-h") {
        return usage("`fairlane config --print` is all there is.");
    }
    with_settings("config --print", &flags, |loaded| {
        loaded.warnings.iter().for_each(|warning| eprintln!("fairlane: {warning}"));
        done(&loaded.print())
    })
}

/// `probe-disk [FOLDER]`, with any flags of `serve`: those that say on which cores, and which folder if none is named.
fn probe_disk(args: &[String]) -> ExitCode {
    let mut flags = args.to_vec();
    if let Some(folder) = args.first().filter(|first| !first.starts_with('-')) {
        flags[0] = format!("--data-dir={folder}");
    }
    with_settings("probe-disk [FOLDER]", &flags, |loaded| probe::probe_disk(&loaded.settings))
}

fn with_settings(
    command: &str,
    flags: &[String],
    run: impl FnOnce(&settings::Loaded) -> ExitCode,
) -> ExitCode {
    let environment =
        std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    match settings::load(flags, &environment.collect::<Vec<_>>()) {
        Ok(Asked::Settings(loaded)) => run(&loaded),
        Ok(Asked::Help) => done(&format!(
            "fairlane {command} [FLAGS]\n\nEach flag is also a key of fairlane.toml (data_dir) and a variable \
             (FAIRLANE_DATA_DIR).\nA flag wins over a variable, a variable over the file, the file over the default.\n\n{}",
            settings::help()
        )),
        Err(reason) => {
            eprintln!("fairlane: {reason}");
            ExitCode::from(2)
        }
    }
}

/// Prints; a closed pipe is no failure of ours.
fn done(text: &str) -> ExitCode {
    use std::io::Write;
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn usage(reason: &str) -> ExitCode {
    eprintln!("fairlane: {reason} See `fairlane --help`.");
    ExitCode::from(2)
}
