//! One measurement in a process of its own, which the runner starts as `heddle bench share --child JOB`. Job and result
//! are JSON.

use serde::{Deserialize, Serialize};

mod switch;
mod wake;
mod way;
mod words;

pub(super) use switch::{Pair, Switched};
pub(super) use wake::{Sleeper, Woken};

/// What a child does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Job {
    /// Measures switches, with a peer that it starts, and prints a [`Switched`].
    Switch(Pair),
    /// The peer.
    Peer(switch::Peer),
    /// Prints a [`Woken`].
    Wake(Sleeper),
}

/// Measures what `job` says and returns what the runner reads.
///
/// # Errors
/// `job` is not the runner's, or cannot be done.
pub fn run(job: &str) -> Result<String, String> {
    let job = serde_json::from_str(job).map_err(|error| format!("--child: not a job: {error}"))?;
    let said = |error: std::io::Error| error.to_string();
    let json = match job {
        Job::Switch(pair) => serde_json::to_string(&switch::lead(&pair).map_err(said)?),
        Job::Peer(peer) => serde_json::to_string(&switch::follow(&peer).map_err(said)?),
        Job::Wake(sleeper) => serde_json::to_string(&wake::measure(&sleeper).map_err(said)?),
    };
    Ok(json.expect("figures are JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::System;

    #[test]
    fn what_the_runner_writes_is_read() {
        assert!(run("{}").unwrap_err().starts_with("--child: not a job"));
        let pair = Pair {
            system: System::Pipe,
            cpu: 0,
            switches: 1,
            program: "/bin/false".into(),
            share: None,
            ours: vec![7],
        };
        let job = Job::Switch(pair);
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    }
}
