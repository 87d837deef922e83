//! What is compared in each part.

use super::child::Load;
use super::compare::Contest;
use super::measured::Metric;
use super::system::{System, Waiting};
use super::testbed::Setting;
use heddle_core::Ns;

/// Both ends are Heddle's, with lanes.
pub(super) const BOTH: &str = "xdp-both";

/// Requests in flight where the CPU time of a request is measured.
const IN_FLIGHT: u16 = 32;

const LATENCY: &[Metric] = &[Metric::P50, Metric::P99, Metric::Cpu];
const THROUGHPUT: &[Metric] = &[Metric::Rate, Metric::Cpu];
const TAIL: &[Metric] = &[Metric::P50, Metric::P999, Metric::Rate];
const GOODPUT: &[Metric] = &[Metric::Goodput, Metric::Cpu];

/// The three systems, with a client on the kernel's sockets that waits in the same way.
fn servers(waiting: Waiting, load: Load) -> Vec<(String, Setting)> {
    let setting = |system: System| {
        let client = (System::Plain, waiting);
        let setting = Setting { server: (system, waiting), client, load, rto_min: None };
        (system.name().to_owned(), setting)
    };
    System::ALL.map(setting).into()
}

/// Compares lanes with a plain program and with the runtime on the kernel's sockets.
fn against_both(
    metrics: &'static [Metric],
) -> Vec<(&'static str, &'static str, &'static [Metric])> {
    vec![("xdp", "plain", metrics), ("xdp", "kernel", metrics)]
}

/// Datagrams, there and back.
pub(super) fn udp() -> Vec<Contest> {
    let contest = |case: &str, waiting, in_flight| Contest {
        case: case.to_owned(),
        settings: servers(waiting, Load::Udp { in_flight }),
        metrics: &Metric::REQUESTS,
        ratios: against_both(LATENCY),
    };
    let mut spin = contest("udp-spin", Waiting::Spin, 1);
    let lane = (System::Xdp, Waiting::Spin);
    let load = Load::Udp { in_flight: 1 };
    let both = Setting { server: lane, client: lane, load, rto_min: None };
    spin.settings.push((BOTH.to_owned(), both));
    spin.ratios.push((BOTH, "plain", LATENCY));
    let sleep = contest("udp-sleep", Waiting::Sleep, 1);
    let many = contest("udp-32", Waiting::Sleep, IN_FLIGHT);
    vec![spin, sleep, Contest { ratios: against_both(THROUGHPUT), ..many }]
}

/// Requests on `connections`.
pub(super) fn tcp(connections: u16) -> Contest {
    Contest {
        case: format!("tcp-{connections}"),
        settings: servers(Waiting::Sleep, Load::Tcp { connections }),
        metrics: &Metric::REQUESTS,
        ratios: against_both(&[Metric::P50, Metric::P99, Metric::Rate, Metric::Cpu]),
    }
}

/// One stream; `suffix` says on what network.
pub(super) fn stream(load: Load, suffix: &str) -> Contest {
    let direction = if load == Load::Send { "to" } else { "from" };
    Contest {
        case: format!("stream-{direction}-server{suffix}"),
        settings: servers(Waiting::Sleep, load),
        metrics: &Metric::STREAM,
        ratios: against_both(GOODPUT),
    }
}

/// Connections whose packets are lost.
pub(super) fn lossy(case: &str, connections: u16, rto_min: Option<Ns>) -> Contest {
    let mut settings = servers(Waiting::Sleep, Load::Tcp { connections });
    settings.iter_mut().for_each(|(_, setting)| setting.rto_min = rto_min);
    let ratios = against_both(TAIL);
    Contest { case: case.to_owned(), settings, metrics: &Metric::REQUESTS, ratios }
}
