//! The time in which a client measures: after a warm-up, with the CPU time of both ends.

use super::Client;
use crate::kv::Bystanders;
use crate::net::measured::Measured;
use crate::net::usage::{Usage, ksoftirqd};
use heddle_core::Ns;
use heddle_metrics::Histogram;
use std::io;
use std::time::{Duration, Instant};

/// The shortest warm-up: pools, caches and congestion windows grow.
const WARMUP: Duration = Duration::from_millis(100);

/// Where the time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Warmup,
    Counts,
    Over,
}

/// The time in which a client measures.
pub(super) struct Window {
    server: u32,
    duration: Duration,
    begin: Instant,
    usage: Usage,
    /// Other processes, once it counts.
    bystanders: Option<Bystanders>,
    phase: Phase,
    latency: Histogram,
    lost: u64,
    bytes: u64,
}

impl Window {
    /// Begins the warm-up: a tenth of the duration, or longer.
    pub(super) fn open(client: &Client) -> Window {
        let duration = Duration::from(Ns(client.duration));
        Window {
            server: client.server,
            duration,
            begin: Instant::now() + (duration / 10).max(WARMUP),
            usage: Usage::default(),
            bystanders: None,
            phase: Phase::Warmup,
            latency: Histogram::new(),
            lost: 0,
            bytes: 0,
        }
    }

    /// Moves on to `now`. False when it is over.
    ///
    /// # Errors
    /// The server has ended.
    #[inline]
    pub(super) fn is_open(&mut self, now: Instant) -> io::Result<bool> {
        match self.phase {
            Phase::Warmup if now >= self.begin => {
                let ours = [ksoftirqd(), vec![self.server, std::process::id()]].concat();
                self.bystanders = Some(Bystanders::watch(&ours));
                self.usage = Usage::now(self.server)?;
                // Reading them took a while.
                self.begin = Instant::now();
                self.phase = Phase::Counts;
            }
            Phase::Counts if now - self.begin >= self.duration => self.phase = Phase::Over,
            _ => {}
        }
        Ok(self.phase != Phase::Over)
    }

    /// Counts an answer to what was sent at `since`, if that was in the window.
    #[inline]
    pub(super) fn answered(&mut self, since: Instant, now: Instant) {
        if self.phase == Phase::Counts && since >= self.begin {
            self.latency.record(Ns((now - since).as_nanos() as u64));
        }
    }

    /// Counts a request without an answer.
    pub(super) fn lost(&mut self) {
        self.lost += u64::from(self.phase == Phase::Counts);
    }

    /// Counts bytes of a stream.
    #[inline]
    pub(super) fn carried(&mut self, bytes: usize) {
        if self.phase == Phase::Counts {
            self.bytes += bytes as u64;
        }
    }

    /// Returns what it counted.
    ///
    /// # Errors
    /// The server has ended.
    pub(super) fn close(self) -> io::Result<Measured> {
        let time = self.begin.elapsed();
        let usage = Usage::now(self.server)? - self.usage;
        let others = self.bystanders.map_or(0.0, |others| others.used().as_secs_f64());
        let measured = Measured {
            time_ns: time.as_nanos() as u64,
            bytes: self.bytes,
            lost: self.lost,
            usage,
            others: others / time.as_secs_f64(),
            ..Measured::default()
        };
        Ok(measured.with_latency(&self.latency))
    }
}
