//! The mix of operations.

use heddle_core::{Ns, Rng};
use std::fmt;
use std::str::FromStr;

/// An operation of the key-value server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Reads one key.
    Get,
    /// Reads a range of keys.
    Scan,
    /// Writes one key.
    Set,
}

impl Op {
    /// Every operation, in the order in which tables show them.
    pub const ALL: [Op; 3] = [Op::Get, Op::Scan, Op::Set];

    /// The name in mixes, tables and results.
    pub fn name(self) -> &'static str {
        match self {
            Op::Get => "get",
            Op::Scan => "scan",
            Op::Set => "set",
        }
    }

    /// The position in [`Op::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name().to_ascii_uppercase())
    }
}

/// Shares of operations: `get=95,scan=5`, or the name of a preset.
///
/// ```
/// use heddle_load::{Mix, Op};
/// let mix: Mix = "get=95,scan=5".parse().unwrap();
/// assert_eq!(mix.share(Op::Scan), 0.05);
/// assert_eq!("bimodal-95-5".parse::<Mix>().unwrap().share(Op::Get), 0.95);
/// assert!("got=1".parse::<Mix>().unwrap_err().to_string().contains("get, scan, set"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    text: String,
    shares: [f64; Op::ALL.len()],
    scan_service: Option<Ns>,
}

/// A paper's mix: its name, shares, and service time of long requests.
struct Preset {
    name: &'static str,
    shares: &'static str,
    scan_service: Option<Ns>,
    from: &'static str,
}

const fn preset(
    name: &'static str,
    shares: &'static str,
    scan_us: u64,
    from: &'static str,
) -> Preset {
    let scan_service = if scan_us == 0 { None } else { Some(Ns::from_us(scan_us)) };
    Preset { name, shares, scan_service, from }
}

const PRESETS: [Preset; 6] = [
    preset("shinjuku", "get=99.5,scan=0.5", 10_000, "Shinjuku; Skyloft 5.2; ghOSt 4.2"),
    preset("bimodal-95-5", "get=95,scan=5", 260, "Aspen 4.1.1"),
    preset("bimodal-50-50", "get=50,scan=50", 591, "Skyloft 5.3"),
    preset("syrup", "get=99.5,scan=0.5", 700, "Syrup 5.2.1"),
    preset("badger", "get=99,scan=1", 800, "Aspen 4.1.3"),
    preset("usr", "get=99.8,set=0.2", 0, "Facebook USR; Skyloft 5.3"),
];

impl Mix {
    /// Nothing but `op`.
    pub fn only(op: Op) -> Mix {
        let mut shares = [0.0; Op::ALL.len()];
        shares[op.index()] = 1.0;
        Mix { text: format!("{}=100", op.name()), shares, scan_service: None }
    }

    /// The share of `op`, from 0 to 1.
    pub fn share(&self, op: Op) -> f64 {
        self.shares[op.index()]
    }

    /// The operations with a share, in table order.
    pub fn ops(&self) -> impl Iterator<Item = Op> + '_ {
        Op::ALL.into_iter().filter(|&op| self.share(op) > 0.0)
    }

    /// How long a SCAN lasts in the paper that a preset comes from.
    pub fn scan_service(&self) -> Option<Ns> {
        self.scan_service
    }

    /// Draws an operation.
    pub fn draw(&self, rng: &Rng) -> Op {
        let mut left = unit(rng);
        for op in self.ops() {
            left -= self.share(op);
            if left < 0.0 {
                return op;
            }
        }
        // Rounding can leave a remainder above the last share.
        self.ops().last().unwrap_or(Op::Get)
    }

    /// The names of the presets with their shares and origins, one per line, for help texts.
    pub fn presets() -> String {
        let line = |p: &Preset| format!("{:14} {:18} {}", p.name, p.shares, p.from);
        PRESETS.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn from_shares(text: &str) -> Result<Mix, MixError> {
        let mut shares = [0.0; Op::ALL.len()];
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, weight) = part.split_once('=').ok_or_else(|| MixError::part(part))?;
            let op = Op::ALL.into_iter().find(|op| op.name() == name.trim());
            let op = op.ok_or_else(|| MixError::op(name))?;
            if shares[op.index()] != 0.0 {
                return Err(MixError(format!("`{}` is given twice", op.name())));
            }
            shares[op.index()] = parse_weight(weight.trim())?;
        }
        let sum: f64 = shares.iter().sum();
        if sum <= 0.0 {
            return Err(MixError("every weight is zero: nothing would be sent".into()));
        }
        let shares = shares.map(|s| s / sum);
        Ok(Mix { text: text.to_owned(), shares, scan_service: None })
    }
}

/// A number in `0.0..1.0` of 53 random bits.
pub(super) fn unit(rng: &Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn parse_weight(text: &str) -> Result<f64, MixError> {
    match text.parse::<f64>() {
        Ok(w) if w.is_finite() && w >= 0.0 => Ok(w),
        _ => Err(MixError(format!("the weight `{text}` is not a number of zero or more"))),
    }
}

impl FromStr for Mix {
    type Err = MixError;

    fn from_str(text: &str) -> Result<Mix, MixError> {
        if let Some(preset) = PRESETS.iter().find(|p| p.name == text.trim()) {
            let mix = Mix::from_shares(preset.shares)?;
            let text = preset.name.to_owned();
            return Ok(Mix { text, scan_service: preset.scan_service, ..mix });
        }
        Mix::from_shares(text)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// A text that is not a mix, with valid examples.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MixError(String);

impl MixError {
    fn op(name: &str) -> MixError {
        let ops = Op::ALL.map(Op::name).join(", ");
        MixError(format!("no operation `{}`; there are: {ops}", name.trim()))
    }

    fn part(part: &str) -> MixError {
        let presets = PRESETS.map(|p| p.name).join(", ");
        let ops = Op::ALL.map(Op::name).join(", ");
        MixError(format!(
            "`{part}` is neither a preset ({presets}) nor operation=weight with one of: {ops}; \
             for example get=95,scan=5"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heddle_core::Rng;
    use proptest::prelude::*;

    #[test]
    fn errors_list_what_exists() {
        let error = |text: &str| text.parse::<Mix>().unwrap_err().to_string();
        assert!(error("get=95,scam=5").contains("get, scan, set"));
        assert!(error("shinjuko").contains("shinjuku, bimodal-95-5"));
        assert!(error("get=-1").contains("not a number of zero or more"));
        assert!(error("get=nan").contains("not a number"));
        assert!(error("get=1,get=2").contains("twice"));
        assert!(error("get=0").contains("nothing would be sent"));
        assert!(error("").contains("nothing would be sent"));
    }

    #[test]
    fn every_preset_parses_and_is_listed() {
        for preset in &PRESETS {
            assert_eq!(preset.name.parse::<Mix>().unwrap().to_string(), preset.name);
            assert!(Mix::presets().contains(preset.name));
        }
    }

    proptest! {
        #[test]
        fn draws_follow_the_shares(seed: u64, get in 1u32..100, scan in 0u32..100) {
            let mix: Mix = format!("get={get},scan={scan}").parse().unwrap();
            let rng = Rng::new(seed);
            let n = 20_000;
            let scans = (0..n).filter(|_| mix.draw(&rng) == Op::Scan).count() as f64;
            // Five standard deviations of a binomial are at most 2.5 / sqrt(n).
            prop_assert!((scans / n as f64 - mix.share(Op::Scan)).abs() < 2.5 / (n as f64).sqrt());
            prop_assert!(scan > 0 || scans == 0.0);
        }
    }
}
