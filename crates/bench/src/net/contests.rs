//! What is compared in each part.

use super::child::Load;
use super::compare::Contest;
use super::measured::Metric;
use super::system::{System, Waiting};
use super::testbed::{Losses, Setting};
use heddle_core::Ns;

/// Both ends are Heddle's, with lanes.
pub(super) const BOTH: &str = "xdp-both";

/// Requests in flight where the CPU time of a request is measured.
const IN_FLIGHT: u16 = 32;

const LATENCY: &[Metric] = &[Metric::P50, Metric::P99, Metric::Cpu];
const THROUGHPUT: &[Metric] = &[Metric::Rate, Metric::Cpu];
const GOODPUT: &[Metric] = &[Metric::Goodput, Metric::Cpu];

/// The three systems, with a client on the kernel's sockets that waits in the same way.
fn servers(waiting: Waiting, load: Load) -> Vec<(String, Setting)> {
    let setting = |system: System| {
        let client = (System::Plain, waiting);
        let setting = Setting {
            server: (system, waiting),
            client,
            load,
            rto_min: None,
            losses: Losses::default(),
            congestion_control: None,
        };
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
    let one = spin.settings[0].1;
    spin.settings.push((BOTH.to_owned(), Setting { server: lane, client: lane, ..one }));
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

/// One stream; `network` precedes the name.
pub(super) fn stream(network: &str, load: Load) -> Contest {
    let direction = if load == Load::Send { "to" } else { "from" };
    Contest {
        case: format!("{network}stream-{direction}-server"),
        settings: servers(Waiting::Sleep, load),
        metrics: &Metric::STREAM,
        ratios: against_both(GOODPUT),
    }
}

/// A share of the packets that is lost.
const LOST: f64 = 0.01;

/// Connections whose packets are lost.
const LOSSY: u16 = 50;

/// Streams and requests whose packets are lost both ways, then requests whose answers alone are lost, with a short
/// timeout at the server. What is lost on its way to the server is lost in the client's kernel, which may notice.
pub(super) fn loss() -> Vec<Contest> {
    let both = Losses { to_client: LOST, to_server: LOST };
    let mut contests = vec![
        with(stream("loss-", Load::Send), both, None),
        with(stream("loss-", Load::Receive), both, None),
    ];
    let requests = |case: &str| Contest {
        case: case.to_owned(),
        ratios: against_both(&[Metric::P50, Metric::P99, Metric::P999, Metric::Rate]),
        ..tcp(LOSSY)
    };
    contests.push(alike(contests[1].settings.clone()));
    contests.push(with(requests("loss-tcp"), both, None));
    let answers = Losses { to_client: LOST, to_server: 0.0 };
    contests.push(with(requests("loss-tcp-rto-5ms"), answers, Some(Ns::from_ms(5))));
    contests
}

/// A stream from the server by a congestion control that takes losses for signs of congestion.
fn alike(mut settings: Vec<(String, Setting)>) -> Contest {
    settings.iter_mut().for_each(|(_, setting)| setting.congestion_control = Some(ALIKE));
    Contest { settings, ..stream(&format!("loss-{ALIKE}-"), Load::Receive) }
}

/// The congestion control of the kernel and of lanes where the names of cases say so.
const ALIKE: &str = "cubic";

fn with(mut contest: Contest, losses: Losses, rto_min: Option<Ns>) -> Contest {
    for (_, setting) in &mut contest.settings {
        (setting.losses, setting.rto_min) = (losses, rto_min);
    }
    contest
}
