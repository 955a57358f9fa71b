//! Measurement of the disk: by the command, and at the first start. The results do not matter here.

use std::io::Read;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::server::{Folder, Server, fairlane, wait};

fn names(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).expect("a folder").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn interrupted_measurement_leaves_no_files() {
    let folder = Folder::new("probe");
    let mut command = fairlane(&["probe-disk", folder.path().to_str().expect("UTF-8"), "--overprovisioned"]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut stderr = child.stderr.take().expect("a pipe");
    let mut progress = Vec::new();
    while !String::from_utf8_lossy(&progress).contains("sequential writes") {
        let mut byte = [0];
        stderr.read_exact(&mut byte).expect("the phases are printed");
        progress.push(byte[0]);
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    assert_eq!(wait(&mut child).code(), Some(1));
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).expect("UTF-8");
    assert!(rest.contains("the disk was not measured: it was stopped."), "{rest}");
    assert_eq!(names(&folder), Vec::<String>::new());
}

#[test]
fn first_start_measures_once_and_ignores_an_invalid_file() {
    let folder = Folder::new("first-start");
    let start = || {
        let mut command = Server::command(&folder);
        command.args(["--disk-probe", "first-start"]).env("FAIRLANE_ADMIN_PASSWORD", "secret");
        let server = Server::ready(&mut command);
        assert_eq!(server.stop().code(), Some(0));
    };
    let path = folder.path().join("disk-speed");
    start();
    let measured = std::fs::read_to_string(&path).expect("kept");
    assert!(measured.starts_with("fairlane disk speed, version 2\n# measured briefly"), "{measured}");
    start();
    assert_eq!(std::fs::read_to_string(&path).expect("kept"), measured);
    std::fs::write(&path, "nonsense").expect("written");
    start();
    assert_eq!(std::fs::read_to_string(&path).expect("kept"), "nonsense");
    assert!(!names(&folder).iter().any(|name| name.starts_with(".probe")));
}
