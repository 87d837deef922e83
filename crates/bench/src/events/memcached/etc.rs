//! Facebook's ETC workload: sizes, operations and gaps between requests.
//!
//! The distributions are those of Atikoglu et al. (SIGMETRICS 2012, section 5), which mutilate uses too: lengths of
//! keys follow a generalised extreme value distribution, values are short with listed probabilities or follow a
//! generalised Pareto distribution, as do the gaps. A key always has the same lengths, so all servers store the same
//! items.

use heddle_core::{Ns, Rng};
use heddle_load::{Arrival, Dialect, Mix, Op, Shape, memcached_answer};
use std::io;

/// The shares of the requests: thirty GETs for each SET.
pub(super) const MIX: &str = "get=96.7,set=3.3";
/// The number of items, mutilate's default. All keys are equally likely, as there.
pub(super) const KEYS: usize = 10_000;
/// The most bytes of a value. The distribution has no end.
const LONGEST: usize = 64 << 10;
/// The probabilities of values of 0 to 14 bytes.
const SHORT: [f64; 15] = [
    0.005_36, 0.000_47, 0.178_20, 0.092_39, 0.000_18, 0.027_40, 0.000_65, 0.006_06, 0.000_23,
    0.008_37, 0.008_37, 0.089_89, 0.000_92, 0.003_26, 0.019_80,
];
/// The shape of the distribution of gaps; its scale follows from the rate.
const GAP_SHAPE: f64 = 0.154_971;

/// A number in `0.0..1.0`.
fn unit(rng: &Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// The value that a generalised Pareto distribution exceeds with probability `u`, in 0.0 to 1.0 without 0.
fn pareto(scale: f64, shape: f64, u: f64) -> f64 {
    scale * (u.powf(-shape) - 1.0) / shape
}

/// Two numbers in `0.0..1.0` that belong to a key.
fn draws(key: u64) -> (f64, f64) {
    let rng = Rng::new(key);
    (unit(&rng), unit(&rng))
}

/// The bytes of a key: around 31.
fn key_len(u: f64) -> usize {
    let exponential = -(1.0 - u).ln();
    let (location, scale, shape) = (30.798_4, 8.204_49, 0.078_688);
    let len = location + scale * (exponential.max(1e-9).powf(-shape) - 1.0) / shape;
    // At least the digits of the largest key; at most what memcached accepts.
    (len.round().max(0.0) as usize).clamp(KEYS.ilog10() as usize + 1, 250)
}

/// The bytes of a value: 0 to 14 in four of nine cases, some hundreds in the others.
fn value_len(u: f64) -> usize {
    let mut left = u;
    for (len, share) in SHORT.iter().enumerate() {
        left -= share;
        if left < 0.0 {
            return len;
        }
    }
    let of_long = left / (1.0 - SHORT.iter().sum::<f64>());
    let len = 15.0 + pareto(214.476, 0.348_238, (1.0 - of_long).max(1e-9));
    (len as usize).min(LONGEST)
}

/// Memcached's text protocol with ETC's sizes; one request at a time on each connection, as mutilate's default.
#[derive(Debug, Default)]
pub(super) struct Etc;

impl Dialect for Etc {
    const DEPTH: usize = 1;

    fn encode(out: &mut Vec<u8>, request: &Arrival, shape: &Shape) {
        let key = request.key;
        let (of_key, of_value) = draws(key);
        let name = format!("{key:0width$}", width = key_len(of_key));
        match request.op {
            Op::Get | Op::Scan => out.extend_from_slice(format!("get {name}\r\n").as_bytes()),
            Op::Set => {
                let value = &shape.value(Op::Set)[..value_len(of_value)];
                out.extend_from_slice(format!("set {name} 0 0 {}\r\n", value.len()).as_bytes());
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    fn advance(&mut self, bytes: &[u8]) -> io::Result<(usize, Option<bool>)> {
        memcached_answer(bytes)
    }
}

/// The shape that [`Etc`] takes its values from.
pub(super) fn shape() -> Shape {
    Shape::new(KEYS, 1, LONGEST)
}

/// The SETs of all items.
pub(super) fn all_sets() -> Vec<u8> {
    let (shape, mut out) = (shape(), Vec::new());
    let set = |key| Arrival { at: Ns::ZERO, op: Op::Set, key };
    (0..KEYS as u64).for_each(|key| Etc::encode(&mut out, &set(key), &shape));
    out
}

/// An endless stream of requests with ETC's gaps, stretched to `rate` per second. Equal seeds give equal streams.
pub(super) fn arrivals(seed: u64, rate: f64) -> impl Iterator<Item = Arrival> {
    let (rng, mix) = (Rng::new(seed), MIX.parse::<Mix>().expect("a mix"));
    let scale = (1.0 - GAP_SHAPE) * 1e9 / rate;
    // A float: rounding each gap to nanoseconds would shift the rate.
    let mut at = 0.0;
    std::iter::repeat_with(move || {
        at += pareto(scale, GAP_SHAPE, 1.0 - unit(&rng));
        let op = mix.draw(&rng);
        Arrival { at: Ns(at as u64), op, key: rng.below(KEYS) as u64 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The mean of `len` over evenly spaced numbers.
    fn mean(len: fn(f64) -> usize) -> f64 {
        let n = 100_000;
        (0..n).map(|i| len((f64::from(i) + 0.5) / f64::from(n)) as f64).sum::<f64>() / f64::from(n)
    }

    #[test]
    fn lengths_have_the_means_of_their_distributions() {
        // Location + scale * (gamma(1 - shape) - 1) / shape = 36.3.
        assert!((mean(key_len) - 36.3).abs() < 0.3, "{}", mean(key_len));
        // 0.441 of 5.6 bytes, and 0.559 of 15 + scale / (1 - shape) = 344: 195.
        assert!((mean(value_len) - 194.5).abs() < 5.0, "{}", mean(value_len));
        assert_eq!([0.0, 0.006, 0.1].map(value_len), [0, 2, 2]);
        assert!((15..20).contains(&value_len(0.445)), "{}", value_len(0.445));
        assert_eq!(value_len(0.999_999_999_9), LONGEST);
        assert_eq!(key_len(0.0), 250);
        assert!((5..10).contains(&key_len(0.999_999_999_9)));
    }

    #[test]
    fn items_have_names_of_their_own_and_the_same_sizes_each_time() {
        let sets = all_sets();
        assert_eq!(sets, all_sets());
        let text = String::from_utf8(sets).unwrap();
        let heads = text.lines().filter(|line| line.starts_with("set "));
        let names: BTreeSet<&str> = heads.filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(names.len(), KEYS);
    }

    #[test]
    fn gaps_add_up_to_the_rate_and_thirty_gets_come_for_each_set() {
        let n = 200_000;
        let all: Vec<Arrival> = arrivals(1, 1e4).take(n).collect();
        let rate = n as f64 / all[n - 1].at.as_secs_f64();
        // The standard deviation of a gap is 1.2 times its mean: five standard errors are 1.4 %.
        assert!((rate / 1e4 - 1.0).abs() < 0.014, "{rate}");
        let sets = all.iter().filter(|request| request.op == Op::Set).count();
        // 3.3 %, and five standard deviations.
        assert!((6_200..7_000).contains(&sets), "{sets}");
        assert!(arrivals(1, 1e4).take(n).eq(all), "a seed fixes the stream");
    }
}
