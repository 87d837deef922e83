//! The daemon's regular look: attachments whose sockets or owners are gone are removed, and policies that cost too much
//! are taken away. The kernel decides where a policy was.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use heddle_steer::engine::{Cost, Costs, Engine, Meter, Upkeep};
use heddle_steer::request::{Attachment, ErrorKind};

use crate::options::Options;

/// What a policy may cost.
#[derive(Clone, Copy, Debug)]
struct Limits {
    ns: f64,
    share: f64,
}

/// Decisions below which their mean says nothing: one of them may have been interrupted.
const MIN_RUNS: u64 = 5;

/// Decisions since their mean was last judged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct DecisionCounts {
    runs: u64,
    ns: u64,
}

/// What a look says of a policy.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    /// There were too few decisions yet.
    Undecided,
    Fine,
    /// It is too much, and why.
    Broken(String),
}

impl Limits {
    /// Adds a `cost` to what was `seen` of a policy, and judges the mean of a decision when there were enough of them, over as many
    /// looks as that takes.
    #[allow(clippy::cast_precision_loss, reason = "means for people")]
    fn judge(self, seen: &mut DecisionCounts, cost: Cost) -> Verdict {
        seen.runs += cost.runs;
        seen.ns = seen.ns.saturating_add(cost.ns);
        if seen.runs < MIN_RUNS {
            return Verdict::Undecided;
        }
        let DecisionCounts { runs, ns } = std::mem::take(seen);
        let mean = ns as f64 / runs as f64;
        if mean > self.ns {
            return Verdict::Broken(format!("{mean:.0} ns a decision, more than {:.0}", self.ns));
        }
        Verdict::Fine
    }
}

/// Who answers for a policy: its user, for he may put another in its place; for root's, each for itself.
type Suspect = (u32, u32);

fn suspect(attachment: &Attachment) -> Suspect {
    (attachment.uid, if attachment.uid == 0 { attachment.id } else { 0 })
}

/// How much suspicion a look adds in which a limit was broken, and how much is enough to take a policy away that breaks one now:
/// one look may have met a machine that was busy with something else, and two of four have not.
const BROKE: u32 = 3;
const ENOUGH: u32 = 4;
/// The suspicion against who was found out, which is the most there is.
const PROVEN: u32 = 100;

/// What is known from one look to the next.
#[derive(Debug, Default)]
struct Memory {
    /// By attachment.
    seen: BTreeMap<u32, DecisionCounts>,
    /// Who answers for each attachment of the last look.
    owners: BTreeMap<u32, Suspect>,
    /// What was seen, and not judged yet, of policies that are gone: it counts for what comes in their place.
    left: BTreeMap<Suspect, DecisionCounts>,
    /// Falls by one with a look in which policies of his were judged, none was too much, and of none is the judgement awaited:
    /// neither idling nor a quick policy beside a slow one helps.
    suspicion: BTreeMap<Suspect, u32>,
}

/// What a look says of all policies of one who answers for them.
#[derive(Default)]
struct Account {
    cost: f64,
    costliest: Option<(Attachment, f64)>,
    broken: Vec<(Attachment, String)>,
    is_fine: bool,
    is_awaited: bool,
}

impl Memory {
    /// Judges what all policies cost since the last look; those that are to be taken away, and why.
    fn judge(&mut self, limits: Limits, costs: Costs) -> Vec<(Attachment, String)> {
        self.forget_those_not_in(&costs);
        let mut accounts = BTreeMap::<Suspect, Account>::new();
        for (attachment, cost) in costs {
            let who = suspect(&attachment);
            let account = accounts.entry(who).or_default();
            let Ok(cost) = cost else {
                account.is_awaited = true;
                continue;
            };
            let left = &mut self.left;
            let new = || left.remove(&who).unwrap_or_default();
            let seen = self.seen.entry(attachment.id).or_insert_with(new);
            let verdict = limits.judge(seen, cost);
            account.is_awaited |= seen.runs > 0;
            account.is_fine |= verdict == Verdict::Fine;
            account.add(attachment, cost.share(), verdict);
        }
        let mut guilty = Vec::new();
        for (who, mut account) in accounts {
            account.judge(limits);
            guilty.extend(self.suspect(who, account));
        }
        let are_there = |who: &Suspect| who.0 != 0 || self.owners.contains_key(&who.1);
        self.suspicion.retain(|who, suspicion| *suspicion > 0 && are_there(who));
        guilty
    }

    fn forget_those_not_in(&mut self, costs: &Costs) {
        let users: BTreeMap<u32, Suspect> =
            costs.iter().map(|(attachment, _)| (attachment.id, suspect(attachment))).collect();
        let (seen, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.seen).into_iter().partition(|(id, _)| users.contains_key(id));
        self.seen = seen;
        for (id, seen) in gone {
            let Some(who) = self.owners.remove(&id).filter(|(uid, _)| *uid != 0) else { continue };
            let left = self.left.entry(who).or_default();
            (left.runs, left.ns) = (left.runs + seen.runs, left.ns.saturating_add(seen.ns));
        }
        self.owners = users;
    }

    /// Those of `account` that are to be taken away.
    fn suspect(&mut self, who: Suspect, account: Account) -> Vec<(Attachment, String)> {
        let suspicion = self.suspicion.entry(who).or_default();
        if account.broken.is_empty() {
            let is_cleared = account.is_fine && !account.is_awaited;
            *suspicion -= u32::from(is_cleared && *suspicion > 0);
            return Vec::new();
        }
        *suspicion = (*suspicion + BROKE).min(PROVEN);
        if *suspicion < ENOUGH {
            return Vec::new();
        }
        *suspicion = PROVEN;
        account.broken
    }
}

impl Account {
    fn add(&mut self, attachment: Attachment, share: f64, verdict: Verdict) {
        self.cost += share;
        if self.costliest.as_ref().is_none_or(|(_, most)| share > *most) {
            self.costliest = Some((attachment.clone(), share));
        }
        if let Verdict::Broken(why) = verdict {
            self.broken.push((attachment, why));
        }
    }

    /// The share is judged by the time that all decisions took together, however few they were: the costliest policy is too
    /// much.
    fn judge(&mut self, limits: Limits) {
        let Some((costliest, _)) = self.costliest.take() else { return };
        if self.cost > limits.share && self.broken.iter().all(|(other, _)| other.id != costliest.id)
        {
            let (percent, most) = (self.cost * 100.0, limits.share * 100.0);
            let why = format!("{percent:.0} % of a CPU for decisions, more than {most:.0} %");
            self.broken.push((costliest, why));
        }
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
        let (mut memory, mut meter) = (Memory::default(), Meter::default());
        loop {
            thread::sleep(pause(every));
            match engine.collect() {
                Ok(found) => report(&found),
                Err(error) => eprintln!("heddled: watch: {error}"),
            }
            if let Err(error) = engine.write_evicted() {
                eprintln!("heddled: an eviction is not recorded yet: {error}");
            }
            // Whatever went wrong before.
            match meter.costs(&engine, sample) {
                Ok(costs) => judge(&engine, limits, costs, &mut memory),
                Err(error) => eprintln!("heddled: watch: {error}"),
            }
        }
    })?;
    Ok(())
}

/// From a half to one and a half of `every`, so that what comes at regular intervals is met at all its moments.
fn pause(every: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) % 1024;
    every / 2 + every.mul_f64(f64::from(u16::try_from(random).unwrap_or(0)) / 1024.0)
}

/// Takes away what is too much.
fn judge(engine: &Engine, limits: Limits, costs: Costs, memory: &mut Memory) {
    for (attachment, cost) in &costs {
        if let Err(error) = cost {
            eprintln!("heddled: what attachment {} costs is not known: {error}", attachment.id);
        }
    }
    for (attachment, why) in memory.judge(limits, costs) {
        let (id, policy) = (attachment.id, attachment.policy);
        // One that cannot be taken away keeps no other in place.
        match engine.evict(id, &why) {
            Ok(()) => eprintln!("heddled: attachment {id} ({policy}) loses its policy: {why}"),
            Err(error) if error.kind == ErrorKind::NotFound && attachment.uid != 0 => {
                engine.bar(attachment.uid);
                eprintln!("heddled: attachment {id} ({policy}) has ended, but was too much: {why}");
            }
            Err(error) => {
                eprintln!("heddled: attachment {id} is to lose its policy ({why}): {error}");
            }
        }
    }
}

/// Tells what was dead, and what could not be told or removed.
pub fn report(found: &Upkeep) {
    for dead in &found.dead {
        let Attachment { id, policy, protocol, address, .. } = &dead.attachment;
        eprintln!(
            "heddled: attachment {id} ({policy} at {protocol} {address}) has ended: {}",
            dead.why
        );
    }
    for failed in &found.failed {
        eprintln!("heddled: {failed}");
    }
}

#[cfg(test)]
mod tests {
    use heddle_steer::request::Error;

    use super::*;

    const LIMITS: Limits = Limits { ns: 20_000.0, share: 0.5 };

    fn attachment(id: u32, uid: u32) -> Attachment {
        let text = format!(
            r#"{{"id":{id},"hook":"socket-select","policy":"p","parameters":[],"uid":{uid},"pid":1,"command":"","protocol":"udp","address":"","interface":null,"executors":[],"since_ms":0,"status":"active"}}"#
        );
        serde_json::from_str(&text).expect("a record")
    }

    /// What so many decisions of so many nanoseconds cost, in a second.
    fn cost(runs: u64, ns: u64) -> Cost {
        Cost { runs, ns: runs * ns, over: Duration::from_secs(1) }
    }

    /// The numbers of those that are too much: attachment, user, decisions, and nanoseconds of one.
    fn look(memory: &mut Memory, costs: &[(u32, u32, (u64, u64))]) -> Vec<u32> {
        let costs = costs
            .iter()
            .map(|(id, uid, (runs, ns))| (attachment(*id, *uid), Ok(cost(*runs, *ns))))
            .collect();
        memory.judge(LIMITS, costs).into_iter().map(|(attachment, _)| attachment.id).collect()
    }

    const NONE: [u32; 0] = [];
    const QUICK: (u64, u64) = (10_000, 400);
    /// By share.
    const SLOW: (u64, u64) = (75, 13_200_000);
    /// By its mean, at one decision a look.
    const RARE: (u64, u64) = (1, 1_000_000);
    const IDLE: (u64, u64) = (0, 0);

    #[test]
    fn the_mean_cost_is_judged_after_enough_decisions() {
        let judge = |runs, ns| LIMITS.judge(&mut DecisionCounts::default(), cost(runs, ns));
        assert_eq!(judge(1000, 400), Verdict::Fine);
        assert_eq!(judge(0, 0), Verdict::Undecided);
        // One that may have been interrupted.
        assert_eq!(judge(1, 1_000_000), Verdict::Undecided);
        assert!(matches!(judge(1000, 30_000), Verdict::Broken(why) if why.contains("30000 ns")));
    }

    #[test]
    fn the_share_counts_all_decisions_however_few() {
        let why = |costs: &[(u64, u64)]| {
            let mut memory = Memory::default();
            let costs = || {
                let one = |(id, (runs, ns)): (u32, &(u64, u64))| {
                    (attachment(id, 7), Ok(cost(*runs, *ns)))
                };
                (1..).zip(costs).map(one).collect()
            };
            memory.judge(LIMITS, costs());
            memory.judge(LIMITS, costs())
        };
        let many = why(&[(1_500_000, 400)]);
        assert!(many[0].1.contains("60 % of a CPU"), "{many:?}");
        // One that takes longer than the looks are apart.
        let long = why(&[(1, 1_800_000_000)]);
        assert!(long[0].1.contains("180 % of a CPU"), "{long:?}");
        // All of a user together, and the costliest goes.
        let both = why(&[(750_000, 400), (800_000, 400)]);
        assert_eq!(both.iter().map(|(one, _)| one.id).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn exceeding_a_limit_in_two_of_four_checks_evicts_and_once_does_not() {
        for fine in 0..4 {
            let mut memory = Memory::default();
            assert_eq!(look(&mut memory, &[(1, 0, SLOW)]), NONE);
            for _ in 0..fine {
                assert_eq!(look(&mut memory, &[(1, 0, QUICK)]), NONE);
            }
            let wanted = if fine < 3 { vec![1] } else { vec![] };
            assert_eq!(look(&mut memory, &[(1, 0, SLOW)]), wanted, "{fine} fine looks between");
        }
    }

    #[test]
    fn one_decision_per_check_is_judged_after_enough_checks() {
        let mut memory = Memory::default();
        let looks = (1..100).find(|_| !look(&mut memory, &[(1, 7, RARE)]).is_empty());
        assert_eq!(looks, Some(10));
    }

    #[test]
    fn a_fast_policy_beside_a_slow_one_clears_no_suspicion_nor_does_idling() {
        let mut memory = Memory::default();
        let looks =
            (1..100).find(|_| !look(&mut memory, &[(1, 7, RARE), (2, 7, QUICK)]).is_empty());
        assert_eq!(looks, Some(10));
        let mut memory = Memory::default();
        assert_eq!(look(&mut memory, &[(1, 7, SLOW)]), NONE);
        for _ in 0..50 {
            assert_eq!(look(&mut memory, &[(1, 7, IDLE)]), NONE);
        }
        assert_eq!(look(&mut memory, &[(1, 7, SLOW)]), [1]);
    }

    #[test]
    fn decisions_of_a_removed_policy_count_towards_its_users_next() {
        let mut memory = Memory::default();
        let looks = (1..100).find(|id| !look(&mut memory, &[(*id, 7, RARE)]).is_empty());
        assert_eq!(looks, Some(10));
    }

    #[test]
    fn unreadable_counters_clear_no_suspicion() {
        let mut memory = Memory::default();
        assert_eq!(look(&mut memory, &[(1, 7, SLOW), (2, 7, QUICK)]), NONE);
        let unknown = || Err(Error::new(ErrorKind::System, "no descriptor"));
        for _ in 0..50 {
            let costs =
                vec![(attachment(1, 7), unknown()), (attachment(2, 7), Ok(cost(1000, 400)))];
            assert!(memory.judge(LIMITS, costs).is_empty());
        }
        assert_eq!(look(&mut memory, &[(1, 7, SLOW), (2, 7, QUICK)]), [1]);
    }

    #[test]
    fn replacing_a_policy_keeps_the_suspicion_against_its_user() {
        let mut memory = Memory::default();
        assert_eq!(look(&mut memory, &[(1, 7, SLOW), (2, 8, QUICK)]), NONE);
        assert_eq!(look(&mut memory, &[(3, 7, SLOW), (2, 8, QUICK)]), [3]);
        // Who was found out is believed no more for a while; his neighbour is.
        for _ in 0..50 {
            assert_eq!(look(&mut memory, &[(4, 7, QUICK)]), NONE);
        }
        assert_eq!(look(&mut memory, &[(5, 7, SLOW), (2, 8, SLOW)]), [5]);
        // Root's are each for itself.
        assert_eq!(look(&mut memory, &[(6, 0, SLOW)]), NONE);
        assert_eq!(look(&mut memory, &[(7, 0, SLOW)]), NONE);
    }

    #[test]
    fn checks_come_at_random_intervals() {
        let every = Duration::from_secs(5);
        let pauses: std::collections::BTreeSet<_> = (0..50).map(|_| pause(every)).collect();
        assert!(pauses.len() > 10);
        assert!(pauses.iter().all(|pause| (every / 2..every + every / 2).contains(pause)));
    }
}
