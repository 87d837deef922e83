//! Messages on stderr from code that may neither take a lock nor allocate: signal handlers, and threads that all others
//! depend on.

use std::fmt::Arguments;
use std::io::Write;

/// Writes a line of at most a thousand bytes.
pub(crate) fn say(text: Arguments<'_>) {
    let mut line = [0u8; 1024];
    let most = line.len() - 1;
    let mut out = &mut line[..most];
    // Longer text is truncated.
    let _ = out.write_fmt(text);
    let end = most - out.len();
    line[end] = b'\n';
    // SAFETY: initialised bytes.
    unsafe { libc::write(2, line.as_ptr().cast(), end + 1) };
}
