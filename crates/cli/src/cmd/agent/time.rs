//! Durations on the command line.

use heddle_core::Ns;

/// Parses `250ms`, `2s`, `50us`.
pub fn parse(text: &str) -> Result<Ns, String> {
    let wrong = || format!("`{text}` is not a duration such as 500ms or 2s");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(digits);
    let ns: f64 = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let most = 3600.0 * 1e9;
    let total = number * ns;
    if !(0.0..=most).contains(&total) {
        return Err(format!("`{text}` is longer than an hour"));
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is in the range"
    )]
    let whole = total as u64;
    Ok(Ns(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse("250ms"), Ok(Ns(250_000_000)));
        assert_eq!(parse("1.5s"), Ok(Ns(1_500_000_000)));
        assert_eq!(parse("50us"), Ok(Ns(50_000)));
        for wrong in ["", "5", "s", "1h", "1.2.3s", "-1s", "999999s"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
