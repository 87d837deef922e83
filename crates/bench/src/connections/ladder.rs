//! One run: a server, and a client that opens more and more connections to it.

use super::client::Client;
use super::options::{ConnectionsOptions, FEW};
use super::part::Part;
use super::system::System;
use crate::kv::{ServerProcess, cpu_time};
use std::io;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Requests between two clock readings.
const BATCH: usize = 1_000;

/// The results of one level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub(super) connections: usize,
    /// Connections or answers per second.
    pub(super) rate: f64,
    /// The server's CPU time per item, in nanoseconds.
    pub(super) cpu_ns: f64,
}

/// Climbs all levels with one server.
pub(super) fn climb(
    options: &ConnectionsOptions,
    part: Part,
    system: System,
    stop: &AtomicBool,
) -> io::Result<Vec<Level>> {
    let most = options.most();
    let mut command = Command::new(&options.program);
    let words = [system.to_string(), most.to_string(), options.cpus.server[0].to_string()];
    command.args(["bench", "connections", "--serve"]).args(words);
    let port = |line: &str| line.strip_prefix("port ")?.parse().ok();
    let name = format!("the server on {system}");
    let (server, port) =
        ServerProcess::start(&name, command, stop, port).map_err(io::Error::other)?;
    let mut client = Client::new(port, stop)?;
    let levels = options.levels.iter().map(|&connections| {
        let (rate, cpu_ns) = level(options, part, &mut client, connections, server.pid())?;
        Ok(Level { connections, rate, cpu_ns })
    });
    let levels = levels.collect();
    // The server's descriptors close before their peers': closing these one by one takes as long as opening them.
    drop(server);
    levels
}

/// Measures with `connections` live.
fn level(
    options: &ConnectionsOptions,
    part: Part,
    client: &mut Client<'_>,
    connections: usize,
    server: u32,
) -> io::Result<(f64, f64)> {
    client.grow(connections)?;
    if part == Part::Accept {
        let (rate, cpu) = timed(server, || client.grow(connections + FEW).map(|()| FEW))?;
        return Ok((rate, cpu));
    }
    let step = if part == Part::Few { (connections / FEW).max(1) } else { 1 };
    // Warm-up: everything is touched once.
    client.echo(connections.div_ceil(step), step)?;
    timed(server, || {
        let begin = Instant::now();
        let mut count = 0;
        while begin.elapsed() < options.duration.into() {
            client.echo(BATCH, step)?;
            count += BATCH;
        }
        Ok(count)
    })
}

/// Items per second that `work` did, and the server's CPU time per item.
fn timed(server: u32, work: impl FnOnce() -> io::Result<usize>) -> io::Result<(f64, f64)> {
    let (begin, cpu) = (Instant::now(), cpu_time(server)?);
    let count = work()? as f64;
    let (time, cpu) = (begin.elapsed(), cpu_time(server)? - cpu);
    Ok((count / time.as_secs_f64(), cpu.0 as f64 / count))
}
