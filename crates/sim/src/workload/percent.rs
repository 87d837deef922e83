//! Shares as people write them: `99.5%`.

use std::fmt;

/// A share printed in percent, with exactly the decimals that [`parse`] needs to restore it. The
/// decimal point is moved within the text, because multiplying by 100 would round.
pub(super) struct Percent(pub f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
        let hundreds = format!("{whole}{decimals:0<2}");
        let (percent, rest) = hundreds.split_at(whole.len() + 2);
        let percent = percent.trim_start_matches('0');
        let point = if rest.is_empty() { "" } else { "." };
        write!(f, "{}{point}{rest}%", if percent.is_empty() { "0" } else { percent })
    }
}

/// Returns the share that `text`, such as `0.5%`, means: above 0 and at most 1.
pub(super) fn parse(text: &str) -> Option<f64> {
    let number = text.strip_suffix('%')?.trim_end();
    let digits = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let share: f64 = format!("{number}e-2").parse().ok().filter(|_| digits)?;
    (share > 0.0 && share <= 1.0).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        for (text, share) in [("99.5%", 0.995), ("100%", 1.0), ("7%", 0.07), ("0.001%", 1e-5)] {
            assert_eq!(parse(text), Some(share));
            assert_eq!(Percent(share).to_string(), text);
        }
        for text in ["", "%", "5", "-1%", "0%", "101%", "1e1%", ".%", "nan%", "é%"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_share_survives(share in f64::MIN_POSITIVE..=1.0, scale in 0i32..=30) {
            let share = share * 0.1f64.powi(scale);
            proptest::prop_assert_eq!(parse(&Percent(share).to_string()), Some(share));
        }
    }
}
