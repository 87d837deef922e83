//! Student's t distribution: the half-width of a confidence interval from few batches.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// The `t` that `|T|` stays within with probability `confidence`, for this many degrees of freedom.
///
/// The mean of `n` independent batches lies within `t s / sqrt(n)` of the truth with this confidence,
/// where `s` is the standard deviation of the batches (divisor `n - 1`) and `degrees = n - 1`, from 1.
/// `confidence` from 0 to below 1. O(degrees): the distribution is a finite sum in the angle
/// `atan(t / sqrt(degrees))` (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4), inverted by bisection of
/// that angle; good to 1e-9 relative for `1 - confidence` from 1e-4 up.
///
/// ```
/// let t = heddle_sim::theory::student::two_sided(9, 0.95).unwrap();
/// assert!((t - 2.262).abs() < 1e-3);
/// ```
pub fn two_sided(degrees: u32, confidence: f64) -> Option<f64> {
    let confidence = super::quantile_rank(confidence)?;
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        *if within(degrees, middle) < confidence { &mut low } else { &mut high } = middle;
    }
    (degrees > 0).then(|| f64::from(degrees).sqrt() * low.tan())
}

/// `P(|T| <= sqrt(degrees) tan(angle))`.
fn within(degrees: u32, angle: f64) -> f64 {
    let (sin, cos) = angle.sin_cos();
    if degrees.is_multiple_of(2) {
        return sin * cosines(1.0, degrees, 1, cos);
    }
    let beyond_one = if degrees == 1 { 0.0 } else { sin * cosines(cos, degrees, 2, cos) };
    FRAC_2_PI * (angle + beyond_one)
}

/// The sum that begins with `first`, each next term `cos^2 i / (i + 1)` times the previous one, `i`
/// increasing by two from `from` to below `degrees - 2`.
fn cosines(first: f64, degrees: u32, from: u32, cos: f64) -> f64 {
    let (mut sum, mut term) = (first, first);
    for i in (from..degrees.saturating_sub(2)).step_by(2) {
        term *= cos * cos * f64::from(i) / f64::from(i + 1);
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_digits, assert_same};
    use super::*;

    #[test]
    fn the_printed_table_at_95_percent() {
        for (degrees, t) in [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (9, 2.262),
            (10, 2.228),
            (19, 2.093),
            (29, 2.045),
            (30, 2.042),
            (60, 2.000),
            (120, 1.980),
        ] {
            assert_digits(two_sided(degrees, 0.95), t, 3);
        }
    }

    #[test]
    fn other_confidences_of_the_printed_table() {
        assert_digits(two_sided(10, 0.99), 3.169, 3);
        assert_digits(two_sided(7, 0.90), 1.895, 3);
        assert_digits(two_sided(1, 0.50), 1.0, 9);
        assert_digits(two_sided(2, 0.50), 0.8165, 4);
    }

    #[test]
    fn it_falls_to_the_normal_quantile() {
        // Normal 1.959964 at 95 %; Abramowitz and Stegun 26.7.5 in 1 / degrees.
        let z = 1.959_963_985f64;
        let two_hundred = z
            + (z.powi(3) + z) / (4.0 * 200.0)
            + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * 4e4);
        assert_digits(two_sided(200, 0.95), two_hundred, 6);
        let all: Vec<f64> = (1..=200).map(|degrees| two_sided(degrees, 0.95).unwrap()).collect();
        assert!(all.windows(2).all(|pair| pair[1] < pair[0]) && all[199] > z);
    }

    #[test]
    fn two_degrees_have_a_closed_form() {
        for confidence in [0.1f64, 0.9, 0.999] {
            let t = confidence * (2.0 / (1.0 - confidence * confidence)).sqrt();
            assert_same(two_sided(2, confidence), Some(t));
        }
    }

    #[test]
    fn one_batch_and_certainty_have_no_interval() {
        assert_eq!(two_sided(0, 0.95), None);
        assert_eq!(two_sided(5, 1.0), None);
        assert_eq!(two_sided(5, -0.1), None);
    }
}
