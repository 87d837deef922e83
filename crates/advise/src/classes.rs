//! Which requests are short and which are long.

use heddle_core::Ns;

/// Bins for each doubling of the demand.
const PARTS: f64 = 4.0;
/// The least that the medians of both sides of a split differ by.
const APART: u64 = 3;
/// The least number of requests of a class.
const FEWEST: usize = 20;
/// A valley has at most this share of the lower of the peaks beside it.
const VALLEY: f64 = 0.2;

/// Returns the demand from which on a request is long, if demands have two modes: the deepest valley of their
/// logarithms' histogram, if the medians of its sides differ by three times. Short requests are more often many than
/// few, so the sides may have any sizes from twenty requests on.
pub fn split(demands: &[Ns]) -> Option<Ns> {
    let bin = |demand: Ns| ((demand.0.max(1) as f64).log2() * PARTS) as usize;
    let mut bins = vec![0_usize; 64 * PARTS as usize + 1];
    for &demand in demands {
        bins[bin(demand)] += 1;
    }
    let mut sorted = demands.to_vec();
    sorted.sort_unstable();
    let candidates = (1..bins.len()).filter_map(|at| {
        let edge = Ns((at as f64 / PARTS).exp2().ceil() as u64);
        let below = sorted.partition_point(|&demand| demand < edge);
        if below < FEWEST || sorted.len() - below < FEWEST {
            return None;
        }
        let (low, high) = (sorted[below / 2], sorted[(below + sorted.len()) / 2]);
        let peaks = [&bins[..at], &bins[at..]].map(|side| side.iter().max().copied().unwrap_or(0));
        let peak = peaks.into_iter().min().unwrap_or(0) as f64;
        // A single empty bin is noise; the mean of three is the valley's depth.
        let around = &bins[at.saturating_sub(1)..(at + 2).min(bins.len())];
        let depth = around.iter().sum::<usize>() as f64 / around.len() as f64 / peak;
        (high.0 >= low.0.saturating_mul(APART) && depth <= VALLEY).then_some((depth, edge))
    });
    // Of equally deep valleys the middle: an edge far from both modes.
    let all: Vec<(f64, Ns)> = candidates.collect();
    let least = all.iter().map(|(depth, _)| *depth).reduce(f64::min)?;
    let deepest: Vec<Ns> =
        all.iter().filter(|(depth, _)| *depth <= least).map(|(_, edge)| *edge).collect();
    deepest.get(deepest.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::Rng;

    /// Times spread by a quarter around `middle`.
    fn around(rng: &Rng, middle: u64, count: usize) -> Vec<Ns> {
        (0..count).map(|_| Ns(middle - middle / 8 + rng.next_u64() % (middle / 4))).collect()
    }

    #[test]
    fn gets_and_scans_are_two_classes() {
        let rng = Rng::new(1);
        let mut demands = around(&rng, 10_000, 9_950);
        demands.extend(around(&rng, 700_000, 50));
        let edge = split(&demands).unwrap();
        assert!(edge > Ns::from_us(12) && edge < Ns::from_us(600), "{edge}");
    }

    #[test]
    fn one_mode_is_one_class() {
        let rng = Rng::new(1);
        assert_eq!(split(&around(&rng, 10_000, 10_000)), None);
        assert_eq!(split(&[]), None);
        // Exponential demands have a long tail, but one mode.
        let exponential = |_| {
            let u = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            Ns((-(1.0 - u).ln() * 1e5) as u64 + 1)
        };
        assert_eq!(split(&(0..10_000).map(exponential).collect::<Vec<_>>()), None);
    }

    #[test]
    fn a_few_outliers_are_no_class() {
        let rng = Rng::new(1);
        let mut demands = around(&rng, 10_000, 1_000);
        demands.extend(around(&rng, 1_000_000, FEWEST - 1));
        assert_eq!(split(&demands), None);
    }
}
