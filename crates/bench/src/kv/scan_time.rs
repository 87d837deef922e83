//! How long a SCAN is asked to be.

use std::fmt;
use std::str::FromStr;

use heddle_core::Ns;

/// The length of a SCAN, in time or in GETs.
///
/// A ratio means the same on every machine; what a time of milliseconds is to a GET depends on the machine, and with it
/// what a GET behind a SCAN suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanTime {
    /// At least this long.
    Time(Ns),
    /// As long as so many GETs, each as long as it is on the unloaded server.
    Gets(u32),
}

impl ScanTime {
    /// How long that is where a GET takes `get`.
    pub fn target(self, get: Ns) -> Ns {
        match self {
            ScanTime::Time(time) => time,
            ScanTime::Gets(gets) => get * u64::from(gets),
        }
    }
}

impl fmt::Display for ScanTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScanTime::Time(time) => write!(f, "{time}"),
            ScanTime::Gets(gets) => write!(f, "{gets}x"),
        }
    }
}

impl FromStr for ScanTime {
    type Err = String;

    fn from_str(text: &str) -> Result<ScanTime, String> {
        let gets = text.strip_suffix('x').and_then(|number| number.parse().ok());
        match (gets, text.parse()) {
            (Some(gets), _) if gets > 0 => Ok(ScanTime::Gets(gets)),
            (None, Ok(time)) => Ok(ScanTime::Time(time)),
            _ => Err("neither a time, such as 4ms, nor a number of GETs, such as 1000x".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_stays_and_a_ratio_follows_the_machine() {
        let (time, gets): (ScanTime, ScanTime) = ("4ms".parse().unwrap(), "1000x".parse().unwrap());
        for get in [Ns::from_us(1), Ns::from_us(4)] {
            assert_eq!(time.target(get), Ns::from_ms(4));
            assert_eq!(gets.target(get), get * 1000);
        }
        assert_eq!((time.to_string().as_str(), gets.to_string().as_str()), ("4ms", "1000x"));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "x", "0x", "-1x", "1000", "4 GETs", "1.5x"] {
            assert!(text.parse::<ScanTime>().unwrap_err().contains("1000x"), "{text}");
        }
    }
}
