//! Files of the data folder that do not belong to the storage: the id of the server, and the
//! password that the first start generates. Permissions of the folder and its files.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use uuid::Uuid;

/// Permissions for the user who runs the server only.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Makes files that this process creates private to its user.
pub(crate) fn keep_files_private() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Files and folders that a server creates in its data folder. Beside them there are shards, whose
/// names have a number, and temporary files.
const OWN: [&str; 10] = [
    "LOCK",
    "admin-password",
    "admin-password.new",
    "aside",
    "disk-speed",
    "host-id",
    "marks",
    "shards",
    "snapshots",
    "spill",
];

/// Returns true for the name of an entry of a data folder that a server creates.
fn is_own(name: &str) -> bool {
    let name = name.strip_suffix(".tmp").unwrap_or(name);
    let numbered = ["shard-", "shards.", ".probe-"].iter().find_map(|prefix| name.strip_prefix(prefix));
    OWN.contains(&name) || numbered.is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
}

/// Checks that a server may use a folder: it is new, or a server has run in it, or the first start
/// of one was interrupted. Changes nothing.
///
/// # Errors
/// One sentence that names a file of someone else.
fn check_owned(folder: &Path) -> Result<(), String> {
    // A folder that cannot be read is reported by the code that needs its files.
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    let has = |name: &str, is_ours: &dyn Fn(&str) -> bool| {
        fs::read_to_string(folder.join(name)).is_ok_and(|text| is_ours(text.trim()))
    };
    if has("host-id", &|id| Uuid::parse_str(id).is_ok()) || has("shards", &|text| text.starts_with("layout "))
    {
        return Ok(());
    }
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    // File systems have a folder of lost files.
    match names.filter(|name| !is_own(name) && name != "lost+found").min() {
        None => Ok(()),
        Some(name) => Err(format!(
            "the data folder {} has files of others ({name}), and no server has run in it: choose a new or empty \
             folder with --data-dir.",
            folder.display()
        )),
    }
}

/// Creates the folder of spill files of a server in front of a cluster, if it is missing, and locks
/// it until the result is dropped: as the lock of a data folder, which another server may have.
///
/// # Errors
/// One sentence with the remedy.
pub(crate) fn lock(folder: &Path) -> Result<fs::File, String> {
    let unusable = |error: &dyn std::fmt::Display| {
        format!("the folder {} cannot be used: {error} (--data-dir).", folder.display())
    };
    fs::create_dir_all(folder).map_err(|error| unusable(&error))?;
    check_owned(folder)?;
    let file = OpenOptions::new().create(true).append(true).open(folder.join("LOCK"));
    let file = file.map_err(|error| unusable(&error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(unusable(&"another server uses it")),
        Err(fs::TryLockError::Error(error)) => Err(unusable(&error)),
    }
}

/// Makes `folder`, and the files and folders that a server has created in it, private to their
/// user. Follows no links below it. Returns a warning that names the first entry whose permissions
/// cannot be changed.
pub(crate) fn make_private(folder: &Path) -> Option<String> {
    let data_folder = folder;
    // The data folder itself may be a link.
    let mut failed = set_mode(folder, FOLDER_MODE).err().map(|error| (folder.to_owned(), error));
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        // A folder that cannot be read is reported by the code that needs its files.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            // Others may have put a key or a note beside the server's files.
            if folder == data_folder && !is_own(&entry.file_name().to_string_lossy()) {
                continue;
            }
            let mode = match kind {
                kind if kind.is_dir() => FOLDER_MODE,
                kind if kind.is_file() => FILE_MODE,
                _ => continue,
            };
            if let Err(error) = set_mode(&entry.path(), mode) {
                failed.get_or_insert((entry.path(), error));
            }
            if kind.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    failed.map(|(path, error)| {
        format!(
            "other users of this machine may be able to read {} ({error}): chmod it to 0600, folders to 0700",
            path.display()
        )
    })
}

/// Sets permissions if they differ.
fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    let mut permissions = fs::metadata(path)?.permissions();
    if permissions.mode() & 0o7777 == mode {
        return Ok(());
    }
    permissions.set_mode(mode);
    fs::set_permissions(path, permissions)
}

/// Returns a warning for a private key that other users may read. The group of a file of root may
/// read it: distributions pass keys to services that way.
pub(crate) fn judge_key(key: &Path) -> Option<String> {
    let found = fs::metadata(key).ok()?;
    let is_open = |mode: u32, owner: u32| mode & 0o007 != 0 || (mode & 0o070 != 0 && owner != 0);
    is_open(found.permissions().mode(), found.uid()).then(|| {
        format!("other users of this machine may read the private key {}: chmod it to 0600", key.display())
    })
}

/// State of the data folder before the server opens it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Prepared {
    /// It can be written to.
    Writable,
    /// A server has run in it, and its disk is full. Reads need no space, and writes are refused
    /// until there is some.
    Full,
}

/// Returns true if the error ends once the disk has free space.
fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Creates the folder if it is missing, and tests that it can be written to. Touches no folder
/// with files of others in which no server has run.
///
/// # Errors
/// One sentence with the remedy. A full disk is no error if a server has run in the folder.
pub(crate) fn prepare(folder: &Path) -> Result<Prepared, String> {
    check_owned(folder)?;
    let refused = |error: std::io::Error| {
        let what = match error.kind() {
            _ if is_full(&error) => "free some space on its disk, or choose another",
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => "a file has that name: choose another",
            _ => "make it writable for this user, or choose another",
        };
        format!("the data folder {} cannot be used ({error}): {what} with --data-dir.", folder.display())
    };
    fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder).map_err(refused)?;
    let probe = folder.join(format!(".probe-{}", std::process::id()));
    let written = fs::write(&probe, b"a test of write access\n");
    let _ = fs::remove_file(&probe);
    match written {
        // The first start that succeeded wrote the id.
        Err(error) if is_full(&error) && has_run(folder) => Ok(Prepared::Full),
        written => written.map_err(refused).map(|()| Prepared::Writable),
    }
}

fn host_id_file(folder: &Path) -> PathBuf {
    folder.join("host-id")
}

/// Returns the id of this server, generated once for each data folder.
///
/// # Errors
/// One sentence: the file cannot be read or written, or has no id.
pub(crate) fn host_id(folder: &Path) -> Result<Uuid, String> {
    let path = host_id_file(folder);
    match fs::read_to_string(&path) {
        Ok(text) => Uuid::parse_str(text.trim()).map_err(|_| {
            format!("{} contains no id: remove it, and the server generates a new one.", path.display())
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let id = Uuid::new_v4();
            replace(&path, &format!("{id}\n"), FILE_MODE)?;
            Ok(id)
        }
        Err(error) => Err(format!("{} cannot be read: {error}.", path.display())),
    }
}

/// The first superuser's password.
pub(crate) enum Password {
    /// Specified by the operator.
    Given(String),
    /// Generated. A file with a temporary name has it until [`keep_password`].
    Generated(String),
    /// None was generated, because the full disk has no space for its file.
    Unwritten,
}

impl Password {
    /// Returns the password, if there is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Password::Given(text) | Password::Generated(text) => Some(text),
            Password::Unwritten => None,
        }
    }
}

fn password_file(folder: &Path) -> PathBuf {
    folder.join("admin-password")
}

fn candidate_file(folder: &Path) -> PathBuf {
    folder.join("admin-password.new")
}

/// Returns the password for a superuser that may have to be created. A generated password is
/// written to a file before it is used, so that no crash loses it. On a full disk with data there
/// is no password: the superuser exists, or the next start with free space creates it.
///
/// # Errors
/// One sentence: the file cannot be written.
pub(crate) fn password(folder: &Path, given: Option<String>, on: Prepared) -> Result<Password, String> {
    if let Some(given) = given {
        return Ok(Password::Given(given));
    }
    let path = candidate_file(folder);
    // A start that was interrupted may have used it.
    if let Ok(text) = fs::read_to_string(&path)
        && !text.trim().is_empty()
    {
        return Ok(Password::Generated(text.trim().to_string()));
    }
    // 122 random bits, in characters that no shell and no driver interprets.
    let text = Uuid::new_v4().simple().to_string();
    match replace_file(&path, &format!("{text}\n"), FILE_MODE) {
        Err(error) if is_full(&error) && on == Prepared::Full => Ok(Password::Unwritten),
        written => written.map_err(|error| unwritten(&path, &error)).map(|()| Password::Generated(text)),
    }
}

/// Renames the file of a generated password to its final name if the password is in use, and
/// removes it otherwise. Returns the final name.
///
/// # Errors
/// One sentence: the file cannot be renamed or removed.
pub(crate) fn keep_password(
    folder: &Path,
    password: &Password,
    in_use: bool,
) -> Result<Option<PathBuf>, String> {
    let Password::Generated(_) = password else { return Ok(None) };
    let (candidate, path) = (candidate_file(folder), password_file(folder));
    let done = if in_use { fs::rename(&candidate, &path) } else { fs::remove_file(&candidate) };
    done.map_err(|error| format!("{} cannot be moved or removed: {error}.", candidate.display()))?;
    Ok(in_use.then_some(path))
}

/// Removes the file of the generated password, which is no longer the administrator's. Returns it
/// if there was one.
///
/// # Errors
/// One sentence: it cannot be removed.
pub(crate) fn remove_password_file(folder: &Path) -> Result<Option<PathBuf>, String> {
    let path = password_file(folder);
    match fs::remove_file(&path) {
        Ok(()) => Ok(Some(path)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{} has an old password, and cannot be removed: {error}.", path.display())),
    }
}

/// Returns true if a server has run in the folder.
pub(crate) fn has_run(folder: &Path) -> bool {
    host_id_file(folder).exists()
}

/// Replaces a small file atomically: after a crash it has its old text or all of the new one.
///
/// # Errors
/// One sentence: the file cannot be written.
pub(crate) fn replace(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    replace_file(path, text, mode).map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be written: {error}.", path.display())
}

fn replace_file(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let temporary = path.with_extension("tmp");
    // A file of an interrupted call would keep its permissions.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    fs::rename(&temporary, path)?;
    fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use testkit::Folder;

    use super::*;

    fn prepared(name: &str) -> Folder {
        let folder = Folder::new(name);
        prepare(&folder).expect("a temporary folder");
        folder
    }

    #[test]
    fn host_id_is_generated_once() {
        let folder = prepared("id");
        let id = host_id(&folder).expect("made");
        assert_eq!(host_id(&folder), Ok(id));
        fs::write(folder.join("host-id"), "nonsense").expect("written");
        assert!(host_id(&folder).expect_err("refused").contains("remove it"));
    }

    #[test]
    fn generated_password_survives_a_crash_and_is_private() {
        let folder = prepared("password");
        let first = password(&folder, None, Prepared::Writable).expect("made");
        let second = password(&folder, None, Prepared::Writable).expect("found after a crash");
        assert_eq!(first.text(), second.text());
        let first = first.text().expect("generated");
        let path = keep_password(&folder, &second, true).expect("moved").expect("in use");
        assert_eq!(fs::read_to_string(&path).expect("there").trim(), first);
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        let unused = password(&folder, None, Prepared::Writable).expect("made");
        assert_ne!(unused.text(), Some(first));
        assert_eq!(keep_password(&folder, &unused, false), Ok(None));
        assert!(!candidate_file(&folder).exists());
        let given = password(&folder, Some("given".into()), Prepared::Writable).expect("given");
        assert_eq!(given.text(), Some("given"));
        assert!(!candidate_file(&folder).exists());
    }

    #[test]
    fn file_in_place_of_the_folder_is_refused() {
        let folder = prepared("file");
        let path = folder.join("a-file");
        fs::write(&path, "x").expect("written");
        assert!(prepare(&path).expect_err("refused").contains("choose another with --data-dir"));
    }

    #[test]
    fn permissions_of_other_users_are_removed() {
        let folder = prepared("private");
        let inner = folder.join("shard-0000");
        fs::create_dir_all(&inner).expect("made");
        let (file, outside) = (inner.join("a-file"), folder.with_extension("outside"));
        let certificate = folder.join("certificate.pem");
        for path in [&file, &outside, &certificate] {
            fs::write(path, "x").expect("written");
            set_mode(path, 0o644).expect("set");
        }
        std::os::unix::fs::symlink(&outside, folder.join("link")).expect("linked");
        for path in [folder.path(), &inner] {
            set_mode(path, 0o755).expect("set");
        }
        assert_eq!(make_private(&folder), None);
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!([mode(&folder), mode(&inner), mode(&file), mode(&outside)], [0o700, 0o700, 0o600, 0o644]);
        assert_eq!(mode(&certificate), 0o644, "a file of someone else");
        fs::remove_file(&outside).expect("removed");
    }

    /// A slip of the hand: `--data-dir /etc`.
    #[test]
    fn folder_of_others_is_refused_and_stays_as_it_is() {
        let folder = Folder::new("others");
        let inner = folder.join("ssl");
        fs::create_dir_all(&inner).expect("made");
        let file = inner.join("a-file");
        for path in [&file, &folder.join("hosts"), &folder.join("marks")] {
            fs::write(path, "x").expect("written");
            set_mode(path, 0o644).expect("set");
        }
        set_mode(&folder, 0o755).expect("set");
        let text = prepare(&folder).expect_err("refused");
        assert!(text.contains("has files of others (hosts)") && text.contains("--data-dir"), "{text}");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!([mode(&folder), mode(&file)], [0o755, 0o644]);
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 3);
    }

    #[test]
    fn folders_of_servers_are_accepted() {
        let folder = Folder::new("servers");
        let accepts = || prepare(&folder) == Ok(Prepared::Writable);
        fs::create_dir_all(folder.join("lost+found")).expect("made");
        assert!(accepts(), "the root of a file system");
        for name in ["LOCK", "shard-0003.2", "shards.1", "host-id.tmp", ".probe-77", "marks", "aside"] {
            fs::write(folder.join(name), "x").expect("written");
        }
        assert!(accepts(), "a first start was interrupted");
        fs::write(folder.join("notes"), "x").expect("written");
        assert!(!accepts());
        host_id(&folder).expect("made");
        assert!(accepts(), "a server has run here");
        fs::remove_file(folder.join("host-id")).expect("removed");
        fs::write(folder.join("shards"), "layout 2\nshards 1\n").expect("written");
        assert!(accepts(), "a snapshot");
    }

    #[test]
    fn key_readable_by_other_users_is_a_warning() {
        let folder = prepared("key");
        let key = folder.join("key.pem");
        fs::write(&key, "x").expect("written");
        set_mode(&key, 0o604).expect("set");
        assert!(judge_key(&key).expect("a warning").contains("chmod it to 0600"));
        set_mode(&key, 0o600).expect("set");
        assert_eq!(judge_key(&key), None);
    }
}
