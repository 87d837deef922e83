//! Servers under load: all systems in interleaved rounds, a fresh server each time.

use std::io;

use super::options::PosixOptions;
use super::part::Part;
use super::rounds::{attempts, busy_others};
use super::system::System;
use heddle_load::{Invalid, LoadRun};
use heddle_metrics::{Progress, Run};

/// What was measured of one system in one round.
pub(super) trait Sample {
    /// Why the run must not be quoted; `None` if it is valid.
    fn invalid(&self) -> Option<String>;

    /// What a line of the live table says of it.
    fn summary(&self) -> String;
}

/// What was measured, or why nothing was.
pub(super) type Measured<S> = Result<S, String>;

/// The systems of one round, each with what was measured.
pub(super) type Turn<S> = Vec<(System, Measured<S>)>;

/// Measures the systems of `part` in interleaved rounds and hands on each complete one, until `once` is interrupted.
/// `case` is what progress lines call it. An invalid run is repeated as often as the options allow.
pub(super) fn run<S: Sample>(
    options: &PosixOptions,
    (part, case): (Part, &str),
    progress: &mut Progress,
    mut once: impl FnMut(&System, u32) -> io::Result<S>,
    mut add: impl FnMut(&Turn<S>),
) {
    let systems = options.compared(part);
    for round in 0..options.rounds {
        let mut turn = Turn::new();
        for system in PosixOptions::turns(&systems, round) {
            progress.step(&format!("{case}, round {}: {system}", round + 1));
            let measured = match attempts(options.tries, || once(system, round), S::invalid) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
                measured => measured.map_err(|error| error.to_string()),
            };
            progress.line(&line(system, &measured));
            turn.push((system.clone(), measured));
        }
        add(&turn);
    }
}

fn line<S: Sample>(system: &System, measured: &Measured<S>) -> String {
    match measured {
        Err(why) => format!("  {system}: {why}"),
        Ok(sample) => {
            let mark = sample.invalid().map_or(String::new(), |why| format!("  ! {why}"));
            format!("  {:<34} {}{mark}", system.to_string(), sample.summary())
        }
    }
}

/// A figure of a sample as a run: valid, or with the reason why not.
pub(super) fn figure<S: Sample>(measured: &Measured<S>, value: impl Fn(&S) -> f64) -> Run {
    match measured {
        Ok(sample) => Run { value: value(sample), invalid: sample.invalid() },
        Err(why) => Run::invalid(f64::NAN, why.clone()),
    }
}

/// Why an open loop over a pool of connections must not be quoted. A request that waits for a connection is valid: an
/// application has a pool of them, and the latency counts from the intended send time.
pub(crate) fn problem(run: &LoadRun, others: f64) -> Option<String> {
    let problems = run.tally.problems();
    let counts = |problem: &&Invalid| !matches!(problem, Invalid::Crowded(_));
    let problem = problems.iter().find(counts).map(ToString::to_string);
    problem.or_else(|| busy_others(others))
}

/// The sample of `peer` that a system is compared with; none for the kernel and for the peer itself.
pub(super) fn beside<'a, S>(
    turn: &'a Turn<S>,
    system: &System,
    peer: &System,
) -> Option<&'a Measured<S>> {
    let compares = *system != System::Kernel && system != peer;
    turn.iter().find(|(other, _)| compares && other == peer).map(|(_, measured)| measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::Ns;
    use heddle_load::{Op, Tally};

    struct Tried(u32);

    impl Sample for Tried {
        fn invalid(&self) -> Option<String> {
            (self.0 < 3).then(|| format!("try {}", self.0))
        }

        fn summary(&self) -> String {
            format!("took {}", self.0)
        }
    }

    #[test]
    fn an_invalid_run_is_repeated_until_it_is_valid_or_the_tries_are_used_up() {
        let last = |tries| {
            let mut count = 0;
            let once = || {
                count += 1;
                Ok(Tried(count))
            };
            attempts(tries, once, Tried::invalid).unwrap().0
        };
        assert_eq!([1, 2, 3, 9].map(last), [1, 2, 3, 3]);
        let broken = attempts(9, || Err(io::Error::other("no server")), Tried::invalid);
        assert!(broken.is_err(), "only invalid runs are repeated");
    }

    #[test]
    fn only_a_lack_of_connections_leaves_an_open_loop_valid() {
        let run = |crowded| {
            let mut tally = Tally::new(Ns::from_secs(1), [None; Op::ALL.len()]);
            for _ in 0..100 {
                tally.sent(Op::Get, Ns::from_ms(5), crowded);
            }
            LoadRun { rate: 100.0, tally, window: Ns::from_secs(1) }
        };
        assert_eq!(problem(&run(Ns::from_ms(5)), 0.0), None);
        assert!(problem(&run(Ns::ZERO), 0.0).unwrap().contains("late"));
        assert!(problem(&run(Ns::from_ms(5)), 0.5).unwrap().contains("50.0 % of a CPU"));
    }

    #[test]
    fn figures_keep_the_reason_and_lines_show_it() {
        assert_eq!(figure(&Ok(Tried(3)), |tried| tried.0.into()), Run::ok(3.0));
        assert_eq!(figure(&Ok(Tried(2)), |_| 1.0), Run::invalid(1.0, "try 2"));
        let broken: Measured<Tried> = Err("no server".into());
        assert_eq!(figure(&broken, |_| 1.0).invalid.as_deref(), Some("no server"));
        assert!(line(&System::Kernel, &Ok(Tried(2))).ends_with("took 2  ! try 2"));
        assert_eq!(line(&System::Kernel, &broken), "  kernel: no server");
    }

    #[test]
    fn systems_are_compared_with_others_and_the_kernel_with_none() {
        let turn = vec![(System::Kernel, Ok(Tried(1))), (System::KernelNice, Ok(Tried(2)))];
        assert!(beside(&turn, &System::KernelNice, &System::Kernel).is_some());
        assert!(beside(&turn, &System::KernelNice, &System::KernelNice).is_none());
        assert!(beside(&turn, &System::Kernel, &System::KernelNice).is_none());
        assert!(beside(&turn, &System::Kernel, &System::Kernel).is_none());
    }
}
