//! Maps values to positions on an axis, and chooses its ticks.

/// The largest number of labels on an axis.
const LABELS: f64 = 7.0;

/// An axis: the values at its ends, and whether it is logarithmic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

/// A tick of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    /// Whether it has a label. Minor ticks have only a line.
    pub(crate) labelled: bool,
}

impl Scale {
    /// From zero (or the lowest value, if negative) to a round number above the highest.
    pub(crate) fn linear(values: impl Iterator<Item = f64>) -> Scale {
        let (low, high) = extent(values, |_| true).unwrap_or((0.0, 1.0));
        let (low, high) = (low.min(0.0), high.max(0.0));
        let step = round_step(high - low);
        let high = if high > low { (high / step - 1e-9).ceil() * step } else { low + 1.0 };
        Scale { low: (low / step).floor() * step, high, log: false }
    }

    /// From a round number below the lowest positive value to one above the highest. Values that are not
    /// positive are at the lower end.
    pub(crate) fn log(values: impl Iterator<Item = f64>) -> Scale {
        let (low, high) = extent(values, |v| v > 0.0).unwrap_or((1.0, 10.0));
        let (low, high) = (round_down(low), round_up(high));
        Scale { low, high: if high > low { high } else { low * 10.0 }, log: true }
    }

    /// The position of a value: 0 at the lower end, 1 at the upper, clamped to these.
    pub(crate) fn position(&self, value: f64) -> f64 {
        let of = |v: f64| if self.log { v.max(self.low).log10() } else { v };
        ((of(value) - of(self.low)) / (of(self.high) - of(self.low))).clamp(0.0, 1.0)
    }

    pub(crate) fn ticks(&self) -> Vec<Tick> {
        if self.log { self.log_ticks() } else { self.linear_ticks() }
    }

    fn linear_ticks(&self) -> Vec<Tick> {
        let step = round_step(self.high - self.low);
        let count = ((self.high - self.low) / step + 1e-9).floor() as usize;
        (0..=count).map(|n| Tick { value: self.low + n as f64 * step, labelled: true }).collect()
    }

    /// The decades, and 2 and 5 within them, labelled if there is room.
    fn log_ticks(&self) -> Vec<Tick> {
        let decades = (self.high / self.low).log10();
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let inside = |v: f64| v >= self.low * 0.999 && v <= self.high * 1.001;
        // Over many decades only some are labelled.
        let every = (decades / LABELS).ceil().max(1.0) as i32;
        (first..=last)
            .flat_map(|e| [1.0, 2.0, 5.0].map(|m| (e, m)))
            .map(|(e, m)| Tick {
                value: m * 10f64.powi(e),
                labelled: if m == 1.0 { e % every == 0 } else { decades <= 2.5 },
            })
            .filter(|tick| inside(tick.value))
            .collect()
    }
}

fn extent(values: impl Iterator<Item = f64>, wanted: fn(f64) -> bool) -> Option<(f64, f64)> {
    values
        .filter(|v| v.is_finite() && wanted(*v))
        .map(|v| (v, v))
        .reduce(|(low, high), (v, _)| (low.min(v), high.max(v)))
}

/// The smallest step of 1, 2 or 5 times a power of ten with at most [`LABELS`] steps in `span`.
fn round_step(span: f64) -> f64 {
    if span > 0.0 { round_up(span / LABELS) } else { 1.0 }
}

/// The lowest of 1, 2, 5, 10 times a power of ten that is not below `v`.
fn round_up(v: f64) -> f64 {
    let decade = 10f64.powf(v.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|m| m * decade)
        .find(|&r| r >= v * 0.999_999)
        .unwrap_or(10.0 * decade)
}

/// The highest of 1, 2, 5 times a power of ten that is not above `v`.
fn round_down(v: f64) -> f64 {
    let decade = 10f64.powf(v.log10().floor());
    [5.0, 2.0].into_iter().map(|m| m * decade).find(|&r| r <= v * 1.000_001).unwrap_or(decade)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_keep_their_order_on_the_axis(mut values in prop::collection::vec(1e-3f64..1e12, 1..20)) {
            values.sort_by(f64::total_cmp);
            for scale in [Scale::linear(values.iter().copied()), Scale::log(values.iter().copied())] {
                let positions: Vec<f64> = values.iter().map(|&v| scale.position(v)).collect();
                prop_assert!(positions.is_sorted() && positions.iter().all(|p| (0.0..=1.0).contains(p)));
                let labels = scale.ticks().iter().filter(|t| t.labelled).count();
                prop_assert!((2..=12).contains(&labels), "{labels} labels on {scale:?}");
            }
        }
    }

    #[test]
    fn an_axis_without_values_still_has_ticks() {
        for values in [vec![], vec![0.0], vec![f64::NAN], vec![-1.0], vec![5.0]] {
            for scale in [Scale::linear(values.iter().copied()), Scale::log(values.iter().copied())]
            {
                assert!(scale.position(3.0).is_finite() && !scale.ticks().is_empty(), "{values:?}");
            }
        }
    }

    #[test]
    fn round_numbers() {
        let scale = Scale::log([1_300.0, 84_000.0].into_iter());
        assert_eq!((scale.low, scale.high), (1_000.0, 100_000.0));
        let scale = Scale::linear([3.0, 58.0].into_iter());
        assert_eq!((scale.low, scale.high, scale.ticks().len()), (0.0, 60.0, 7));
    }
}
