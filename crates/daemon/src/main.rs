//! heddled: deploys steering policies for users who are not root, and keeps them within bounds. `docs/daemon/heddled.md` says
//! who may do what.
//!
//! - **I1** Off the data path: it handles no packet, and what it has deployed decides whether it runs or not.
//! - **I2** It keeps nothing that it could not find again: killed at any moment and started anew, it goes on.
//! - **I3** Bytes from strangers are taken apart by a process that has no rights ([`sandbox`]).
//! - **I4** Every user is bounded: connections, bytes and time of a request, attachments, executors, memory of maps, and
//!   the CPU time that his policies take.
//! - **I5** There is no `unsafe` in this crate.

#![forbid(unsafe_code)]

mod closing;
mod connection;
mod listen;
mod notify;
mod options;
mod peer;
mod permits;
mod reader;
mod sandbox;
mod serve;
mod watch;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let options = options::Options::parse();
    let result = if options.read_policy { sandbox::run() } else { serve::run(&options) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("heddled: {error:#}");
            ExitCode::FAILURE
        }
    }
}
