//! The target folder that the tests of all checkouts on a machine share, so that a second checkout
//! compiles only its own crates.
//!
//! Cargo names what it builds of a workspace by the path *within* the workspace, and takes it for
//! fresh if no source is newer. In a shared folder the crates of one checkout would therefore pass
//! for those of another. So the folder belongs to one checkout at a time:
//!
//! 1. A run locks the file `checkout` in the folder, and waits while another run has it.
//! 2. The file contains the root of the checkout that built last. If that is another one, the
//!    workspace's own crates are removed. Those of others stay.
//!
//! This also bounds the folder: it has the own crates of one checkout.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::files::{list, read};
use crate::{cargo, child};

/// File in the target folder with the root of the checkout that it belongs to.
const OWNER: &str = "checkout";
/// Timeout of removing a few gigabytes.
const CLEAN_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Returns the target folder: `CARGO_TARGET_DIR`, or one in the user's cache folder, or `target`
/// without any.
pub(crate) fn folder(root: &Path) -> PathBuf {
    let path = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || path("XDG_CACHE_HOME").or_else(|| path("HOME").map(|home| home.join(".cache")));
    let shared = || cache().map(|cache| cache.join("fairlane/target"));
    // An absolute path stays as it is.
    root.join(path("CARGO_TARGET_DIR").or_else(shared).unwrap_or_else(|| "target".into()))
}

/// Makes the target folder this checkout's, until the returned file is dropped.
///
/// # Errors
/// The folder cannot be created, locked or cleaned.
pub(crate) fn claim(root: &Path) -> Result<File, String> {
    let folder = folder(root);
    let path = folder.join(OWNER);
    let failed = |error| format!("{} cannot be used: {error}. Set CARGO_TARGET_DIR.", path.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let mut file =
        OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path).map_err(failed)?;
    if file.try_lock().is_err() {
        println!("      waiting: another run uses {}", folder.display());
        file.lock().map_err(failed)?;
    }
    let mut owner = String::new();
    file.read_to_string(&mut owner).map_err(failed)?;
    if Path::new(&owner) != root {
        clean(root)?;
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        file.write_all(root.display().to_string().as_bytes()).map_err(failed)?;
    }
    Ok(file)
}

/// Removes what was built of the workspace's own crates and of the copies in `vendor`.
fn clean(root: &Path) -> Result<(), String> {
    let mut command = cargo(root);
    command.args(["clean", "--quiet", "--release"]);
    for package in own_packages(root)? {
        command.args(["--package", &package]);
    }
    child::run(&mut command, CLEAN_TIMEOUT)
}

/// Returns the names of all packages of this repository.
fn own_packages(root: &Path) -> Result<Vec<String>, String> {
    let mut manifests = vec![root.join("xtask/Cargo.toml")];
    for folder in ["crates", "vendor"] {
        let folders = list(&root.join(folder))?.into_iter();
        manifests.extend(folders.map(|folder| folder.join("Cargo.toml")).filter(|path| path.exists()));
    }
    manifests.iter().map(|path| name_of_package(path)).collect()
}

fn name_of_package(manifest: &Path) -> Result<String, String> {
    let text = read(manifest)?;
    let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    name.map(str::to_owned).ok_or_else(|| format!("{} has no name.", manifest.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_packages_are_found() {
        let packages = own_packages(&crate::root()).expect("the repository is readable");
        for name in ["fairlane", "sched", "arrow-pg", "xtask"] {
            assert!(packages.iter().any(|package| package == name), "{name} in {packages:?}");
        }
    }
}
