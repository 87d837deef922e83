//! The measurements of a run.

use super::arrivals::Arriving;
use super::cpus::CpuTime;
use crate::outcome::{Counts, Estimate, Outcome, PartOutcome, Shares, Unstable};
use crate::scenario::Scenario;
use crate::theory::student;
use heddle_core::Ns;
use heddle_metrics::{Histogram, Slowdown};
use std::ops::Range;

/// The number of batches of measured requests: enough for an interval, few enough that each is long.
pub(crate) const BATCHES: usize = 20;

/// How many finished requests are kept before they are counted, all at once: in a loop of its own, the divisions and
/// the cache misses of one overlap with those of the next.
const KEPT: usize = 128;

/// One finished request.
pub(super) struct Done {
    pub part: u32,
    /// Its number among all requests, in the order of arrival.
    pub number: u64,
    pub response: Ns,
    pub service: Ns,
    /// From arrival until it first ran.
    pub wait: Ns,
}

/// Percentiles of the requests of one batch.
#[derive(Default)]
struct Batch {
    count: u64,
    response_sum: u128,
    response: Histogram,
    slowdown: Slowdown,
}

pub(super) struct Meter {
    /// The number of the first request that counts.
    from: u64,
    to: u64,
    /// How many of them are not done yet.
    left: u64,
    /// Those that are done and not yet counted.
    kept: Vec<Done>,
    /// The time of every response outside the machine.
    base: Ns,
    /// Of a mix with a single part they stay empty: its requests are all requests.
    parts: Vec<PartOutcome>,
    wait: Histogram,
    batches: Vec<Batch>,
    /// The batch found last, and which requests are in it: usually the next one is, too, and a division is saved.
    last_batch: (usize, Range<u64>),
}

fn part(name: &str) -> PartOutcome {
    PartOutcome { name: name.into(), response: Histogram::new(), slowdown: Slowdown::new() }
}

impl Meter {
    pub fn new(names: &[String], warmup: u64, requests: u64, base: Ns) -> Meter {
        Meter {
            from: warmup,
            to: warmup + requests,
            left: requests,
            kept: Vec::with_capacity(KEPT),
            base,
            parts: names.iter().map(|name| part(name)).collect(),
            wait: Histogram::new(),
            batches: (0..BATCHES).map(|_| Batch::default()).collect(),
            last_batch: (0, 0..0),
        }
    }

    pub fn is_complete(&self) -> bool {
        self.left == 0
    }

    #[inline]
    pub fn record(&mut self, done: Done) {
        if !(self.from..self.to).contains(&done.number) {
            return;
        }
        self.left -= 1;
        self.kept.push(done);
        if self.kept.len() == KEPT {
            self.count_kept();
        }
    }

    fn count_kept(&mut self) {
        let mut kept = std::mem::take(&mut self.kept);
        kept.drain(..).for_each(|done| self.count(&done));
        self.kept = kept;
    }

    #[inline]
    fn count(&mut self, done: &Done) {
        let response = done.response + self.base;
        if self.parts.len() > 1 {
            let part = &mut self.parts[done.part as usize];
            part.response.record(response);
            part.slowdown.record(response, done.service);
        }
        self.wait.record(done.wait);
        let at = self.batch_of(done.number - self.from);
        let batch = &mut self.batches[at];
        batch.count += 1;
        batch.response_sum += u128::from(response.0);
        batch.response.record(response);
        batch.slowdown.record(response, done.service);
    }

    /// Returns the batch of the request with number `at` among those that count.
    #[inline]
    fn batch_of(&mut self, at: u64) -> usize {
        if !self.last_batch.1.contains(&at) {
            let (all, batches) = (self.to - self.from, BATCHES as u64);
            let batch = at * batches / all;
            let begins = |batch: u64| (batch * all).div_ceil(batches);
            self.last_batch = (batch as usize, begins(batch)..begins(batch + 1));
        }
        self.last_batch.0
    }
}

/// Further data that the engine provides at the end.
pub(super) struct Ended<'a> {
    pub scenario: &'a Scenario,
    pub arriving: &'a Arriving,
    pub time: CpuTime,
    pub imbalance: f64,
    pub counts: Counts,
    pub now: Ns,
    pub unstable: Option<Unstable>,
}

impl Meter {
    pub fn outcome(mut self, ended: &Ended<'_>) -> Outcome {
        self.count_kept();
        let mut all = part("all");
        for batch in &self.batches {
            all.response.merge(&batch.response);
            all.slowdown.merge(&batch.slowdown);
        }
        if let [only] = &mut self.parts[..] {
            *only = PartOutcome { name: std::mem::take(&mut only.name), ..all.clone() };
        }
        let (sum, count) =
            (self.sum(|batch| batch.response_sum as f64), self.sum(|b| b.count as f64));
        let percentile = |percent: f64| {
            let value = all.response.percentile(percent).0 as f64;
            self.estimate(value, |batch| batch.response.percentile(percent).0 as f64)
        };
        let shares = shares(ended);
        let seconds = ended.now.as_secs_f64();
        let per_second = |events: u64| events as f64 / seconds.max(f64::MIN_POSITIVE);
        Outcome {
            offered: match ended.scenario.arrivals.is_open() {
                true => ended.scenario.rate(),
                false => per_second(ended.counts.arrivals),
            },
            throughput: per_second(ended.counts.done),
            mean: self.estimate(sum / count, |b| b.response_sum as f64 / b.count as f64),
            p99: percentile(99.0),
            p999: percentile(99.9),
            slowdown_p999: self
                .estimate(all.slowdown.percentile(99.9), |batch| batch.slowdown.percentile(99.9)),
            imbalance: ended.imbalance,
            counts: ended.counts,
            time: ended.now,
            unstable: ended
                .unstable
                .or_else(|| growth(ended))
                .or_else(|| saturation(ended, &shares)),
            shares,
            all,
            wait: self.wait,
            parts: self.parts,
        }
    }

    fn sum(&self, of: impl Fn(&Batch) -> f64) -> f64 {
        self.batches.iter().map(of).sum()
    }

    /// Returns the interval from the spread of the batches, if each has requests.
    fn estimate(&self, value: f64, of: impl Fn(&Batch) -> f64) -> Estimate {
        let n = BATCHES as f64;
        let t = student::two_sided(BATCHES as u32 - 1, 0.95)
            .filter(|_| self.batches.iter().all(|b| b.count > 0));
        let mean = self.sum(&of) / n;
        let variance = self.sum(|batch| (of(batch) - mean).powi(2)) / (n - 1.0);
        let half_width = t.map_or(f64::INFINITY, |t| t * (variance / n).sqrt());
        Estimate { value, half_width }
    }
}

fn shares(ended: &Ended<'_>) -> Shares {
    let all = ended.now.0 as f64 * ended.scenario.machine.cpus as f64;
    let of = |time: Ns| time.0 as f64 / all.max(1.0);
    let (requests, batch, overhead) =
        (of(ended.time.requests), of(ended.time.batch), of(ended.time.overhead));
    Shares { requests, batch, overhead, idle: (1.0 - requests - batch - overhead).max(0.0) }
}

/// Returns whether more requests arrived than were done: of those that count, more than one in two
/// hundred remained, and not just a few.
fn growth(ended: &Ended<'_>) -> Option<Unstable> {
    let [Some(before), Some(after)] = ended.arriving.backlog else { return None };
    let grown = after.saturating_sub(before) as u64;
    let few = 20 * ended.scenario.machine.cpus as u64;
    let unstable = grown > ended.arriving.plan.requests / 200 && grown > few;
    unstable.then_some(Unstable::Growing { before, after })
}

/// Returns whether open arrivals left the CPUs no idle time, to one in a thousand.
fn saturation(ended: &Ended<'_>, shares: &Shares) -> Option<Unstable> {
    let busy = shares.requests + shares.overhead;
    let saturated = ended.scenario.arrivals.is_open() && busy > 0.999;
    saturated.then_some(Unstable::Saturated)
}
