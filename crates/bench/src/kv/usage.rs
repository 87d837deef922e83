//! The CPU time of another process.

use heddle_core::Ns;
use std::fs;
use std::io;

/// The kernel's unit of time in `/proc`: 100 Hz for every program on x86-64 and arm64 (`USER_HZ`),
/// whatever the kernel's own tick is.
const TICK: Ns = Ns::from_ms(10);

/// The time that the process `pid` has run so far, in user and in kernel mode, all threads together.
///
/// # Errors
/// Where there is no such process.
pub fn cpu_time(pid: u32) -> io::Result<Ns> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse(&stat).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has another form")))
}

/// Fields 14 and 15. Field 2 is the program's name in parentheses and may itself hold blanks and
/// parentheses, so that counting starts behind the last one.
fn parse(stat: &str) -> Option<Ns> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(TICK * (user + system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_does_not_matter() {
        let stat = "77 (a) b (c) S 1 77 77 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 9 8 7";
        assert_eq!(parse(stat), Some(Ns::from_secs(3)));
        assert_eq!(parse("77 (cut"), None);
        assert_eq!(parse("77 (cut) S 1"), None);
    }

    #[test]
    fn this_process_has_run() {
        assert!(cpu_time(std::process::id()).is_ok());
        assert!(cpu_time(u32::MAX).is_err());
    }
}
