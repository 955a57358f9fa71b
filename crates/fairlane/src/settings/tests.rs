//! Sources of settings, their precedence, and errors.

use super::*;

fn loaded(args: &[&str], environment: &[(&str, &str)]) -> Result<Box<Loaded>, String> {
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    let environment: Vec<_> = environment.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    match load(&args, &environment)? {
        CommandLine::Settings(loaded) => Ok(loaded),
        CommandLine::Help => Err("help".into()),
    }
}

/// A temporary settings file, removed when dropped.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("fairlane-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        File(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[track_caller]
fn refused(args: &[&str], expected: &str) {
    let error = loaded(args, &[]).err().expect("refused");
    assert!(error.contains(expected), "{error}");
}

#[test]
fn flag_precedes_variable_and_variable_precedes_file() {
    let file = File::new("wins", "listen = '127.0.0.1:1'\nshard_aware_port = 'off'\nconnections_max = 7\n");
    let with_file = ["--config", file.path()];
    let one = loaded(&with_file, &[]).expect("loads").settings;
    assert_eq!((one.listen.port(), one.shard_aware_port, one.connections_max), (1, None, 7));
    let variables = [("FAIRLANE_LISTEN", "127.0.0.1:2"), ("FAIRLANE_CONFIG", file.path())];
    assert_eq!(loaded(&[], &variables).expect("loads").settings.listen.port(), 2);
    let flags = ["--listen=127.0.0.1:3", "--overprovisioned", "--config", file.path()];
    let three = loaded(&flags, &variables).expect("loads").settings;
    assert_eq!((three.listen.port(), three.overprovisioned), (3, true));
}

#[test]
fn unknown_name_or_invalid_value_is_refused_with_a_remedy() {
    refused(&["--lisen", "x"], "did you mean `--listen`?");
    refused(&["--port", "9042"], "unknown flag --port: did you mean `--listen`?");
    refused(&["--listen"], "expected a value after --listen");
    refused(
        &["--listen", "nonsense"],
        "expected an address and port, such as 127.0.0.1:9042, got `nonsense`",
    );
    refused(&["--cores", "none"], "a number of CPUs");
    refused(&["--memory", "1MiB"], "at least 64MiB");
    refused(&["--sql-decimals", "31"], "30");
    refused(&["--commit", "periodic:0"], "periodic:10");
    refused(&["--disk-probe", "always"], "first-start or off");
    refused(&["--disk-write-bandwidth", "100KB"], "at least 1MB");
    refused(&["--disk-read-ops", "0"], "from 10 to");
    refused(&["--disk-read-latency-us", "0"], "from 1 to");
    refused(&["stray"], "expected a flag, got `stray`");
    refused(&["--config", "/nowhere/at/all.toml"], "cannot be read");
    let unknown = File::new("unknown", "datadir = 'x'\n");
    refused(&["--config", unknown.path()], "unknown setting `datadir`: did you mean `data_dir`?");
    let section = File::new("section", "[listen]\nport = 1\n");
    refused(&["--config", section.path()], "listen: expected a text");
    let broken = File::new("broken", "listen = \n");
    refused(&["--config", broken.path()], "is not TOML");
}

#[test]
fn unknown_variable_is_a_warning() {
    let known = [(PASSWORD_VARIABLE, "secret"), ("FAIRLANE_PASSWORD", "secret")];
    let loaded = loaded(&[], &[&[("FAIRLANE_PORT", "tcp://1.2.3.4:5")], &known[..]].concat());
    let loaded = loaded.expect("loads");
    assert_eq!(loaded.warnings.len(), 1);
    assert!(loaded.warnings[0].starts_with("unknown variable FAIRLANE_PORT"), "{:?}", loaded.warnings);
    assert!(!loaded.print().contains("secret"));
}

#[test]
fn printed_settings_can_be_read_again() {
    let args = [
        "--cores",
        "0,2-3",
        "--memory",
        "8GiB",
        "--commit",
        "periodic:10",
        "--slow-statement-ms=off",
        "--disk-write-bandwidth=2GB",
    ];
    let first = loaded(&args, &[]).expect("loads");
    let file = File::new("printed", &first.print());
    let second = loaded(&["--config", file.path()], &[]).expect("loads");
    assert_eq!(first.settings, second.settings);
    assert_eq!(first.settings.cores, Cpus::List(vec![0, 2, 3]));
    let slow = loaded(&["--disk-read-latency-us", "900"], &[]).expect("loads");
    assert_eq!(slow.settings.disk_speed, [0, 0, 0, 0, 900_000]);
    let alone = |text| loaded(&["--cores", text], &[]).expect("loads").settings.cores;
    assert_eq!([alone("0"), alone("3,")], [Cpus::List(vec![0]), Cpus::List(vec![3])]);
    assert_eq!(first.settings.memory_bytes, Some(8 << 30));
    assert_eq!(first.settings.disk_speed, [0, 2_000_000_000, 0, 0, 0]);
    for setting in SETTINGS {
        assert!(help().contains(setting.help) && first.print().contains(setting.help), "{}", setting.name);
    }
}

#[test]
fn distance_counts_inserted_removed_and_changed_letters() {
    assert_eq!(distance("", "abc"), 3);
    assert_eq!(distance("kitten", "sitting"), 3);
    assert_eq!(distance("same", "same"), 0);
}

#[test]
fn settings_without_effect_in_front_of_a_cluster_are_refused_by_name() {
    refused(&["--engine", "cluster"], "give --contact HOST:PORT");
    refused(&["--contact", "127.0.0.1"], "give --engine cluster");
    refused(&["--engine", "clusters"], "embedded or cluster");
    refused(&["--engine", "cluster", "--contact", "127.0.0.1:x"], "separated by commas");
    let front = ["--engine", "cluster", "--contact", "127.0.0.1, 127.0.0.2:9043"];
    let with = |more: [&'static str; 2]| [&front[..], &more].concat();
    refused(&with(["--commit", "periodic:10"]), "commit has no effect with --engine cluster");
    refused(
        &with(["--data-dir", "data"]),
        "data_dir has no effect with --engine cluster without --sql-listen",
    );
    let with_sql = [&with(["--sql-listen", "127.0.0.1:1"])[..], &["--sql-decimals", "3"]].concat();
    let sql = loaded(&with_sql, &[]).expect("SQL works there");
    assert_eq!(sql.settings.spill_dir(), None, "the default folder may be another server's");
    refused(&[&with_sql[..], &["--spill-limit", "1GiB"]].concat(), "give --data-dir");
    let spills = loaded(&[&with_sql[..], &["--data-dir", "spills"]].concat(), &[]).expect("a folder");
    assert_eq!(spills.settings.spill_dir(), Some("spills/spill".into()));
    let printed = File::new("printed-front", &loaded(&front, &[]).expect("loads").print());
    let settings =
        loaded(&["--config", printed.path()], &[]).expect("what is printed can be loaded").settings;
    let ports: Vec<u16> = settings.contact.iter().map(std::net::SocketAddr::port).collect();
    assert_eq!((settings.engine, ports), (EngineKind::Cluster, vec![9042, 9043]));
    refused(&with(["--listen", "0.0.0.0:9042"]), "give --advertise HOST");
    refused(&with(["--peers", "all"]), "fleet or none");
    refused(&with(["--fleet-keyspace", "own fleet"]), "letters, digits and underscores");
    refused(&["--peers", "none"], "peers has no effect without --engine cluster");
    refused(&["--node-window", "64"], "node_window has no effect without --engine cluster");
    refused(&with(["--node-window", "0"]), "a whole number from 1 to 32768");
    for name in OF_STORAGE.into_iter().chain(OF_CLUSTER).chain(OF_SPILLS) {
        assert!(SETTINGS.iter().any(|setting| setting.name == name), "{name}");
    }
}
