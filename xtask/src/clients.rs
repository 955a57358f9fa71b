//! Real clients against the real server: runs the scripts of `tests/clients` in a virtual
//! environment of Python in the target folder. The clients of `requirements.txt` are installed
//! there once.
//!
//! A script is one test. It starts the server of `FAIRLANE_BIN` with its own ports and folder, and
//! exits with 0 if it passes. Without the tool chain that it needs, it prints "not tried" and the
//! reason, and passes too. The Rust programs are in the folder `FAIRLANE_EXAMPLES`, and
//! cassandra-stress in `FAIRLANE_STRESS`. Files whose names start with `_` are shared by scripts
//! and are not run. Those in folders belong to a script, or have tools of their own
//! (`cargo xtask spark`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::files::{list, name, read};
use crate::{BUILD_TIMEOUT, cargo, child, debian, stress, target};

/// Timeout of the installation of clients, over a slow network.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Timeout of one script, on a busy machine. That of the documents takes two minutes on two cores.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Builds the server, prepares the environment and runs the scripts in the order of their names.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let folder = root.join("tests/clients");
    let scripts: Vec<PathBuf> = list(&folder)?.into_iter().filter(|path| is_script(name(path))).collect();
    if scripts.is_empty() {
        println!("      no scripts in tests/clients: nothing to run");
        return Ok(());
    }
    let built = build(root)?;
    let python = python(root)?;
    let stress = stress::fetch(root)?.unwrap_or_default();
    for script in &scripts {
        println!("      {}", name(script));
        let mut command = Command::new(&python);
        // Scripts start the programs of the environment (`cqlsh`).
        command.arg(script).current_dir(root).env("PATH", path_with(&python));
        command.env("FAIRLANE_BIN", built.join("fairlane")).env("FAIRLANE_EXAMPLES", built.join("examples"));
        command.env("FAIRLANE_STRESS", &stress).env("PYTHONDONTWRITEBYTECODE", "1");
        child::run(&mut command, SCRIPT_TIMEOUT)?;
    }
    Ok(())
}

/// Builds the programs, and returns their folder.
pub(crate) fn build(root: &Path) -> Result<PathBuf, String> {
    // With examples, so that dependencies have the same features as in the tests and are not
    // rebuilt.
    let build = ["build", "--release", "--workspace", "--bins", "--examples"];
    child::run(cargo(root).args(build), BUILD_TIMEOUT)?;
    Ok(target::folder(root).join("release"))
}

fn is_script(name: &str) -> bool {
    name.ends_with(".py") && !name.starts_with('_')
}

/// Returns the Python of the environment with the clients. Prepares the environment once.
pub(crate) fn python(root: &Path) -> Result<PathBuf, String> {
    environment(&target::folder(root).join("venv"), &root.join("tests/clients/requirements.txt"))
}

/// Returns the Python of an environment with these requirements. A file in it contains the
/// installed requirements, so that each version of them is installed once. An incomplete
/// environment is created again.
fn environment(venv: &Path, requirements: &Path) -> Result<PathBuf, String> {
    let wanted = read(requirements)?;
    let python = venv.join("bin/python");
    let note = venv.join("installed.txt");
    if python.exists() && read(&note).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    let mut create = Command::new("python3");
    create.args(["-m", "venv", "--clear"]).arg(venv);
    if child::run(&mut create, INSTALL_TIMEOUT).is_err() {
        let wanted = "Python 3 with its venv module is needed to run the clients: install it \
                      (on Debian: apt-get install python3-venv).";
        debian::install("python3-venv", wanted)?;
        child::run(&mut create, INSTALL_TIMEOUT)?;
    }
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]).arg(requirements);
    child::run(&mut install, INSTALL_TIMEOUT)?;
    std::fs::write(&note, wanted)
        .map_err(|error| format!("{} could not be written: {error}.", note.display()))?;
    Ok(python)
}

/// Returns the search path, with the programs of the environment first.
fn path_with(python: &Path) -> String {
    let programs = python.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
    format!("{programs}:{}", std::env::var("PATH").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::is_script;

    #[test]
    fn shared_files_are_not_run() {
        assert!(is_script("driver.py"));
        assert!(!is_script("_server.py") && !is_script("requirements.txt") && !is_script("spark"));
    }
}
