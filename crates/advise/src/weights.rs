//! What threads weigh on CPUs as parts of groups.
//!
//! The kernel gives a group its weight on each CPU in proportion to the group's load there (`calc_group_shares` in
//! `kernel/sched/fair.c`), so a group's weight is shared by its busy threads: each weighs its part of it, wherever it
//! runs. A thread of the root group weighs what its nice value says.

use std::collections::BTreeMap;

use heddle_core::nice_weight;
use heddle_observe::Group;

use crate::model::{Model, Neighbour};
use crate::options::Change;

/// The weight of nice value 0, and of `cpu.weight` 100.
const USUAL: f64 = 1024.0;

/// The weights of a model's threads under a change.
pub struct Weights<'m> {
    change: &'m Change,
    /// The group whose weight the change sets.
    lowered: Option<&'m Group>,
    /// The weights of each group's threads, each as far as it is busy.
    busy: BTreeMap<&'m str, f64>,
}

impl<'m> Weights<'m> {
    pub fn of(model: &'m Model, change: &'m Change) -> Weights<'m> {
        let lowered = match change {
            Change::Weight { process, .. } => {
                let of = model.neighbours.iter().find(|one| one.process == *process);
                of.map(|one| &one.group)
            }
            _ => None,
        };
        let mut weights = Weights { change, lowered, busy: BTreeMap::new() };
        for one in &model.neighbours {
            let busy = (one.share + one.waiting).min(1.0) * weights.within(one);
            *weights.busy.entry(&one.group.name).or_default() += busy;
        }
        let service: f64 = model.requests.iter().map(|r| (r.cpu + r.run_queue).as_secs_f64()).sum();
        let nice = model.workers.first().map_or(0, |worker| worker.nice);
        let busy = service / model.span().as_secs_f64().max(1e-9) * f64::from(nice_weight(nice));
        *weights.busy.entry(&model.group.name).or_default() += busy;
        weights
    }

    /// Returns the nice value as which a neighbour counts.
    pub fn of_neighbour(&self, one: &Neighbour) -> i32 {
        self.nice(&one.group, self.within(one))
    }

    /// Returns the nice value as which a thread of a group counts that has the nice value `nice` within it.
    pub fn of_thread(&self, group: &Group, nice: i32) -> i32 {
        self.nice(group, f64::from(nice_weight(nice)))
    }

    /// The weight of a neighbour among the threads of its group.
    fn within(&self, one: &Neighbour) -> f64 {
        let nice = match self.change {
            Change::Nice { process, to, .. } if *process == one.process => *to,
            _ => one.nice,
        };
        f64::from(nice_weight(nice))
    }

    fn nice(&self, group: &Group, weight: f64) -> i32 {
        if group.name.is_empty() {
            return nearest(weight);
        }
        let text = match self.change {
            Change::Weight { to, .. } if self.lowered == Some(group) => to,
            _ => &group.weight,
        };
        let busy = self.busy.get(group.name.as_str()).copied().unwrap_or_default();
        nearest(of_group(group, text) * weight / busy.max(weight))
    }
}

/// Returns the weight that the file of a group sets when it holds `text`.
fn of_group(group: &Group, text: &str) -> f64 {
    let Ok(number) = text.trim().parse::<i32>() else { return USUAL };
    match group.file.ends_with("cpu.weight") {
        true => f64::from(number) / 100.0 * USUAL,
        false => f64::from(nice_weight(number)),
    }
}

/// Returns the nice value whose weight is nearest, by ratio.
fn nearest(weight: f64) -> i32 {
    let off = |nice: &i32| (f64::from(nice_weight(*nice)).ln() - weight.max(1.0).ln()).abs();
    (-20..20).min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, weight: &str) -> Group {
        Group { name: name.into(), file: format!("/{name}/autogroup"), weight: weight.into() }
    }

    fn busy(process: u32, group: &Group) -> Neighbour {
        Neighbour {
            process,
            group: group.clone(),
            share: 0.6,
            waiting: 0.4,
            ..Neighbour::default()
        }
    }

    #[test]
    fn busy_threads_share_the_weight_of_their_group() {
        let (batch, lone) = (group("batch", "0"), group("lone", "0"));
        let neighbours = vec![busy(1, &batch), busy(2, &batch), busy(3, &batch), busy(4, &lone)];
        let model = Model { neighbours, group: group("own", "0"), ..Model::default() };
        let weights = Weights::of(&model, &Change::Nothing);
        // A third of 1024 is nearest to nice 5, 335.
        assert_eq!(
            model.neighbours.iter().map(|one| weights.of_neighbour(one)).collect::<Vec<_>>(),
            [5, 5, 5, 0]
        );
        assert_eq!(weights.of_thread(&model.group, 0), 0);
        let change = Change::Weight {
            process: 2,
            name: "batch".into(),
            file: batch.file.clone(),
            from: "0".into(),
            to: "19".into(),
        };
        let weights = Weights::of(&model, &change);
        assert_eq!(
            model.neighbours.iter().map(|one| weights.of_neighbour(one)).collect::<Vec<_>>(),
            [19, 19, 19, 0]
        );
    }

    #[test]
    fn a_nice_value_counts_within_its_group() {
        let (batch, root) = (group("batch", "0"), Group::default());
        let model = Model { neighbours: vec![busy(1, &batch), busy(2, &root)], ..Model::default() };
        let nice = |process| Change::Nice { process, name: "it".into(), from: 0, to: 19 };
        let (alone, at_root) = (nice(1), nice(2));
        // The only thread of a group has all of the group's weight, however nice it is.
        assert_eq!(Weights::of(&model, &alone).of_neighbour(&model.neighbours[0]), 0);
        assert_eq!(Weights::of(&model, &at_root).of_neighbour(&model.neighbours[1]), 19);
    }

    #[test]
    fn weights_of_cgroups_are_parts_of_a_hundred() {
        let group = Group { file: "/sys/fs/cgroup/a/cpu.weight".into(), ..group("a", "50") };
        assert_eq!(of_group(&group, "50"), 512.0);
        assert_eq!(of_group(&group, "unknown"), USUAL);
        assert_eq!((nearest(1024.0), nearest(1.0), nearest(1e9)), (0, 19, -20));
    }
}
