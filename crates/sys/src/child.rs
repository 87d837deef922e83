//! CPU time of child processes.

use std::io;
use std::mem;
use std::time::Duration;

/// Returns the CPU time, user's and system's, that a child had with its threads and the children that it waited for;
/// `None` while it runs. The child must still be waited for: its number stays its own.
///
/// # Errors
/// The system's: `ECHILD` if there is no such child, or it was waited for.
pub fn time_if_ended(pid: u32) -> io::Result<Option<Duration>> {
    const OPTIONS: libc::c_int = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: all-zero is a valid value of each.
    let (mut info, mut usage): (libc::siginfo_t, libc::rusage) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    // SAFETY: both pointers are valid. The system call itself: the C library's function has no usage.
    let result = unsafe {
        libc::syscall(libc::SYS_waitid, libc::P_PID, pid, &raw mut info, OPTIONS, &raw mut usage)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid has filled it, or left it zero.
    let ended = unsafe { info.si_pid() } != 0;
    Ok(ended.then(|| duration(usage.ru_utime) + duration(usage.ru_stime)))
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec.unsigned_abs())
        + Duration::from_micros(time.tv_usec.unsigned_abs())
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::thread;

    fn time(pid: u32) -> Duration {
        loop {
            if let Some(time) = time_if_ended(pid).unwrap() {
                return time;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The loop runs in a child of the shell.
    #[test]
    fn the_time_of_a_child_is_known_when_it_ends_and_before_it_is_waited_for() {
        let count = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done";
        let mut child = Command::new("sh").args(["-c", &format!("({count}); :")]).spawn().unwrap();
        assert!(time(child.id()) > Duration::ZERO);
        assert!(time(child.id()) > Duration::ZERO, "it was not waited for");
        assert!(child.wait().unwrap().success());
        assert_eq!(time_if_ended(child.id()).unwrap_err().raw_os_error(), Some(libc::ECHILD));
    }

    #[test]
    fn a_child_that_runs_has_no_time_yet() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert_eq!(time_if_ended(child.id()).unwrap(), None);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
