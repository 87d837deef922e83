//! One run: a fresh server, a policy, a load.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use heddle_bpf::MapView;
use heddle_core::Ns;
use heddle_steer::hook::observe::Observed;
use heddle_steer::tokens::{EPOCH, Refill, Refiller, Shares, USERS};

use super::options::{Case, MixOptions, Point};
use crate::steer::sockets::bind;
use crate::steer::{EXECUTORS, FLOWS, Flows, Group, Server, Sockets, System};
use heddle_load::{Arrivals, LoadRun, Mix, Op, Plan, drive};

/// Warm-up.
const WARMUP: Ns = Ns::from_ms(400);
/// Time after which a datagram counts as dropped: longer than a full receive buffer of GETs takes, shorter
/// than one of SCANs.
const TIMEOUT: Ns = Ns::from_secs(2);

/// Measures one point of round `round`; ends early if `stop` is set.
///
/// # Errors
/// System errors, and those of attaching the policy.
pub fn measure(
    options: &MixOptions,
    point: &Point,
    round: u32,
    stop: &AtomicBool,
) -> io::Result<LoadRun> {
    let running = start(options, &point.system, &point.case.mix())?;
    let _refiller = running.refill(options)?;
    offer(options, point, round, &running.server, stop)
}

/// A server and its policy.
struct Running {
    group: Option<Group>,
    server: Server,
}

/// Share of the capacity; the paper's 350 k/s are as far below its server's capacity.
const TOKENS: f64 = 0.85;
const LATENCY_SENSITIVE: u8 = 0;
const BEST_EFFORT: u8 = 1;

impl Running {
    /// Grants tokens to the latency-sensitive user, and the rest to the other, if the policy takes tokens.
    fn refill(&self, options: &MixOptions) -> io::Result<Option<Refiller>> {
        let users = self.group.as_ref().and_then(|group| group.maps().get(USERS));
        let Some(users) = users else { return Ok(None) };
        let rate = TOKENS * options.dilation.capacity(&Case::Gets.mix());
        let guaranteed = vec![(LATENCY_SENSITIVE, rate as u64)];
        let shares = Shares { guaranteed, best_effort: Some(BEST_EFFORT) };
        let refill = Refill::new(MapView::new(users)?, &shares).map_err(io::Error::other)?;
        Refiller::start(refill, EPOCH * u64::from(options.dilation.0)).map(Some)
    }
}

/// Threads that can serve SCANs at once: as many as their share of the work needs, never all.
fn most_scans(options: &MixOptions, mix: &Mix) -> u32 {
    let work = |op| mix.share(op) * options.dilation.service(op).as_secs_f64();
    let share = work(Op::Scan) / mix.ops().map(work).sum::<f64>();
    ((share * EXECUTORS as f64).ceil() as u32).clamp(1, EXECUTORS as u32 - 1)
}

/// Attaches the policy before the first datagram; it is detached with the server.
fn start(options: &MixOptions, system: &System, mix: &Mix) -> io::Result<Running> {
    let kind = match system {
        System::Shared => Sockets::Shared,
        System::Class => Sockets::Classes(most_scans(options, mix)),
        System::Hash | System::Policy(_) => Sockets::Own,
    };
    let sockets = bind(kind)?;
    let attach = |name| Group::attach(name, &sockets, Observed::Datagrams);
    let group = match system {
        System::Policy(name) => Some(attach(name)?),
        System::Class => Some(attach("class")?),
        System::Hash | System::Shared => None,
    };
    // JIQ is for unmodified servers, so the server publishes nothing.
    let says = group.as_ref().filter(|_| system.uses_executor_lines());
    let lines = says.map(Group::lines).transpose()?.flatten();
    let server = Server::start(sockets, kind, options.dilation, lines)?;
    Ok(Running { group, server })
}

fn offer(
    options: &MixOptions,
    point: &Point,
    round: u32,
    server: &Server,
    stop: &AtomicBool,
) -> io::Result<LoadRun> {
    let mix = point.case.mix();
    let rate = options.dilation.capacity(&mix) * point.fraction;
    let plan = Plan { warmup: WARMUP, end: WARMUP + options.duration, timeout: TIMEOUT };
    let arrivals = Arrivals::new(options.seed.wrapping_add(round.into()), rate, mix, FLOWS);
    let mut flows = Flows::connect(server.address())?;
    let mut clock = flows.clock();
    let unloaded = [None; Op::ALL.len()];
    drive(plan, rate, arrivals, (&mut clock, &mut flows), unloaded, |_| {
        !stop.load(Ordering::Relaxed)
    })
}
