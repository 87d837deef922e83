//! Every policy by its name.
//!
//! To add a policy, add it to the macro call at the end: its type, a summary, and each parameter as
//! `key = default (example): meaning`.

use crate::PolicyError;
use alloc::string::{String, ToString};
use core::fmt::{self, Write};
use heddle_core::{ParamError, Params, Policy};

/// Receives a policy once its type is known. It is a trait because a closure cannot be generic; this
/// keeps calls of the policy static.
pub trait Visitor {
    /// The result.
    type Out;
    /// Receives the chosen policy.
    fn visit<P: Policy>(self, policy: P) -> Self::Out;
}

/// Describes a policy before it is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The name by which it is chosen.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    /// Its parameters, in the order in which it reads them.
    pub params: &'static [ParamInfo],
}

/// A parameter of a policy.
#[derive(Clone, Copy, Debug)]
pub struct ParamInfo {
    /// Its name.
    pub key: &'static str,
    /// The value used if none is given.
    pub default: &'static str,
    /// Another valid value.
    pub example: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

impl Info {
    /// Returns the policy with every parameter given, as one would write it:
    /// `round-robin:quantum=50us`.
    pub fn example(&self) -> String {
        let mut text = String::from(self.name);
        for (i, param) in self.params.iter().enumerate() {
            let before = if i == 0 { ':' } else { ',' };
            // Writing to a string cannot fail.
            let _ = write!(text, "{before}{}={}", param.key, param.example);
        }
        text
    }
}

impl fmt::Display for Info {
    /// Prints the name and the summary on one line, then a line per parameter; for `--help` and lists.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<18} {}", self.name, self.summary)?;
        for ParamInfo { key, default, meaning, .. } in self.params {
            write!(f, "\n  {key:<12} {meaning} (default {default})")?;
        }
        Ok(())
    }
}

/// Returns the names of all policies.
pub fn names() -> impl Iterator<Item = &'static str> {
    list().iter().map(|info| info.name)
}

/// Returns the description of the policy called `name`.
pub fn find(name: &str) -> Option<&'static Info> {
    list().iter().find(|info| info.name == name)
}

/// Builds a policy whose type the caller knows from `name` or `name:key=value,...`. Also works for
/// policies outside the registry.
///
/// # Errors
/// [`PolicyError`] if the name is not the policy's or a parameter is wrong.
pub fn build<P: Policy>(text: &str) -> Result<P, PolicyError> {
    let mut params = parse(text, |name| name == P::NAME)?;
    match params.name() == P::NAME {
        true => finish(&mut params),
        false => Err(unknown(params.name())),
    }
}

/// An unknown name is the more useful error if the parameters cannot be read either.
fn parse(text: &str, exists: impl Fn(&str) -> bool) -> Result<Params<'_>, PolicyError> {
    Params::parse(text).map_err(|problem| {
        let name = text.split(':').next().unwrap_or(text).trim();
        match exists(name) {
            true => wrong_params(name, problem),
            false => unknown(name),
        }
    })
}

fn finish<P: Policy>(params: &mut Params<'_>) -> Result<P, PolicyError> {
    let fail = |problem: ParamError<'_>| wrong_params(P::NAME, problem);
    let policy = P::new(params).map_err(fail)?;
    params.finish().map_err(fail)?;
    Ok(policy)
}

fn unknown(given: &str) -> PolicyError {
    PolicyError::Unknown {
        given: given.to_string(),
        nearest: crate::nearest(given, names()),
        names: names().collect(),
    }
}

fn wrong_params(policy: &str, problem: ParamError<'_>) -> PolicyError {
    let example = find(policy).map(Info::example);
    PolicyError::Params { policy: policy.to_string(), problem: problem.to_string(), example }
}

macro_rules! policies {
    ($($policy:path: $summary:literal, {
        $($key:literal = $default:literal ($example:literal): $meaning:literal;)*
    })*) => {
        /// Returns all policies, in the order in which a reader should meet them.
        pub fn list() -> &'static [Info] {
            const LIST: &[Info] = &[$(Info {
                name: <$policy as Policy>::NAME,
                summary: $summary,
                params: &[$(ParamInfo {
                    key: $key,
                    default: $default,
                    example: $example,
                    meaning: $meaning,
                }),*],
            }),*];
            LIST
        }

        /// Builds the policy that `text` chooses, `name` or `name:key=value,...`, and hands it to
        /// `visitor`.
        ///
        /// # Errors
        /// [`PolicyError`]: an unknown name lists the names, an unknown parameter the parameters.
        pub fn with_policy<V: Visitor>(text: &str, visitor: V) -> Result<V::Out, PolicyError> {
            let mut params = parse(text, |name| find(name).is_some())?;
            $(if params.name() == <$policy as Policy>::NAME {
                return finish::<$policy>(&mut params).map(|policy| visitor.visit(policy));
            })*
            Err(unknown(params.name()))
        }
    };
}

policies! {
    crate::Fifo: "one queue for all CPUs, each task to completion", {}
    crate::RoundRobin: "each task a quantum in turn, a queue per CPU", {
        "quantum" = "100us" ("50us"): "how long a task runs before the next has its turn";
    }
    crate::WorkStealing: "tasks stay on the CPU that queued them, idle CPUs steal them", {
        "quantum" = "none" ("50us"): "how long a task runs before the next has its turn, or none";
    }
    crate::TwoQueue: "new and woken tasks before preempted ones (Aspen)", {
        "quantum" = "100us" ("50us"): "how long a new or woken task runs before it is preempted";
        "long" = "1ms" ("2ms"): "the same for one that was preempted, while nothing new waits";
        "patience" = "64" ("16"): "how many newer tasks may overtake a preempted one";
    }
    crate::Mlfq: "several levels; a task that uses up the time of one sinks to the next", {
        "quantum" = "100us" ("50us"): "how long a task of the highest level runs before the next has its turn";
        "levels" = "3" ("4"): "how many levels there are, up to 8";
        "factor" = "2" ("4"): "how much longer the quantum of each level is than that of the one above";
        "boost" = "100ms" ("10ms"): "how often all tasks rise to the highest level";
    }
    crate::Locality: "tasks wait a little for a CPU of the cache where they last ran (ghOSt)", {
        "wait" = "100us" ("50us"): "how long a task waits before CPUs of other caches may take it";
        "quantum" = "none" ("50us"): "how long a task runs before the next has its turn, or none";
    }
    crate::BestOfTwo: "the less loaded of two CPUs picked at random (SKQ)", {
        "choices" = "2" ("3"): "how many CPUs are compared, up to 8";
        "by" = "wait" ("tasks"): "what is compared: the expected wait, or how many tasks there are (tasks)";
        "quantum" = "none" ("50us"): "how long a task runs before the next has its turn, or none";
    }
    crate::QueueAffinity: "tasks stay on the CPU where they first arrived (SKQ)", {}
    crate::CpuAffinity: "tasks go to the CPU where they arrive (SKQ)", {}
    crate::Hybrid: "where caches are warm, unless another CPU is sooner; idle CPUs steal (SKQ)", {
        "affinity" = "cpu" ("queue"):
            "the first candidate: where the task arrives (cpu), where it first arrived (queue), any (none)";
        "choices" = "2" ("1"): "how many others are compared with it, up to 8";
        "penalty" = "500ns" ("1us"): "how much sooner another one must serve the task";
        "steal" = "1" ("2"): "how many tasks an idle CPU takes from another at once, up to 8";
        "retry" = "none" ("100us"): "when an idle CPU looks again after finding nothing, or none";
    }
    crate::Shinjuku: "one queue for all CPUs, each task a quantum in turn", {
        "quantum" = "30us" ("5us"): "how long a task runs before the next has its turn";
    }
    crate::ShinjukuShenango: "the same for class LC; other classes on what LC leaves", {
        "quantum" = "30us" ("5us"): "how long a task of class LC runs before the next of LC has its turn";
        "long" = "1ms" ("10ms"): "the same among tasks of other classes";
        "congestion" = "5us" ("10us"): "how long an LC task may wait before other tasks yield";
        "check" = "5us" ("10us"): "how often a task of another class checks whether to yield";
    }
    crate::Priority: "strict levels by class, the more urgent preempts at once (Snap under ghOSt)", {
        "quantum" = "1ms" ("5ms"): "how long a task runs before the next of its class has its turn, or none";
        "check" = "100us" ("50us"): "how often a running task checks whether a more urgent one waits";
    }
    crate::Jbsq: "one queue for all CPUs and a short one before each (R2P2)", {
        "bound" = "2" ("3"): "how many tasks a CPU may have, the running one included, up to 8";
    }
    crate::Darc: "CPUs reserved for short types of tasks, by class (Persephone)", {
        "window" = "4096" ("1024"): "after how many completions the reservation is recomputed";
    }
    crate::Cfs: "shares by weight, the task that ran least first (Linux before 6.6)", {
        "latency" = "50us" ("100us"): "the time in which each waiting task should have a turn";
        "granularity" = "12.5us" ("25us"): "the shortest slice";
        "weight" = "15" ("512"): "of classes other than LC, which has 1024";
    }
    crate::Eevdf: "shares by weight, earliest deadline first (Linux from 6.6)", {
        "slice" = "12.5us" ("25us"): "how long a task asks to run at a time";
        "weight" = "15" ("512"): "of classes other than LC, which has 1024";
        "tick" = "none" ("4ms"): "as in the kernel: slices end at multiples of this, or none";
    }
    crate::Sjf: "the shortest expected first, each to completion", {}
    crate::Srpt: "the shortest remaining first, preempting the longest", {}
    crate::Edf: "the earliest deadline first, preempting the latest", {
        "relative" = "1ms" ("5ms"): "when an LC task without a deadline is due, from its arrival or wakeup";
        "others" = "10ms" ("50ms"): "the same for other classes; ten times `relative` if only that is given";
        "quantum" = "100us" ("50us"): "how long a task runs at least before an expired deadline makes it yield";
    }
    crate::CoreEdf: "one VM (class) per physical core at a time, each thread its budget", {
        "period" = "10ms" ("20ms"): "the time in which each thread gets its budget";
        "budget" = "1ms" ("2ms"): "how long each thread may run in each period, at most a period";
        "slice" = "500us" ("250us"): "the turn of a thread beyond its budget";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fifo;
    use alloc::format;
    use alloc::vec::Vec;

    struct Name;
    impl Visitor for Name {
        type Out = &'static str;
        fn visit<P: Policy>(self, _: P) -> &'static str {
            P::NAME
        }
    }

    fn error(text: &str) -> String {
        with_policy(text, Name).unwrap_err().to_string()
    }

    #[test]
    fn every_policy_is_found_bare_and_with_its_example() {
        for info in list() {
            assert_eq!(with_policy(info.name, Name), Ok(info.name));
            assert_eq!(with_policy(&info.example(), Name), Ok(info.name));
        }
    }

    #[test]
    fn a_wrong_parameter_gets_the_list_and_an_example() {
        assert_eq!(
            error("round-robin:q=1us"),
            "policy `round-robin`: no parameter `q`; there are: quantum (for example round-robin:quantum=50us)"
        );
        assert_eq!(
            error("fifo:quantum=1us"),
            "policy `fifo`: no parameter `quantum`; there are: none (for example fifo)"
        );
        let value = error("two-queue:long=0ms");
        assert!(value.contains("parameter `long`: `0ms` is not a time above zero"), "{value}");
        assert!(error("two-queue:long").contains("`long` is not of the form key=value"));
    }

    #[test]
    fn an_unknown_name_comes_before_its_parameters() {
        assert!(error("lottery:tickets").starts_with("no policy `lottery`;"));
        assert!(error("").starts_with("no policy ``;"));
    }

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        for (given, name) in [
            ("RoundRobin", Some("round-robin")),
            ("two_queue", Some("two-queue")),
            ("fifi", Some("fifo")),
            ("workstealing", Some("work-stealing")),
            ("lottery", None),
            ("", None),
        ] {
            assert_eq!(crate::nearest(given, names()), name, "{given}");
        }
    }

    #[test]
    fn an_unknown_name_lists_what_exists() {
        let all = names().collect::<Vec<_>>().join(", ");
        let text = |given| unknown(given).to_string();
        assert_eq!(text("lottery"), format!("no policy `lottery`; there are: {all}"));
        let slip = format!("no policy `ffo`, did you mean `fifo`? there are: {all}");
        assert_eq!(text("ffo"), slip);
    }

    #[test]
    fn a_known_type_refuses_another_name() {
        assert!(build::<Fifo>(" fifo ").is_ok());
        assert!(build::<Fifo>("two-queue").is_err());
    }

    #[test]
    fn the_help_shows_each_parameter_with_its_default() {
        let help = find("two-queue").unwrap().to_string();
        assert_eq!(help.lines().count(), 4);
        assert!(help.contains("(default 1ms)"), "{help}");
    }

    proptest::proptest! {
        #[test]
        fn no_name_makes_it_panic(text in ".{0,60}") {
            let _ = with_policy(&text, Name);
        }
    }
}
