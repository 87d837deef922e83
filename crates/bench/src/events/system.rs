//! The systems that are compared.

use heddle_events::EventQueue;
use std::fmt;
use std::str::FromStr;

/// How threads share descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// One epoll per thread; connections are dealt round robin and stay. What most servers do; the baseline.
    PerThread,
    /// One epoll for all; one-shot events, rearmed after they are handled.
    Shared,
    /// One epoll per thread, each with all descriptors, exclusive.
    Exclusive,
    /// One event queue with this policy.
    Queue(String),
}

/// The policies of SKQ's evaluation.
const POLICIES: [&str; 4] = ["queue-affinity", "cpu-affinity", "best-of-two", "hybrid"];

impl System {
    /// The three epoll variants and the policies of SKQ.
    #[must_use]
    pub fn all() -> Vec<System> {
        let policies = POLICIES.map(|policy| System::Queue(policy.into()));
        [System::PerThread, System::Shared, System::Exclusive].into_iter().chain(policies).collect()
    }

    /// Whether it is an event queue.
    #[must_use]
    pub fn is_queue(&self) -> bool {
        matches!(self, System::Queue(_))
    }

    /// The system that targets apply to: hybrid, else the first queue.
    #[must_use]
    pub fn chief(systems: &[System]) -> Option<&System> {
        let hybrid = systems.iter().find(|system| **system == System::Queue("hybrid".into()));
        hybrid.or_else(|| systems.iter().find(|system| system.is_queue()))
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            System::PerThread => "epoll-per-thread",
            System::Shared => "epoll-shared",
            System::Exclusive => "epoll-exclusive",
            System::Queue(policy) => policy,
        })
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(name: &str) -> Result<System, String> {
        match name {
            "epoll-per-thread" => Ok(System::PerThread),
            "epoll-shared" => Ok(System::Shared),
            "epoll-exclusive" => Ok(System::Exclusive),
            // The queue knows which policies exist, and which it cannot run.
            policy => match EventQueue::builder().policy(policy).capacity(1).build() {
                Ok(_) => Ok(System::Queue(policy.into())),
                Err(error) => Err(format!(
                    "neither epoll-per-thread, epoll-shared, epoll-exclusive nor a policy of the queue: {error}"
                )),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_read_as_they_are_written() {
        for system in System::all() {
            assert_eq!(system.to_string().parse(), Ok(system));
        }
        let tuned = "hybrid:penalty=2us,steal=4";
        assert_eq!(tuned.parse(), Ok(System::Queue(tuned.into())));
    }

    #[test]
    fn what_the_queue_cannot_run_is_refused() {
        let error = |text: &str| text.parse::<System>().unwrap_err();
        assert!(error("epol").contains("epoll-per-thread"));
        assert!(
            error("hybrid:penalty=soon").contains("penalty"),
            "{}",
            error("hybrid:penalty=soon")
        );
        assert!(error("round-robin:quantum=5us").contains("interrupted"));
    }

    #[test]
    fn targets_are_about_hybrid_or_the_first_queue() {
        assert_eq!(System::chief(&System::all()).unwrap().to_string(), "hybrid");
        let few =
            [System::Shared, System::Queue("fifo".into()), System::Queue("cpu-affinity".into())];
        assert_eq!(System::chief(&few), Some(&few[1]));
        assert_eq!(System::chief(&[System::PerThread]), None);
    }
}
