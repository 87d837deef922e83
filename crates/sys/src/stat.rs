//! `/proc/PID/stat`: the state of a process or thread, from one read.

use std::fs;
use std::io;

/// The kernel's mark of a task that is exiting (`PF_EXITING` in its `sched.h`).
const EXITING: u32 = 0x4;

/// The state of a process or thread at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its state, as `ps -o s` shows it: `R` running or runnable, `S` and `D` asleep, `T` stopped, `Z` a zombie.
    pub state: char,
    /// Its parent's id; 0 if that is outside this process's namespace.
    pub parent: u32,
    /// When it started, in kernel ticks since boot.
    pub began: u64,
    flags: u32,
}

impl Stat {
    /// Returns the state of the process or thread with this id; `None` if there is none.
    ///
    /// # Errors
    /// The file cannot be read for another reason, or is malformed.
    pub fn read(pid: u32) -> io::Result<Option<Stat>> {
        match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(text) => Stat::parse(&text).map(Some).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("/proc/{pid}/stat says `{text}`"),
                )
            }),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`Stat::read`]; `None` also if the file cannot be read.
    #[must_use]
    pub fn of(pid: u32) -> Option<Stat> {
        Stat::read(pid).ok().flatten()
    }

    /// Whether it has ended and was not waited for.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Whether it is exiting or has ended.
    #[must_use]
    pub fn is_exiting(&self) -> bool {
        self.flags & EXITING != 0 || self.has_ended()
    }

    /// By proc(5): `PID (NAME) STATE PPID ... FLAGS ... STARTTIME ...`. The name may contain anything, parentheses too.
    fn parse(text: &str) -> Option<Stat> {
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |at: usize| fields.get(at).copied();
        Some(Stat {
            state: field(0)?.chars().next()?,
            parent: field(1)?.parse().ok()?,
            flags: field(6)?.parse().ok()?,
            began: field(19)?.parse().ok()?,
        })
    }
}

/// The process had ended before the file was opened, or before it was read.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_name_may_contain_anything() {
        let text = "7 (a) R 1) (b)) S 3 7 7 0 -1 4194308 0 0 0 0 0 0 0 0 20 0 1 0 99 0 0\n";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.state, stat.parent, stat.began), ('S', 3, 99));
        assert!(stat.is_exiting() && !stat.has_ended());
        for malformed in ["", "7 (a) S", "7 (a) S 1 7 7 0 -1 0", "7 a S 1"] {
            assert_eq!(Stat::parse(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn a_zombie_has_ended_and_a_collected_process_is_none() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(90);
        while !Stat::of(pid).unwrap().has_ended() {
            assert!(std::time::Instant::now() < end, "the child never ends");
            std::thread::yield_now();
        }
        let stat = Stat::of(pid).unwrap();
        assert!(stat.is_exiting() && stat.parent == std::process::id());
        child.wait().unwrap();
        assert_eq!(Stat::read(pid).unwrap(), None);
    }
}
