//! Numbers formatted for people.

/// The steps of each scaled unit, largest first: the divisor and the resulting unit.
const TIMES: &[(f64, &str)] = &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")];
const RATES: &[(f64, &str)] = &[(1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")];
const BYTES: &[(f64, &str)] =
    &[(1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1_024.0, "KiB"), (1.0, "B")];

/// Formats `value` with three significant digits and the unit that suits its size.
///
/// Times (`ns`, `us`, `ms`, `s`), bytes (`B`) and rates (`1/s`, `op/s`) are scaled; other units are kept.
///
/// ```
/// use heddle_metrics::human;
///
/// assert_eq!(human(24.12, "ns"), "24.1 ns");
/// assert_eq!(human(137_400_000.0, "ns"), "137 ms");
/// assert_eq!(human(12_500.0, "1/s"), "12.5 k/s");
/// assert_eq!(human(1.015, "x"), "1.01 x");
/// ```
pub fn human(value: f64, unit: &str) -> String {
    let (number, name) = human_parts(value, unit);
    if name.is_empty() { number } else { format!("{number} {name}") }
}

/// Like [`human`], without trailing zeros: for the labels of an axis.
pub(crate) fn round(value: f64, unit: &str) -> String {
    let (number, name) = human_parts(value, unit);
    let number = match number.contains('.') && !number.contains('e') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => &number,
    };
    if name.is_empty() || value == 0.0 { number.to_owned() } else { format!("{number} {name}") }
}

/// The number and the unit of [`human`].
fn human_parts(value: f64, unit: &str) -> (String, String) {
    let (scale, steps): (f64, &[(f64, &str)]) = match unit {
        "ns" => (1.0, TIMES),
        "us" => (1e3, TIMES),
        "ms" => (1e6, TIMES),
        "s" => (1e9, TIMES),
        "1/s" | "/s" | "op/s" | "ops/s" => (1.0, RATES),
        "B" => (1.0, BYTES),
        _ => return (significant(value), unit.to_owned()),
    };
    let base = value * scale;
    // A value that rounds up to a thousand moves to the next unit.
    let (size, name) = steps
        .iter()
        .find(|(size, _)| base.abs() >= size * 0.9995)
        .or(steps.last())
        .copied()
        .unwrap_or((1.0, unit));
    (significant(base / size), name.to_owned())
}

/// Three significant digits without an exponent; whole numbers above 100, with separators from 10,000 on.
pub(crate) fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    match value.abs() {
        0.0 => "0".into(),
        v if v >= 9_999.5 => thousands(value.round()),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 => format!("{value:.2}"),
        v if v >= 0.099_95 => format!("{value:.3}"),
        v if v >= 0.000_995 => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}

fn thousands(whole: f64) -> String {
    let digits = format!("{:.0}", whole.abs());
    let mut out = String::from(if whole < 0.0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_suit_the_size() {
        for (value, unit, text) in [
            (0.0, "ns", "0 ns"),
            (0.5, "ns", "0.500 ns"),
            (999.4, "ns", "999 ns"),
            (999.9, "ns", "1.00 us"),
            (1.5, "ms", "1.50 ms"),
            (2e9, "ns", "2.00 s"),
            (950.0, "1/s", "950 /s"),
            (1_234_567.0, "requests", "1,234,567 requests"),
            (3.25, "%", "3.25 %"),
            (7.0, "", "7.00"),
            (-1500.0, "ns", "-1.50 us"),
            (4096.0, "B", "4.00 KiB"),
        ] {
            assert_eq!(human(value, unit), text);
        }
    }

    #[test]
    fn labels_are_short() {
        for (value, unit, text) in [
            (10e3, "ns", "10 us"),
            (0.0, "1/s", "0"),
            (12.5e3, "1/s", "12.5 k/s"),
            (100.0, "ns", "100 ns"),
            (0.5, "x", "0.5 x"),
        ] {
            assert_eq!(round(value, unit), text);
        }
    }
}
