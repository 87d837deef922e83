//! The daemon's regular look: attachments whose sockets or owners are gone are removed, and policies that cost too much
//! are taken away. The kernel decides where a policy was.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use heddle_steer::engine::{Cost, Engine};
use heddle_steer::request::Error;

use crate::options::Options;

/// What a policy may cost.
#[derive(Clone, Copy, Debug)]
struct Limits {
    ns: f64,
    share: f64,
}

/// Runs of a sample below which its mean says nothing: one of them may have been interrupted.
const MIN_RUNS: f64 = 5.0;

impl Limits {
    /// Why a policy of this cost is too much.
    fn broken(self, cost: Cost, sample: Duration) -> Option<String> {
        let ns = cost.ns?;
        if cost.per_second * sample.as_secs_f64() < MIN_RUNS {
            return None;
        }
        if ns > self.ns {
            return Some(format!("{ns:.0} ns a decision, more than {:.0}", self.ns));
        }
        let (percent, most) = (cost.share() * 100.0, self.share * 100.0);
        (cost.share() > self.share)
            .then(|| format!("{percent:.0} % of a CPU for its decisions, more than {most:.0} %"))
    }
}

fn limits(options: &Options) -> Limits {
    let limit = |value: u32| if value == 0 { f64::INFINITY } else { value.into() };
    Limits { ns: limit(options.evict_ns), share: limit(options.evict_share) / 100.0 }
}

/// Starts the look.
pub fn start(engine: Arc<Engine>, options: &Options) -> io::Result<()> {
    let limits = limits(options);
    let (every, sample) = (options.watch(), Duration::from_millis(options.sample_ms.into()));
    thread::Builder::new().name("watch".into()).spawn(move || {
        let mut suspects = BTreeSet::new();
        loop {
            thread::sleep(every);
            if let Err(error) = look(&engine, limits, sample, &mut suspects) {
                eprintln!("heddled: watch: {error}");
            }
        }
    })?;
    Ok(())
}

/// One look. `suspects` are the attachments that broke a limit the last time: one sample may have met a machine that
/// was busy with something else.
fn look(
    engine: &Engine,
    limits: Limits,
    sample: Duration,
    suspects: &mut BTreeSet<u32>,
) -> Result<(), Error> {
    for dead in engine.collect()? {
        eprintln!("heddled: attachment {} ({}) is over", dead.id, dead.address);
    }
    let before = std::mem::take(suspects);
    for (attachment, cost) in engine.costs(sample)? {
        let Some(why) = limits.broken(cost, sample) else { continue };
        let id = attachment.id;
        if before.contains(&id) {
            engine.evict(id, &why)?;
            eprintln!("heddled: attachment {id} ({}) loses its policy: {why}", attachment.policy);
        } else {
            suspects.insert(id);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Duration = Duration::from_millis(50);

    #[test]
    fn a_policy_is_judged_by_decision_and_by_share_and_not_by_a_handful() {
        let limits = Limits { ns: 20_000.0, share: 0.5 };
        let broken = |per_second, ns| limits.broken(Cost { per_second, ns }, SAMPLE);
        assert_eq!(broken(1000.0, Some(400.0)), None);
        assert_eq!(broken(0.0, None), None);
        assert_eq!(broken(20.0, Some(1e6)), None);
        assert!(broken(1000.0, Some(30_000.0)).expect("broken").contains("30000 ns"));
        assert!(broken(1_500_000.0, Some(400.0)).expect("broken").contains("60 % of a CPU"));
    }
}
