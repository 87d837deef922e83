//! One measurement in a process of its own, which the runner starts as `heddle bench async --child TRIAL`. Trial and
//! result are JSON.

use super::{Op, System};
use heddle_core::Ns;
use serde::{Deserialize, Serialize};

mod executor;
mod memory;
mod micro;
mod service;
mod threads;

pub(super) use memory::{Memory, STATE};
pub(super) use service::{Served, Trial};

/// What a child measures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Job {
    /// Prints the CPU nanoseconds of one operation.
    Micro { system: System, op: Op, budget_ns: u64 },
    /// Prints a [`Memory`].
    Memory { system: System, count: u64 },
    /// Prints a [`Served`].
    Service(Trial),
}

/// Measures what `job` says and returns what the runner reads.
///
/// # Errors
/// `job` is not the runner's.
pub fn run(job: &str) -> Result<String, String> {
    let wrong = |error| format!("--child: not a trial: {error}");
    let json = match serde_json::from_str(job).map_err(wrong)? {
        Job::Micro { system, op, budget_ns } => {
            serde_json::to_string(&micro::measure(system, op, Ns(budget_ns)))
        }
        Job::Memory { system, count } => serde_json::to_string(&memory::measure(system, count)),
        Job::Service(trial) => serde_json::to_string(&service::measure(trial)),
    };
    Ok(json.expect("figures are JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::futures::Part;

    #[test]
    fn what_the_runner_writes_is_read() {
        assert!(run("{}").unwrap_err().starts_with("--child: not a trial"));
        let job = Job::Micro { system: System::Smol, op: Op::Wake, budget_ns: 1 };
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
        assert!(run(&text).unwrap().parse::<f64>().unwrap() > 0.0);
    }

    /// Every operation of every system ends and costs something.
    #[test]
    fn every_system_measures_every_operation() {
        for system in System::ALL.into_iter().filter(|system| system.is_in(Part::Micro)) {
            for op in Op::ALL {
                let ns = micro::measure(system, op, Ns::from_us(100));
                assert!(ns > 0.1 && ns < 1e8, "{system} {op}: {ns}");
            }
        }
    }
}
