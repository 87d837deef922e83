//! The state word against a plain reference.

use crate::slot::{NewEvent, Table, flag};
use crate::state::{Next, TakeOutcome};
use crate::{EventError, EventId};
use heddle_core::Class;
use proptest::prelude::*;
use std::collections::BTreeMap;

const CAPACITY: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Op {
    Begin { off: bool },
    Activate(usize),
    Take { at: usize, dispatch: bool },
    PassOver(usize),
    Release { at: usize, ready: bool },
    Off(usize),
    On { at: usize, ready: bool },
    End(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let (at, flag) = (0..64usize, any::<bool>());
    prop_oneof![
        2 => flag.prop_map(|off| Op::Begin { off }),
        4 => at.clone().prop_map(Op::Activate),
        4 => (at.clone(), proptest::bool::weighted(0.2))
            .prop_map(|(at, dispatch)| Op::Take { at, dispatch }),
        1 => at.clone().prop_map(Op::PassOver),
        4 => (at.clone(), proptest::bool::weighted(0.3))
            .prop_map(|(at, ready)| Op::Release { at, ready }),
        1 => at.clone().prop_map(Op::Off),
        2 => (at.clone(), proptest::bool::weighted(0.3))
            .prop_map(|(at, ready)| Op::On { at, ready }),
        1 => at.prop_map(Op::End),
    ]
}

/// What is known of a registration.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    is_off: bool,
    has_ended: bool,
    /// Something must be reported that was not.
    is_due: bool,
    is_queued: bool,
    is_held: bool,
}

struct Model {
    table: Table,
    known: BTreeMap<EventId, Expected>,
    /// All ids that ever were.
    ids: Vec<EventId>,
}

impl Model {
    fn new() -> Model {
        Model { table: Table::new(CAPACITY), known: BTreeMap::new(), ids: Vec::new() }
    }

    fn pick(&self, at: usize, such: impl Fn(&Expected) -> bool) -> Option<EventId> {
        let those: Vec<_> = self.known.iter().filter(|(_, known)| such(known)).collect();
        those.get(at % those.len().max(1)).map(|(id, _)| **id)
    }

    fn begin(&mut self, off: bool) {
        let new =
            NewEvent { token: 0, flags: flag::LEVEL, wants: 0, fd: -1, class: Class::LC, off };
        match self.table.begin(&new) {
            Ok(id) => {
                assert!(self.known.len() < CAPACITY);
                assert!(!self.ids.contains(&id), "a name came again");
                self.ids.push(id);
                self.known.insert(id, Expected { is_off: off, ..Expected::default() });
            }
            Err(error) => {
                assert!(matches!(error, EventError::Full(CAPACITY)));
                assert_eq!(self.known.len(), CAPACITY);
            }
        }
    }

    /// The word asks for what the reference expects.
    fn follow(&mut self, id: EventId, next: Next) {
        let known = self.known.get_mut(&id).unwrap();
        let is_nowhere = !known.is_queued && !known.is_held;
        let expected = match *known {
            Expected { has_ended: true, .. } if is_nowhere => Next::Free,
            Expected { has_ended: false, is_due: true, is_off: false, .. } if is_nowhere => {
                Next::Enqueue
            }
            _ => Next::Nothing,
        };
        assert_eq!(next, expected, "{known:?}");
        match next {
            Next::Enqueue => known.is_queued = true,
            Next::Free => self.free(id),
            Next::Nothing => {}
        }
    }

    fn free(&mut self, id: EventId) {
        self.known.remove(&id);
        self.table.free(id.index);
    }

    fn activate(&mut self, at: usize) {
        // Any id that ever was: those of earlier users of a slot do nothing.
        let Some(&id) = self.ids.get(at % self.ids.len().max(1)) else { return };
        let next = self.table.slot(id.index).state.activate(id.generation);
        match self.known.get_mut(&id) {
            Some(known) if !known.has_ended => {
                let was_queued = known.is_queued && !known.is_off;
                known.is_due = true;
                match was_queued {
                    true => assert_eq!(next, Next::Nothing),
                    false => self.follow(id, next),
                }
            }
            _ => assert_eq!(next, Next::Nothing),
        }
    }

    fn take(&mut self, at: usize, dispatch: bool) {
        let Some(id) = self.pick(at, |known| known.is_queued) else { return };
        let taken = self.table.slot(id.index).state.take(id.generation, dispatch);
        let known = self.known.get_mut(&id).unwrap();
        known.is_queued = false;
        match *known {
            Expected { has_ended: true, .. } => {
                assert_eq!(taken, TakeOutcome::Free);
                self.free(id);
            }
            Expected { is_off: true, .. } => assert_eq!(taken, TakeOutcome::Off),
            _ => {
                assert_eq!(taken, TakeOutcome::Mine);
                (known.is_held, known.is_due, known.is_off) = (true, false, dispatch);
            }
        }
    }

    fn pass_over(&mut self, at: usize) {
        let Some(id) = self.pick(at, |known| known.is_queued && !known.is_off) else { return };
        let next = self.table.slot(id.index).state.pass_over(id.generation);
        let known = self.known.get_mut(&id).unwrap();
        (known.is_queued, known.is_due) = (false, false);
        self.follow(id, next);
    }

    fn release(&mut self, at: usize, ready: bool) {
        let Some(id) = self.pick(at, |known| known.is_held) else { return };
        let next = self.table.slot(id.index).state.release(id.generation, ready);
        let known = self.known.get_mut(&id).unwrap();
        (known.is_held, known.is_due) = (false, known.is_due || ready);
        self.follow(id, next);
    }

    fn turn_off(&mut self, at: usize) {
        let Some(id) = self.pick(at, |_| true) else { return };
        let known = self.known.get_mut(&id).unwrap();
        assert_eq!(self.table.slot(id.index).state.turn_off(id.generation), !known.has_ended);
        known.is_off |= !known.has_ended;
    }

    fn turn_on(&mut self, at: usize, ready: bool) {
        let Some(id) = self.pick(at, |known| !known.has_ended) else { return };
        let next = self.table.slot(id.index).state.turn_on(id.generation, ready);
        let known = self.known.get_mut(&id).unwrap();
        (known.is_off, known.is_due) = (false, known.is_due || ready);
        self.follow(id, next);
    }

    fn end(&mut self, at: usize) {
        let Some(id) = self.pick(at, |_| true) else { return };
        let next = self.table.slot(id.index).state.end(id.generation);
        let known = self.known.get_mut(&id).unwrap();
        if std::mem::replace(&mut known.has_ended, true) {
            return assert_eq!(next, None);
        }
        self.follow(id, next.unwrap());
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Begin { off } => self.begin(off),
            Op::Activate(at) => self.activate(at),
            Op::Take { at, dispatch } => self.take(at, dispatch),
            Op::PassOver(at) => self.pass_over(at),
            Op::Release { at, ready } => self.release(at, ready),
            Op::Off(at) => self.turn_off(at),
            Op::On { at, ready } => self.turn_on(at, ready),
            Op::End(at) => self.end(at),
        }
        assert_eq!(self.table.used(), self.known.len());
        let registered = self.known.values().filter(|known| !known.has_ended).count();
        assert_eq!(self.table.len(), registered);
        for (id, known) in &self.known {
            assert_eq!(self.table.alive(*id).is_ok(), !known.has_ended);
            assert!(!(known.is_queued && known.is_held));
            let waits_for_nothing = known.is_due && !known.is_off && !known.has_ended;
            assert!(!waits_for_nothing || known.is_queued || known.is_held, "lost: {known:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// In any order of operations, an event that is due is queued, held, off or over; it is handed out as the
    /// reference says; its slot is freed once, and its id never returns.
    #[test]
    fn table_and_state_do_what_the_reference_does(ops in proptest::collection::vec(op(), 1..200)) {
        let mut model = Model::new();
        ops.into_iter().for_each(|op| model.step(op));
    }
}
