//! Mixes, loads and policies.

use heddle_core::Ns;
use heddle_steer::policy::shipped_names;

use crate::steer::{Dilation, System};
use heddle_load::Mix;

/// A mix of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// GETs alone (Syrup, 5.2.1, Figure 2).
    Gets,
    /// 99.5 % GET, 0.5 % SCAN (Figure 6).
    Rare,
    /// Half and half (Figure 8).
    Half,
    /// GETs of two users; this percentage comes from the latency-sensitive one (5.2.2, Figure 7).
    Tokens(u32),
}

impl Case {
    /// All, in the paper's order.
    pub const ALL: [Case; 6] =
        [Case::Gets, Case::Rare, Case::Half, Case::Tokens(25), Case::Tokens(50), Case::Tokens(75)];

    /// The name in results.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Case::Gets => "mix-100-0".into(),
            Case::Rare => "mix-99.5-0.5".into(),
            Case::Half => "mix-50-50".into(),
            Case::Tokens(ls) => format!("tokens-ls-{ls}"),
        }
    }

    /// The operations; the second user's GETs are `set` here.
    #[must_use]
    pub fn mix(self) -> Mix {
        let text = match self {
            Case::Gets => "get=100".into(),
            Case::Rare => "get=99.5,scan=0.5".into(),
            Case::Half => "get=50,scan=50".into(),
            Case::Tokens(ls) => format!("get={ls},set={}", 100 - ls),
        };
        text.parse().unwrap_or_else(|error| unreachable!("{text}: {error}"))
    }

    /// Whether users pay with tokens.
    #[must_use]
    pub fn has_users(self) -> bool {
        matches!(self, Case::Tokens(_))
    }
}

/// A comparison of policies.
#[derive(Clone, Debug)]
pub struct MixOptions {
    /// The dilation factor.
    pub dilation: Dilation,
    /// The systems, in the order of each round.
    pub systems: Vec<System>,
    /// The mixes.
    pub cases: Vec<Case>,
    /// Fractions of the computed capacity.
    pub loads: Vec<f64>,
    /// Rounds.
    pub rounds: u32,
    /// Duration of each point.
    pub duration: Ns,
    /// Seed of the arrivals.
    pub seed: u64,
}

/// One system at one load of one mix.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The mix.
    pub case: Case,
    /// The offered fraction of its computed capacity.
    pub fraction: f64,
    /// The system.
    pub system: System,
}

/// The load with tokens: slightly above the server's capacity, as in the paper.
const OVER: f64 = 1.0;

impl Point {
    /// The case in results: the mix and the load.
    #[must_use]
    pub fn name(&self) -> String {
        match self.case {
            Case::Tokens(_) => self.case.name(),
            _ => format!("{}-{}", self.case.name(), load_name(self.fraction)),
        }
    }
}

fn load_name(fraction: f64) -> String {
    match (fraction * 100.0).round() {
        50.0 => "half-load".into(),
        percent => format!("load-{percent:.0}"),
    }
}

impl MixOptions {
    /// The points of a round in order: all systems before the next load.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for &case in &self.cases {
            let loads = if case.has_users() { &[OVER][..] } else { &self.loads[..] };
            for &fraction in loads {
                let systems = self.systems_of(case).into_iter();
                points.extend(systems.map(|system| Point { case, fraction, system }));
            }
        }
        points
    }

    /// With users, the token policy and its baseline; otherwise all requested systems.
    fn systems_of(&self, case: Case) -> Vec<System> {
        if !case.has_users() {
            return self.systems.clone();
        }
        let there = |name: &&str| shipped_names().any(|shipped| shipped == *name);
        ["round-robin", "token"]
            .into_iter()
            .filter(there)
            .map(|n| System::Policy(n.into()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_named_as_results_are_asked_for() {
        let options = MixOptions {
            dilation: Dilation::default(),
            systems: vec![System::Hash, System::Shared],
            cases: vec![Case::Rare, Case::Tokens(25)],
            loads: vec![0.5, 0.8],
            rounds: 1,
            duration: Ns::from_secs(1),
            seed: 1,
        };
        let points = options.points();
        let names: Vec<String> = points.iter().map(Point::name).collect();
        assert_eq!(names[0], "mix-99.5-0.5-half-load");
        assert_eq!((points[1].system.clone(), &*names[1]), (System::Shared, &*names[0]));
        assert_eq!(names[2], "mix-99.5-0.5-load-80");
        assert!(names[4..].iter().all(|name| name == "tokens-ls-25"));
    }

    #[test]
    fn every_mix_parses() {
        for case in Case::ALL {
            assert!(case.mix().ops().count() > 0, "{}", case.name());
        }
    }
}
