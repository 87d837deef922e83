//! How members of one CPU hand it over: the protocol, whatever carries it.
//!
//! ```text
//!            want              claim, and no other is active
//!   Idle ------------> Wanting ------------------------------> Active
//!    ^                  ^   ^------ claim, another is active ----|
//!    |                  +---------------- make way --------------|
//!    +--------------------------- leave --------------------------
//! ```
//!
//! - Only the member writes its own word. It writes, fences, and then reads the others' words; of two members that do
//!   so at once at least one sees the other. So two claims never both succeed, and neither is a wish overlooked by one
//!   that leaves.
//! - A member that must wait sleeps on the word of the one that is before it: the active one, or a better one that
//!   wants the CPU too. The kernel compares the word under its own lock, and every change of it is a new number, so the
//!   sleep does not begin once that member has moved on.
//! - One that leaves wakes the best that wants, on whichever word it sleeps. A waiter that wakes looks at
//!   everything again; a wake is no grant.
//! - One that is about to wait for a better one that wants wakes it too: it may sleep on the word of a third that
//!   has gone, or of the caller, whose claim it took for success. So of those that want, none sleeps while none is
//!   active unless it has woken another, which looks after it.
//! - All members put others in the same order: by rank, then by when they began to want, then by number.
//! - A member that the kernel lets *preempt* another, by its real-time priority, does not wait for it: it takes the CPU
//!   although the other is active, and the other goes on when it sleeps. Of the rest one is active at a time.
//!
//! What happens if one dies at any point: the broker takes it out of the set of members and wakes every waiter. Without
//! a broker a waiter looks again after a while by itself.

use crate::abi::APPS;

/// The state of a member on a CPU: the two low bits of its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does not want the CPU.
    Idle,
    /// It wants the CPU, and waits.
    Wanting,
    /// It has the CPU.
    Active,
}

impl State {
    /// Returns the state in a member's word. Whatever the word holds is some state.
    #[must_use]
    pub fn of(word: u32) -> State {
        match word & 3 {
            2 => State::Active,
            1 => State::Wanting,
            _ => State::Idle,
        }
    }

    /// Returns the word that follows `word`, with this state: a number that the word has not had for long.
    #[must_use]
    pub fn after(self, word: u32) -> u32 {
        (word & !3).wrapping_add(4) | self as u32
    }
}

/// No application, where an application's number is expected.
pub const NO_APP: u32 = u32::MAX;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Some member has moved, or it is not known: look again.
    Moved,
    /// The awaited member has not moved, and its thread sleeps in the kernel: the waiter's thread runs, and on this CPU
    /// it could not otherwise.
    StandIn,
}

/// One shared CPU as one of its members reaches it. Words are read with acquire order at least, and written with
/// release order and a full fence behind.
pub trait Cpu {
    /// Returns the caller's number.
    fn me(&self) -> usize;
    /// Returns the set of members, a bit each.
    fn members(&self) -> u32;
    /// Returns a member's rank. Lower ones go first.
    fn rank(&self, app: usize) -> u32;
    /// Returns a member's word.
    fn word(&self, app: usize) -> u32;
    /// Sets the caller's word, and fences.
    fn set_word(&self, word: u32);
    /// Returns when a member's state began.
    fn since(&self, app: usize) -> u64;
    /// Returns whether the kernel runs the caller's threads before those of `app`, whatever those do.
    fn preempts(&self, app: usize) -> bool;
    /// Notes that the caller begins to want, now, and sleeps on nobody's word.
    fn begin_want(&self);
    /// Returns on whose word a member sleeps, or will; [`NO_APP`] if it needs no wake.
    fn waits_on(&self, app: usize) -> u32;
    /// Notes that the caller sleeps on the word of `app`, fences, and sleeps there until woken, unless that is not
    /// `word`. May return early.
    fn sleep(&self, app: usize, word: u32) -> Woken;
    /// Wakes `waiter` if it sleeps on the word of `app`.
    fn wake(&self, app: usize, waiter: usize);
    /// Asks an active member to make way. Called once for each of its words, and after each wait.
    fn ask(&self, app: usize);
    /// Notes that the next member became active before the caller slept.
    fn broke_rule(&self);
    /// Notes that the caller is active in place of one that sleeps in the kernel.
    fn stands_in(&self);
}

/// Who is before the caller, and its word.
type Ahead = (usize, u32);

/// For each member that was found to sleep in the kernel its word then, which stands for that until the member has
/// moved; 0, which is idle, for the others.
type Absent = [u32; APPS];

/// The caller has work for the CPU: waits until it is active there.
pub fn enter(cpu: &impl Cpu) {
    want(cpu);
    take(cpu, None);
}

/// The active caller has no work: leaves the CPU to a member that wants it.
pub fn leave(cpu: &impl Cpu) {
    set(cpu, State::Idle);
    pass_on(cpu, |_| true);
}

/// The active caller makes way for members that are before it, and waits until it is active again.
pub fn make_way(cpu: &impl Cpu) {
    want(cpu);
    let own = key(cpu, cpu.me());
    let next = pass_on(cpu, |app| key(cpu, app) < own);
    take(cpu, next);
}

/// Returns a member of a better rank that waits for the active caller to make way.
pub fn rival(cpu: &impl Cpu) -> Option<usize> {
    let rank = cpu.rank(cpu.me());
    others(cpu).find(|&app| State::of(cpu.word(app)) == State::Wanting && cpu.rank(app) < rank)
}

/// Returns a member of the active caller's rank that waits.
pub fn equal(cpu: &impl Cpu) -> Option<usize> {
    let rank = cpu.rank(cpu.me());
    others(cpu).find(|&app| State::of(cpu.word(app)) == State::Wanting && cpu.rank(app) == rank)
}

/// Returns whether there is another member that the caller is before, or equal to, and that it does not preempt.
pub fn has_peer_behind(cpu: &impl Cpu) -> bool {
    let rank = cpu.rank(cpu.me());
    others(cpu).any(|app| cpu.rank(app) >= rank && !cpu.preempts(app))
}

/// Returns whether there is a member that is before the caller by its rank.
pub fn has_better(cpu: &impl Cpu) -> bool {
    let rank = cpu.rank(cpu.me());
    others(cpu).any(|app| cpu.rank(app) < rank)
}

/// Returns another member that is active, and that the caller does not preempt.
pub fn active(cpu: &impl Cpu) -> Option<usize> {
    others(cpu).find(|&app| State::of(cpu.word(app)) == State::Active && !cpu.preempts(app))
}

fn set(cpu: &impl Cpu, state: State) {
    cpu.set_word(state.after(cpu.word(cpu.me())));
}

fn want(cpu: &impl Cpu) {
    cpu.begin_want();
    set(cpu, State::Wanting);
}

/// Waits until the caller, which wants the CPU, is active. It has woken `roused` since it does.
fn take(cpu: &impl Cpu, mut roused: Option<usize>) {
    let (mut absent, mut asked) = ([0; APPS], None);
    loop {
        let Some(ahead) = ahead(cpu, &absent) else {
            if claim(cpu, &absent) {
                break;
            }
            roused = None;
            continue;
        };
        let (app, word) = ahead;
        if State::of(word) == State::Active {
            roused = None;
            if cpu.rank(cpu.me()) < cpu.rank(app) && asked != Some(ahead) {
                asked = Some(ahead);
                cpu.ask(app);
            }
        } else if roused != Some(app) {
            // Once: more wakes could keep it from finding that whom it waits for sleeps in the kernel.
            roused = Some(app);
            // It looks again even if it is about to sleep on the caller's word.
            set(cpu, State::Wanting);
            wake(cpu, app);
        }
        match cpu.sleep(app, word) {
            Woken::StandIn => absent[app] = word,
            Woken::Moved => asked = None,
        }
    }
    if absent != [0; APPS] && active(cpu).is_some() {
        cpu.stands_in();
    }
}

/// Becomes active, unless another is: then the caller still wants.
fn claim(cpu: &impl Cpu, absent: &Absent) -> bool {
    set(cpu, State::Active);
    let alone = !others(cpu).any(|app| is_present(cpu, app, cpu.word(app), absent));
    if !alone {
        set(cpu, State::Wanting);
    }
    alone
}

/// Returns whether the member is active, not known to sleep in the kernel, and not preempted by the caller.
fn is_present(cpu: &impl Cpu, app: usize, word: u32, absent: &Absent) -> bool {
    State::of(word) == State::Active && absent[app] != word && !cpu.preempts(app)
}

/// Returns who is before the caller: the active member, or else the best that wants the CPU and is better.
fn ahead(cpu: &impl Cpu, absent: &Absent) -> Option<Ahead> {
    let mut words = [0; APPS];
    for app in others(cpu) {
        words[app] = cpu.word(app);
        if is_present(cpu, app, words[app], absent) {
            return Some((app, words[app]));
        }
    }
    // Times are read after the words: a member whose time is of a later word has moved, and is not waited for.
    let own = key(cpu, cpu.me());
    others(cpu)
        .filter(|&app| State::of(words[app]) == State::Wanting && absent[app] != words[app])
        .map(|app| (key(cpu, app), (app, words[app])))
        .filter(|&(key, _)| key < own)
        .min()
        .map(|(_, ahead)| ahead)
}

/// Wakes the best member that wants the CPU, if `may` be. Returns that member.
fn pass_on(cpu: &impl Cpu, may: impl Fn(usize) -> bool) -> Option<usize> {
    // The active one wakes the next.
    if active(cpu).is_some() {
        return None;
    }
    // One that was preempted goes on by itself, and is before those that wait for it.
    let is_preempted = |app| State::of(cpu.word(app)) == State::Active && cpu.preempts(app);
    let goes_on = others(cpu).any(is_preempted);
    let wants = |&app: &usize| {
        State::of(cpu.word(app)) == State::Wanting && !(goes_on && cpu.preempts(app))
    };
    let next = others(cpu).filter(wants).min_by_key(|&app| key(cpu, app))?;
    if !may(next) {
        return None;
    }
    wake(cpu, next);
    if State::of(cpu.word(next)) == State::Active {
        cpu.broke_rule();
    }
    Some(next)
}

/// Wakes a member that wants the CPU, on whichever word it sleeps.
fn wake(cpu: &impl Cpu, app: usize) {
    let on = cpu.waits_on(app);
    if on != NO_APP {
        cpu.wake(on as usize, app);
    }
}

/// The place of a member in the order of all that want the CPU.
fn key(cpu: &impl Cpu, app: usize) -> (u32, u64, usize) {
    (cpu.rank(app), cpu.since(app), app)
}

/// Returns all members but the caller.
pub fn others(cpu: &impl Cpu) -> impl Iterator<Item = usize> {
    let mut left = cpu.members() & !(1 << cpu.me());
    std::iter::from_fn(move || {
        let app = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (app < u32::BITS).then_some(app as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members that do not move.
    #[derive(Default)]
    struct Fixed {
        ranks: Vec<u32>,
        words: Vec<u32>,
        since: Vec<u64>,
        members: u32,
        realtime: bool,
    }

    const ME: usize = 1;

    impl Cpu for Fixed {
        fn me(&self) -> usize {
            ME
        }

        fn members(&self) -> u32 {
            self.members
        }

        fn rank(&self, app: usize) -> u32 {
            self.ranks[app]
        }

        fn word(&self, app: usize) -> u32 {
            self.words[app]
        }

        fn since(&self, app: usize) -> u64 {
            self.since[app]
        }

        fn preempts(&self, app: usize) -> bool {
            self.realtime && self.ranks[ME] == 0 && self.ranks[app] != 0
        }

        fn waits_on(&self, _: usize) -> u32 {
            NO_APP
        }

        fn set_word(&self, _: u32) {}

        fn begin_want(&self) {}

        fn sleep(&self, _: usize, _: u32) -> Woken {
            unreachable!()
        }

        fn wake(&self, _: usize, _: usize) {}

        fn ask(&self, _: usize) {}

        fn broke_rule(&self) {}

        fn stands_in(&self) {}
    }

    /// Makes members of these ranks and states, of which the second is the caller.
    fn fixed<const N: usize>(of: [(u32, State); N]) -> Fixed {
        Fixed {
            ranks: of.map(|(rank, _)| rank).into(),
            words: of.map(|(_, state)| state.after(0)).into(),
            since: vec![0; N],
            members: (1 << N) - 1,
            realtime: false,
        }
    }

    use State::{Active, Idle, Wanting};

    #[test]
    fn a_word_is_a_state_and_a_number_that_wraps_around() {
        for state in [Idle, Wanting, Active] {
            for word in [0, 1, 2, 3, 4, u32::MAX - 4, u32::MAX] {
                let after = state.after(word);
                assert_eq!(State::of(after), state);
                assert_eq!(after >> 2, (word >> 2).wrapping_add(1) & (u32::MAX >> 2));
                assert_ne!(after, word);
            }
        }
        assert_eq!(Active.after(u32::MAX), 2);
        assert_eq!(State::of(3), Idle);
    }

    #[test]
    fn the_order_is_by_rank_then_time_then_number() {
        let mut cpu = fixed([(1, Wanting), (1, Wanting), (0, Wanting), (1, Wanting)]);
        let order = |cpu: &Fixed| {
            let mut all = [0, 1, 2, 3];
            all.sort_by_key(|&app| key(cpu, app));
            all
        };
        assert_eq!(order(&cpu), [2, 0, 1, 3]);
        cpu.since = vec![7, 5, 9, 6];
        assert_eq!(order(&cpu), [2, 1, 3, 0]);
        assert_eq!(ahead(&cpu, &[0; APPS]), Some((2, cpu.words[2])));
    }

    #[test]
    fn the_active_one_is_ahead_of_all_that_want() {
        let cpu = fixed([(0, Wanting), (1, Wanting), (2, Active)]);
        let mut absent = [0; APPS];
        assert_eq!(ahead(&cpu, &absent), Some((2, cpu.words[2])));
        absent[2] = cpu.words[2];
        assert_eq!(ahead(&cpu, &absent), Some((0, cpu.words[0])));
        absent[0] = cpu.words[0];
        assert_eq!(ahead(&cpu, &absent), None);
        absent[2] = Active.after(cpu.words[2]);
        assert_eq!(ahead(&cpu, &absent), Some((2, cpu.words[2])), "it has moved since");
    }

    #[test]
    fn one_that_the_caller_preempts_is_not_ahead() {
        let mut cpu = fixed([(1, Active), (0, Wanting), (1, Wanting)]);
        let absent = [0; APPS];
        assert_eq!(ahead(&cpu, &absent), Some((0, cpu.words[0])));
        cpu.realtime = true;
        assert_eq!((ahead(&cpu, &absent), active(&cpu)), (None, None));
        assert!(!has_peer_behind(&cpu));
        assert_eq!(pass_on(&cpu, |_| true), None, "who waits for the preempted one sleeps on");
        cpu.ranks[2] = 0;
        assert_eq!(pass_on(&cpu, |_| true), Some(2));
        assert!(has_peer_behind(&cpu));
        cpu.ranks[ME] = 1;
        assert_eq!(ahead(&cpu, &absent), Some((0, cpu.words[0])));
    }

    #[test]
    fn a_rival_wants_and_is_before_the_caller_by_rank() {
        let is_rival = |rank, state| {
            let mut cpu = fixed([(rank, state), (1, Active)]);
            cpu.since = vec![0, 9];
            rival(&cpu) == Some(0)
        };
        assert!(is_rival(0, Wanting));
        assert!(!is_rival(0, Idle));
        assert!(!is_rival(0, Active));
        assert!(!is_rival(1, Wanting), "who waits longer is no rival");
        assert!(!is_rival(2, Wanting));
    }

    #[test]
    fn an_equal_wants_and_has_the_same_rank() {
        assert_eq!(equal(&fixed([(1, Wanting), (1, Active)])), Some(0));
        assert_eq!(equal(&fixed([(1, Idle), (1, Active), (1, Wanting)])), Some(2));
        assert_eq!(equal(&fixed([(1, Idle), (1, Active), (0, Wanting), (2, Wanting)])), None);
    }

    #[test]
    fn peers_are_behind_by_rank_whatever_they_do() {
        assert!(has_peer_behind(&fixed([(1, Idle), (1, Active)])));
        assert!(has_peer_behind(&fixed([(0, Idle), (1, Active), (2, Idle)])));
        assert!(!has_peer_behind(&fixed([(0, Wanting), (1, Active)])));
        assert!(!has_peer_behind(&fixed([(0, Wanting), (1, Active), (0, Idle)])));
        assert!(has_better(&fixed([(0, Idle), (1, Active)])));
        assert!(!has_better(&fixed([(1, Idle), (1, Active), (2, Wanting)])));
    }

    #[test]
    fn only_members_count_and_the_caller_does_not() {
        let mut cpu = fixed([(0, Wanting), (1, Active), (0, Active), (0, Wanting)]);
        assert!(others(&cpu).eq([0, 2, 3]));
        assert_eq!(active(&cpu), Some(2));
        cpu.members = 0b1010;
        assert!(others(&cpu).eq([3]));
        assert_eq!((active(&cpu), rival(&cpu)), (None, Some(3)));
        cpu.members = 1 << 31;
        assert!(others(&cpu).eq([31]));
    }
}
