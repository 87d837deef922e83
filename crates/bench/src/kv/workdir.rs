//! The temporary directory of a runner, its dataset, and what killed runners have left.

use super::measured::KvError;
use super::options::StoreKind;
use heddle_store::load_dataset;
use std::fs;
use std::io;
use std::path::Path;
use tempfile::TempDir;

const PREFIX: &str = "heddle-kv-";

/// A directory named after this process, so that a later runner sees whether its owner still lives.
///
/// # Errors
/// Where the folder for temporary files cannot be written.
pub fn make() -> io::Result<TempDir> {
    make_in(&std::env::temp_dir(), PREFIX)
}

/// The same with the dataset of `store`: so many keys with values of so many bytes, where the store has files.
///
/// # Errors
/// Where the folder for temporary files cannot be written; the store's.
pub fn make_with_dataset(
    store: StoreKind,
    (keys, value_len): (u64, usize),
) -> Result<TempDir, KvError> {
    let data = make()?;
    if store == StoreKind::RocksDb {
        let store = store.config(data.path().to_owned()).open()?;
        load_dataset(&*store, keys, value_len, &mut |_| {})?;
    }
    Ok(data)
}

/// An empty one in another folder, with a prefix of its own.
///
/// # Errors
/// Where `parent` cannot be written.
pub fn make_in(parent: &Path, prefix: &str) -> io::Result<TempDir> {
    remove_orphans(parent, prefix, |pid| Path::new("/proc").join(pid.to_string()).exists());
    let prefix = format!("{prefix}{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir_in(parent)
}

/// Removes the directories of runners that were killed. What cannot be removed belongs to another user,
/// or is gone already; neither concerns this run.
fn remove_orphans(parent: &Path, prefix: &str, lives: impl Fn(u32) -> bool) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let owner = entry.file_name().to_str().and_then(|name| owner(name, prefix));
        if is_dir && owner.is_some_and(|pid| !lives(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The process that made the directory `name`; `None` for names that no runner gives with this prefix.
fn owner(name: &str, prefix: &str) -> Option<u32> {
    name.strip_prefix(prefix)?.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_orphans_go() {
        let parent = tempfile::tempdir().unwrap();
        let names = ["heddle-kv-7-abc", "heddle-kv-8-abc", "heddle-kv-x-abc", "other-7-abc"];
        for name in names {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        fs::write(parent.path().join("heddle-kv-7-file"), "").unwrap();
        remove_orphans(parent.path(), PREFIX, |pid| pid == 8);
        let left = |name: &str| parent.path().join(name).exists();
        assert_eq!(names.map(left), [false, true, true, true]);
        assert!(left("heddle-kv-7-file"), "a file is nobody's directory");
    }
}
