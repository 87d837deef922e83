//! Loads on a command line: `0.1..0.95`, `50%,70%`.

use std::str::FromStr;

/// Loads as shares of the CPUs' capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct Loads(pub Vec<f64>);

/// The default number of points in a range.
const POINTS: usize = 12;

impl FromStr for Loads {
    type Err = String;

    fn from_str(text: &str) -> Result<Loads, String> {
        let loads = text.split(',').map(str::trim).map(range).collect::<Result<Vec<_>, _>>()?;
        Ok(Loads(loads.concat()))
    }
}

/// Parses one load, or `from..to` with the number of points after a colon.
fn range(text: &str) -> Result<Vec<f64>, String> {
    let Some((from, rest)) = text.split_once("..") else { return Ok(vec![load(text)?]) };
    let (to, points) = match rest.split_once(':') {
        Some((to, points)) => (to, points.parse().ok().filter(|&n| (2..=1000).contains(&n))),
        None => (rest, Some(POINTS)),
    };
    let (from, to) = (load(from)?, load(to)?);
    let points = points
        .ok_or_else(|| format!("`{text}`: expected 2 to 1000 points, for example 0.1..0.9:9"))?;
    let step = (to - from) / (points - 1) as f64;
    Ok((0..points).map(|n| rounded(from + n as f64 * step)).collect())
}

/// Rounds to a thousandth of a per cent, so that 0.1 + 0.2 prints as 0.3.
fn rounded(load: f64) -> f64 {
    (load * 1e5).round() / 1e5
}

fn load(text: &str) -> Result<f64, String> {
    let (number, unit) =
        text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |n| (n.trim(), 100.0));
    let share =
        number.parse().ok().map(|n: f64| n / unit).filter(|&share| share > 0.0 && share < 1.0);
    share.ok_or_else(|| {
        format!(
            "`{text}` is not a load; expected a share above 0 and below 1, for example 0.7 \
        or 70%, or 0.1..0.95"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        let loads = |text: &str| text.parse::<Loads>().map(|loads| loads.0);
        assert_eq!(loads("0.5, 70%"), Ok(vec![0.5, 0.7]));
        assert_eq!(loads("0.1..0.9:5,0.95"), Ok(vec![0.1, 0.3, 0.5, 0.7, 0.9, 0.95]));
        assert_eq!(loads("0.1..0.95").unwrap().len(), POINTS);
        for wrong in ["", "1", "0", "half", "0.1..", "0.1..0.9:1", "0.1..2", "-0.5", "nan"] {
            assert!(loads(wrong).is_err(), "{wrong}");
        }
    }
}
