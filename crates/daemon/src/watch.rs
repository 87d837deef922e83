//! The daemon's regular look: attachments whose sockets or owners are gone are removed, and policies that cost too much
//! are taken away. The kernel decides where a policy was.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use heddle_steer::engine::{Cost, Engine, Upkeep};
use heddle_steer::request::{Attachment, Error};

use crate::options::Options;

/// What a policy may cost.
#[derive(Clone, Copy, Debug)]
struct Limits {
    ns: f64,
    share: f64,
}

/// Decisions below which their mean says nothing: one of them may have been interrupted.
const MIN_RUNS: f64 = 5.0;

/// What a policy was seen to cost, over the samples since it was last judged by its mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    runs: f64,
    ns: f64,
}

/// What a sample says of a policy.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    /// There were too few decisions yet.
    Undecided,
    Fine,
    /// It is too much, and why.
    Broken(String),
}

impl Limits {
    /// Adds a sample to what was `seen` of a policy, and judges it.
    ///
    /// The share is judged by the time that all decisions took together, however few they were. The mean of a decision is
    /// judged when there were enough of them, over as many samples as that takes.
    fn judge(self, seen: &mut Seen, cost: Cost, sample: Duration) -> Verdict {
        let runs = cost.per_second * sample.as_secs_f64();
        seen.runs += runs;
        seen.ns += runs * cost.ns.unwrap_or(0.0);
        let (percent, most) = (cost.share() * 100.0, self.share * 100.0);
        if cost.share() > self.share {
            *seen = Seen::default();
            let why = format!("{percent:.0} % of a CPU for its decisions, more than {most:.0} %");
            return Verdict::Broken(why);
        }
        if seen.runs < MIN_RUNS {
            return Verdict::Undecided;
        }
        let mean = seen.ns / seen.runs;
        *seen = Seen::default();
        if mean > self.ns {
            return Verdict::Broken(format!("{mean:.0} ns a decision, more than {:.0}", self.ns));
        }
        Verdict::Fine
    }
}

/// Who is suspected: a user, whichever of his policies it was, for he may put another in its place; of root's, the one.
type Suspect = (u32, u32);

fn suspect(attachment: &Attachment) -> Suspect {
    (attachment.uid, if attachment.uid == 0 { attachment.id } else { 0 })
}

/// What is known from one look to the next.
#[derive(Debug, Default)]
struct Memory {
    seen: BTreeMap<u32, Seen>,
    /// Who had a policy that broke a limit, and for how many looks without another one that stays so: one sample may have
    /// met a machine that was busy with something else, and the second in a row has not.
    suspects: BTreeMap<Suspect, u32>,
}

/// Looks for which somebody is suspected whose policy broke a limit, and whose policy was taken away.
const SUSPECTED: u32 = 1;
const PROVEN: u32 = 100;

impl Memory {
    /// What all policies cost in a sample; those that are too much, and why.
    fn judge(
        &mut self,
        limits: Limits,
        costs: Vec<(Attachment, Cost)>,
        sample: Duration,
    ) -> Vec<(Attachment, String)> {
        self.seen.retain(|id, _| costs.iter().any(|(attachment, _)| attachment.id == *id));
        let (mut broken, mut fine, mut guilty) = (Vec::new(), BTreeSet::new(), Vec::new());
        for (attachment, cost) in costs {
            let seen = self.seen.entry(attachment.id).or_default();
            match limits.judge(seen, cost, sample) {
                Verdict::Undecided => {}
                Verdict::Fine => drop(fine.insert(suspect(&attachment))),
                Verdict::Broken(why) => broken.push((attachment, why)),
            }
        }
        let mut broke = BTreeMap::new();
        for (attachment, why) in broken {
            let who = suspect(&attachment);
            let term: &mut u32 = broke.entry(who).or_insert(SUSPECTED);
            if self.suspects.contains_key(&who) {
                *term = PROVEN;
                guilty.push((attachment, why));
            }
        }
        self.suspects.retain(|who, looks| {
            *looks -= u32::from(fine.contains(who) && *looks > 0);
            *looks > 0
        });
        for (who, term) in broke {
            let looks = self.suspects.entry(who).or_default();
            *looks = (*looks).max(term);
        }
        guilty
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
        let mut memory = Memory::default();
        loop {
            thread::sleep(pause(every));
            if let Err(error) = look(&engine, limits, sample, &mut memory) {
                eprintln!("heddled: watch: {error}");
            }
        }
    })?;
    Ok(())
}

/// From a half to one and a half of `every`: nobody knows when he is looked at.
fn pause(every: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) % 1024;
    every / 2 + every.mul_f64(f64::from(u16::try_from(random).unwrap_or(0)) / 1024.0)
}

/// One look.
fn look(
    engine: &Engine,
    limits: Limits,
    sample: Duration,
    memory: &mut Memory,
) -> Result<(), Error> {
    tell(&engine.collect()?);
    if let Err(error) = engine.write_evicted() {
        eprintln!("heddled: an eviction is not recorded yet: {error}");
    }
    for (attachment, why) in memory.judge(limits, engine.costs(sample)?, sample) {
        let (id, policy) = (attachment.id, attachment.policy);
        // One that cannot be taken away keeps no other in place.
        match engine.evict(id, &why) {
            Ok(()) => eprintln!("heddled: attachment {id} ({policy}) loses its policy: {why}"),
            Err(error) => {
                eprintln!("heddled: attachment {id} is to lose its policy ({why}): {error}");
            }
        }
    }
    Ok(())
}

/// Tells what was dead, and what could not be told or removed.
pub fn tell(found: &Upkeep) {
    for dead in &found.dead {
        eprintln!("heddled: attachment {} ({}) is over", dead.id, dead.address);
    }
    for failed in &found.failed {
        eprintln!("heddled: {failed}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Duration = Duration::from_millis(50);
    const LIMITS: Limits = Limits { ns: 20_000.0, share: 0.5 };

    fn attachment(id: u32, uid: u32) -> Attachment {
        let text = format!(
            r#"{{"id":{id},"hook":"socket-select","policy":"p","parameters":[],"uid":{uid},"pid":1,"command":"","protocol":"udp","address":"","interface":null,"executors":[],"since_ms":0,"status":"active"}}"#
        );
        serde_json::from_str(&text).expect("a record")
    }

    /// The numbers of those that are too much.
    fn look(memory: &mut Memory, costs: &[(u32, u32, f64, f64)]) -> Vec<u32> {
        let cost = |per_second, ns| Cost { per_second, ns: Some(ns) };
        let costs = costs.iter().map(|(id, uid, n, ns)| (attachment(*id, *uid), cost(*n, *ns)));
        let guilty = memory.judge(LIMITS, costs.collect(), SAMPLE);
        guilty.into_iter().map(|(attachment, _)| attachment.id).collect()
    }

    const NOBODY: [u32; 0] = [];
    const QUICK: (f64, f64) = (1e4, 400.0);

    #[test]
    fn a_policy_is_judged_by_decision_and_by_share() {
        let judge =
            |per_second, ns| LIMITS.judge(&mut Seen::default(), Cost { per_second, ns }, SAMPLE);
        assert_eq!(judge(1000.0, Some(400.0)), Verdict::Fine);
        assert_eq!(judge(0.0, None), Verdict::Undecided);
        // One that may have been interrupted.
        assert_eq!(judge(20.0, Some(1e6)), Verdict::Undecided);
        let why = |per_second, ns| match judge(per_second, Some(ns)) {
            Verdict::Broken(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(why(1000.0, 30_000.0).contains("30000 ns"));
        assert!(why(1_500_000.0, 400.0).contains("60 % of a CPU"));
        // Few and long ones, by the time that they take together.
        assert!(why(75.0, 13.2e6).contains("99 % of a CPU"));
    }

    #[test]
    fn a_limit_that_is_broken_twice_running_is_too_much_and_once_is_not() {
        let mut memory = Memory::default();
        assert_eq!(look(&mut memory, &[(1, 0, 75.0, 13.2e6)]), NOBODY);
        assert_eq!(look(&mut memory, &[(1, 0, QUICK.0, QUICK.1)]), NOBODY);
        assert_eq!(look(&mut memory, &[(1, 0, 75.0, 13.2e6)]), NOBODY);
        assert_eq!(look(&mut memory, &[(1, 0, 75.0, 13.2e6)]), [1]);
    }

    #[test]
    fn a_decision_a_sample_is_judged_when_there_were_enough() {
        let mut memory = Memory::default();
        let looks = (1..100).find(|_| !look(&mut memory, &[(1, 7, 20.0, 1e6)]).is_empty());
        assert_eq!(looks, Some(10));
    }

    #[test]
    fn who_puts_another_policy_in_the_place_of_his_is_the_same_suspect() {
        let mut memory = Memory::default();
        assert_eq!(look(&mut memory, &[(1, 7, 75.0, 13.2e6), (2, 8, QUICK.0, QUICK.1)]), NOBODY);
        assert_eq!(look(&mut memory, &[(3, 7, 75.0, 13.2e6), (2, 8, QUICK.0, QUICK.1)]), [3]);
        // Who was found out is believed no more for a while; his neighbour is.
        for _ in 0..50 {
            assert_eq!(look(&mut memory, &[(4, 7, QUICK.0, QUICK.1)]), NOBODY);
        }
        assert_eq!(look(&mut memory, &[(5, 7, 75.0, 13.2e6), (2, 8, 75.0, 13.2e6)]), [5]);
        // Root's are each for itself.
        assert_eq!(look(&mut memory, &[(6, 0, 75.0, 13.2e6)]), NOBODY);
        assert_eq!(look(&mut memory, &[(7, 0, 75.0, 13.2e6)]), NOBODY);
    }

    #[test]
    fn nobody_knows_when_he_is_looked_at() {
        let every = Duration::from_secs(5);
        let pauses: std::collections::BTreeSet<_> = (0..50).map(|_| pause(every)).collect();
        assert!(pauses.len() > 10);
        assert!(pauses.iter().all(|pause| (every / 2..every + every / 2).contains(pause)));
    }
}
