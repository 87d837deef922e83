//! How many keys a SCAN must read to last as long as is asked for, on a machine that is slow now and then.
//!
//! Noise only adds time, so the least of several measurements is taken, and a length is used only if even that is
//! long enough. Lengths known to be too short and long enough close in on each other, which ends the search whatever
//! single measurements say.

use heddle_core::Ns;
use std::io;

/// Measurements of each length.
const MEASUREMENTS: usize = 3;
/// Lengths that are tried for a SCAN close to the target; after these, any that lasts long enough will do.
const CLOSE_TRIES: usize = 8;
/// Keys at first.
const FIRST: u32 = 256;

/// A number of keys up to `most` at which a SCAN lasts `target` to one and a quarter times that, if `time` allows, and
/// how long it takes; `most`, if even that is shorter. `time` measures a SCAN of so many keys.
///
/// # Errors
/// Those of `time`.
pub fn search(
    most: u32,
    target: Ns,
    mut time: impl FnMut(u32) -> io::Result<Ns>,
) -> io::Result<(u32, Ns)> {
    let mut keys = FIRST.min(most);
    let (mut too_short, mut enough) = (0, None);
    for tried in 1.. {
        let took = least(keys, &mut time)?;
        if took >= target {
            enough = Some((keys, took));
            if took <= target + target / 4 {
                break;
            }
        } else if keys == most {
            return Ok((keys, took));
        } else {
            too_short = keys;
        }
        let longest = enough.map_or(most, |(keys, _)| keys - 1);
        if too_short >= longest || (tried >= CLOSE_TRIES && enough.is_some()) {
            break;
        }
        let mut next = next_length(keys, took, target);
        if tried >= CLOSE_TRIES {
            // Proportion does not get there: doubling does.
            next = next.max(keys.saturating_mul(2));
        }
        keys = next.clamp(too_short + 1, longest);
    }
    Ok(enough.expect("the search ends early only with a length"))
}

fn least(keys: u32, time: &mut impl FnMut(u32) -> io::Result<Ns>) -> io::Result<Ns> {
    let mut least = Ns::MAX;
    for _ in 0..MEASUREMENTS {
        least = least.min(time(keys)?);
    }
    Ok(least)
}

/// An eighth above what proportion asks for: within the margin, and still enough if the machine is faster then.
fn next_length(keys: u32, took: Ns, target: Ns) -> u32 {
    let ratio = target.0 as f64 / took.0.max(1) as f64;
    (f64::from(keys) * ratio * 1.125).ceil().clamp(1.0, f64::from(u32::MAX)) as u32
}

/// Returns what [`search`] has found, unless it is shorter than `target`.
///
/// # Errors
/// Then, with advice.
pub fn long_enough(found: (u32, Ns), target: Ns) -> io::Result<(u32, Ns)> {
    let (keys, took) = found;
    if took >= target {
        return Ok(found);
    }
    Err(io::Error::other(format!(
        "a SCAN of {keys} keys takes {took}, less than {target}; give more --keys or a shorter --scan"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Ns = Ns::from_ms(2);

    /// 200 ns a key and 20 us a request; `slow` says for the n-th measurement whether it takes three times as long.
    fn searched(most: u32, slow: impl Fn(u32) -> bool) -> io::Result<(u32, Ns)> {
        let mut n = 0;
        search(most, TARGET, |keys| {
            n += 1;
            assert!(n < 200, "the search does not end");
            Ok(true_time(keys) * if slow(n) { 3 } else { 1 })
        })
    }

    fn true_time(keys: u32) -> Ns {
        Ns(20_000 + 200 * u64::from(keys))
    }

    fn pseudo_random(n: u32, seed: u32) -> u32 {
        (n.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(0x9E37_79B9)).wrapping_mul(0x85EB_CA6B)
            >> 16
    }

    #[test]
    fn a_quiet_machine_gives_a_length_within_the_margin() {
        let (keys, took) = searched(1 << 20, |_| false).unwrap();
        assert_eq!(true_time(keys), took);
        assert!(took >= TARGET && took <= TARGET * 5 / 4, "{keys} keys take {took}");
    }

    #[test]
    fn slow_moments_change_little() {
        for seed in 0..500 {
            let (keys, _) = searched(1 << 20, |n| pseudo_random(n, seed) % 5 < 2).unwrap();
            // What was measured may be three times the truth, if all measurements of a length were slow.
            assert!(
                true_time(keys) * 3 >= TARGET && true_time(keys) <= TARGET * 3,
                "{seed}: {keys}"
            );
        }
        let (keys, took) = searched(1 << 20, |n| n % 3 != 0).unwrap();
        assert_eq!(true_time(keys), took);
    }

    #[test]
    fn a_long_enough_time_is_never_refused() {
        // Slow at first, then fast, and the other way round: what the length was judged by changes under way.
        for change in 0..30 {
            assert!(searched(1 << 20, |n| n > change).is_ok());
            assert!(searched(1 << 20, |n| n < change).is_ok());
        }
        // Time that does not follow the length at all.
        let steps = search(1 << 20, TARGET, |keys| {
            Ok(if keys < 100_000 { Ns::from_us(925) } else { Ns::from_ms(9) })
        });
        assert!(steps.unwrap().1 >= TARGET);
    }

    #[test]
    fn a_dataset_that_is_too_small_is_an_error_with_advice() {
        let found = searched(5_000, |_| false).unwrap();
        assert_eq!(found, (5_000, true_time(5_000)), "all keys");
        let error = long_enough(found, TARGET).unwrap_err().to_string();
        assert!(error.contains("5000 keys") && error.contains("more --keys"), "{error}");
        assert!(search(1, TARGET, |_| Ok(TARGET * 9)).is_ok_and(|(keys, _)| keys == 1));
    }

    #[test]
    fn lengths_grow_with_the_target() {
        assert_eq!(next_length(100, Ns::from_us(100), Ns::from_us(1000)), 1125);
        assert_eq!(next_length(100, Ns::ZERO, Ns::from_ms(2)), 225_000_000);
        assert_eq!(next_length(5, Ns::from_secs(1), Ns(1)), 1);
    }
}
