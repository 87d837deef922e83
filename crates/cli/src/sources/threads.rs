//! Threads by `/proc`: what any user may read of their own processes.

use std::fs;

use heddle_sys::processes;

/// What a thread has used since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadUse {
    pub tid: u32,
    pub name: String,
    /// CPU time.
    pub cpu_ns: u64,
    /// Time in which it was runnable and did not run.
    pub delay_ns: u64,
    /// Times that it got a CPU.
    pub turns: u64,
    /// Times that it was taken off its CPU while it could run on.
    pub preempted: u64,
}

/// Returns the threads of a process that have not ended.
pub fn of(pid: u32) -> Vec<ThreadUse> {
    processes::threads(pid).into_iter().filter_map(|thread| read(pid, thread.pid)).collect()
}

fn read(pid: u32, tid: u32) -> Option<ThreadUse> {
    let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).ok();
    let [cpu_ns, delay_ns, turns] = schedstat(&file("schedstat")?)?;
    let preempted = file("status").and_then(|text| involuntary(&text)).unwrap_or(0);
    let name = file("comm").unwrap_or_default().trim_end().to_owned();
    Some(ThreadUse { tid, name, cpu_ns, delay_ns, turns, preempted })
}

/// `CPU DELAY TURNS`, times in nanoseconds.
fn schedstat(text: &str) -> Option<[u64; 3]> {
    let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
    numbers.ok()?.try_into().ok()
}

fn involuntary(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(schedstat("12 34 5\n"), Some([12, 34, 5]));
        assert_eq!(schedstat("12 34"), None);
        assert_eq!(involuntary("a:\t1\nnonvoluntary_ctxt_switches:\t77\n"), Some(77));
        let own = of(std::process::id());
        assert!(own.iter().any(|thread| thread.turns > 0), "{own:?}");
        assert_eq!(of(u32::MAX), []);
    }
}
