//! Applying a change, and undoing it.

use std::fs;

use anyhow::{Context as _, bail, ensure};
use heddle_advise::Change;
use rustix::process::{Pid, getpriority_process, setpriority_process};
use serde::{Deserialize, Serialize};

use crate::cmd::steer::port;

/// A change, and what is needed to undo it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Applicable {
    change: Change,
    /// The nice value of each thread, before.
    nice: Vec<(u32, i32)>,
}

impl Applicable {
    /// Looks at the present, so that it can be restored.
    ///
    /// # Errors
    /// If the change is not one that a command can make, or something like it is in effect already.
    pub fn new(change: &Change) -> anyhow::Result<Applicable> {
        let nice = match change {
            Change::Steer { protocol, port, .. } => {
                let steering = port::open()?;
                if let Some(one) = port::at(&steering, *port, *protocol)?.first() {
                    bail!(
                        "attachment {} (policy {}) steers this port already: detach it first (heddle steer detach {})",
                        one.id,
                        one.policy,
                        one.id
                    );
                }
                vec![]
            }
            Change::Nice { process, .. } => nice_values(*process)?,
            Change::Weight { file, .. } => {
                check_file(file)?;
                vec![]
            }
            Change::Nothing => bail!("nothing was advised, so there is nothing to check"),
            Change::Workers { .. } | Change::SharedSocket | Change::RuntimePolicy { .. } => bail!(
                "`{change}` is an option of the service itself, which must be restarted with it: watch it before and \
                 after (heddle advise --save), and compare"
            ),
            Change::HeddleGo | Change::EventQueue => bail!(
                "`{change}` makes another program of the service: watch it before and after (heddle advise --save), \
                 and compare"
            ),
        };
        Ok(Applicable { change: change.clone(), nice })
    }

    /// Whether it is in effect, and nothing else is.
    pub fn is_on(&self) -> anyhow::Result<bool> {
        Ok(match &self.change {
            Change::Steer { policy, protocol, port } => {
                let attached = port::at(&port::open()?, *port, *protocol)?;
                let name = policy.split(':').next();
                attached.len() == 1 && attached.iter().all(|one| Some(one.policy.as_str()) == name)
            }
            Change::Nice { process, to, .. } => {
                nice_values(*process)?.iter().all(|(_, nice)| nice == to)
            }
            Change::Weight { file, to, .. } => {
                check_file(file)?;
                fs::read_to_string(file)
                    .is_ok_and(|text| text.trim().trim_start_matches("/").ends_with(to.as_str()))
            }
            _ => false,
        })
    }

    /// Applies or undoes it. Doing either twice is no error.
    pub fn set(&self, on: bool) -> anyhow::Result<()> {
        match (&self.change, on) {
            (Change::Steer { policy, protocol, port }, true) => {
                let steering = port::open()?;
                if port::at(&steering, *port, *protocol)?.is_empty() {
                    port::attach(&steering, *port, *protocol, policy)?;
                }
                Ok(())
            }
            (Change::Steer { protocol, port, .. }, false) => {
                let steering = port::open()?;
                let attached = port::at(&steering, *port, *protocol)?;
                attached.iter().try_for_each(|one| port::detach(&steering, one))
            }
            (Change::Nice { process, to, .. }, true) => {
                let threads = nice_values(*process)?;
                threads.into_iter().try_for_each(|(thread, _)| set_nice(thread, *to))
            }
            (Change::Nice { .. }, false) => {
                self.nice.iter().try_for_each(|&(thread, nice)| set_nice(thread, nice))
            }
            (Change::Weight { file, from, to, .. }, on) => {
                check_file(file)?;
                let value = if on { to } else { from };
                fs::write(file, value).with_context(|| format!("cannot write {value} to {file}"))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses a file that holds no weight: the advice comes from a file, which others may have written.
fn check_file(file: &str) -> anyhow::Result<()> {
    let parts: Vec<&str> = file.split('/').collect();
    let holds_a_weight = match parts[..] {
        ["", "proc", process, "autogroup"] => process.parse::<u32>().is_ok(),
        ["", "sys", "fs", "cgroup", .., "cpu.weight" | "cpu.shares"] => !parts.contains(&".."),
        _ => false,
    };
    ensure!(holds_a_weight, "{file:?} does not hold the weight of a group of threads");
    Ok(())
}

/// Returns the nice values of the threads of `process`.
fn nice_values(process: u32) -> anyhow::Result<Vec<(u32, i32)>> {
    let folder = format!("/proc/{process}/task");
    let entries =
        fs::read_dir(&folder).with_context(|| format!("process {process} is gone ({folder})"))?;
    let threads =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // A thread that has ended meanwhile has no value.
    let values: Vec<(u32, i32)> = threads
        .filter_map(|thread| Some((thread, getpriority_process(Some(pid(thread)?)).ok()?)))
        .collect();
    ensure!(!values.is_empty(), "process {process} is gone");
    Ok(values)
}

fn set_nice(thread: u32, nice: i32) -> anyhow::Result<()> {
    let Some(id) = pid(thread) else { return Ok(()) };
    match setpriority_process(Some(id), nice) {
        // It has ended.
        Err(rustix::io::Errno::SRCH) => Ok(()),
        result => {
            result.with_context(|| format!("thread {thread} cannot have the nice value {nice}"))
        }
    }
}

fn pid(thread: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(thread).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_weights_are_written() {
        for file in [
            "/proc/12/autogroup",
            "/sys/fs/cgroup/a.slice/b.service/cpu.weight",
            "/sys/fs/cgroup/cpu/x/cpu.shares",
        ] {
            assert!(check_file(file).is_ok(), "{file}");
        }
        for file in [
            "/etc/passwd",
            "/proc/self/autogroup",
            "/sys/fs/cgroup/../../../etc/cpu.weight",
            "cpu.weight",
            "/proc/1/mem",
        ] {
            assert!(check_file(file).is_err(), "{file}");
        }
    }
}
