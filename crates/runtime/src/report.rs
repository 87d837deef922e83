//! Messages on stderr from where neither a lock may be taken nor memory allocated: signal handlers, and threads that
//! everybody waits for.

use std::fmt::Arguments;
use std::io::Write;

/// Writes a line, of a thousand bytes at most.
pub(crate) fn say(text: Arguments<'_>) {
    let mut line = [0u8; 1024];
    let most = line.len() - 1;
    let mut out = &mut line[..most];
    // What is too long is cut.
    let _ = out.write_fmt(text);
    let end = most - out.len();
    line[end] = b'\n';
    // SAFETY: initialised bytes.
    unsafe { libc::write(2, line.as_ptr().cast(), end + 1) };
}
