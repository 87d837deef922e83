//! The daemon's periodic check: removes attachments whose sockets or owners are gone, and evicts policies
//! that cost too much. The kernel then decides instead.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use heddle_steer::engine::{Cost, Costs, Engine, Meter, Upkeep};
use heddle_steer::request::{Attachment, ErrorKind};

use crate::options::Options;

/// The limits on a policy's cost.
#[derive(Clone, Copy, Debug)]
struct Limits {
    ns: f64,
    share: f64,
}

/// Below this many decisions the mean is meaningless: one of them may have been interrupted.
const MIN_RUNS: u64 = 5;

/// Decisions since their mean was last judged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct DecisionCounts {
    runs: u64,
    ns: u64,
}

/// The result of a check for a policy.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    /// Too few decisions so far.
    Undecided,
    Fine,
    /// It exceeds a limit; the reason.
    Broken(String),
}

impl Limits {
    /// Adds `cost` to what was `seen` of a policy, and judges the mean of a decision once there are enough,
    /// over as many checks as that takes.
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

/// Who is responsible for a policy: its user, who could replace it by another; root's policies are judged
/// separately.
type Suspect = (u32, u32);

fn suspect(attachment: &Attachment) -> Suspect {
    (attachment.uid, if attachment.uid == 0 { attachment.id } else { 0 })
}

/// The suspicion added by a check in which a limit was exceeded, and the level that evicts a policy exceeding
/// one now: a single check may have coincided with other load on the machine; two of four did not.
const BROKE: u32 = 3;
const ENOUGH: u32 = 4;
/// The suspicion after an eviction, which is the maximum.
const PROVEN: u32 = 100;

/// State kept between checks.
#[derive(Debug, Default)]
struct Memory {
    /// By attachment.
    seen: BTreeMap<u32, DecisionCounts>,
    /// The suspect for each attachment of the last check.
    owners: BTreeMap<u32, Suspect>,
    /// Decisions of removed policies, not judged yet: they count towards their successors.
    left: BTreeMap<Suspect, DecisionCounts>,
    /// Decreases by one per check in which at least one of the user's policies was judged, none exceeded a
    /// limit, and no verdict is pending: neither idling nor a fast policy beside a slow one helps.
    suspicion: BTreeMap<Suspect, u32>,
}

/// The result of a check for all policies of one suspect.
#[derive(Default)]
struct Account {
    cost: f64,
    costliest: Option<(Attachment, f64)>,
    broken: Vec<(Attachment, String)>,
    is_fine: bool,
    is_awaited: bool,
}

impl Memory {
    /// Judges the cost of all policies since the last check; returns those to evict, with the reasons.
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

    /// Returns the policies of `account` to evict.
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

    /// Judges the share by the total time of all decisions, however few: the costliest policy is evicted.
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

/// Starts the watch.
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
            // Even if the steps before failed.
            match meter.costs(&engine, sample) {
                Ok(costs) => judge(&engine, limits, costs, &mut memory),
                Err(error) => eprintln!("heddled: watch: {error}"),
            }
        }
    })?;
    Ok(())
}

/// Returns a random time from half to one and a half of `every`, so that periodic behaviour cannot evade the
/// checks.
fn pause(every: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) % 1024;
    every / 2 + every.mul_f64(f64::from(u16::try_from(random).unwrap_or(0)) / 1024.0)
}

/// Evicts policies that exceed their limits.
fn judge(engine: &Engine, limits: Limits, costs: Costs, memory: &mut Memory) {
    for (attachment, cost) in &costs {
        if let Err(error) = cost {
            eprintln!("heddled: what attachment {} costs is not known: {error}", attachment.id);
        }
    }
    for (attachment, why) in memory.judge(limits, costs) {
        let (id, policy) = (attachment.id, attachment.policy);
        // A failed eviction must not prevent others.
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

/// Logs dead attachments, and failed checks and removals.
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

    /// The cost of `runs` decisions of `ns` nanoseconds each, in a second.
    fn cost(runs: u64, ns: u64) -> Cost {
        Cost { runs, ns: runs * ns, over: Duration::from_secs(1) }
    }

    /// Runs a check with (attachment, user, (decisions, nanoseconds each)); returns the ids of those evicted.
    fn look(memory: &mut Memory, costs: &[(u32, u32, (u64, u64))]) -> Vec<u32> {
        let costs = costs
            .iter()
            .map(|(id, uid, (runs, ns))| (attachment(*id, *uid), Ok(cost(*runs, *ns))))
            .collect();
        memory.judge(LIMITS, costs).into_iter().map(|(attachment, _)| attachment.id).collect()
    }

    const NONE: [u32; 0] = [];
    const QUICK: (u64, u64) = (10_000, 400);
    /// Exceeds the share.
    const SLOW: (u64, u64) = (75, 13_200_000);
    /// Exceeds the mean, at one decision per check.
    const RARE: (u64, u64) = (1, 1_000_000);
    const IDLE: (u64, u64) = (0, 0);

    #[test]
    fn the_mean_cost_is_judged_after_enough_decisions() {
        let judge = |runs, ns| LIMITS.judge(&mut DecisionCounts::default(), cost(runs, ns));
        assert_eq!(judge(1000, 400), Verdict::Fine);
        assert_eq!(judge(0, 0), Verdict::Undecided);
        // It may have been interrupted.
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
        // One decision longer than the interval between checks.
        let long = why(&[(1, 1_800_000_000)]);
        assert!(long[0].1.contains("180 % of a CPU"), "{long:?}");
        // All of a user's count together, and the costliest is evicted.
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
        // After an eviction a user is distrusted for a while; other users are not.
        for _ in 0..50 {
            assert_eq!(look(&mut memory, &[(4, 7, QUICK)]), NONE);
        }
        assert_eq!(look(&mut memory, &[(5, 7, SLOW), (2, 8, SLOW)]), [5]);
        // Root's are judged separately.
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
