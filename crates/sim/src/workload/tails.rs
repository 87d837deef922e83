//! The two distributions whose tails are specified apart from their mean.

use super::OutOfRange;
use crate::Random;
use heddle_core::Ns;

/// A lognormal distribution given by its mean and its coefficient of variation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lognormal {
    mean: Ns,
    cv: f64,
    /// Mean and standard deviation of the logarithm.
    mu: f64,
    sigma: f64,
}

impl Lognormal {
    /// The allowed `cv` of [`Lognormal::new`].
    pub(super) const CV: &str = "a number above 0 and at most 1000";

    /// Creates a distribution with this mean and `cv`, the standard deviation over the mean:
    /// `0 < cv <= 1000`.
    ///
    /// # Errors
    /// [`OutOfRange`], also for a mean of zero.
    pub fn new(mean: Ns, cv: f64) -> Result<Lognormal, OutOfRange> {
        OutOfRange::unless(mean > Ns::ZERO, "mean", mean, "above zero")?;
        OutOfRange::unless(cv > 0.0 && cv <= 1e3, "cv", cv, Lognormal::CV)?;
        let variance = (cv * cv).ln_1p();
        let mu = (mean.0 as f64).ln() - variance / 2.0;
        Ok(Lognormal { mean, cv, mu, sigma: variance.sqrt() })
    }

    /// Returns the mean.
    pub fn mean(&self) -> Ns {
        self.mean
    }

    /// Returns the standard deviation over the mean.
    pub fn cv(&self) -> f64 {
        self.cv
    }

    /// Returns the mean of the `k`-th power, in ns^k: `mean^k (1 + cv^2)^(k(k-1)/2)`.
    pub fn moment(&self, k: u32) -> f64 {
        let pairs = f64::from(k) * (f64::from(k) - 1.0) / 2.0;
        (self.mean.0 as f64).powf(f64::from(k)) * (1.0 + self.cv * self.cv).powf(pairs)
    }

    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> f64 {
        (self.mu + self.sigma * random.normal()).exp()
    }
}

/// A Pareto distribution given by its mean and shape, with or without an upper bound.
///
/// The survival function falls as `(low / x)^shape`; `low`, the least value, follows from the mean.
/// With a bound the distribution is the unbounded one conditioned to stay below it, and `mean` is the
/// mean of the conditioned one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pareto {
    mean: Ns,
    shape: f64,
    max: Option<Ns>,
    low: f64,
    /// The share of the unbounded distribution that lies above the bound.
    beyond: f64,
}

impl Pareto {
    /// The allowed `shape` of [`Pareto::new`] without a bound, and with one.
    pub(super) const SHAPE: &str =
        "a number above 1 and at most 1000 (below, the mean is infinite, unless max= bounds it)";
    pub(super) const BOUNDED_SHAPE: &str = "a number from 0.1 to 1000";
    pub(super) const MAX: &str = "a time above the mean";

    /// Creates a distribution with this mean and shape: `1 < shape <= 1000`, or `0.1 <= shape <= 1000`
    /// with a `max`, which must exceed the mean.
    ///
    /// # Errors
    /// [`OutOfRange`], also for a mean of zero.
    pub fn new(mean: Ns, shape: f64, max: Option<Ns>) -> Result<Pareto, OutOfRange> {
        OutOfRange::unless(mean > Ns::ZERO, "mean", mean, "above zero")?;
        match max {
            None => OutOfRange::unless(shape > 1.0 && shape <= 1e3, "shape", shape, Pareto::SHAPE)?,
            Some(max) => {
                let good = (0.1..=1e3).contains(&shape);
                OutOfRange::unless(good, "shape", shape, Pareto::BOUNDED_SHAPE)?;
                OutOfRange::unless(max > mean, "max", max, Pareto::MAX)?;
            }
        }
        let low = match max {
            None => mean.0 as f64 * (shape - 1.0) / shape,
            Some(max) => lowest(mean.0 as f64, shape, max.0 as f64),
        };
        let beyond = max.map_or(0.0, |max| (low / max.0 as f64).powf(shape));
        Ok(Pareto { mean, shape, max, low, beyond })
    }

    /// Returns the mean.
    pub fn mean(&self) -> Ns {
        self.mean
    }

    /// Returns the exponent of the tail.
    pub fn shape(&self) -> f64 {
        self.shape
    }

    /// Returns the bound.
    pub fn max(&self) -> Option<Ns> {
        self.max
    }

    /// Returns the mean of the `k`-th power, in ns^k; without a bound, infinite from `k = shape` on.
    pub fn moment(&self, k: u32) -> f64 {
        match self.max {
            Some(max) => bounded_moment(k, self.low, self.shape, max.0 as f64),
            None if self.shape <= f64::from(k) => f64::INFINITY,
            None => self.low.powf(f64::from(k)) * self.shape / (self.shape - f64::from(k)),
        }
    }

    /// Inverts the survival function, whose least value is `beyond`.
    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> f64 {
        let survival = self.beyond + random.unit() * (1.0 - self.beyond);
        self.low * survival.powf(-1.0 / self.shape)
    }
}

/// Returns the `k`-th moment between `low` and `max`: the integral of `x^k` times the density
/// `shape low^shape x^(-shape-1) / (1 - (low/max)^shape)`. Written with `exp_m1`, it also holds if `k`
/// is close to `shape`.
fn bounded_moment(k: u32, low: f64, shape: f64, max: f64) -> f64 {
    let (decades, k) = ((max / low).ln(), f64::from(k));
    let rise = k - shape;
    let integral = if rise == 0.0 { decades } else { (rise * decades).exp_m1() / rise };
    low.powf(k) * shape * integral / -(-shape * decades).exp_m1()
}

/// Returns the least value for which the mean is `mean`, by bisection of its logarithm: the mean rises
/// with it.
fn lowest(mean: f64, shape: f64, max: f64) -> f64 {
    let (mut under, mut over) = (mean.ln() - 1000.0, mean.ln());
    for _ in 0..100 {
        let middle = (under + over) / 2.0;
        match bounded_moment(1, middle.exp(), shape, max) < mean {
            true => under = middle,
            false => over = middle,
        }
    }
    over.exp()
}
