//! Whether a change did what was predicted: on and off windows in turns.

use heddle_core::{Ns, Rng};
use heddle_observe::Recording;
use serde::{Deserialize, Serialize};

use crate::extract;
use crate::quantile::{Interval, quantile};

/// By how much a window's circumstances may differ from those of all windows, as a share.
const MOVED: f64 = 0.2;
/// A share of the CPUs below which a change of the neighbours' load does not matter.
const QUIET: f64 = 0.05;
/// The fewest pairs that give a verdict.
const PAIRS: usize = 2;
/// How far a ratio may be from the prediction, as a share.
const TOLERANCE: f64 = 0.25;
/// Resamplings of the pairs.
const RESAMPLES: usize = 400;

/// What was measured in one window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Whether the change was applied.
    pub on: bool,
    /// The response times of the class that the limit is for.
    pub responses: Vec<Ns>,
    /// Requests per second.
    pub rate: f64,
    /// The share of the CPUs that other programs took.
    pub neighbours: f64,
}

impl Measured {
    /// Reads a window's recording: the requests to `port` of the class called `class` if there is one, where those
    /// with a demand from `edge` on are long.
    #[must_use]
    pub fn of(
        recording: &Recording,
        on: bool,
        port: u16,
        edge: Option<Ns>,
        class: &str,
    ) -> Measured {
        let model = extract::model(recording, Some(port), edge);
        let watched = recording.watched().as_secs_f64().max(1e-9);
        let index = model.class(class);
        let others: f64 = model.neighbours.iter().map(|one| one.share).sum();
        Measured {
            on,
            responses: model.responses(index),
            rate: model.requests.len() as f64 / watched,
            neighbours: others / f64::from(recording.host.cpus.max(1)),
        }
    }
}

/// Windows with and without a change, in the order in which they were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// All of them.
    pub windows: Vec<Measured>,
}

/// The answer of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The ratio is within a quarter of the prediction, or the prediction within the ratio's interval.
    AsPredicted,
    /// More was gained.
    Better,
    /// Less was gained.
    Worse,
    /// The service is slower with the change than without.
    Harmful,
    /// Too few pairs of windows are alike.
    Unclear,
}

/// What a trial shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// In a word.
    pub verdict: Verdict,
    /// The quantile without the change divided by that with it; `None` if unclear.
    pub ratio: Option<Interval>,
    /// The quantile without the change.
    pub off: Ns,
    /// The quantile with it.
    pub on: Ns,
    /// Pairs that count.
    pub pairs: usize,
    /// Windows that do not, and why.
    pub discarded: Vec<String>,
}

impl Trial {
    /// Compares the windows at `share`, and the ratio with the `predicted` one.
    #[must_use]
    pub fn outcome(&self, share: f64, predicted: f64) -> Outcome {
        let mut discarded = Vec::new();
        let usable: Vec<bool> = (0..self.windows.len())
            .map(|at| self.reason(at).map(|why| discarded.push(why)).is_none())
            .collect();
        // A pair is two windows next to each other, one with and one without.
        let pairs: Vec<(&Measured, &Measured)> = (0..self.windows.len() / 2)
            .map(|pair| (2 * pair, 2 * pair + 1))
            .filter(|&(first, second)| usable[first] && usable[second])
            .map(|(first, second)| (&self.windows[first], &self.windows[second]))
            .map(|(first, second)| if first.on { (second, first) } else { (first, second) })
            .collect();
        let at = |chosen: &[usize], on: bool| {
            let side = |&pair: &usize| if on { pairs[pair].1 } else { pairs[pair].0 };
            let mut times: Vec<Ns> =
                chosen.iter().flat_map(|pair| &side(pair).responses).copied().collect();
            quantile(&mut times, share)
        };
        let all: Vec<usize> = (0..pairs.len()).collect();
        let (off, on) = (at(&all, false), at(&all, true));
        if pairs.len() < PAIRS || on == Ns::ZERO {
            return Outcome {
                verdict: Verdict::Unclear,
                ratio: None,
                off,
                on,
                pairs: pairs.len(),
                discarded,
            };
        }
        let ratio =
            |chosen: &[usize]| at(chosen, false).0 as f64 / at(chosen, true).0.max(1) as f64;
        let rng = Rng::new(11);
        let draw = |_| {
            all.iter().map(|_| (rng.next_u64() % pairs.len() as u64) as usize).collect::<Vec<_>>()
        };
        let spread = (0..RESAMPLES).map(draw).map(|chosen| ratio(&chosen)).collect();
        let value = ratio(&all);
        let spread = Interval::of(spread).unwrap_or_default();
        let ratio = Interval { value, low: spread.low.min(value), high: spread.high.max(value) };
        Outcome {
            verdict: judge(&ratio, predicted),
            ratio: Some(ratio),
            off,
            on,
            pairs: pairs.len(),
            discarded,
        }
    }

    /// Returns why a window does not count.
    fn reason(&self, at: usize) -> Option<String> {
        let window = &self.windows[at];
        let median = |of: fn(&Measured) -> f64| {
            let mut values: Vec<f64> = self.windows.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let rate = median(|window| window.rate);
        if (window.rate - rate).abs() > MOVED * rate {
            return Some(format!(
                "window {}: {:.0} requests/s, {rate:.0} in the others",
                at + 1,
                window.rate
            ));
        }
        let others = median(|window| window.neighbours);
        if (window.neighbours - others).abs() > (MOVED * others).max(QUIET) {
            let percent = |share: f64| share * 100.0;
            return Some(format!(
                "window {}: other programs took {:.0} % of the CPUs, {:.0} % in the others",
                at + 1,
                percent(window.neighbours),
                percent(others)
            ));
        }
        None
    }
}

fn judge(ratio: &Interval, predicted: f64) -> Verdict {
    let near = (ratio.value / predicted - 1.0).abs() <= TOLERANCE || ratio.holds(predicted);
    match () {
        () if ratio.high < 1.0 && predicted >= 1.0 => Verdict::Harmful,
        () if near => Verdict::AsPredicted,
        () if ratio.value > predicted => Verdict::Better,
        () => Verdict::Worse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(on: bool, us: u64, rate: f64) -> Measured {
        let responses = (0..200).map(|n| Ns::from_us(us) + Ns(n)).collect();
        Measured { on, responses, rate, neighbours: 0.0 }
    }

    fn trial(pairs: &[(u64, u64)]) -> Trial {
        let pair = |&(off, on): &(u64, u64)| [window(false, off, 100.0), window(true, on, 100.0)];
        Trial { windows: pairs.iter().flat_map(pair).collect() }
    }

    #[test]
    fn a_ratio_is_compared_with_its_prediction() {
        let tenfold = trial(&[(1000, 100), (1100, 100), (1000, 105), (1000, 95)]);
        for (predicted, verdict) in
            [(10.0, Verdict::AsPredicted), (5.0, Verdict::Better), (30.0, Verdict::Worse)]
        {
            assert_eq!(tenfold.outcome(0.9, predicted).verdict, verdict, "{predicted}");
        }
        let slower = trial(&[(100, 200), (100, 210), (100, 190), (100, 200)]);
        assert_eq!(slower.outcome(0.9, 2.0).verdict, Verdict::Harmful);
    }

    #[test]
    fn windows_that_differ_do_not_count() {
        let mut moved = trial(&[(1000, 100), (1000, 100), (1000, 100)]);
        moved.windows[2].rate = 150.0;
        moved.windows[5].neighbours = 0.5;
        let outcome = moved.outcome(0.9, 10.0);
        assert_eq!((outcome.verdict, outcome.pairs), (Verdict::Unclear, 1));
        assert_eq!(outcome.discarded.len(), 2, "{:?}", outcome.discarded);
    }

    #[test]
    fn the_order_in_a_pair_does_not_matter() {
        let mut turned = trial(&[(1000, 100), (1000, 100), (1000, 100), (1000, 100)]);
        turned.windows.swap(2, 3);
        assert_eq!(turned.outcome(0.9, 10.0).verdict, Verdict::AsPredicted);
    }
}
