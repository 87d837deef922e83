//! Service times as the formulas see them: moments, and mixes of fixed sizes.

use super::positive;

/// The first three moments of a service time, in powers of the caller's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    /// `E[S]`, above zero.
    pub mean: f64,
    /// `E[S^2]`, at least the square of the mean. May be infinite (a heavy tail); then so is the mean
    /// wait in order of arrival.
    pub second: f64,
    /// `E[S^3]`; only the second moment of a wait needs it. May be infinite.
    pub third: f64,
}

impl Moments {
    /// Exponential: the n-th moment is n! times the n-th power of the mean.
    pub fn exponential(mean: f64) -> Moments {
        Moments { mean, second: 2.0 * mean.powi(2), third: 6.0 * mean.powi(3) }
    }

    /// A fixed size.
    pub fn fixed(size: f64) -> Moments {
        Moments { mean: size, second: size.powi(2), third: size.powi(3) }
    }

    /// Returns the squared coefficient of variation: 0 for a fixed size, 1 for exponential.
    pub fn variation(&self) -> f64 {
        self.second / self.mean.powi(2) - 1.0
    }

    /// Returns these moments, if some distribution could have them (to rounding).
    pub(super) fn checked(&self) -> Option<&Moments> {
        let square = positive(self.mean)?.powi(2);
        (self.second >= square * (1.0 - 1e-9)).then_some(self)
    }
}

/// A service time that takes one of a few fixed sizes: the bimodal and trimodal mixes of the field.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// (probability, size), shortest first.
    parts: Vec<(f64, f64)>,
}

impl Mix {
    /// From pairs (probability, size) in any order. `None` if a probability is negative, if they do not sum to one (to
    /// 1e-9), or if a size is not above zero and finite.
    pub fn new(parts: &[(f64, f64)]) -> Option<Mix> {
        let sound = |&(p, size): &(f64, f64)| p >= 0.0 && positive(size).is_some();
        let total: f64 = parts.iter().map(|&(p, _)| p).sum();
        let mut parts = parts.to_vec();
        parts.sort_by(|a, b| a.1.total_cmp(&b.1));
        (parts.iter().all(sound) && (total - 1.0).abs() <= 1e-9).then_some(Mix { parts })
    }

    /// (probability, size), shortest first.
    pub fn parts(&self) -> &[(f64, f64)] {
        &self.parts
    }

    /// Returns the mean of any function of the size. O(parts).
    pub fn mean_of(&self, f: impl Fn(f64) -> f64) -> f64 {
        self.parts.iter().map(|&(p, size)| p * f(size)).sum()
    }

    /// Returns the first three moments.
    pub fn moments(&self) -> Moments {
        let moment = |power| self.mean_of(|size| size.powi(power));
        Moments { mean: moment(1), second: moment(2), third: moment(3) }
    }

    /// Returns the sizes above `low` and up to `high`: their share of the jobs and their own
    /// distribution. `None` if there are none.
    pub fn between(&self, low: f64, high: f64) -> Option<(f64, Mix)> {
        let inside = self.parts.iter().filter(|&&(_, size)| low < size && size <= high);
        let share = positive(inside.clone().map(|&(p, _)| p).sum())?;
        Some((share, Mix { parts: inside.map(|&(p, size)| (p / share, size)).collect() }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_digits, bimodal};
    use super::*;

    #[test]
    fn the_mixes_of_the_papers_have_their_moments() {
        assert_digits(Some(bimodal().moments().mean), 1.0, 12);
        assert_digits(Some(bimodal().moments().second), 3.25, 12);
        let shinjuku = Mix::new(&[(0.995, 4.0), (0.005, 10_000.0)]).unwrap().moments();
        assert_digits(Some(shinjuku.mean), 53.98, 9);
        assert_digits(Some(shinjuku.variation()), 170.6, 1);
    }

    #[test]
    fn impossible_distributions_are_refused() {
        let refused: [&[(f64, f64)]; 5] =
            [&[], &[(0.5, 1.0)], &[(1.5, 1.0), (-0.5, 2.0)], &[(1.0, 0.0)], &[(f64::NAN, 1.0)]];
        assert!(refused.iter().all(|parts| Mix::new(parts).is_none()));
        assert!(Moments { mean: 2.0, second: 1.0, third: 1.0 }.checked().is_none());
    }

    #[test]
    fn an_interval_keeps_its_own_share() {
        let (share, short) = bimodal().between(0.0, 0.5).unwrap();
        assert_eq!((share, short.parts()), (0.9, &[(1.0, 0.5)][..]));
        assert!(bimodal().between(0.5, 5.0).is_none());
    }
}
