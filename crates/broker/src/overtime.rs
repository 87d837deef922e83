//! Members that keep a CPU which others have been waiting for.
//!
//! A member that waits complains to the broker, again and again. The broker notes since when it has seen the same one
//! active with the same word: that it moved on meanwhile cannot be overlooked, since each step changes the word. The
//! times that members write are not used.

use heddle_core::Ns;
use heddle_share::Slot;
use heddle_share::handover::State;

/// How long a member may keep a CPU after a better one has complained.
const PATIENCE: Ns = Ns::from_ms(10);

/// How many of its slices a member may keep a CPU for which an equal waits.
const SLICES: u64 = 10;

/// A member and what it says of a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    pub app: usize,
    pub rank: u32,
    pub weight: u32,
    pub slot: Slot,
}

/// What a member that waits for a CPU complains of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The active member.
    pub active: usize,
    /// Its word.
    pub word: u32,
    /// When the broker heard of it first.
    pub since: Ns,
    /// The CPU time of its threads there then, by the kernel; `None` if that does not matter.
    pub ran: Option<Ns>,
}

/// A member `waiter` complains about a CPU, of which all members say what is `seen`. Returns the complaint about a
/// member that must lose the CPU. One whose threads slept most of the time, by `ran`, was in no real-time thread's way.
pub fn judge(
    seen: &[Observation],
    waiter: usize,
    complaints: &mut Vec<Complaint>,
    ran: impl Fn(usize) -> Option<Ns>,
    slice: Ns,
    now: Ns,
) -> Option<Complaint> {
    let waiting = seen.iter().find(|it| it.app == waiter && it.slot.state == State::Wanting);
    let Some(waiting) = waiting else {
        complaints.clear();
        return None;
    };
    let active = |it: &&Observation| it.slot.state == State::Active && it.rank >= waiting.rank;
    let active: Vec<&Observation> = seen.iter().filter(active).collect();
    let is_there =
        |it: &Observation, about: &Complaint| (it.app, it.slot.word) == (about.active, about.word);
    complaints.retain(|about| active.iter().any(|it| is_there(it, about)));
    for it in active {
        let ran = ran(it.app);
        let anew = Complaint { active: it.app, word: it.slot.word, since: now, ran };
        let Some(first) = complaints.iter_mut().find(|about| is_there(it, about)) else {
            complaints.push(anew);
            continue;
        };
        let passed = now - first.since;
        if passed >= patience(waiting, it, slice) {
            if ran.zip(first.ran).is_none_or(|(ran, before)| (ran - before).0 >= passed.0 / 4) {
                return Some(*first);
            }
            *first = anew;
        }
    }
    None
}

fn patience(waiting: &Observation, active: &Observation, slice: Ns) -> Ns {
    match waiting.rank < active.rank {
        true => PATIENCE,
        false => Ns(slice.0.saturating_mul(SLICES * u64::from(active.weight)) / 1024).max(PATIENCE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(app: usize, rank: u32, state: State, count: u32) -> Observation {
        let word = state.after(count * 4);
        let slot = Slot {
            state,
            word,
            since: u64::MAX,
            tid: 0,
            switches: 0,
            broken: 0,
            asked: 0,
            made_way: 0,
            stood_in: 0,
            active_ns: 0,
            cpu_time_then: 0,
            waited_ns: 0,
            longest_wait_ns: 0,
        };
        Observation { app, rank, weight: 1024, slot }
    }

    fn judged(all: &[Observation], complaints: &mut Vec<Complaint>, ms: u64) -> Option<usize> {
        let found = judge(all, 0, complaints, |_| None, Ns::from_ms(3), Ns::from_ms(ms));
        found.map(|complaint| complaint.active)
    }

    #[test]
    fn one_that_keeps_the_cpu_from_a_better_one_loses_it_after_a_while() {
        let all = [seen(0, 0, State::Wanting, 1), seen(1, 1, State::Active, 1)];
        let mut complaint = Vec::new();
        assert_eq!(judged(&all, &mut complaint, 100), None);
        assert_eq!(judged(&all, &mut complaint, 109), None);
        assert_eq!(judged(&all, &mut complaint, 110), Some(1));
    }

    #[test]
    fn one_that_has_moved_meanwhile_starts_anew() {
        let waiting = seen(0, 0, State::Wanting, 1);
        let mut complaint = Vec::new();
        assert_eq!(judged(&[waiting, seen(1, 1, State::Active, 1)], &mut complaint, 0), None);
        assert_eq!(judged(&[waiting, seen(1, 1, State::Active, 2)], &mut complaint, 50), None);
        assert_eq!(complaint[0].since, Ns::from_ms(50));
        assert_eq!(judged(&[waiting, seen(1, 1, State::Idle, 3)], &mut complaint, 99), None);
        assert_eq!(complaint, []);
    }

    #[test]
    fn one_that_does_not_wait_complains_in_vain() {
        let mut complaint = Vec::new();
        for state in [State::Idle, State::Active] {
            let all = [seen(0, 0, state, 1), seen(1, 1, State::Active, 1)];
            assert!((0..5).all(|s| judged(&all, &mut complaint, s * 1000).is_none()), "{state:?}");
        }
    }

    #[test]
    fn an_equal_has_its_slices_and_a_better_one_the_cpu() {
        let equal = [seen(0, 0, State::Wanting, 1), seen(1, 0, State::Active, 1)];
        let mut complaint = Vec::new();
        assert_eq!(judged(&equal, &mut complaint, 0), None);
        assert_eq!(judged(&equal, &mut complaint, 29), None);
        assert_eq!(judged(&equal, &mut complaint, 30), Some(1));
        let better = [seen(0, 1, State::Wanting, 1), seen(1, 0, State::Active, 1)];
        let mut complaint = Vec::new();
        assert!((0..5).all(|s| judged(&better, &mut complaint, s * 1000).is_none()));
    }

    #[test]
    fn one_that_sleeps_is_no_hindrance_and_does_not_hide_one_that_runs() {
        let all = [
            seen(0, 0, State::Wanting, 1),
            seen(1, 1, State::Active, 1),
            seen(2, 1, State::Active, 1),
        ];
        let mut complaints = Vec::new();
        let mut at = |ms: u64, ran: [u64; 2]| {
            let ran = |app: usize| Some(Ns::from_ms(ran[app - 1]));
            let found = judge(&all, 0, &mut complaints, ran, Ns::from_ms(3), Ns::from_ms(ms));
            found.map(|complaint| complaint.active)
        };
        assert_eq!(at(0, [7, 7]), None);
        assert_eq!(at(20, [7, 8]), None, "both slept");
        assert_eq!(at(40, [7, 28]), Some(2));
    }
}
