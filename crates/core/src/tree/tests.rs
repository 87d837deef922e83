//! The tree behaves like an ordered map, and stays shallow.

extern crate std;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

const TASKS: u32 = 24;

fn slots(n: u32) -> Vec<TaskSlot<TreeNode>> {
    (0..n).map(|_| TaskSlot::default()).collect()
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert { task: u32, key: u64, rank: u64 },
    PopFirst,
    Remove(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let insert = (0..TASKS, 0..12u64, 0..12u64);
    prop_oneof![
        5 => insert.prop_map(|(task, key, rank)| Op::Insert { task, key, rank }),
        1 => Just(Op::PopFirst),
        2 => (0..TASKS).prop_map(Op::Remove),
    ]
}

/// Tasks and ranks in the order of key and arrival. Keys and ranks are offsets from an origin, so the real ones may
/// wrap around.
type Model = BTreeMap<(u64, usize), (u32, u64)>;

fn position(model: &Model, task: u32) -> Option<(u64, usize)> {
    model.iter().find(|(_, (t, _))| *t == task).map(|(at, _)| *at)
}

fn least_until(model: &Model, bound: u64) -> Option<TaskId> {
    let due = model.iter().filter(|((key, _), _)| *key <= bound);
    due.min_by_key(|(at, (_, rank))| (*rank, **at)).map(|(_, (task, _))| TaskId(*task))
}

fn first_from(model: &Model, bound: u64) -> Option<TaskId> {
    model.range((bound, 0)..).next().map(|(_, (task, _))| TaskId(*task))
}

/// Returns the depth under `root`, after checking the links, the order of priorities and the least ranks.
fn sound(slots: &[TaskSlot<TreeNode>], root: u32) -> usize {
    let nodes = Nodes(slots);
    let below = [LEFT, RIGHT].map(|side| nodes.child(root, side));
    let children: Vec<u32> = below.into_iter().filter(|&child| child != NIL).collect();
    let ranks = children.iter().map(|&child| nodes.least(child));
    let least = ranks.fold(nodes.at(root).rank(), |a, b| if before(b, a) { b } else { a });
    assert_eq!(nodes.least(root), least);
    for &child in &children {
        assert_eq!(nodes.parent(child), root);
        assert!(nodes.priority(child) <= nodes.priority(root));
    }
    1 + children.iter().map(|&child| sound(slots, child)).max().unwrap_or(0)
}

proptest! {
    /// The tree behaves like a `BTreeMap`, for any sequence of operations and any origin of keys and ranks.
    #[test]
    fn behaves_as_an_ordered_map(origin in any::<u64>(), ops in prop::collection::vec(op(), 0..200)) {
        let slots = slots(TASKS);
        let (mut tree, mut model) = (TaskTree::default(), Model::new());
        let real = |offset: u64| origin.wrapping_add(offset);
        for (now, op) in ops.into_iter().enumerate() {
            match op {
                Op::Insert { task, key, rank } if position(&model, task).is_none() => {
                    tree.insert_ranked(&slots, TaskId(task), real(key), real(rank));
                    model.insert((key, now), (task, rank));
                }
                Op::PopFirst => {
                    let first = model.pop_first().map(|(_, (task, _))| TaskId(task));
                    prop_assert_eq!(tree.pop_first(&slots), first);
                }
                Op::Remove(task) => if let Some(at) = position(&model, task) {
                    tree.remove(&slots, TaskId(task));
                    model.remove(&at);
                },
                Op::Insert { .. } => {}
            }
            prop_assert_eq!(tree.len(), model.len());
            prop_assert_eq!(tree.first().map(|t| t.0), model.values().next().map(|v| v.0));
            prop_assert_eq!(tree.last(&slots).map(|t| t.0), model.values().last().map(|v| v.0));
            let least = model.keys().next().map(|&(key, _)| real(key));
            prop_assert_eq!(tree.first_key(&slots), least);
            for bound in 0..13 {
                prop_assert_eq!(tree.least_until(&slots, real(bound)), least_until(&model, bound));
                prop_assert_eq!(tree.first_from(&slots, real(bound)), first_from(&model, bound));
            }
            if !tree.is_empty() {
                sound(&slots, tree.root);
            }
        }
    }
}

#[test]
fn stays_shallow_whatever_the_order_of_keys() {
    const MANY: u32 = 1 << 14;
    let slots = slots(MANY);
    let orders: [fn(u32) -> u64; 4] =
        [|i| i.into(), |i| (MANY - i).into(), |i| (i % 7).into(), |_| 0];
    for key in orders {
        let mut tree = TaskTree::default();
        (0..MANY).for_each(|task| tree.insert(&slots, TaskId(task), key(task)));
        let depth = sound(&slots, tree.root);
        // Random search trees are about 4.3 ln n deep at most, 42 here (Devroye, J. ACM 33(3), 1986).
        assert!(depth < 48, "{depth}");
        while tree.pop_first(&slots).is_some() {}
    }
}

#[test]
#[should_panic(expected = "at most one queue")]
fn refuses_a_task_that_stands_in_a_list() {
    let slots = slots(2);
    crate::TaskList::default().push_back(&slots, TaskId(1));
    TaskTree::default().insert(&slots, TaskId(1), 0);
}

#[test]
#[should_panic(expected = "stands in no queue")]
fn does_not_remove_what_is_not_there() {
    TaskTree::default().remove(&slots(1), TaskId(0));
}
