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
//! - One that leaves wakes the best that wants, on whichever word that one sleeps. A waiter that wakes looks at
//!   everything again; a wake is no grant.
//! - One that is about to wait for a better one that wants wakes it too: that one may sleep on the word of a third that
//!   has gone, or of the caller, whose claim it took for success, or by an order that the broker has changed since. So
//!   of those that want, nobody sleeps while none is active unless it has woken another, which looks after it.
//! - All members put others in the same order: by rank, then whose turn it is by the broker's word, then by when they
//!   began to want, then by number.
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

/// Nobody, where an application's number is expected.
pub const NOBODY: u32 = u32::MAX;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Somebody has moved, or nobody knows: look again.
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
    /// Returns the member whose turn it is among equals.
    fn turn(&self) -> u32;
    /// Returns a member's word.
    fn word(&self, app: usize) -> u32;
    /// Sets the caller's word, and fences.
    fn set_word(&self, word: u32);
    /// Returns when a member's state began.
    fn since(&self, app: usize) -> u64;
    /// Notes that the caller begins to want, now, and sleeps on nobody's word.
    fn begin_want(&self);
    /// Returns on whose word a member sleeps, or will; [`NOBODY`] if it needs no wake.
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
    take(cpu);
}

/// The active caller has no work: leaves the CPU to whoever wants it. Returns whether any other member does.
pub fn leave(cpu: &impl Cpu) -> bool {
    set(cpu, State::Idle);
    pass_on(cpu, |_| true)
}

/// The active caller makes way for members that are before it, and waits until it is active again.
pub fn make_way(cpu: &impl Cpu) {
    want(cpu);
    let own = key(cpu, cpu.me());
    pass_on(cpu, |app| key(cpu, app) < own);
    take(cpu);
}

/// Returns a member that waits for the active caller to make way, because of its rank or because it is its turn.
pub fn rival(cpu: &impl Cpu) -> Option<usize> {
    let me = cpu.me();
    let own = (cpu.rank(me), cpu.turn() != me as u32);
    others(cpu).find(|&app| {
        State::of(cpu.word(app)) == State::Wanting
            && (cpu.rank(app), cpu.turn() != app as u32) < own
    })
}

/// Returns a member of the active caller's rank that waits.
pub fn equal(cpu: &impl Cpu) -> Option<usize> {
    let rank = cpu.rank(cpu.me());
    others(cpu).find(|&app| State::of(cpu.word(app)) == State::Wanting && cpu.rank(app) == rank)
}

/// Returns whether there is another member that the caller is before, or equal to.
pub fn has_peer_behind(cpu: &impl Cpu) -> bool {
    let rank = cpu.rank(cpu.me());
    others(cpu).any(|app| cpu.rank(app) >= rank)
}

/// Returns whether there is a member that is before the caller by its rank.
pub fn has_better(cpu: &impl Cpu) -> bool {
    let rank = cpu.rank(cpu.me());
    others(cpu).any(|app| cpu.rank(app) < rank)
}

/// Returns whether there is a member that the caller is before by its rank.
pub fn has_worse(cpu: &impl Cpu) -> bool {
    let rank = cpu.rank(cpu.me());
    others(cpu).any(|app| cpu.rank(app) > rank)
}

/// Returns the member that is active, if it is not the caller.
pub fn active(cpu: &impl Cpu) -> Option<usize> {
    others(cpu).find(|&app| State::of(cpu.word(app)) == State::Active)
}

fn set(cpu: &impl Cpu, state: State) {
    cpu.set_word(state.after(cpu.word(cpu.me())));
}

fn want(cpu: &impl Cpu) {
    cpu.begin_want();
    set(cpu, State::Wanting);
}

fn take(cpu: &impl Cpu) {
    let (mut absent, mut asked) = ([0; APPS], None);
    loop {
        let Some(ahead) = ahead(cpu, &absent) else {
            if claim(cpu, &absent) {
                break;
            }
            continue;
        };
        let (app, word) = ahead;
        let yields = State::of(word) == State::Active && cpu.rank(cpu.me()) < cpu.rank(app);
        if yields && asked != Some(ahead) {
            asked = Some(ahead);
            cpu.ask(app);
        }
        if State::of(word) == State::Wanting {
            // It looks again even if it is about to sleep on the caller's word.
            set(cpu, State::Wanting);
            wake(cpu, app);
        }
        match cpu.sleep(app, word) {
            Woken::StandIn => absent[app] = word,
            Woken::Moved => asked = None,
        }
    }
    let is_absent = |app| State::of(cpu.word(app)) == State::Active;
    if absent != [0; APPS] && others(cpu).any(is_absent) {
        cpu.stands_in();
    }
}

/// Becomes active, unless another is: then the caller still wants.
fn claim(cpu: &impl Cpu, absent: &Absent) -> bool {
    set(cpu, State::Active);
    let alone = !others(cpu).any(|app| is_present(app, cpu.word(app), absent));
    if !alone {
        set(cpu, State::Wanting);
    }
    alone
}

/// Returns whether the member is active, and not known to sleep in the kernel.
fn is_present(app: usize, word: u32, absent: &Absent) -> bool {
    State::of(word) == State::Active && absent[app] != word
}

/// Returns who is before the caller: the active member, or else the best that wants the CPU and is better.
fn ahead(cpu: &impl Cpu, absent: &Absent) -> Option<Ahead> {
    let own = key(cpu, cpu.me());
    let mut best = None;
    for app in others(cpu) {
        let word = cpu.word(app);
        if is_present(app, word, absent) {
            return Some((app, word));
        }
        if State::of(word) == State::Wanting && absent[app] != word {
            let key = key(cpu, app);
            if key < own && best.is_none_or(|(least, _)| key < least) {
                best = Some((key, (app, word)));
            }
        }
    }
    best.map(|(_, ahead)| ahead)
}

/// Wakes the best member that wants the CPU, if `may` be. Returns whether one wants it.
fn pass_on(cpu: &impl Cpu, may: impl Fn(usize) -> bool) -> bool {
    let wants = |&app: &usize| State::of(cpu.word(app)) == State::Wanting;
    // Whoever is active wakes the next one.
    if active(cpu).is_some() {
        return others(cpu).any(|app| wants(&app));
    }
    let Some(next) = others(cpu).filter(wants).min_by_key(|&app| key(cpu, app)) else {
        return false;
    };
    if may(next) {
        wake(cpu, next);
        if State::of(cpu.word(next)) == State::Active {
            cpu.broke_rule();
        }
    }
    true
}

/// Wakes a member that wants the CPU, on whichever word it sleeps.
fn wake(cpu: &impl Cpu, app: usize) {
    let on = cpu.waits_on(app);
    if on != NOBODY {
        cpu.wake(on as usize, app);
    }
}

/// The place of a member in the order of all that want the CPU.
fn key(cpu: &impl Cpu, app: usize) -> (u32, bool, u64, usize) {
    (cpu.rank(app), cpu.turn() != app as u32, cpu.since(app), app)
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
