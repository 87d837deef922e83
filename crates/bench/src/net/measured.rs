//! What a client measures, and the figures in it.

use super::system::System;
use super::usage::Usage;
use crate::posix::rounds::busy_others;
use heddle_metrics::{Better, Histogram};
use serde::{Deserialize, Serialize};

/// The result of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Length of the measurement, in nanoseconds.
    pub(super) time_ns: u64,
    /// Answers; 0 of a stream.
    pub(super) answers: u64,
    /// Bytes of a stream.
    pub(super) bytes: u64,
    /// Requests without an answer.
    pub(super) lost: u64,
    /// Response times in nanoseconds.
    pub(super) p50_ns: u64,
    /// See `p50_ns`.
    pub(super) p99_ns: u64,
    /// See `p50_ns`.
    pub(super) p999_ns: u64,
    /// CPU time of the measurement.
    pub(super) usage: Usage,
    /// CPU time of others, as a share of one CPU.
    pub(super) others: f64,
    /// Packets that the kernel's stack received at the server's end. The runner fills it in.
    #[serde(default)]
    pub(super) by_kernel: u64,
}

/// Bytes of a stream in a packet, about.
const SEGMENT: u64 = 1448;
/// Share of the packets that may go to the kernel although lanes serve: the first ones, at most.
const MOST_BY_KERNEL: f64 = 0.01;

impl Measured {
    pub(super) fn with_latency(self, latency: &Histogram) -> Measured {
        let [p50_ns, p99_ns, p999_ns] = [latency.p50(), latency.p99(), latency.p999()].map(|t| t.0);
        Measured { answers: latency.count(), p50_ns, p99_ns, p999_ns, ..self }
    }

    /// Returns why it must not be quoted of a server on `system`.
    pub(super) fn invalid(&self, system: System) -> Option<String> {
        let packets = (self.answers + self.bytes / SEGMENT) as f64;
        let share = self.by_kernel as f64 / packets.max(1.0);
        if system == System::Xdp && share > MOST_BY_KERNEL {
            return Some(format!("the kernel received {} packets", self.by_kernel));
        }
        busy_others(self.others)
    }
}

/// A quantity that is read off [`Measured`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    P50,
    P99,
    P999,
    Rate,
    /// CPU time of both ends for each request, or each KiB of a stream.
    Cpu,
    ServerCpu,
    ClientCpu,
    /// Share of one CPU in softirqs, on the whole machine.
    Softirq,
    Goodput,
    Lost,
}

impl Metric {
    /// Those of requests.
    pub(super) const REQUESTS: [Metric; 9] = [
        Metric::P50,
        Metric::P99,
        Metric::P999,
        Metric::Rate,
        Metric::Cpu,
        Metric::ServerCpu,
        Metric::ClientCpu,
        Metric::Softirq,
        Metric::Lost,
    ];
    /// Those of streams.
    pub(super) const STREAM: [Metric; 5] =
        [Metric::Goodput, Metric::Cpu, Metric::ServerCpu, Metric::ClientCpu, Metric::Softirq];

    /// Its name and unit in results.
    pub(super) fn name(self) -> (&'static str, &'static str) {
        match self {
            Metric::P50 => ("p50", "ns"),
            Metric::P99 => ("p99", "ns"),
            Metric::P999 => ("p99.9", "ns"),
            Metric::Rate => ("rate", "1/s"),
            Metric::Cpu => ("cpu", "ns"),
            Metric::ServerCpu => ("server_cpu", "ns"),
            Metric::ClientCpu => ("client_cpu", "ns"),
            Metric::Softirq => ("softirq", "%"),
            Metric::Goodput => ("goodput", "Mbit/s"),
            Metric::Lost => ("lost", ""),
        }
    }

    pub(super) fn better(self) -> Better {
        match self {
            Metric::Rate | Metric::Goodput => Better::Higher,
            _ => Better::Lower,
        }
    }

    /// Its value. Where `softirqs_apart`, their time is added to the CPU time of both ends.
    pub(super) fn of(self, measured: &Measured, softirqs_apart: bool) -> f64 {
        let seconds = measured.time_ns as f64 / 1e9;
        let items = match measured.answers {
            0 => measured.bytes as f64 / 1024.0,
            answers => answers as f64,
        };
        let each = |time: u64| time as f64 / items;
        let usage = &measured.usage;
        match self {
            Metric::P50 => measured.p50_ns as f64,
            Metric::P99 => measured.p99_ns as f64,
            Metric::P999 => measured.p999_ns as f64,
            Metric::Rate => measured.answers as f64 / seconds,
            Metric::Cpu => each(usage.both_ends(softirqs_apart).0),
            Metric::ServerCpu => each(usage.server),
            Metric::ClientCpu => each(usage.client),
            Metric::Softirq => usage.softirq as f64 / measured.time_ns as f64 * 100.0,
            Metric::Goodput => measured.bytes as f64 * 8.0 / 1e6 / seconds,
            Metric::Lost => measured.lost as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_serve_or_the_run_is_invalid() {
        let measured = Measured { answers: 1_000, by_kernel: 9, ..Measured::default() };
        assert_eq!(measured.invalid(System::Xdp), None);
        let measured = Measured { by_kernel: 1_000, ..measured };
        assert_eq!(measured.invalid(System::Xdp).unwrap(), "the kernel received 1000 packets");
        assert_eq!(measured.invalid(System::Kernel), None);
        let busy = Measured { others: 0.5, ..measured };
        assert!(busy.invalid(System::Plain).unwrap().contains("50.0 % of a CPU"));
    }

    #[test]
    fn figures_are_per_request_or_per_kib() {
        let usage = Usage { server: 3_000, client: 5_000, ksoftirqd: 2_000, softirq: 7_000 };
        let requests = Measured { time_ns: 1_000_000, answers: 10, usage, ..Measured::default() };
        assert_eq!(Metric::Rate.of(&requests, false), 10_000.0);
        assert_eq!(Metric::Cpu.of(&requests, false), 1_000.0);
        assert_eq!(Metric::Cpu.of(&requests, true), 1_700.0);
        assert_eq!(Metric::ServerCpu.of(&requests, false), 300.0);
        let stream = Measured { answers: 0, bytes: 10 << 10, ..requests };
        assert_eq!(Metric::Cpu.of(&stream, false), 1_000.0);
        assert!((Metric::Goodput.of(&stream, false) - 81.92).abs() < 1e-9);
    }
}
