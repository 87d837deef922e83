//! Whether a run is valid to quote.

use std::fmt;

/// Beyond this share of late sends (over 1 ms after they were due), the run measures the load generator:
/// DESIGN.md, "Measuring on two cores".
pub const MOST_LATE: f64 = 0.015;

/// Beyond this share of lost requests, the p99.9 lies among requests that were not measured.
pub const MOST_LOST: f64 = 0.000_5;

/// Why a run must not be quoted.
#[derive(Clone, Debug, PartialEq)]
pub enum Invalid {
    /// The load generator fell behind: this share of sends was late.
    Late(f64),
    /// This share of sends was late, mostly for lack of an idle connection or room in a socket.
    Crowded(f64),
    /// This share of requests got no answer.
    Lost(f64),
    /// This share of requests was answered with an error.
    Failed(f64),
    /// Nothing was measured.
    Empty,
    /// It was stopped.
    Interrupted,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::Late(share) => {
                write!(f, "the load generator was late for {} of its sends", percent(*share))
            }
            Invalid::Crowded(share) => write!(
                f,
                "{} of the sends waited for a free connection: more connections, or less load",
                percent(*share)
            ),
            Invalid::Lost(share) => write!(f, "{} of the requests got no answer", percent(*share)),
            Invalid::Failed(share) => {
                write!(f, "{} of the requests were answered with an error", percent(*share))
            }
            Invalid::Empty => f.write_str("no request was measured"),
            Invalid::Interrupted => f.write_str("interrupted"),
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// Counts of a whole run, over all operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that fell due after the warm-up, sent or not.
    pub due: u64,
    /// Those sent more than a millisecond late, or never.
    pub late: u64,
    /// Those of them that the transport had no room for.
    pub crowded: u64,
    /// Those without an answer within the time limit.
    pub lost: u64,
    /// Those answered with an error.
    pub failed: u64,
}

impl Counts {
    /// The share of sends that were late.
    pub fn late_share(&self) -> f64 {
        self.late as f64 / self.due.max(1) as f64
    }

    /// The share of requests that were lost.
    pub fn lost_share(&self) -> f64 {
        self.lost as f64 / self.due.max(1) as f64
    }

    /// Every reason not to quote the run.
    pub fn problems(&self) -> Vec<Invalid> {
        if self.due == 0 {
            return vec![Invalid::Empty];
        }
        let failed = self.failed as f64 / self.due as f64;
        let why = if self.crowded * 2 > self.late { Invalid::Crowded } else { Invalid::Late };
        let late = (self.late_share() > MOST_LATE).then(|| why(self.late_share()));
        let lost = (self.lost_share() > MOST_LOST).then(|| Invalid::Lost(self.lost_share()));
        let failed = (self.failed > 0).then_some(Invalid::Failed(failed));
        [late, lost, failed].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_late_guard_is_strict_above_its_limit() {
        let counts = |late| Counts { due: 10_000, late, ..Counts::default() };
        assert_eq!(counts(150).problems(), []);
        assert_eq!(counts(151).problems(), [Invalid::Late(0.0151)]);
        assert!(counts(151).problems()[0].to_string().contains("1.51 %"));
    }

    #[test]
    fn what_made_most_of_the_late_ones_late_is_named() {
        let counts = |crowded| Counts { due: 1000, late: 100, crowded, ..Counts::default() };
        assert_eq!(counts(50).problems(), [Invalid::Late(0.1)]);
        assert_eq!(counts(51).problems(), [Invalid::Crowded(0.1)]);
        assert!(counts(51).problems()[0].to_string().contains("more connections"));
    }

    #[test]
    fn losses_and_errors_are_named() {
        let counts = Counts { due: 10_000, lost: 5, ..Counts::default() };
        assert_eq!(counts.problems(), []);
        let counts = Counts { lost: 6, failed: 1, ..counts };
        assert_eq!(counts.problems(), [Invalid::Lost(0.000_6), Invalid::Failed(0.000_1)]);
        assert_eq!(Counts::default().problems(), [Invalid::Empty]);
    }
}
