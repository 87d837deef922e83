//! SYN cookies: what a half-open connection would remember, in the numbers that the other end sends back (RFC 4987,
//! section 3.6 and appendix A).
//!
//! Our initial sequence number is 5 bits of time, 3 of MSS, 24 of a keyed hash over both, the addresses and the other
//! end's number. If the other end uses timestamps, the low bits of ours carry window scale and SACK.

use crate::address::Tuple;
use crate::secret::Secret;
use crate::seq::Seq;
use heddle_core::Ns;

/// The values of the MSS that can be remembered: the largest that is not above the option counts.
const MSS: [u16; 8] = [88, 536, 1000, 1220, 1300, 1440, 1460, 8960];
/// How long a time bit lasts. A cookie is valid in its period and the next.
const PERIOD: Ns = Ns::from_secs(64);
/// Low bits of the timestamp that carry options.
const OPTION_BITS: u32 = 6;
/// The shift of an end without window scale.
const NO_SCALE: u32 = 0xf;
/// Whether SACK is permitted.
const SACK: u32 = 0x10;

fn hash(secret: &Secret, tuple: &Tuple, irs: Seq, period: u64, mss: u32) -> u32 {
    secret.cookie(tuple, u64::from(irs.0) << 32 | (period & 0x1fff_ffff) << 3 | u64::from(mss))
        & 0xff_ffff
}

/// Our initial sequence number in answer to a SYN with the number `irs` and the MSS option `mss`.
pub fn make(secret: &Secret, tuple: &Tuple, irs: Seq, mss: u16, now: Ns) -> Seq {
    let index = MSS.iter().rposition(|&known| known <= mss).unwrap_or(0) as u32;
    let period = now.0 / PERIOD.0;
    let time = (period as u32 & 0x1f) << 27;
    Seq(time | index << 24 | hash(secret, tuple, irs, period, index))
}

/// The MSS in the cookie `iss`; `None` if it is not ours, or too old.
pub fn check(secret: &Secret, tuple: &Tuple, irs: Seq, iss: Seq, now: Ns) -> Option<u16> {
    let (time, index) = (u64::from(iss.0 >> 27), iss.0 >> 24 & 7);
    let current = now.0 / PERIOD.0;
    let age = current.wrapping_sub(time) & 0x1f;
    let period = current.checked_sub(age).filter(|_| age < 2)?;
    let is_ours = hash(secret, tuple, irs, period, index) == iss.0 & 0xff_ffff;
    is_ours.then(|| MSS[index as usize])
}

/// Options that a timestamp carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieOptions {
    pub window_scale: Option<u8>,
    pub sack: bool,
}

impl CookieOptions {
    /// The latest timestamp that is not after `timestamp` and carries the options.
    pub fn encode(self, timestamp: u32) -> u32 {
        let scale = self.window_scale.map_or(NO_SCALE, |scale| u32::from(scale.min(14)));
        let bits = scale | if self.sack { SACK } else { 0 };
        let with = timestamp >> OPTION_BITS << OPTION_BITS | bits;
        if Seq(with).is_after(Seq(timestamp)) { with.wrapping_sub(1 << OPTION_BITS) } else { with }
    }

    /// The options in the `echo` of a timestamp, from which its offset was subtracted.
    pub fn decode(echo: u32) -> CookieOptions {
        let scale = echo & 0xf;
        let window_scale = (scale != NO_SCALE).then_some(scale as u8);
        CookieOptions { window_scale, sack: echo & SACK != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tuple(port: u16) -> Tuple {
        let local = "192.0.2.1:80".parse().unwrap();
        Tuple::new(local, core::net::SocketAddr::new([192, 0, 2, 2].into(), port))
    }

    #[test]
    fn a_cookie_is_valid_for_its_flow_and_time_only() {
        let (secret, irs) = (Secret::new([3; 64]), Seq(77));
        for period in [0, 30, 31, 32, 1_000_000] {
            let now = PERIOD * period;
            let cookie = make(&secret, &tuple(1), irs, 1400, now);
            let check = |port, irs, now| check(&secret, &tuple(port), irs, cookie, now);
            assert_eq!(check(1, irs, now), Some(1300));
            assert_eq!(check(1, irs, now + PERIOD), Some(1300));
            assert_eq!(check(1, irs, now + PERIOD * 2), None);
            assert_eq!(check(1, irs, now + PERIOD * 32), None, "the time bits have wrapped");
            assert_eq!(check(2, irs, now), None);
            assert_eq!(check(1, irs + 1, now), None);
        }
    }

    proptest! {
        #[test]
        fn options_survive_in_a_timestamp_that_is_not_ahead(
            now: u32,
            window_scale in proptest::option::of(0u8..15),
            sack: bool,
        ) {
            let options = CookieOptions { window_scale, sack };
            let timestamp = options.encode(now);
            prop_assert_eq!(CookieOptions::decode(timestamp), options);
            prop_assert!(now.wrapping_sub(timestamp) < 128);
        }
    }
}
