//! Chromium: found or installed, and run without a window, bounded in time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::files::read;
use crate::{child, debian};

/// Names of the program in distributions.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A start on a busy machine.
const LOOK_TIMEOUT: Duration = Duration::from_secs(3 * 60);

/// A Chromium on the search path; installed if missing.
pub(super) fn find_or_install() -> Result<PathBuf, String> {
    if let Some(found) = find() {
        return Ok(found);
    }
    let wanted =
        "Chromium is needed to look at the report: install it (on Debian: apt-get install chromium).";
    debian::install("chromium", wanted)?;
    find().ok_or_else(|| wanted.to_owned())
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    NAMES.iter().find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()))
}

/// The page after its scripts have run, as HTML. Profile and caches are in `folder`, so that a
/// user's own are left alone.
pub(super) fn dom(browser: &Path, folder: &Path, page: &Path, scheme: &str) -> Result<String, String> {
    let printed = folder.join("dom.html");
    let out =
        File::create(&printed).map_err(|error| format!("{} cannot be made: {error}.", printed.display()))?;
    let mut command = Command::new(browser);
    command.args(["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
    command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    if debian::is_root() {
        // Its sandbox wants a user who is not root; the page is our own.
        command.arg("--no-sandbox");
    }
    // 0 is dark, 1 is light.
    let preferred = if scheme == "dark" { 0 } else { 1 };
    command.arg(format!("--blink-settings=preferredColorScheme={preferred}"));
    command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    // Time that passes only while something runs: enough for scripts to have said everything.
    command.args(["--virtual-time-budget=5000", "--window-size=1600,1200", "--dump-dom"]);
    command.arg(format!("file://{}", page.display())).stdout(out).stderr(Stdio::null());
    child::run(&mut command, LOOK_TIMEOUT)?;
    read(&printed)
}
