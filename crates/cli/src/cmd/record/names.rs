//! Names of threads and processes. A thread that has ended before it could be asked stays without a name.

use std::fs;
use std::io;

use heddle_sys::processes;

use super::Output;

/// What `/proc` says of a thread.
struct Named {
    process: u32,
    name: String,
    /// As the kernel counts it: 120 is an ordinary thread.
    priority: Option<i32>,
}

/// Names all threads of the machine.
pub fn all(trace: &mut Output) -> io::Result<()> {
    for pid in processes::all() {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        trace.process(pid, name.trim_end())?;
        for thread in processes::threads(pid) {
            self::name(trace, thread.pid)?;
        }
    }
    Ok(())
}

/// Names a thread if it has no name yet.
pub fn name(trace: &mut Output, tid: u32) -> io::Result<()> {
    if tid == 0 || trace.is_named(tid) {
        return Ok(());
    }
    let Some(Named { process, name, priority }) = read(tid) else { return Ok(()) };
    trace.thread(process, tid, &name, priority)
}

fn read(tid: u32) -> Option<Named> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let process = field("Tgid:")?.trim().parse().ok()?;
    let name = fs::read_to_string(format!("/proc/{tid}/comm")).ok()?.trim_end().to_owned();
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    Some(Named { process, name, priority: priority(&stat) })
}

/// The 18th field of the file, which counts from 100 less than the kernel.
fn priority(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let priority: i32 = rest.split_whitespace().nth(15)?.parse().ok()?;
    Some(priority + 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_known_by_its_files() {
        let own = read(std::process::id()).unwrap();
        assert_eq!(own.process, std::process::id());
        assert!(!own.name.is_empty() && own.priority.is_some());
        assert_eq!(priority("1 (a) b) S 0 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 1"), Some(120));
    }
}
