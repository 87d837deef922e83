//! The settings of the runtime, checked before the program starts and passed to it in its environment.

use std::env;

use heddle_agent::classes::{Pattern, Rule, RuleError};
use heddle_agent::guardian::cpus::{self, Cpus};
use heddle_core::{Model, Params, Policy};
use heddle_policies::{Visitor, with_policy};
use heddle_rt::{ConfigError, Mechanism};

use super::{Args, share};
use crate::exit::Usage;
use crate::out::printable;

/// A variable and its value.
pub type Setting = (&'static str, String);

/// Separates the rules in `HEDDLE_PTHREAD_CLASSES`.
const BETWEEN_RULES: &str = ";";

/// Returns the variables that the options set.
///
/// # Errors
/// If the runtime could not start with them and with those that the environment sets already: the library would find
/// out only at the program's first thread.
pub fn environment(args: &Args) -> Result<Vec<Setting>, Usage> {
    check_policy(args.policy.as_deref(), args.mechanism)?;
    check_workers(args.workers, args.cpus.as_ref())?;
    let rules = share::rules(args)?;
    let rules = rules.into_iter().map(check_rule).collect::<Result<Vec<_>, _>>()?;
    let settings = [
        ("HEDDLE_POLICY", args.policy.clone()),
        ("HEDDLE_MECHANISM", args.mechanism.map(|mechanism| mechanism.name().into())),
        ("HEDDLE_WORKERS", args.workers.map(|number| number.to_string())),
        ("HEDDLE_CPUS", args.cpus.as_ref().map(cpus::format)),
        ("HEDDLE_PTHREAD_CLASSES", (!rules.is_empty()).then(|| rules.join(BETWEEN_RULES))),
        ("HEDDLE_PTHREAD_REPORT", args.report.then(|| "1".into())),
        ("HEDDLE_PTHREAD_FOLLOW", args.no_follow.then(|| "0".into())),
        ("HEDDLE_PTHREAD_MAIN", args.kernel_main.then(|| "kernel".into())),
    ];
    Ok(settings.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

fn usage(error: impl ToString) -> Usage {
    Usage(printable(&error.to_string()))
}

/// Reads a variable that the runtime reads too.
fn variable<T>(
    name: &'static str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, Usage> {
    let Some(value) = env::var_os(name) else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    let wrong = |problem| usage(ConfigError::Environment { name, value: value.clone(), problem });
    parse(&value).map(Some).map_err(wrong)
}

/// Accepts policies that the runtime can carry out.
struct Carried {
    mechanism: Mechanism,
    has_dispatcher: bool,
}

impl Visitor for Carried {
    type Out = Result<(), ConfigError>;

    fn visit<P: Policy>(self, policy: P) -> Self::Out {
        if self.has_dispatcher && P::MODEL != Model::Central {
            return Err(ConfigError::DispatcherNotCentral(P::NAME));
        }
        let Carried { mechanism, .. } = self;
        let shortest = mechanism.shortest_quantum();
        // The runtime lengthens a default quantum, and takes a given one at its word.
        let default =
            Params::parse(P::NAME).ok().and_then(|mut none| P::new(&mut none).ok()?.quantum());
        match policy.quantum() {
            Some(quantum) if quantum < shortest && Some(quantum) != default => {
                Err(ConfigError::QuantumTooShort { quantum, mechanism, shortest })
            }
            _ => Ok(()),
        }
    }
}

fn check_policy(given: Option<&str>, mechanism: Option<Mechanism>) -> Result<(), Usage> {
    let mechanism = match mechanism {
        Some(mechanism) => mechanism,
        None => variable("HEDDLE_MECHANISM", str::parse)?.unwrap_or_else(Mechanism::automatic),
    };
    mechanism.check().map_err(usage)?;
    let cpu = |text: &str| text.parse::<u32>().map_err(|_| "not a CPU number".to_owned());
    let has_dispatcher = variable("HEDDLE_DISPATCHER", cpu)?.is_some();
    let existing = variable("HEDDLE_POLICY", |text| Ok(text.to_owned()))?;
    let Some(policy) = given.map(ToOwned::to_owned).or(existing) else { return Ok(()) };
    with_policy(&policy, Carried { mechanism, has_dispatcher }).map_err(usage)?.map_err(usage)
}

/// Checks that each worker has a CPU.
fn check_workers(workers: Option<usize>, cpus: Option<&Cpus>) -> Result<(), Usage> {
    let number = |text: &str| text.parse::<usize>().map_err(|_| "not a whole number".to_owned());
    let workers = workers.or(variable("HEDDLE_WORKERS", number)?);
    let cpus = cpus.cloned().or(variable("HEDDLE_CPUS", cpus::parse)?);
    let usable = heddle_sys::thread::affinity().map_err(usage)?;
    let cpus: Vec<u32> = cpus.map_or_else(|| usable.clone(), |cpus| cpus.into_iter().collect());
    if let Some(&cpu) = cpus.iter().find(|cpu| !usable.contains(cpu)) {
        return Err(usage(ConfigError::NoSuchCpu { cpu, usable }));
    }
    match workers {
        Some(0) => Err(usage(ConfigError::NoWorkers)),
        Some(wanted) if wanted > cpus.len() => {
            Err(usage(ConfigError::TooManyWorkers { wanted, available: cpus.len(), cpus }))
        }
        _ => Ok(()),
    }
}

/// Accepts rules about threads' names, and about the modules of their start routines.
fn check_rule(text: &str) -> Result<&str, Usage> {
    if let Some((class, module)) = text.split_once("=module:") {
        check_class(class, text)?;
        let is_file = !module.is_empty() && !module.contains(['/', ';']);
        return is_file.then_some(text).ok_or_else(|| {
            usage(format!(
                "`{text}`: after `module:` comes the file name of a program or library, without its folder and without \
                 `{BETWEEN_RULES}`, as in be=module:librocksdb.so*"
            ))
        });
    }
    let rule: Rule = text.parse().map_err(usage)?;
    let is_name = matches!(rule.pattern, Pattern::Name(_)) && !text.contains(BETWEEN_RULES);
    is_name.then_some(text).ok_or_else(|| {
        usage(format!(
            "`{text}`: here a pattern is the name of threads, without `pid:`, `work:` and `{BETWEEN_RULES}`, as in \
             be=compact*, or the file of their code, as in be=module:librocksdb.so*"
        ))
    })
}

/// Accepts the class that `rule` gives.
fn check_class(class: &str, rule: &str) -> Result<(), Usage> {
    match format!("{class}=any").parse::<Rule>() {
        Ok(_) => Ok(()),
        Err(RuleError::Class { given, .. }) => {
            Err(usage(RuleError::Class { given, rule: rule.to_owned() }))
        }
        Err(_) => Err(usage(RuleError::Form(rule.to_owned()))),
    }
}
