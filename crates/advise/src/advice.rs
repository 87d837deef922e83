//! The answer.

use heddle_core::Ns;
use heddle_observe::Recording;
use serde::{Deserialize, Serialize};

use crate::decline::{self, Decline, Evidence};
use crate::extract;
use crate::model::Model;
use crate::options::{self, Change, Effort};
use crate::predict::{Goal, Prediction, Present, SelfCheck, WORTH};
use crate::replay::Cpus;
use crate::slo::{Percentile, Slo};
use crate::{AdviseError, quantile};

/// The quantile that is looked at if no limit is given.
const USUAL: f64 = 0.99;

/// The share of waiting that may be for CPUs if a model does not replay them.
const FOR_CPUS: f64 = 0.2;

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
    progress: impl FnMut(usize, usize),
) -> Result<(Advice, Model), AdviseError> {
    let model = extract::model(recording, wanted.port, None);
    let evidence = Evidence::of(recording, &model);
    let goal = goal(&model, wanted)?;
    let mut advice = Advice::about(&model, wanted, goal, evidence);
    advice.notes.clone_from(&recording.lost.notes);
    advice.declined = decline::reason(recording, &model, &evidence);
    if advice.declined.is_some() {
        return Ok((advice, model));
    }
    let Some(goal) = advice.lower(&model, goal) else { return Ok((advice, model)) };
    let (check, explained) = explain(&model, goal.quantile)?;
    let wrong = check.worst().filter(|_| !explained);
    let cpus = check.cpus;
    advice.self_check = Some(check);
    if let Some((quantile, observed, replayed)) = wrong {
        advice.declined = Some(Decline::Unexplained { quantile, observed, replayed });
        return Ok((advice, model));
    }
    advice.options =
        predictions(&model, wanted, cpus, goal, &evidence, &mut advice.notes, progress)?;
    Ok((advice, model))
}

/// The same for a service that does not run yet ([`Model::of_trace`], [`Model::of_scenario`]): its present is the
/// replay of the design, so there is nothing to check it by.
///
/// # Errors
/// As [`advise`].
pub fn advise_design(
    model: &Model,
    wanted: &Options,
    progress: impl FnMut(usize, usize),
) -> Result<Advice, AdviseError> {
    let seconds = model.span().as_secs_f64().max(1e-9);
    let requests = model.requests.len();
    let evidence = Evidence { requests, rate: requests as f64 / seconds, ..Evidence::default() };
    let goal = goal(model, wanted)?;
    let mut advice = Advice::about(model, wanted, goal, evidence);
    if let Some(goal) = advice.lower(model, goal) {
        advice.options =
            predictions(model, wanted, Cpus::Host, goal, &evidence, &mut advice.notes, progress)?;
    }
    Ok(advice)
}

impl Advice {
    /// Returns an advice without an answer.
    fn about(model: &Model, wanted: &Options, goal: Goal, evidence: Evidence) -> Advice {
        Advice {
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
            declined: None,
            notes: vec![],
        }
    }

    /// Lowers the quantile to one beyond which there are enough requests, and notes its present value; declines if
    /// there is none.
    fn lower(&mut self, model: &Model, goal: Goal) -> Option<Goal> {
        let mut responses = model.responses(goal.class);
        let Some(spoken) = decline::speakable(goal.quantile, responses.len()) else {
            self.declined = Some(Decline::TooFew { requests: responses.len() });
            return None;
        };
        if spoken < goal.quantile {
            self.notes.push(format!(
                "{} requests have too few beyond {}: the answer is about {}",
                responses.len(),
                Percentile(goal.quantile),
                Percentile(spoken)
            ));
        }
        (self.quantile, self.observed) = (spoken, quantile(&mut responses, spoken));
        Some(Goal { quantile: spoken, ..goal })
    }
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
    let check = |cpus| SelfCheck::of(model, cpus, &quantiles);
    // A runtime's workers are its CPUs.
    if model.runtime.is_some() {
        let ample = check(Cpus::Ample)?;
        let passes = ample.passes();
        return Ok((ample, passes));
    }
    let host = check(Cpus::Host)?;
    if host.passes() {
        return Ok((host, true));
    }
    let ample = check(Cpus::Ample)?;
    if ample.passes() {
        // To take waits for CPUs as observed explains the present, but not what changes them.
        let explains = model.waits_for_cpus() < FOR_CPUS;
        return Ok((if explains { ample } else { host }, explains));
    }
    Ok((if ample.deviation() <= host.deviation() { ample } else { host }, false))
}

fn predictions(
    model: &Model,
    wanted: &Options,
    cpus: Cpus,
    goal: Goal,
    evidence: &Evidence,
    notes: &mut Vec<String>,
    mut progress: impl FnMut(usize, usize),
) -> Result<Vec<Prediction>, AdviseError> {
    let mut changes = options::of(model);
    changes.extend(wanted.policies.iter().map(|policy| options::named(model, policy)));
    if evidence.contended() {
        changes.retain(|change| !change.changes_concurrency());
        notes.push(format!(
            "CPU time per request grows by {:.0} % with concurrency (locks, caches, shared cores): numbers of workers \
             are not predicted",
            evidence.slope * 100.0
        ));
    }
    if cpus == Cpus::Ample {
        changes.retain(|change| !matches!(change, Change::Nice { .. } | Change::Weight { .. }));
    }
    let present = Present::replay(model, cpus)?;
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
