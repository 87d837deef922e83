//! Rules, nice values and names; what lines add is in `tests/classes.rs`, which needs BPF.

use super::*;
use crate::model::Seq;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Names that a test can change, and how often they were read.
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

const TASK: TaskId = TaskId(1);

fn word(tid: u32, tseq: u64) -> ThreadWord {
    ThreadWord { tid, tgid: 100, weight: 100, tseq: Seq(tseq), ..ThreadWord::default() }
}

#[test]
fn without_rules_the_nice_value_decides_and_may_change() {
    let mut classes = Classes::default();
    for (weight, class) in [(100, Class::LC), (8999, Class::LC), (99, Class::BE), (1, Class::BE)] {
        let nice = ThreadWord { weight, ..word(101, 1) };
        assert_eq!(classes.class_of(TASK, &nice), class, "{weight}");
    }
}

#[test]
fn the_first_rule_that_fits_decides_and_the_nice_value_where_none_does() {
    let names = Fake::default();
    names.call(101, "compact-2");
    names.call(102, "compact-gc");
    names.call(103, "serve-1");
    let mut classes = names.classes(&["3=*-gc", "be=compact*", "lc=pid:200"]);
    let mut class = |word: ThreadWord| classes.class_of(TASK, &word);
    assert_eq!(class(word(101, 1)), Class::BE);
    assert_eq!(class(word(102, 1)), Class(3));
    assert_eq!(class(word(103, 1)), Class::LC);
    assert_eq!(class(ThreadWord { weight: 5, ..word(103, 1) }), Class::BE);
    assert_eq!(class(ThreadWord { weight: 5, tgid: 200, ..word(104, 1) }), Class::LC);
    assert_eq!(class(word(105, 1)), Class::LC, "a thread without a name fits none");
}

#[test]
fn a_name_that_comes_late_is_found_and_asked_for_ever_more_seldom() {
    let names = Fake::default();
    names.call(101, "server");
    let mut classes = names.classes(&["be=compact*"]);
    assert_eq!(classes.class_of(TASK, &word(101, 1)), Class::LC);
    names.call(101, "compact-2");
    (2..=1000).for_each(|tseq| assert_eq!(classes.class_of(TASK, &word(101, tseq)), Class::BE));
    assert_eq!(names.asked(), 10, "after 1, 2, 4, ..., 512 messages");
}

#[test]
fn names_are_not_read_without_rules_about_them() {
    let names = Fake::default();
    let mut classes = names.classes(&["be=pid:100", "lc=work:3"]);
    (1..100).for_each(|tseq| assert_eq!(classes.class_of(TASK, &word(101, tseq)), Class::BE));
    assert_eq!(names.asked(), 0);
}

#[test]
fn a_new_thread_in_a_slot_has_nothing_of_the_one_before() {
    let names = Fake::default();
    names.call(101, "compact-2");
    let mut classes = names.classes(&["be=compact*"]);
    assert_eq!(classes.class_of(TASK, &word(101, 900)), Class::BE);
    assert_eq!(classes.class_of(TASK, &word(555, 1)), Class::LC);
    names.call(555, "compact-3");
    assert_eq!(classes.class_of(TASK, &word(555, 2)), Class::BE);
}
