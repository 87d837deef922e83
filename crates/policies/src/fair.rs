//! Shared by `cfs` and `eevdf`: weights, and the virtual time of a task.
//!
//! A task of weight w that runs for t gains t x 1024 / w of virtual time. Each queue counts virtual
//! time for itself, and it wraps around; all comparisons are by signed difference. A task that moves
//! between queues keeps its lead over the queue's time.

use heddle_core::{
    BestEffort, Class, CpuId, Cx, Ns, ParamError, Params, TaskId, TreeNode, TreeTask, Var,
};

/// The weight at which virtual time passes as fast as real time: that of class LC (nice 0 in Linux).
pub const UNIT: u64 = 1024;

/// The weights of tasks that were given none, by class.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    others: u64,
}

impl Weights {
    /// Reads `weight`, that of all classes except LC. The default is that of nice 19 in Linux.
    pub fn read<'a>(params: &mut Params<'a>) -> Result<Weights, ParamError<'a>> {
        let weight = u64::from(params.count("weight", 15)?);
        match params.text("weight") {
            Some(given) if weight > UNIT => {
                let allowed = "a whole number from 1 to 1024";
                Err(ParamError::Value { key: "weight", given, allowed })
            }
            _ => Ok(Weights { others: weight }),
        }
    }

    /// Returns what classes other than LC get, in the terms of the kernel's fair scheduler.
    pub fn best_effort(&self) -> BestEffort {
        // At most `UNIT`.
        BestEffort::Weight(self.others as u32)
    }

    /// Returns the weight of `task`.
    #[inline]
    pub fn of<T>(&self, cx: &Cx<'_, T>, task: TaskId) -> u64 {
        let slot = cx.task(task);
        match slot.weight() {
            Some(weight) => u64::from(weight),
            None if slot.class() == Class::LC => UNIT,
            None => self.others,
        }
    }
}

/// Returns `time` in virtual time at `weight`. Overflows only after 200 days without a break.
#[inline]
pub fn virtual_time_of(time: Ns, weight: u64) -> u64 {
    (time.0 / weight).wrapping_mul(UNIT).wrapping_add(time.0 % weight * UNIT / weight)
}

/// Returns how far `a` is ahead of `b`; negative if it is behind.
#[inline]
pub fn ahead(a: u64, b: u64) -> i64 {
    a.wrapping_sub(b) as i64
}

/// Returns the later of two virtual times.
#[inline]
pub fn later(a: u64, b: u64) -> u64 {
    if ahead(a, b) > 0 { a } else { b }
}

/// A task as seen by the queues of fair policies.
#[derive(Debug, Default)]
pub struct Entity {
    /// Its place in a queue.
    pub node: TreeNode,
    /// Its virtual time, in the time of the queue of `home`.
    pub vtime: Var,
    /// Its lead over its queue's time when it left the queue, plus what it has gained since.
    pub lead: Var,
    /// The CPU whose queue held it last, plus one; zero if none did yet.
    home: Var,
    /// The time up to which it has been charged for running.
    since: Var<Ns>,
}

impl TreeTask for Entity {
    fn node(&self) -> &TreeNode {
        &self.node
    }
}

impl Entity {
    /// Resets the state for a new task.
    pub fn reset(&self) {
        self.home.set(0);
        self.lead.set(0);
    }

    /// Leaves a queue whose time is `time`; to run if `now` is given.
    #[inline]
    pub fn leave(&self, time: u64, now: Option<Ns>) {
        self.lead.set(self.vtime.get().wrapping_sub(time));
        if let Some(now) = now {
            self.since.set(now);
        }
    }

    /// Charges the task for having run until `now`.
    #[inline]
    pub fn charge(&self, now: Ns, weight: u64) {
        let gained = virtual_time_of(now - self.since.get(), weight);
        self.vtime.set(self.vtime.get().wrapping_add(gained));
        self.lead.set(self.lead.get().wrapping_add(gained));
        self.since.set(now);
    }

    /// Joins the queue of `cpu`, whose time is `time`; returns by how much its virtual time changes.
    #[inline]
    pub fn join(&self, cpu: CpuId, time: u64) -> u64 {
        let here = u64::from(cpu.0) + 1;
        if self.home.get() == here {
            return 0;
        }
        let before = self.vtime.get();
        self.put(cpu, time.wrapping_add(self.lead.get()));
        self.vtime.get().wrapping_sub(before)
    }

    /// Returns whether it left the queue of `cpu`, the one that held it last, ahead of the others.
    pub fn is_indebted_to(&self, cpu: CpuId) -> bool {
        self.home.get() == u64::from(cpu.0) + 1 && self.lead.get() as i64 > 0
    }

    /// Joins the queue of `cpu` at `vtime`.
    #[inline]
    pub fn put(&self, cpu: CpuId, vtime: u64) {
        self.home.set(u64::from(cpu.0) + 1);
        self.vtime.set(vtime);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_is_time_by_weight() {
        for (time, weight, expected) in
            [(1_000, 1024, 1_000), (1_000, 512, 2_000), (15, 15, 1024), (1, 15, 68), (0, 7, 0)]
        {
            assert_eq!(virtual_time_of(Ns(time), weight), expected, "{time} at {weight}");
        }
        let year = Ns::from_secs(365 * 24 * 3600);
        assert_eq!(virtual_time_of(year, UNIT), year.0, "the product alone would overflow");
    }

    #[test]
    fn times_are_compared_across_the_end_of_numbers() {
        assert_eq!(ahead(3, u64::MAX), 4);
        assert_eq!(later(3, u64::MAX), 3);
    }

    #[test]
    fn a_task_takes_along_how_far_it_is_ahead() {
        let (task, cpu) = (Entity::default(), CpuId);
        task.put(cpu(0), 1_000);
        task.leave(900, Some(Ns(50)));
        task.charge(Ns(60), UNIT);
        assert_eq!(task.join(cpu(0), 0), 0, "still counted there");
        task.join(cpu(1), 5_000);
        assert_eq!(task.vtime.get(), 5_110);
    }
}
