//! When there is no advice, and why.

use std::fmt;

use heddle_core::Ns;
use heddle_observe::Recording;
use serde::{Deserialize, Serialize};

use crate::model::Model;
use crate::quantile;
use crate::slo::Percentile;

/// Samples that must lie beyond a quantile.
const BEYOND: f64 = 100.0;
/// The quantiles to fall back to.
const LOWER: [f64; 4] = [0.99, 0.95, 0.9, 0.5];
/// The most by which the arrival rates in the halves of a recording may differ.
const RATES: f64 = 0.2;
/// The most by which the median demands in them may differ: a busy machine alone makes short requests longer.
const DEMANDS: f64 = 0.5;
/// The most requests that need not be what they seem.
const ODD: f64 = 0.05;
/// The most that may be lost, or have no answer.
const LOST: f64 = 0.01;
/// The most by which CPU time per request may grow with concurrency.
const SLOPE: f64 = 0.1;
/// The share of the service's waiting from which on its quota explains it.
const THROTTLED: f64 = 0.1;

/// Why there is no advice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decline {
    /// No request was seen.
    NoRequests,
    /// The present, replayed, is not as observed.
    Unexplained {
        /// The quantile that differs most.
        quantile: f64,
        /// As observed.
        observed: Ns,
        /// As replayed.
        replayed: Ns,
    },
    /// Too few requests even for the median.
    TooFew {
        /// How many there were.
        requests: usize,
    },
    /// The halves of the recording differ.
    Unsteady {
        /// What differs.
        what: String,
        /// In the first half.
        first: f64,
        /// In the second half.
        second: f64,
    },
    /// Requests that cannot be told apart: pipelined, or answered by a thread that nothing shows to work for them.
    Entangled {
        /// Their share.
        share: f64,
    },
    /// The service's quota of CPU time explains its delays.
    Throttled {
        /// The time for which its quota stopped it.
        time: Ns,
    },
    /// Too much was lost.
    Lost {
        /// Its share.
        share: f64,
    },
    /// Too many requests were read, and no answer of theirs was seen.
    Unanswered {
        /// Their share.
        share: f64,
    },
}

impl fmt::Display for Decline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decline::NoRequests => f.write_str(
                "no request came while it was watched: watch for longer (--for), or name its \
                 --port",
            ),
            Decline::Unexplained { quantile, observed, replayed } => write!(
                f,
                "the model does not explain the present: its {} would be {replayed}, and {observed} was observed. \
                 Something else than the waiting that is seen at sockets and CPUs decides, so no prediction would hold",
                Percentile(*quantile)
            ),
            Decline::TooFew { requests } => {
                write!(
                    f,
                    "{requests} requests are too few even for the median: watch for longer (--for)"
                )
            }
            Decline::Unsteady { what, first, second } => write!(
                f,
                "the halves of the recording differ: {what} {first:.4} and {second:.4}. Watch when the load is steady"
            ),
            Decline::Entangled { share } => write!(
                f,
                "{:.1} % of the requests are pipelined, multiplexed or answered by threads that nothing shows to work \
                 for them, so their demand is not known",
                share * 100.0
            ),
            Decline::Throttled { time } => write!(
                f,
                "its cgroup's quota of CPU time stopped the service for {time}, which explains its delays: raise \
                 cpu.max"
            ),
            Decline::Unanswered { share } => write!(
                f,
                "{:.1} % of the requests were read and no answer of theirs was seen: they have none, or are answered \
                 out of order at a socket that all share, or from another socket",
                share * 100.0
            ),
            Decline::Lost { share } => {
                write!(
                    f,
                    "{:.1} % of what happened was lost: the machine is too busy to watch",
                    share * 100.0
                )
            }
        }
    }
}

/// What speaks for and against a model, as measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// Requests in the model.
    pub requests: usize,
    /// Requests per second.
    pub rate: f64,
    /// The share of requests that cannot be told apart.
    pub entangled: f64,
    /// The share of requests that were lost.
    pub lost: f64,
    /// The share of requests of which no answer was seen.
    pub unanswered: f64,
    /// By how much CPU time per request grows from few requests in service to many, as a share.
    pub slope: f64,
}

impl Evidence {
    /// Collects it.
    #[must_use]
    pub fn of(recording: &Recording, model: &Model) -> Evidence {
        let spans: Vec<_> = recording.spans.iter().filter(|span| span.port == model.port).collect();
        let count = spans.len().max(1) as f64;
        // Overlapping requests on one connection are a pipeline; on several, an event loop, which the model knows.
        let odd = spans.iter().filter(|span| span.unconfirmed || span.pipelined).count();
        let of_all = |missed: u64| missed as f64 / (missed as f64 + count);
        Evidence {
            requests: model.requests.len(),
            rate: model.requests.len() as f64 / recording.watched().as_secs_f64().max(1e-9),
            entangled: odd as f64 / count,
            lost: of_all(recording.lost.records),
            unanswered: of_all(recording.lost.unanswered),
            slope: slope(model),
        }
    }

    /// Whether CPU time per request grows so much with concurrency that no change of it can be predicted.
    #[must_use]
    pub fn contended(&self) -> bool {
        self.slope > SLOPE
    }
}

/// Returns the reason why nothing can be said about `model`, apart from the self-check.
pub fn reason(recording: &Recording, model: &Model, evidence: &Evidence) -> Option<Decline> {
    if model.requests.is_empty() {
        return Some(Decline::NoRequests);
    }
    if evidence.lost > LOST {
        return Some(Decline::Lost { share: evidence.lost });
    }
    if evidence.unanswered > LOST {
        return Some(Decline::Unanswered { share: evidence.unanswered });
    }
    if evidence.entangled > ODD {
        return Some(Decline::Entangled { share: evidence.entangled });
    }
    let waited: f64 = model.requests.iter().map(|r| (r.response - r.demand()).as_secs_f64()).sum();
    let throttled = recording.service.throttled;
    if throttled.as_secs_f64() > THROTTLED * waited.max(1e-9) {
        return Some(Decline::Throttled { time: throttled });
    }
    halves(recording, model)
}

/// Whether enough of `requests` lie beyond a quantile to speak of it: a hundred.
#[must_use]
pub fn has_enough(requests: usize, quantile: f64) -> bool {
    (1.0 - quantile) * requests as f64 >= BEYOND - 1e-6
}

/// Returns the highest quantile up to `wanted` beyond which there are enough of `requests`.
pub fn speakable(wanted: f64, requests: usize) -> Option<f64> {
    let lower = LOWER.into_iter().filter(|&quantile| quantile < wanted);
    std::iter::once(wanted).chain(lower).find(|&quantile| has_enough(requests, quantile))
}

/// Compares the arrival rate and the demand in the halves of the time watched.
fn halves(recording: &Recording, model: &Model) -> Option<Decline> {
    let middle = Ns(model.span().0 / 2);
    let (first, second) =
        model.requests.split_at(model.requests.partition_point(|r| r.arrived < middle));
    let start = recording.spans.iter().map(|span| span.arrived).min().unwrap_or_default();
    let watched = |from: Ns, to: Ns| {
        let inside = |window: &heddle_observe::Window| {
            (window.to - start).min(to)
                - (window.from - start).max(from).min((window.to - start).min(to))
        };
        recording.windows.iter().map(|window| inside(window).as_secs_f64()).sum::<f64>().max(1e-9)
    };
    let differ = |what: &str, most: f64, first: f64, second: f64| {
        let apart = (first / second.max(1e-12)).max(second / first.max(1e-12)) - 1.0;
        (apart > most).then(|| Decline::Unsteady { what: what.into(), first, second })
    };
    let rates = [
        first.len() as f64 / watched(Ns::ZERO, middle),
        second.len() as f64 / watched(middle, Ns::MAX),
    ];
    // The counts of a steady stream differ, too: by three standard deviations in one of 370 recordings.
    let noise = 3.0 / (first.len().min(second.len()).max(1) as f64).sqrt();
    let median = |requests: &[crate::Request]| {
        quantile(&mut requests.iter().map(crate::Request::demand).collect::<Vec<_>>(), 0.5)
            .as_secs_f64()
            * 1e3
    };
    let rate = differ("requests per second", RATES, rates[0], rates[1]).filter(|_| {
        (rates[0] / rates[1] - 1.0).abs() > noise && (rates[1] / rates[0] - 1.0).abs() > noise
    });
    rate.or_else(|| differ("median demand in ms", DEMANDS, median(first), median(second)))
}

/// Returns by how much the median CPU time of the commonest class grows from the least to the greatest third of
/// concurrency, as a share.
fn slope(model: &Model) -> f64 {
    let mut ends: Vec<Ns> = model.requests.iter().map(|r| r.arrived + r.response).collect();
    ends.sort_unstable();
    let common =
        (0..model.classes.len()).max_by_key(|&class| model.classes[class].requests).unwrap_or(0);
    let mut samples: Vec<(usize, Ns)> = Vec::new();
    for (number, request) in model.requests.iter().enumerate() {
        let ended = ends.partition_point(|&end| end <= request.arrived);
        if usize::from(request.class) == common {
            samples.push((number - ended.min(number), request.cpu));
        }
    }
    samples.sort_by_key(|(inside, _)| *inside);
    let third = samples.len() / 3;
    if third < BEYOND as usize || samples[0].0 == samples[samples.len() - 1].0 {
        return 0.0;
    }
    let median = |part: &[(usize, Ns)]| {
        quantile(&mut part.iter().map(|(_, cpu)| *cpu).collect::<Vec<_>>(), 0.5).0.max(1) as f64
    };
    median(&samples[samples.len() - third..]) / median(&samples[..third]) - 1.0
}
