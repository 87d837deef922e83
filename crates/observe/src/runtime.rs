//! The runtime that runs a service's tasks, if the kernel's threads are not all there is.

use std::fs;

use heddle_sys::cpu_list;
use heddle_telemetry::Reader;
use object::{Object as _, ObjectSection as _, ReadCache};
use serde::{Deserialize, Serialize};

/// A runtime: its workers run the tasks of a process as a policy says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Runtime {
    /// Whose.
    pub kind: RuntimeKind,
    /// Its policy, as `heddle policies` names it.
    pub policy: String,
    /// Tasks that it can run at a time: its workers, of which those that block in the kernel are replaced.
    pub workers: usize,
}

/// Whose runtime it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuntimeKind {
    /// Heddle's.
    #[default]
    Heddle,
    /// Go's own.
    Go,
    /// Go's with Heddle's scheduler (`heddle go build`).
    HeddleGo,
}

/// What Go's scheduler does with goroutines that compute: `forcePreemptNS` of `runtime/proc.go`.
const OF_GO: &str = "round-robin:quantum=10ms";
/// The build tag of `heddle go build`, as it stands in the program.
const TAG: &[u8] = b"build\t-tags=heddle";

impl Runtime {
    /// What Heddle's scheduler in Go programs does by default (`docs/go`).
    pub const OF_HEDDLE_GO: &str = "two-queue:quantum=100us";
}

/// Returns the runtime of a process, Heddle's if its pages show one or else Go's, and the policy of the event queue
/// that its pages show.
pub(crate) fn of(process: u32) -> (Option<Runtime>, Option<String>) {
    let pages = heddle_telemetry::find(process).unwrap_or_default();
    let runtime = heddles(process, &pages).or_else(|| go(process));
    (runtime, pages.iter().find_map(|page| policy(page, "events")))
}

fn heddles(process: u32, pages: &[Reader]) -> Option<Runtime> {
    pages.iter().find_map(|page| {
        let policy = policy(page, "runtime")?;
        let counters = page.counters();
        let ever = counters.iter().find(|one| one.name == "heddle_runtime_workers")?.value;
        let workers = (ever as usize).clamp(1, allowed_cpus(process));
        Some(Runtime { kind: RuntimeKind::Heddle, policy, workers })
    })
}

/// Returns the policy that a page names, if it is one of `layer`.
fn policy(page: &Reader, layer: &str) -> Option<String> {
    page.label("policy").filter(|_| page.label("layer").as_deref() == Some(layer))
}

/// Reads the section that Go writes into programs, and not the rest of them.
fn go(process: u32) -> Option<Runtime> {
    let program = ReadCache::new(fs::File::open(format!("/proc/{process}/exe")).ok()?);
    let file = object::File::parse(&program).ok()?;
    let built = file.section_by_name(".go.buildinfo")?.uncompressed_data().ok()?;
    let (kind, policy) = match built.windows(TAG.len()).any(|bytes| bytes == TAG) {
        true => (RuntimeKind::HeddleGo, Runtime::OF_HEDDLE_GO),
        false => (RuntimeKind::Go, OF_GO),
    };
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    let workers = max_procs(&environment).unwrap_or_else(|| allowed_cpus(process));
    Some(Runtime { kind, policy: policy.into(), workers })
}

/// Returns `GOMAXPROCS` of an environment as in `/proc/PID/environ`.
fn max_procs(environment: &[u8]) -> Option<usize> {
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|one| one.strip_prefix(b"GOMAXPROCS="))?;
    std::str::from_utf8(value).ok()?.parse().ok().filter(|&count| count > 0)
}

/// Returns how many CPUs the first thread of a process may use.
fn allowed_cpus(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(|list| cpu_list::parse(list).ok()).map_or(1, |cpus| cpus.len()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_known_by_its_page() {
        let own = std::process::id();
        assert_eq!(of(own), (None, None));
        let layout = heddle_telemetry::Layout {
            labels: "layer=runtime,policy=fifo,runtime=shop",
            counters: &[("heddle_runtime_workers", "")],
            ..Default::default()
        };
        let page = heddle_telemetry::Page::create(&layout).unwrap();
        page.counter(0).add(1);
        let wanted = Runtime { kind: RuntimeKind::Heddle, policy: "fifo".into(), workers: 1 };
        assert_eq!(of(own), (Some(wanted.clone()), None));
        let layout = heddle_telemetry::Layout { labels: "layer=events,policy=hybrid", ..layout };
        let _queue = heddle_telemetry::Page::create(&layout).unwrap();
        assert_eq!(of(own), (Some(wanted), Some("hybrid".into())));
    }

    #[test]
    fn processors_of_a_go_program_are_its_own_choice_or_the_cpus() {
        assert_eq!(max_procs(b"A=1\0GOMAXPROCS=3\0B=2\0"), Some(3));
        assert_eq!(max_procs(b"GOMAXPROCS=0\0"), None);
        assert_eq!(max_procs(b"NOGOMAXPROCS=3\0"), None);
        assert!(allowed_cpus(std::process::id()) >= 1);
        assert_eq!(allowed_cpus(u32::MAX >> 2), 1);
    }
}
