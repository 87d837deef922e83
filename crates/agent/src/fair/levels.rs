//! Levels: the kernel's attributes for each class.

use heddle_core::{BestEffort, Class, FairTerms, Ns, nice_weight};
use heddle_policies::{PolicyError, Visitor, with_policy};
use heddle_sys::scheduling::{self, Attributes, Class as Kernel, Scheduling};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// The nice value of LC threads that come before BE ones: 28 times the weight of nice 0. Lower values gained
/// nothing (docs/design/fair.md) and would leave a starved BE thread less than 3 % of a CPU.
pub(super) const LC_NICE: i32 = -15;

/// The highest nice value.
const LEAST_URGENT: i32 = 19;

/// The slices that the kernel grants (`sched_setattr(2)`).
const SHORTEST: Ns = Ns::from_us(100);
const LONGEST: Ns = Ns::from_ms(100);

/// A policy's terms in the kernel's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Levels {
    slice_ns: u64,
    be_slice_ns: u64,
    best_effort: BestEffortTerms,
}

/// [`BestEffort`], as stored in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BestEffortTerms {
    Alike,
    Nice(i32),
    Below,
}

struct Terms;

impl Visitor for Terms {
    type Out = Option<FairTerms>;
    fn visit<P: heddle_core::Policy>(self, policy: P) -> Self::Out {
        policy.fair_terms()
    }
}

/// Returns the reason why nice values and slices cannot express `policy`; none if they can.
///
/// # Errors
/// If there is no such policy.
pub(crate) fn cannot_express(policy: &str) -> Result<Option<String>, PolicyError> {
    let name = policy.split(':').next().unwrap_or(policy);
    let why = || {
        format!("nice values and slices cannot express the order in which `{name}` runs threads")
    };
    Ok(with_policy(policy, Terms)?.is_none().then(why))
}

impl Levels {
    /// Returns the levels of `policy`.
    ///
    /// # Errors
    /// A sentence: there is no such policy, or it cannot be expressed.
    pub fn of(policy: &str) -> Result<Levels, String> {
        if let Some(why) = cannot_express(policy).map_err(|error| error.to_string())? {
            return Err(format!("the fair backend does not work with this policy: {why}"));
        }
        let terms = with_policy(policy, Terms).ok().flatten();
        terms.map(Levels::from).ok_or_else(|| format!("no policy `{policy}`"))
    }

    /// Whether LC threads have priority.
    pub fn lc_first(self) -> bool {
        self.best_effort == BestEffortTerms::Below
    }

    /// Returns the attributes for a thread of `class` with the original ones `was`; `starved` if BE threads have
    /// got no CPU for long.
    pub fn attributes(self, class: Class, was: Attributes, starved: bool) -> Attributes {
        let ordinary = |nice, slice| Attributes {
            scheduling: Scheduling { class: Kernel::Other, priority: 0, ..was.scheduling },
            nice,
            slice: Ns(slice),
        };
        match (class, self.best_effort) {
            (_, BestEffortTerms::Alike) => ordinary(was.nice, self.slice_ns),
            (Class::LC, BestEffortTerms::Nice(_)) => ordinary(was.nice.min(0), self.slice_ns),
            (Class::LC, BestEffortTerms::Below) => ordinary(was.nice.min(LC_NICE), self.slice_ns),
            (_, BestEffortTerms::Nice(nice)) => ordinary(nice, self.be_slice_ns),
            (_, BestEffortTerms::Below) if starved => ordinary(0, self.be_slice_ns),
            (_, BestEffortTerms::Below) => Attributes {
                scheduling: Scheduling { class: Kernel::Idle, priority: 0, ..was.scheduling },
                ..was
            },
        }
    }

    /// Returns the attributes that a thread would have without the enclave, if it was set as an LC thread and has
    /// changed its nice value since: `nice` and `renice -n` add to the present value. A value above 0 is taken as
    /// it is.
    pub fn chosen(self, was: Attributes, now: Attributes) -> Attributes {
        let set = self.attributes(Class::LC, was, false).nice;
        let is_added = (set + 1..=0).contains(&now.nice);
        let nice = if is_added { was.nice + now.nice - set } else { now.nice };
        Attributes { nice: nice.min(LEAST_URGENT), ..was }
    }

    /// Whether `now` is something that a thread with the original attributes `was` may have been set to.
    pub fn may_have_set(self, now: Attributes, was: Attributes) -> bool {
        let each = [(Class::LC, false), (Class::BE, false), (Class::BE, true)];
        each.into_iter().any(|(class, starved)| same(now, self.attributes(class, was, starved)))
    }
}

impl From<FairTerms> for Levels {
    fn from(terms: FairTerms) -> Levels {
        let slice = |slice: Ns| slice.clamp(SHORTEST, LONGEST).0;
        Levels {
            slice_ns: slice(terms.slice),
            be_slice_ns: slice(terms.be_slice),
            best_effort: match terms.best_effort {
                BestEffort::Alike => BestEffortTerms::Alike,
                BestEffort::Weight(weight) => BestEffortTerms::Nice(nice_of(weight)),
                BestEffort::Below => BestEffortTerms::Below,
            },
        }
    }
}

/// Returns the nice value, 0 to 19, with the nearest weight.
fn nice_of(weight: u32) -> i32 {
    let nearest = (0..=LEAST_URGENT).min_by_key(|&nice| nice_weight(nice).abs_diff(weight));
    nearest.unwrap_or(0)
}

/// Whether both are the same to the kernel. An idle thread has no slice.
pub(super) fn same(a: Attributes, b: Attributes) -> bool {
    let is_idle = a.scheduling.class == Kernel::Idle;
    a.scheduling == b.scheduling && (is_idle || (a.nice == b.nice && same_slice(a.slice, b.slice)))
}

/// Zero stands for the kernel's own slice. A kernel without slices reports none.
fn same_slice(a: Ns, b: Ns) -> bool {
    let default = default_slice();
    let effective = |slice: Ns| if slice == Ns::ZERO { default } else { slice };
    default == Ns::ZERO || effective(a) == effective(b)
}

/// Returns the kernel's own slice; zero before Linux 6.12.
pub(super) fn default_slice() -> Ns {
    static DEFAULT: OnceLock<Ns> = OnceLock::new();
    *DEFAULT.get_or_init(|| scheduling::default_slice().unwrap_or(Ns::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAS: Attributes =
        Attributes { scheduling: Scheduling::ORDINARY, nice: 5, slice: Ns::ZERO };

    #[test]
    fn policies_are_expressed_or_refused() {
        for policy in ["priority", "shinjuku-shenango", "cfs", "eevdf", "round-robin", "shinjuku"] {
            assert_eq!(cannot_express(policy).unwrap(), None, "{policy}");
        }
        for policy in ["fifo", "two-queue", "sjf", "edf", "darc"] {
            let why = cannot_express(policy).unwrap().unwrap();
            assert!(why.contains(&format!("`{policy}`")), "{why}");
            assert!(Levels::of(policy).is_err());
        }
        assert!(cannot_express("no-such-policy").is_err());
    }

    #[test]
    fn latency_critical_threads_come_before_idle_ones() {
        let levels = Levels::of("priority:quantum=1ms").unwrap();
        assert!(levels.lc_first());
        let lc = levels.attributes(Class::LC, WAS, false);
        assert_eq!((lc.scheduling, lc.nice, lc.slice), (Scheduling::ORDINARY, -15, Ns::from_ms(1)));
        let be = levels.attributes(Class::BE, WAS, false);
        assert_eq!((be.scheduling, be.nice), (Scheduling::IDLE, 5));
        let starved = levels.attributes(Class::BE, WAS, true);
        assert_eq!((starved.scheduling, starved.nice), (Scheduling::ORDINARY, 0));
        assert!([lc, be, starved].into_iter().all(|set| levels.may_have_set(set, WAS)));
        assert!(!levels.may_have_set(Attributes { nice: 7, ..lc }, WAS), "set by hand");
    }

    #[test]
    fn a_nice_value_that_was_added_to_is_taken_for_what_it_would_be() {
        let levels = Levels::of("priority").unwrap();
        let was = Attributes { nice: 0, ..WAS };
        let chosen = |nice| levels.chosen(was, Attributes { nice, ..was }).nice;
        assert_eq!([-5, 0, 1, 19].map(chosen), [10, 15, 1, 19]);
        let nicer = levels.chosen(WAS, Attributes { nice: 0, ..was });
        assert_eq!(nicer.nice, 19, "5 and 15 more are as much as there is");
    }

    #[test]
    fn slices_are_what_the_kernel_grants() {
        let slice = |policy| Levels::of(policy).unwrap().attributes(Class::LC, WAS, false).slice;
        assert_eq!(slice("round-robin:quantum=5us"), SHORTEST);
        assert_eq!(slice("round-robin:quantum=4ms"), Ns::from_ms(4));
        assert_eq!(slice("round-robin:quantum=10s"), LONGEST);
        assert_eq!(slice("priority:quantum=none"), LONGEST);
    }

    #[test]
    fn the_kernels_own_slice_is_the_same_by_its_number() {
        let default = Attributes { slice: default_slice(), ..WAS };
        assert!(same(WAS, default));
        let longer = Attributes { slice: LONGEST, ..WAS };
        assert_eq!(same(WAS, longer), default_slice() == Ns::ZERO);
    }

    #[test]
    fn weights_become_nice_values() {
        assert_eq!([1024, 1000, 15, 1, 110].map(nice_of), [0, 0, 19, 19, 10]);
        let cfs = Levels::of("cfs").unwrap();
        assert_eq!(cfs.attributes(Class::BE, WAS, false).nice, 19);
        assert_eq!(cfs.attributes(Class::LC, WAS, false).nice, 0);
        assert!(!cfs.lc_first());
    }
}
