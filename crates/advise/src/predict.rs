//! What a change would do.

use heddle_core::{Ns, Rng};
use serde::{Deserialize, Serialize};

use crate::AdviseError;
use crate::model::{Model, Request};
use crate::options::{Change, Effort};
use crate::quantile::{Interval, quantile};
use crate::replay::{self, Cpus};

/// The least gain that is worth a change.
pub(crate) const WORTH: f64 = 1.1;
/// Replays of resampled traces, from which intervals come.
const REPLICATES: u64 = 15;
/// Blocks of a resampled trace.
const BLOCKS: usize = 20;
/// The most requests that are replayed: the last ones of a longer trace.
const MOST: usize = 100_000;
/// How far a replay of the present may be from the observation, as a share.
const TOLERANCE: f64 = 0.1;
/// The same for short times, at which the clock's and the programs' own costs count.
const SLACK: Ns = Ns::from_us(100);

/// How far the rank of a quantile may be off, as a share of what lies beyond it: where responses are rare between two
/// modes, as between those that wait for a long request and those that do not, a quantile there says little.
const RANK: f64 = 0.2;
/// The most by which it may be off.
const RANK_MOST: f64 = 0.02;

/// How well a model explains the present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SelfCheck {
    /// What it assumes of CPUs.
    pub cpus: Cpus,
    /// Each quantile, as observed and as replayed.
    pub quantiles: Vec<(f64, Ns, Ns)>,
    /// The observed times of slightly lower and higher rank, in the same order.
    pub around: Vec<(Ns, Ns)>,
}

impl SelfCheck {
    /// Replays the present and compares `quantiles` of all requests.
    ///
    /// # Errors
    /// [`AdviseError`] if the model cannot be replayed.
    pub fn of(model: &Model, cpus: Cpus, quantiles: &[f64]) -> Result<SelfCheck, AdviseError> {
        let requests = recent(model);
        let mut replayed = replay::responses(model, requests, &Change::Nothing, cpus, 1)?;
        let mut observed: Vec<Ns> = requests.iter().map(|request| request.response).collect();
        let mut of = |share| quantile(&mut observed, share);
        let around = |&share: &f64| {
            let off = (RANK * (1.0 - share)).min(RANK_MOST);
            (of(share - off), of(share + off))
        };
        let around = quantiles.iter().map(around).collect();
        let row = |&share: &f64| (share, of(share), quantile(&mut replayed, share));
        let quantiles = quantiles.iter().map(row).collect();
        Ok(SelfCheck { cpus, quantiles, around })
    }

    /// Returns the largest deviation, as a share of what was observed.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        self.quantiles.iter().map(deviation).fold(0.0, f64::max)
    }

    /// Whether the model explains the present.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.worst().is_none()
    }

    /// Returns the quantile that differs most, if one differs too much.
    #[must_use]
    pub fn worst(&self) -> Option<(f64, Ns, Ns)> {
        let differs = |(row, around): &(&(f64, Ns, Ns), &(Ns, Ns))| {
            let nearest = row.2.clamp(around.0, around.1);
            let off = deviation(&(row.0, nearest, row.2));
            off > TOLERANCE && nearest.0.abs_diff(row.2.0) > SLACK.0
        };
        let wrong = self.quantiles.iter().zip(&self.around).filter(differs).map(|(row, _)| row);
        wrong.max_by(|a, b| deviation(a).total_cmp(&deviation(b))).copied()
    }
}

fn deviation(&(_, observed, replayed): &(f64, Ns, Ns)) -> f64 {
    (replayed.0 as f64 / observed.0.max(1) as f64 - 1.0).abs()
}

/// What a change would do to the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The change.
    pub change: Change,
    /// What it takes.
    pub effort: Effort,
    /// The command that applies it.
    pub apply: Option<String>,
    /// The command that undoes it.
    pub undo: Option<String>,
    /// By how much the quantile asked for would shrink: above 1 is better.
    pub ratio: Interval,
    /// That quantile, as it would be: the observation divided by the ratio.
    pub after: Ns,
    /// Quantiles for each class.
    pub rows: Vec<Row>,
    /// The row that would suffer most, if one would take longer by more than a tenth.
    pub harm: Option<Row>,
}

impl Prediction {
    /// Whether it surely gains enough to be worth doing.
    #[must_use]
    pub fn gains(&self) -> bool {
        self.ratio.value >= WORTH && self.ratio.low >= 1.0
    }

    /// Whether it is a steering policy.
    #[must_use]
    pub fn is_steering(&self) -> bool {
        matches!(self.change, Change::Steer { .. })
    }
}

/// A quantile of a class, now and under a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The class; `all` for all requests.
    pub class: String,
    /// The quantile.
    pub quantile: f64,
    /// As observed.
    pub before: Ns,
    /// As predicted.
    pub after: Ns,
    /// The ratio of the two.
    pub ratio: Interval,
}

/// The quantile of which class is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Goal {
    pub class: Option<usize>,
    pub quantile: f64,
}

/// Replays of the present, which every change is compared with.
pub(crate) struct Present<'m> {
    model: &'m Model,
    cpus: Cpus,
    traces: Vec<Vec<Request>>,
    responses: Vec<Vec<Ns>>,
}

impl<'m> Present<'m> {
    pub fn replay(model: &'m Model, cpus: Cpus) -> Result<Present<'m>, AdviseError> {
        let rng = Rng::new(7);
        let original = recent(model).to_vec();
        let resampled = (1..REPLICATES).map(|_| replay::resample(&original, BLOCKS, &rng));
        let traces: Vec<Vec<Request>> =
            std::iter::once(original.clone()).chain(resampled).collect();
        let one = |(seed, trace): (usize, &Vec<Request>)| {
            replay::responses(model, trace, &Change::Nothing, cpus, seed as u64)
        };
        let responses = traces.iter().enumerate().map(one).collect::<Result<_, _>>()?;
        Ok(Present { model, cpus, traces, responses })
    }

    /// Predicts what `change` does.
    pub fn predict(&self, change: Change, goal: Goal) -> Result<Prediction, AdviseError> {
        let one = |(seed, trace): (usize, &Vec<Request>)| {
            replay::responses(self.model, trace, &change, self.cpus, seed as u64)
        };
        let changed: Vec<Vec<Ns>> =
            self.traces.iter().enumerate().map(one).collect::<Result<_, _>>()?;
        let row = |class, quantile| self.row(&changed, class, quantile);
        let wanted = row(goal.class, goal.quantile);
        let classes = self.model.classes.len();
        let kinds: Vec<Option<usize>> = match classes {
            0 | 1 => vec![None],
            _ => std::iter::once(None).chain((0..classes).map(Some)).collect(),
        };
        let quantiles =
            [0.5, 0.9, 0.99].into_iter().filter(|&share| share <= goal.quantile.max(0.9));
        let rows: Vec<Row> = quantiles
            .flat_map(|share| kinds.iter().map(move |&class| (class, share)))
            .filter(|&(class, share)| self.enough(class, share))
            .map(|(class, share)| row(class, share))
            .collect();
        let suffers = rows.iter().filter(|row| row.ratio.value < 1.0 / 1.1);
        let harm = suffers.min_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value)).cloned();
        Ok(Prediction {
            effort: change.effort(),
            apply: change.apply(),
            undo: change.undo(),
            change,
            ratio: wanted.ratio,
            after: wanted.after,
            rows,
            harm,
        })
    }

    /// Whether ten requests lie beyond a quantile: enough for a row that only informs.
    fn enough(&self, class: Option<usize>, share: f64) -> bool {
        let count = self.traces[0]
            .iter()
            .filter(|r| class.is_none_or(|c| c == usize::from(r.class)))
            .count();
        (1.0 - share) * count as f64 >= 10.0
    }

    fn row(&self, changed: &[Vec<Ns>], class: Option<usize>, share: f64) -> Row {
        let of = |trace: &[Request], times: &[Ns]| {
            let pairs = trace.iter().zip(times);
            let wanted =
                pairs.filter(|(request, _)| class.is_none_or(|c| c == usize::from(request.class)));
            quantile(&mut wanted.map(|(_, time)| *time).collect::<Vec<_>>(), share).0.max(1) as f64
        };
        let ratios: Vec<f64> = (0..self.traces.len())
            .map(|k| of(&self.traces[k], &self.responses[k]) / of(&self.traces[k], &changed[k]))
            .collect();
        // The trace itself is the best estimate; resampling says how far it may be off.
        let value = ratios[0];
        let spread = Interval::of(ratios).unwrap_or_default();
        let ratio = Interval { value, low: spread.low.min(value), high: spread.high.max(value) };
        let before = quantile(&mut self.model.responses(class), share);
        let name = class.map_or("all", |class| &self.model.classes[class].name).to_string();
        let after = Ns((before.0 as f64 / ratio.value) as u64);
        Row { class: name, quantile: share, before, after, ratio }
    }
}

fn recent(model: &Model) -> &[Request] {
    &model.requests[model.requests.len().saturating_sub(MOST)..]
}
