//! An unmodified UDP server: another process with six sockets on one port, which knows nothing of Heddle.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use heddle_core::Ns;
use heddle_metrics::{Progress, Row};
use heddle_netns::Namespace;
use heddle_steer::hook::observe::Observed;

use super::{OutsideOptions, Subject, compare};
use crate::kv::ServerProcess;
use crate::steer::mixes::Case;
use crate::steer::sockets::bind;
use crate::steer::{Dilation, FLOWS, Flows, Group, Server, Sockets};
use heddle_load::{Arrivals, LoadRun, Op, Plan, drive};

/// The case in results.
pub const CASE: &str = "udp-unmodified";
/// The argument of `heddle bench steer --child` for this server; the dilation follows.
pub const UDP_SERVER: &str = "udp-server";

const WARMUP: Ns = Ns::from_ms(400);
const TIMEOUT: Ns = Ns::from_secs(2);

struct Unmodified<'a>(&'a OutsideOptions);

/// Measures.
///
/// # Errors
/// System errors.
pub fn udp(
    options: &OutsideOptions,
    stop: &AtomicBool,
    progress: &mut Progress,
) -> io::Result<Vec<Row>> {
    compare(&Unmodified(options), options, stop, progress)
}

impl Subject for Unmodified<'_> {
    const CASE: &'static str = CASE;
    const KIND: Observed = Observed::Datagrams;

    fn measure(
        &self,
        net: &Namespace,
        round: u32,
        stop: &AtomicBool,
        attach: &dyn Fn(u32, u16) -> io::Result<Option<Group>>,
    ) -> io::Result<LoadRun> {
        let options = self.0;
        let mut command = net.command(&options.program.to_string_lossy());
        command.args(["bench", "steer", "--child", UDP_SERVER, &options.dilation.0.to_string()]);
        let ready = |line: &str| line.strip_prefix("port ")?.parse().ok();
        let (server, port) = ServerProcess::start("the UDP server", command, stop, ready)
            .map_err(io::Error::other)?;
        let _group = attach(server.pid(), port)?;
        net.run(|| offer(options, port, round, stop))
    }
}

fn offer(
    options: &OutsideOptions,
    port: u16,
    round: u32,
    stop: &AtomicBool,
) -> io::Result<LoadRun> {
    let mix = Case::Rare.mix();
    let rate = options.dilation.capacity(&mix) / 2.0;
    let plan = Plan { warmup: WARMUP, end: WARMUP + options.duration, timeout: TIMEOUT };
    let arrivals = Arrivals::new(options.seed.wrapping_add(round.into()), rate, mix, FLOWS);
    let mut flows = Flows::connect(([127, 0, 0, 1], port).into())?;
    let mut clock = flows.clock();
    let go_on = |_: heddle_load::Moment<'_>| !stop.load(Ordering::Relaxed);
    drive(plan, rate, arrivals, (&mut clock, &mut flows), [None; Op::ALL.len()], go_on)
}

/// Runs `body` with the process and the port of such a server, which is loaded for `duration` as in the comparison.
///
/// # Errors
/// System errors.
pub fn under_load<R>(
    program: &std::path::Path,
    duration: Ns,
    stop: &AtomicBool,
    body: impl FnOnce(u32, u16) -> R,
) -> io::Result<R> {
    let dilation = Dilation::default();
    let options =
        OutsideOptions { rounds: 1, duration, seed: 1, dilation, program: program.into() };
    let mut command = std::process::Command::new(program);
    command.args(["bench", "steer", "--child", UDP_SERVER, &dilation.0.to_string()]);
    let ready = |line: &str| line.strip_prefix("port ")?.parse().ok();
    let started = ServerProcess::start("the UDP server", command, stop, ready);
    let (server, port) = started.map_err(io::Error::other)?;
    std::thread::scope(|scope| {
        let load = scope.spawn(|| offer(&options, port, 0, stop));
        let result = body(server.pid(), port);
        load.join().map_err(|_| io::Error::other("the load panicked"))??;
        Ok(result)
    })
}

/// Runs the server until standard input closes; prints `port N` once it listens.
///
/// # Errors
/// System errors.
pub fn serve_until_end(dilation: Dilation) -> io::Result<()> {
    let server = Server::start(bind(Sockets::Own)?, Sockets::Own, dilation, None)?;
    let mut out = io::stdout().lock();
    writeln!(out, "port {}", server.address().port())?;
    out.flush()?;
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}
