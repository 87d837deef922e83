//! Durations and instants, in nanoseconds.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};
use core::str::FromStr;

/// Nanoseconds: a duration, or an instant since an origin that the hook fixes (boot in the runtime, zero
/// in the simulator).
///
/// Written and read as `250ns`, `100us`, `1.5ms`, `2s`. Arithmetic saturates: a schedule that lasts
/// more than 584 years is not wrong, only long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Ns(pub u64);

impl Ns {
    /// No time at all.
    pub const ZERO: Ns = Ns(0);
    /// Longer than anything that happens; as an instant, "never".
    pub const MAX: Ns = Ns(u64::MAX);

    /// Returns `n` microseconds.
    pub const fn from_us(n: u64) -> Ns {
        Ns(n.saturating_mul(1_000))
    }

    /// Returns `n` milliseconds.
    pub const fn from_ms(n: u64) -> Ns {
        Ns(n.saturating_mul(1_000_000))
    }

    /// Returns `n` seconds.
    pub const fn from_secs(n: u64) -> Ns {
        Ns(n.saturating_mul(1_000_000_000))
    }

    /// Returns the value in microseconds, for display.
    pub fn as_us_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Returns the value in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl From<core::time::Duration> for Ns {
    fn from(d: core::time::Duration) -> Ns {
        Ns(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Ns> for core::time::Duration {
    fn from(ns: Ns) -> Self {
        core::time::Duration::from_nanos(ns.0)
    }
}

impl From<u64> for Ns {
    fn from(ns: u64) -> Ns {
        Ns(ns)
    }
}

impl From<Ns> for u64 {
    fn from(ns: Ns) -> u64 {
        ns.0
    }
}

impl Add for Ns {
    type Output = Ns;
    fn add(self, rhs: Ns) -> Ns {
        Ns(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Ns {
    fn add_assign(&mut self, rhs: Ns) {
        *self = *self + rhs;
    }
}

impl Sub for Ns {
    type Output = Ns;
    fn sub(self, rhs: Ns) -> Ns {
        Ns(self.0.saturating_sub(rhs.0))
    }
}

impl SubAssign for Ns {
    fn sub_assign(&mut self, rhs: Ns) {
        *self = *self - rhs;
    }
}

impl Mul<u64> for Ns {
    type Output = Ns;
    fn mul(self, rhs: u64) -> Ns {
        Ns(self.0.saturating_mul(rhs))
    }
}

impl Div<u64> for Ns {
    type Output = Ns;
    fn div(self, rhs: u64) -> Ns {
        Ns(self.0 / rhs)
    }
}

/// The units of [`Ns`], largest first.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

impl fmt::Display for Ns {
    /// Formats in the largest unit in which the value has at most three decimals: `1.5ms`, `100us`, `0ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, size) = UNITS
            .into_iter()
            .find(|&(_, size)| self.0 >= size && self.0.is_multiple_of((size / 1000).max(1)))
            .unwrap_or(("ns", 1));
        let (whole, milli) = (self.0 / size, self.0 % size * 1000 / size);
        match milli {
            0 => write!(f, "{whole}{name}"),
            m if m % 100 == 0 => write!(f, "{whole}.{}{name}", m / 100),
            m if m % 10 == 0 => write!(f, "{whole}.{:02}{name}", m / 10),
            m => write!(f, "{whole}.{m:03}{name}"),
        }
    }
}

/// A text that is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseNsError;

impl fmt::Display for ParseNsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time is a number and a unit, for example 100us, 1.5ms or 2s")
    }
}

impl core::error::Error for ParseNsError {}

impl FromStr for Ns {
    type Err = ParseNsError;

    /// Reads a number, with decimals if need be, and one of the units `ns`, `us`, `ms`, `s`.
    ///
    /// # Errors
    /// [`ParseNsError`] where the number or the unit is missing, negative, or too large for an [`Ns`].
    fn from_str(text: &str) -> Result<Ns, ParseNsError> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = &text[digits.len()..];
        let (_, size) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or(ParseNsError)?;
        if !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return Err(ParseNsError);
        }
        let number: f64 = digits.parse().map_err(|_| ParseNsError)?;
        let ns = number * size as f64 + 0.5;
        if ns >= u64::MAX as f64 {
            return Err(ParseNsError);
        }
        Ok(Ns(ns as u64))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn written_as_read() {
        for text in ["0ns", "250ns", "100us", "1.5ms", "2s", "1.001us", "1.25s", "1234567ns"] {
            let ns: Ns = text.parse().unwrap();
            assert_eq!(ns.to_string().parse::<Ns>().unwrap(), ns, "{text}");
        }
        assert_eq!(Ns::from_us(1500).to_string(), "1.5ms");
        assert_eq!(Ns(1_234_567).to_string(), "1234.567us");
    }

    #[test]
    fn refuses_what_is_not_a_time() {
        for text in ["", "us", "5", "-1us", "1e3us", "5 us", "5min", "99999999999s", "."] {
            assert_eq!(text.parse::<Ns>(), Err(ParseNsError), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_value_survives_print_and_parse(ns in 0u64..1 << 50) {
            proptest::prop_assert_eq!(Ns(ns).to_string().parse::<Ns>().unwrap(), Ns(ns));
        }
    }
}
