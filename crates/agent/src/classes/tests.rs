//! Rules, nice values and names; what lines add is in `tests/classes.rs`, which needs BPF.

use super::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Names that a test can change, and how often one was asked for.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<(HashMap<u32, String>, usize)>>);

impl Fake {
    fn call(&self, tid: u32, name: &str) {
        self.0.lock().unwrap().0.insert(tid, name.into());
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().1
    }

    fn classes(&self, rules: &[&str]) -> Classes {
        let names = self.0.clone();
        let rules = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
        Classes::new(rules).with_names(move |tid| {
            let mut names = names.lock().unwrap();
            names.1 += 1;
            names.0.get(&tid).cloned()
        })
    }
}

fn thread(slot: u32, tseq: u64) -> ThreadFacts {
    let tid = 100 + slot;
    ThreadFacts { thread: TaskId(slot), tid, tgid: 100, weight: 100, tseq: Seq(tseq) }
}

#[test]
fn without_rules_the_nice_value_decides() {
    let mut classes = Classes::default();
    for (weight, class) in [(100, Class::LC), (8999, Class::LC), (99, Class::BE), (1, Class::BE)] {
        let nice = ThreadFacts { weight, ..thread(0, 1) };
        assert_eq!((classes.class_of(&nice), classes.again(&nice)), (class, class), "{weight}");
    }
}

#[test]
fn the_first_rule_that_fits_decides_and_the_nice_value_where_none_does() {
    let names = Fake::default();
    names.call(101, "compact-2");
    names.call(102, "compact-gc");
    names.call(103, "serve-1");
    let mut classes = names.classes(&["3=*-gc", "be=compact*", "lc=pid:200"]);
    let mut class = |facts: ThreadFacts| classes.class_of(&facts);
    assert_eq!(class(thread(1, 1)), Class::BE);
    assert_eq!(class(thread(2, 1)), Class(3));
    assert_eq!(class(thread(3, 1)), Class::LC);
    assert_eq!(class(ThreadFacts { weight: 5, ..thread(3, 1) }), Class::BE);
    assert_eq!(class(ThreadFacts { weight: 5, tgid: 200, ..thread(3, 1) }), Class::LC);
    assert_eq!(class(thread(4, 1)), Class::LC, "a thread without a name fits none");
}

#[test]
fn a_name_that_comes_late_is_found_and_asked_for_ever_more_seldom() {
    let names = Fake::default();
    names.call(101, "server");
    let mut classes = names.classes(&["be=compact*"]);
    assert_eq!(classes.class_of(&thread(1, 1)), Class::LC);
    names.call(101, "compact-2");
    assert_eq!(classes.again(&thread(1, 2)), Class::BE);
    (3..=1000).for_each(|tseq| assert_eq!(classes.again(&thread(1, tseq)), Class::BE));
    assert_eq!(names.asked(), 10, "after 1, 2, 4, ..., 512 messages");
}

#[test]
fn names_are_not_asked_for_where_no_rule_is_about_them() {
    let names = Fake::default();
    let mut classes = names.classes(&["be=pid:100", "lc=work:3"]);
    classes.class_of(&thread(1, 1));
    (1..100).for_each(|tseq| assert_eq!(classes.again(&thread(1, tseq)), Class::BE));
    assert_eq!(names.asked(), 0);
}

#[test]
fn a_thread_that_was_never_met_is_met_now() {
    let mut classes = Classes::default();
    assert_eq!(classes.again(&ThreadFacts { weight: 5, ..thread(900, 50) }), Class::BE);
}

#[test]
fn a_new_thread_in_a_slot_has_nothing_of_the_one_before() {
    let names = Fake::default();
    names.call(101, "compact-2");
    let mut classes = names.classes(&["be=compact*"]);
    assert_eq!(classes.class_of(&thread(1, 900)), Class::BE);
    let other = ThreadFacts { tid: 555, ..thread(1, 1) };
    assert_eq!((classes.class_of(&other), classes.again(&other)), (Class::LC, Class::LC));
    names.call(555, "compact-3");
    assert_eq!(classes.again(&ThreadFacts { tseq: Seq(2), ..other }), Class::BE);
}
