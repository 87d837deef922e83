//! The answer.

use heddle_core::Ns;
use heddle_observe::Recording;
use serde::{Deserialize, Serialize};

use crate::decline::{self, Decline, Evidence};
use crate::extract;
use crate::model::Model;
use crate::options::{self, Change, Effort};
use crate::predict::{Cpus, Goal, Prediction, Present, SelfCheck};
use crate::quantile;
use crate::slo::Slo;

/// The least gain that is worth a change.
pub(crate) const WORTH: f64 = 1.1;
/// The quantile that is looked at if no limit is given.
const USUAL: f64 = 0.99;

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// The limit that the service should keep.
    pub slo: Option<Slo>,
    /// The port, if the service has several.
    pub port: Option<u16>,
    /// Further changes to try, beside those that make sense by themselves: `sita:type-offset=2,scan=3`.
    pub policies: Vec<String>,
}

/// Why advice failed: not the service's fault, as a [`Decline`] is.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// The simulator refused the model.
    #[error("the model cannot be replayed: {0}")]
    Replay(#[from] heddle_sim::SimError),
    /// A steering policy cannot be simulated.
    #[error("{0}")]
    Policy(heddle_steer::native::NativeError),
    /// The limit names a class that the service does not have.
    #[error("the limit is for class `{class}`, and the requests have {}", names.join(", "))]
    NoClass {
        /// As given.
        class: String,
        /// Those that it has.
        names: Vec<String>,
    },
}

/// What would help a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The service's name.
    pub service: String,
    /// Its port.
    pub port: u16,
    /// The demand from which on a request is long, if there are two classes.
    pub edge: Option<Ns>,
    /// The class whose quantile is asked for; `all` for all requests.
    pub class: String,
    /// The quantile that the options are ranked by: the one asked for, or a lower one if too few requests lie beyond.
    pub quantile: f64,
    /// That quantile, as observed.
    pub observed: Ns,
    /// The limit, if one was given.
    pub limit: Option<Ns>,
    /// How well the model explains the present.
    pub self_check: Option<SelfCheck>,
    /// The measured facts.
    pub evidence: Evidence,
    /// The options, best first. The first is what to do.
    pub options: Vec<Prediction>,
    /// Why there is no advice.
    pub declined: Option<Decline>,
    /// What makes the answer less certain, in words.
    pub notes: Vec<String>,
}

impl Advice {
    /// Returns what to do now, while the service runs: `None` if nothing helps, or if it declined.
    #[must_use]
    pub fn best(&self) -> Option<&Prediction> {
        self.options.iter().find(|option| option.gains() && option.effort == Effort::None)
    }

    /// Returns what would help more than [`Advice::best`], and takes more.
    #[must_use]
    pub fn with_effort(&self) -> Option<&Prediction> {
        let first =
            self.options.first().filter(|option| option.gains() && option.effort > Effort::None)?;
        let much_more = |best: &Prediction| first.ratio.value >= best.ratio.value * WORTH;
        self.best().is_none_or(much_more).then_some(first)
    }
}

/// Says what would help the service of `recording`; `progress` is called with the changes that are done and those that
/// there are. Also returns the model.
///
/// # Errors
/// [`AdviseError`] for a question that makes no sense, or a fault of ours. That nothing can be said about the service
/// is an answer ([`Advice::declined`]).
pub fn advise(
    recording: &Recording,
    wanted: &Options,
    mut progress: impl FnMut(usize, usize),
) -> Result<(Advice, Model), AdviseError> {
    let model = extract::model(recording, wanted.port, None);
    let evidence = Evidence::of(recording, &model);
    let goal = goal(&model, wanted)?;
    let mut advice = Advice {
        service: model.service.clone(),
        port: model.port,
        edge: model.edge,
        class: goal.class.map_or("all", |class| &model.classes[class].name).into(),
        quantile: goal.quantile,
        observed: Ns::ZERO,
        limit: wanted.slo.as_ref().map(|slo| slo.limit),
        self_check: None,
        evidence,
        options: vec![],
        declined: decline::reason(recording, &model, &evidence),
        notes: recording.lost.notes.clone(),
    };
    if advice.declined.is_some() {
        return Ok((advice, model));
    }
    let mut responses = model.responses(goal.class);
    let Some(spoken) = decline::speakable(goal.quantile, responses.len()) else {
        advice.declined = Some(Decline::TooFew { requests: responses.len() });
        return Ok((advice, model));
    };
    if spoken < goal.quantile {
        advice.notes.push(format!(
            "{} requests have too few beyond {}: the answer is about {}",
            responses.len(),
            crate::slo::Percentile(goal.quantile),
            crate::slo::Percentile(spoken)
        ));
    }
    let goal = Goal { quantile: spoken, ..goal };
    (advice.quantile, advice.observed) = (spoken, quantile(&mut responses, spoken));
    let (check, explained) = explain(&model, spoken)?;
    if let Some((quantile, observed, replayed)) = check.worst().filter(|_| !explained) {
        advice.declined = Some(Decline::Unexplained { quantile, observed, replayed });
        advice.self_check = Some(check);
        return Ok((advice, model));
    }
    advice.options =
        predictions(&model, wanted, &check, goal, &evidence, &mut advice.notes, &mut progress)?;
    advice.self_check = Some(check);
    Ok((advice, model))
}

fn goal(model: &Model, wanted: &Options) -> Result<Goal, AdviseError> {
    let Some(slo) = &wanted.slo else { return Ok(Goal { class: None, quantile: USUAL }) };
    let class = match &slo.class {
        None => None,
        Some(name) => Some(model.class(name).ok_or_else(|| AdviseError::NoClass {
            class: name.clone(),
            names: model.classes.iter().map(|class| class.name.clone()).collect(),
        })?),
    };
    Ok(Goal { class, quantile: slo.quantile })
}

/// Finds the assumption about CPUs under which the model explains the present: the host's CPUs if they do, because
/// only then neighbours can be changed.
fn explain(model: &Model, quantile: f64) -> Result<(SelfCheck, bool), AdviseError> {
    let mut quantiles = vec![0.5, 0.9, quantile];
    quantiles.retain(|&share| share <= quantile);
    quantiles.dedup();
    let host = SelfCheck::run(model, Cpus::Host, &quantiles)?;
    if host.passes() {
        return Ok((host, true));
    }
    let ample = SelfCheck::run(model, Cpus::Ample, &quantiles)?;
    match (ample.passes(), ample.deviation() <= host.deviation()) {
        (true, _) => Ok((ample, true)),
        (false, true) => Ok((ample, false)),
        (false, false) => Ok((host, false)),
    }
}

fn predictions(
    model: &Model,
    wanted: &Options,
    check: &SelfCheck,
    goal: Goal,
    evidence: &Evidence,
    notes: &mut Vec<String>,
    progress: &mut impl FnMut(usize, usize),
) -> Result<Vec<Prediction>, AdviseError> {
    let mut changes = options::of(model);
    changes.extend(wanted.policies.iter().map(|policy| Change::Steer {
        policy: policy.clone(),
        protocol: model.protocol,
        port: model.port,
    }));
    if evidence.contended() {
        changes.retain(|change| !change.changes_concurrency());
        notes.push(format!(
            "CPU time per request grows by {:.0} % with concurrency (locks, caches, shared cores): numbers of workers \
             are not predicted",
            evidence.slope * 100.0
        ));
    }
    if check.cpus == Cpus::Ample {
        changes.retain(|change| !matches!(change, Change::Nice { .. } | Change::Weight { .. }));
    }
    let present = Present::replay(model, check.cpus)?;
    let all = changes.len();
    let mut predictions = Vec::with_capacity(all);
    for (done, change) in changes.into_iter().enumerate() {
        progress(done, all);
        predictions.push(present.predict(change, goal)?);
    }
    progress(all, all);
    rank(&mut predictions);
    Ok(predictions)
}

/// Puts what surely gains first, the most before the least, and nothing before what does not.
fn rank(predictions: &mut [Prediction]) {
    predictions.sort_by(|a, b| b.ratio.value.total_cmp(&a.ratio.value));
    predictions.sort_by_key(|one| match (one.gains(), &one.change) {
        (true, _) => 0,
        (false, Change::Nothing) => 1,
        (false, _) => 2,
    });
}

#[cfg(test)]
mod tests;
