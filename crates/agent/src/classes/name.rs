//! Names of threads.

use std::fs::File;
use std::io::Read as _;

/// How many bytes of a thread's name the kernel keeps.
pub const BYTES: usize = 15;

/// Returns the name of thread `tid`; none if it is gone or hidden from the caller. Three system calls: about five
/// microseconds.
#[must_use]
pub fn of_thread(tid: u32) -> Option<String> {
    // The kernel returns the whole name at once, and never more than it keeps plus a line end.
    let mut bytes = [0; BYTES + 1];
    let read = File::open(format!("/proc/{tid}/comm")).ok()?.read(&mut bytes).ok()?;
    let name = bytes[..read].strip_suffix(b"\n").unwrap_or(&bytes[..read]);
    Some(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_name_that_it_was_given() {
        let named = |name: &str| {
            let thread = std::thread::Builder::new().name(name.into());
            let tid = || rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            thread.spawn(move || of_thread(tid())).expect("a thread").join().expect("it ends")
        };
        assert_eq!(named("serve-3").as_deref(), Some("serve-3"));
        assert_eq!(named("exactly-15-long").as_deref(), Some("exactly-15-long"));
    }

    #[test]
    fn a_missing_thread_has_no_name() {
        assert_eq!(of_thread(u32::MAX), None);
    }
}
