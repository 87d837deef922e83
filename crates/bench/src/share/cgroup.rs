//! Two cgroups of processes, whose weights are as far apart as they go.

use heddle_sys::processes::cpu_hierarchy;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The file of the weight, the heavier one and the lighter one: in version 2 and in version 1, where 1024 is the usual.
const WEIGHTS: [(&str, &str, &str); 2] =
    [("cpu.weight", "10000", "1"), ("cpu.shares", "8192", "2")];

/// The cgroups of the two programs. They are removed when they are dropped; then their processes have ended.
#[derive(Debug)]
pub(super) struct Groups {
    folder: PathBuf,
}

impl Groups {
    /// Makes both.
    ///
    /// # Errors
    /// There is no hierarchy with weights, or it is not the caller's to change.
    pub(super) fn make() -> io::Result<Groups> {
        let root = cpu_hierarchy();
        let root = root
            .ok_or_else(|| io::Error::other("no cgroups with the `cpu` controller are mounted"))?;
        Groups::below(&root).map_err(|error| {
            io::Error::new(error.kind(), format!("no cgroup below {}: {error}", root.display()))
        })
    }

    fn below(root: &Path) -> io::Result<Groups> {
        // Several in one process, if only in tests.
        let folder = tempfile::Builder::new().prefix("heddle-bench-").tempdir_in(root)?;
        let groups = Groups { folder: folder.keep() };
        if fs::exists(groups.folder.join("cgroup.subtree_control"))? {
            fs::write(groups.folder.join("cgroup.subtree_control"), "+cpu")?;
        }
        for folder in [groups.critical(), groups.batch()] {
            fs::create_dir(&folder)?;
        }
        let (file, heavy, light) = groups.weights()?;
        fs::write(groups.critical().join(file), heavy)?;
        fs::write(groups.batch().join(file), light)?;
        Ok(groups)
    }

    fn weights(&self) -> io::Result<(&'static str, &'static str, &'static str)> {
        let here = |(file, ..): &(&str, &str, &str)| self.batch().join(file).exists();
        let found = WEIGHTS.into_iter().find(here);
        found.ok_or_else(|| io::Error::other("it has no weight"))
    }

    fn critical(&self) -> PathBuf {
        self.folder.join("lc")
    }

    fn batch(&self) -> PathBuf {
        self.folder.join("be")
    }

    /// Moves the process of the latency-critical program into its cgroup.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn take_critical(&self, pid: u32) -> io::Result<()> {
        fs::write(self.critical().join("cgroup.procs"), pid.to_string())
    }

    /// Moves the process of the batch program into its cgroup.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn take_batch(&self, pid: u32) -> io::Result<()> {
        fs::write(self.batch().join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for folder in [self.critical(), self.batch(), self.folder.clone()] {
            // Some may never have been made.
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_take_a_process_and_are_removed() {
        let groups = match Groups::make() {
            Ok(groups) => groups,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let taken = groups.take_critical(child.id()).and_then(|()| groups.take_batch(child.id()));
        let listed = fs::read_to_string(groups.batch().join("cgroup.procs")).unwrap();
        let (folder, pid) = (groups.folder.clone(), child.id().to_string());
        child.kill().unwrap();
        child.wait().unwrap();
        taken.unwrap();
        assert!(listed.lines().any(|line| line == pid), "{listed}");
        drop(groups);
        assert!(!folder.exists());
    }

    #[test]
    fn a_folder_that_is_no_hierarchy_has_no_weight_and_is_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let error = Groups::below(folder.path()).unwrap_err();
        assert_eq!(error.to_string(), "it has no weight");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
