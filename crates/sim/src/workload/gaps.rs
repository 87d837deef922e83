//! The instants of open arrivals.

use super::{Arrivals, Bursts, OutOfRange};
use crate::Random;
use heddle_core::Ns;

/// The gaps between the arrivals of an open process.
///
/// The fraction of a nanosecond cut off from a gap is added to the next, so that the rate is exact in
/// the long run however short the gaps. A gap may be 0 ns.
///
/// ```
/// use heddle_sim::{Random, workload::{Arrivals, Gaps}};
/// use heddle_core::Ns;
/// let mut gaps = Gaps::new(&Arrivals::Periodic, 4e8).unwrap();
/// let mut random = Random::new(1, 0);
/// let first = [(); 4].map(|()| gaps.next(&mut random));
/// assert_eq!(first, [Ns(2), Ns(3), Ns(2), Ns(3)]);
/// ```
#[derive(Clone, Debug)]
pub struct Gaps {
    process: Process,
    /// The fraction that rounding has held back, in ns.
    carry: f64,
}

/// All times are mean gaps in ns.
#[derive(Clone, Debug)]
enum Process {
    Poisson(f64),
    Periodic(f64),
    Mmpp(Phases),
}

/// The two phases of bursty arrivals: 0 between bursts, 1 in them.
#[derive(Clone, Debug)]
struct Phases {
    bursts: Bursts,
    gaps: [f64; 2],
    lengths: [f64; 2],
    /// The current phase and its remaining time in ns; none before the first gap.
    now: Option<(usize, f64)>,
}

/// The maximum mean number of phases within one gap: more would only waste time, because bursts with
/// less than one request each look like a Poisson process.
const PHASES_PER_GAP: f64 = 1000.0;

impl Gaps {
    /// Creates arrivals at `rate_per_s` in the long run, above 0 and at most 1e12.
    ///
    /// # Errors
    /// [`OutOfRange`] for another rate, for arrivals that are not [open](Arrivals::is_open), and for
    /// bursts so short that a thousand pass without a request.
    pub fn new(arrivals: &Arrivals, rate_per_s: f64) -> Result<Gaps, OutOfRange> {
        let allowed = "a number of requests per second above 0 and at most 1e12";
        OutOfRange::unless(rate_per_s > 0.0 && rate_per_s <= 1e12, "rate", rate_per_s, allowed)?;
        let allowed = "open: poisson, periodic or mmpp";
        OutOfRange::unless(arrivals.is_open(), "arrivals", arrivals, allowed)?;
        let gap = 1e9 / rate_per_s;
        let process = match arrivals {
            Arrivals::Mmpp(bursts) => Process::Mmpp(Phases::new(*bursts, gap)?),
            Arrivals::Periodic => Process::Periodic(gap),
            _ => Process::Poisson(gap),
        };
        Ok(Gaps { process, carry: 0.0 })
    }

    /// Returns the time from one arrival to the next; the first time, from the start.
    #[inline]
    pub fn next(&mut self, random: &mut Random) -> Ns {
        let gap = match &mut self.process {
            Process::Poisson(mean) => *mean * random.exponential(),
            Process::Periodic(gap) => *gap,
            Process::Mmpp(phases) => phases.next(random),
        };
        let exact = gap + self.carry;
        // Processors convert signed numbers in one step; a gap of 292 years is the longest.
        let whole = exact as i64;
        self.carry = exact - whole as f64;
        Ns(whole as u64)
    }
}

impl Phases {
    fn new(bursts: Bursts, gap: f64) -> Result<Phases, OutOfRange> {
        let (rates, lengths) = (bursts.rates(1.0 / gap), bursts.lengths());
        let cycle = lengths[0] + lengths[1];
        let allowed = "long enough for at least one request in 500 bursts at this rate";
        let seldom = 2.0 * gap <= PHASES_PER_GAP * cycle;
        OutOfRange::unless(seldom, "length", bursts.length(), allowed)?;
        Ok(Phases { bursts, gaps: rates.map(|rate| 1.0 / rate), lengths, now: None })
    }

    /// Walks through the phases until an arrival falls into one. The remainder of a phase or of a gap
    /// is exponential again, so a gap is drawn anew in each.
    fn next(&mut self, random: &mut Random) -> f64 {
        let (mut phase, mut left) = self.now.unwrap_or_else(|| self.first(random));
        let mut passed = 0.0;
        loop {
            let gap = self.gaps[phase] * random.exponential();
            if gap <= left {
                self.now = Some((phase, left - gap));
                return passed + gap;
            }
            passed += left;
            phase = 1 - phase;
            left = self.lengths[phase] * random.exponential();
        }
    }

    /// Returns the initial phase: as an observer finds it at a random time.
    fn first(&self, random: &mut Random) -> (usize, f64) {
        let phase = usize::from(random.unit() <= self.bursts.share());
        (phase, self.lengths[phase] * random.exponential())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(text: &str, rate: f64, n: usize) -> Vec<f64> {
        let mut gaps = Gaps::new(&text.parse().unwrap(), rate).unwrap();
        let mut random = Random::new(11, 1);
        let add = |at: &mut u64, ()| {
            *at += gaps.next(&mut random).0;
            Some(*at as f64)
        };
        std::iter::repeat_n((), n).scan(0, add).collect()
    }

    /// A gap of 1.4 ns would lose 29 % of itself if it were truncated.
    #[test]
    fn rates_are_exact_however_short_the_gaps() {
        for (text, within) in [("periodic", 1e-6), ("poisson", 0.005)] {
            for rate in [1e3, 1e6, 7e8] {
                let last = *arrivals(text, rate, 1_000_000).last().unwrap();
                let is = 1e6 / last * 1e9;
                assert!((is / rate - 1.0).abs() < within, "{text}: {is} for {rate}");
            }
        }
    }

    /// Variance over mean of the counts in windows of 50 ms: for those, 1 - 1/(50 ms * 1111/s) of the
    /// limit is expected.
    #[test]
    fn bursts_keep_the_rate_and_have_the_dispersion_of_theory() {
        let (text, rate, window) = ("mmpp(factor=5, share=10%, length=1ms)", 1e5, 5e7);
        let at = arrivals(text, rate, 8_000_000);
        let last = at.last().unwrap();
        assert!((8e6 / last * 1e9 / rate - 1.0).abs() < 0.01, "{last}");

        let mut counts = vec![0.0; (last / window) as usize + 1];
        at.iter().for_each(|at| counts[(at / window) as usize] += 1.0);
        counts.pop();
        let n = counts.len() as f64;
        let mean = counts.iter().sum::<f64>() / n;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / n;
        let Arrivals::Mmpp(bursts) = text.parse().unwrap() else { panic!("{text}") };
        let expected = 1.0 + (bursts.dispersion(rate) - 1.0) * (1.0 - 1.0 / 55.6);
        assert!(expected > 10.0);
        assert!(
            (variance / mean / expected - 1.0).abs() < 0.1,
            "{} for {expected}",
            variance / mean
        );
    }

    #[test]
    fn refuses_impossible_gaps() {
        let error = |text: &str, rate| {
            Gaps::new(&text.parse().unwrap(), rate).map(drop).unwrap_err().to_string()
        };
        assert_eq!(
            error("poisson", 0.0),
            "rate is 0; it must be a number of requests per second above 0 and at most 1e12"
        );
        assert!(error("poisson", f64::NAN).starts_with("rate is NaN"));
        assert!(
            error("trace(a.csv)", 1.0).starts_with("arrivals is trace(a.csv); it must be open")
        );
        assert!(error("mmpp(factor=5, share=10%, length=1ns)", 1.0).starts_with("length is 1ns"));
    }
}
