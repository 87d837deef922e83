//! Lists of CPUs as text, such as `2-7,9`: as users and the kernel write them.

use std::collections::BTreeSet;

/// More than any machine has; bounds a mistyped range.
const MOST: u32 = 4096;

/// Reads `2-7,9`.
///
/// # Errors
/// What is expected, if the text is no such list.
pub fn parse(text: &str) -> Result<BTreeSet<u32>, String> {
    let wrong = || format!("`{text}` is not a list of CPUs such as 2-7,9");
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (number(from)?, number(to)?);
        if from > to || to >= MOST {
            return Err(wrong());
        }
        cpus.extend(from..=to);
    }
    Ok(cpus)
}

/// Writes `2-7,9`; `cpus` are sorted.
#[must_use]
pub fn format<'a>(cpus: impl IntoIterator<Item = &'a u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, to)) if *to + 1 == cpu => *to = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(from, to): &(u32, u32)| match from == to {
        true => from.to_string(),
        false => format!("{from}-{to}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}
