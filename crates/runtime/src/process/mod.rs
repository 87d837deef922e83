//! Child processes. The interface is `std::process`'s.
//!
//! A child's end is awaited through the poller, by a descriptor of the process (pidfd), and so are its piped
//! streams: neither takes a kernel thread, and [`crate::timeout`] limits both. Only the child itself is waited for:
//! the exit statuses of other children are left alone, and SIGCHLD is not used.
//!
//! ```
//! use heddle_rt::process::{Command, Stdio};
//! use std::io::{Read as _, Write as _};
//!
//! let output = Command::new("echo").arg("hello").output()?;
//! assert_eq!((output.status.success(), &output.stdout[..]), (true, &b"hello\n"[..]));
//!
//! let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
//! child.stdin.take().unwrap().write_all(b"to and fro")?; // and closes it
//! let mut text = String::new();
//! child.stdout.as_mut().unwrap().read_to_string(&mut text)?;
//! assert_eq!(text, "to and fro");
//! assert!(child.wait()?.success());
//! # Ok::<(), std::io::Error>(())
//! ```

mod child;
mod command;
mod streams;

pub use child::Child;
pub use command::Command;
pub use std::process::{ExitCode, ExitStatus, Output, Stdio, abort, exit, id};
pub use streams::{ChildStderr, ChildStdin, ChildStdout};
