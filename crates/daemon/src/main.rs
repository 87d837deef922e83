//! heddled: deploys steering policies for users other than root, and enforces their limits.
//! `docs/daemon/heddled.md` describes the permissions.
//!
//! - **I1** Off the data path: it handles no packet, and what it has deployed decides whether or not it runs.
//! - **I2** It keeps nothing that it could not recover: killed at any moment and restarted, it continues.
//! - **I3** Untrusted bytes are parsed by a process without privileges ([`sandbox`]).
//! - **I4** Every user is bounded: connections, bytes and time of a request, attachments, executors, memory
//!   of maps, and the CPU time of policies.
//! - **I5** There is no `unsafe` in this crate.

#![forbid(unsafe_code)]

mod closing;
mod connection;
mod deployments;
mod listen;
mod notify;
mod options;
mod peer;
mod permits;
mod reader;
mod sandbox;
mod serve;
mod shares;
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
