//! The binary: command line, settings, start and stop of the server, tools for its files, demos.
#![expect(clippy::disallowed_methods, reason = "the command line stands outside the lanes")]

mod audit;
mod certificates;
mod check;
mod checksums;
mod cores;
mod folder;
mod listeners;
mod machine;
mod maintenance;
mod output;
mod password;
mod probe;
mod requests;
mod serve;
mod settings;
mod snapshot;
#[cfg_attr(not(feature = "sql"), path = "sql_absent.rs")]
mod sql_listener;
mod stop;

use std::process::ExitCode;

use output::print;
use settings::CommandLine;

/// Keeps freed memory (`lanes::keep_freed_memory`), so that heavy lanes call neither `mmap` nor
/// `munmap` once the server is warm. Many kernels do not preempt a thread inside the kernel, and
/// the fast lane of the core would wait for it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the demo, which starts servers of this program.
#[cfg(feature = "demo")]
fn demo(args: &[String]) -> ExitCode {
    let has_sql = cfg!(feature = "sql");
    let program = demo::Program { has_sql, check_commit: |mode| settings::commit(mode).map(|_| ()) };
    ExitCode::from(u8::try_from(demo::run(args, &program)).unwrap_or(1))
}

#[cfg(not(feature = "demo"))]
fn demo(_: &[String]) -> ExitCode {
    usage("this build has no demo: build it from source with `--features demo`.")
}

const HELP: &str = "\
fairlane: transactions and analytics on the same machine, each workload in its own service level

  fairlane serve [FLAGS]            run a server
  fairlane demo [FLAGS]             transactions and analytics side by side, on this machine, in minutes
  fairlane load WORKLOAD [FLAGS]    put load on a CQL server and report on it
  fairlane probe-disk [FOLDER]      measure the disk of a data folder for half a minute, for later starts
  fairlane config --print [FLAGS]   every setting with its value and source
  fairlane check FOLDER             verify a data folder that no server has open, to its last byte;
                                    with --repair, save what is readable of damaged files
  fairlane snapshot FOLDER NAME     make a snapshot of a data folder, of a running server too
  fairlane restore FOLDER NAME [TO] make a data folder from a snapshot
  fairlane password ROLE            set a lost password, in a data folder that no server has open
  fairlane compact KEYSPACE.TABLE   compact the files of a table to one run; also `flush` and `scrub`
  fairlane --help | --version

`fairlane COMMAND --help` explains a command.
";

/// Exit codes: 0 success, 1 failure, 2 invalid command line.
fn main() -> ExitCode {
    let args: Vec<String> = match std::env::args_os().skip(1).map(|arg| arg.into_string()).collect() {
        Ok(args) => args,
        Err(arg) => return usage(&format!("expected arguments in UTF-8, got `{}`.", arg.display())),
    };
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => return usage("expected a command, got none."),
    };
    match command {
        "serve" => with_settings("serve", rest, |loaded| serve::serve(&loaded.settings, &loaded.warnings)),
        "demo" => demo(rest),
        "load" => ExitCode::from(u8::try_from(load::cli(rest)).unwrap_or(1)),
        "probe-disk" => probe_disk(rest),
        "password" => password(rest),
        "config" => config(rest),
        "check" => check::run(rest),
        "snapshot" => snapshot::run(rest),
        "restore" => snapshot::restore(rest),
        "compact" => maintenance::run("COMPACT", rest),
        "flush" => maintenance::run("FLUSH", rest),
        "scrub" => maintenance::run("SCRUB", rest),
        "--help" | "-h" | "help" => print(HELP),
        "--version" | "-V" => print(concat!("fairlane ", env!("CARGO_PKG_VERSION"), "\n")),
        other => usage(&format!("unknown command `{other}`.")),
    }
}

/// Runs `config --print`, with any flags of `serve`.
fn config(args: &[String]) -> ExitCode {
    let (prints, flags): (Vec<_>, Vec<_>) = args.iter().cloned().partition(|arg| arg == "--print");
    if prints.is_empty() && !flags.iter().any(|flag| flag == "--help" || flag == "-h") {
        return usage("expected `fairlane config --print`.");
    }
    with_settings("config --print", &flags, |loaded| {
        loaded.warnings.iter().for_each(|warning| eprintln!("fairlane: {warning}"));
        print(&loaded.print())
    })
}

/// Runs `probe-disk [FOLDER]`, with any flags of `serve`. It uses the cores, and the data folder if
/// the command line names no other.
fn probe_disk(args: &[String]) -> ExitCode {
    let mut flags = args.to_vec();
    if let Some(folder) = args.first().filter(|first| !first.starts_with('-')) {
        flags[0] = format!("--data-dir={folder}");
    }
    with_settings("probe-disk [FOLDER]", &flags, |loaded| probe::probe_disk(&loaded.settings))
}

/// Runs `password ROLE`, with any flags of `serve`: the data folder, and the cores that the server
/// runs on.
fn password(args: &[String]) -> ExitCode {
    let (role, flags) = match args.split_first() {
        Some((role, flags)) if !role.starts_with('-') => (role.clone(), flags),
        Some((flag, _)) if flag == "--help" || flag == "-h" => (String::new(), args),
        _ => return usage("expected `fairlane password ROLE`, with the new password on standard input."),
    };
    with_settings("password ROLE", flags, |loaded| match password::set(&loaded.settings, &role) {
        Ok(text) => print(&text),
        Err(reason) => {
            eprintln!("fairlane: {reason}");
            ExitCode::FAILURE
        }
    })
}

/// Loads the settings and runs a command with them.
fn with_settings(
    command: &str,
    flags: &[String],
    run: impl FnOnce(&settings::Loaded) -> ExitCode,
) -> ExitCode {
    let environment =
        std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    match settings::load(flags, &environment.collect::<Vec<_>>()) {
        Ok(CommandLine::Settings(loaded)) => run(&loaded),
        Ok(CommandLine::Help) => print(&format!(
            "fairlane {command} [FLAGS]\n\nEach flag is also a key of fairlane.toml (data_dir) and a variable \
             (FAIRLANE_DATA_DIR).\nFlags precede variables, variables precede the file, the file precedes \
             defaults.\n\n{}",
            settings::help()
        )),
        Err(reason) => {
            eprintln!("fairlane: {reason}");
            ExitCode::from(2)
        }
    }
}

/// Reports an invalid command line.
fn usage(reason: &str) -> ExitCode {
    eprintln!("fairlane: {reason} See `fairlane --help`.");
    ExitCode::from(2)
}
