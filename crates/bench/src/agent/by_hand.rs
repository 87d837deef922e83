//! What an operator does to prefer services over batch work, without Heddle.

use super::system::System;
use heddle_sys::processes;
use std::path::PathBuf;
use std::{fs, io};

/// A method, and what it needs.
pub(super) enum ByHand {
    /// Command prefixes for the service and for batch work.
    Wrappers(&'static [&'static str], &'static [&'static str]),
    /// A cgroup for services and one for batch work.
    Cgroups(Cgroup, Cgroup),
}

/// The nice value of the session, then the program.
const AUTOGROUP_HIGH: &[&str] = &["sh", "-c", "echo -20 >/proc/self/autogroup; exec \"$@\"", "sh"];
const AUTOGROUP_LOW: &[&str] = &["sh", "-c", "echo 19 >/proc/self/autogroup; exec \"$@\"", "sh"];
/// With a kernel-enforced limit on the time of a spinning thread.
const FIFO: &[&str] = &["prlimit", "--rttime=60000000", "chrt", "-f", "1"];

impl ByHand {
    /// The method of `system`.
    ///
    /// # Errors
    /// What it needs is missing.
    pub fn new(system: &System) -> io::Result<ByHand> {
        Ok(match system {
            System::Nice => ByHand::Wrappers(&[], &["nice", "-n", "19"]),
            System::Idle => ByHand::Wrappers(&[], &["chrt", "-i", "0"]),
            System::Fifo => ByHand::Wrappers(FIFO, &[]),
            System::Autogroup => ByHand::Wrappers(AUTOGROUP_HIGH, AUTOGROUP_LOW),
            System::Cgroup => {
                ByHand::Cgroups(Cgroup::make("lc", true)?, Cgroup::make("be", false)?)
            }
            _ => ByHand::Wrappers(&[], &[]),
        })
    }

    /// `program` with its prefix.
    pub fn command(&self, program: &[String], is_service: bool) -> Vec<String> {
        let mut all: Vec<String> = match self {
            ByHand::Wrappers(service, batch) => {
                let words = if is_service { service } else { batch };
                words.iter().map(ToString::to_string).collect()
            }
            ByHand::Cgroups(service, batch) => {
                let group = if is_service { service } else { batch };
                let file = group.0.join("cgroup.procs");
                let script = format!("echo $$ >{}; exec \"$@\"", file.display());
                vec!["sh".into(), "-c".into(), script, "sh".into()]
            }
        };
        all.extend_from_slice(program);
        all
    }
}

/// A cgroup of this bench. Removed when dropped, after its processes have ended.
pub(super) struct Cgroup(PathBuf);

impl Cgroup {
    fn make(name: &str, is_high: bool) -> io::Result<Cgroup> {
        let missing = "no cgroup hierarchy here shares CPU time (its root needs cpu in cgroup.subtree_control)";
        let root = processes::cpu_hierarchy().ok_or_else(|| io::Error::other(missing))?;
        let group = Cgroup(root.join(format!("heddle-bench-{}-{name}", std::process::id())));
        fs::create_dir(&group.0)?;
        let weights = if is_high { ("10000", "262144") } else { ("1", "2") };
        let (file, weight) = match group.0.join("cpu.weight").exists() {
            true => ("cpu.weight", weights.0),
            false => ("cpu.shares", weights.1),
        };
        fs::write(group.0.join(file), weight)?;
        Ok(group)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that has just ended leaves it in a moment.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_what_an_operator_types() {
        let of = |system, is_service| {
            ByHand::new(&system).unwrap().command(&["server".to_owned()], is_service).join(" ")
        };
        assert_eq!(of(System::Fifo, true), "prlimit --rttime=60000000 chrt -f 1 server");
        assert_eq!(of(System::Fifo, false), "server");
        assert_eq!(of(System::Nice, false), "nice -n 19 server");
        assert!(of(System::Autogroup, true).contains("echo -20"));
        assert_eq!(of(System::Default, true), "server");
    }
}
