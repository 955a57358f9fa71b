//! Installation of system packages for the tests. It needs root and Debian's `apt-get`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::child;

/// Timeout of an installation: a few hundred megabytes over a slow network.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Installs a package.
///
/// # Errors
/// `wanted`, which names the purpose of the package and the remedy.
pub(crate) fn install(package: &str, wanted: &str) -> Result<(), String> {
    if !is_root() || !Path::new("/usr/bin/apt-get").exists() {
        return Err(wanted.to_owned());
    }
    println!("      installing {package}");
    for words in [&["update"][..], &["install", "--yes", "--no-install-recommends", package]] {
        let mut install = Command::new("apt-get");
        install.arg("--quiet=2").args(words).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        child::run(&mut install, INSTALL_TIMEOUT).map_err(|reason| format!("{reason} {wanted}"))?;
    }
    Ok(())
}

/// Returns true if this process runs as root.
pub(crate) fn is_root() -> bool {
    let ids = server_process::kernel::status("self", "Uid").unwrap_or_default();
    ids.split_whitespace().take(2).eq(["0", "0"])
}
