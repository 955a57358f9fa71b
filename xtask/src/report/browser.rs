//! Chromium: search, installation, and runs without a window, with a time limit.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::files::read;
use crate::{child, debian};

/// Names of the program in Linux distributions.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Timeout of one run, on a busy machine.
const RUN_TIMEOUT: Duration = Duration::from_secs(3 * 60);

/// Returns a Chromium on the search path. Installs it if it is missing.
pub(super) fn find_or_install() -> Result<PathBuf, String> {
    if let Some(found) = find() {
        return Ok(found);
    }
    let wanted = "Chromium is needed to check the report: install it (on Debian: apt-get install chromium).";
    debian::install("chromium", wanted)?;
    find().ok_or_else(|| wanted.to_owned())
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    NAMES.iter().find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()))
}

/// Returns the page after its scripts have run, as HTML. Profile and caches are in `folder`, so
/// that those of the user do not change.
pub(super) fn dom(browser: &Path, folder: &Path, page: &Path, scheme: &str) -> Result<String, String> {
    let printed = folder.join("dom.html");
    let out =
        File::create(&printed).map_err(|error| format!("{} cannot be made: {error}.", printed.display()))?;
    let mut command = Command::new(browser);
    command.args(["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
    command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    if debian::is_root() {
        // The sandbox does not run as root. The page is trusted.
        command.arg("--no-sandbox");
    }
    // 0 is dark, 1 is light.
    let preferred = if scheme == "dark" { 0 } else { 1 };
    command.arg(format!("--blink-settings=preferredColorScheme={preferred}"));
    command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    // Virtual time passes only while scripts run. This is enough for all their complaints.
    command.args(["--virtual-time-budget=5000", "--window-size=1600,1200", "--dump-dom"]);
    command.arg(format!("file://{}", page.display())).stdout(out).stderr(Stdio::null());
    child::run(&mut command, RUN_TIMEOUT)?;
    read(&printed)
}
