//! Lists of CPUs, as users write them.

/// Parses a list such as `0,2-5`.
pub(crate) fn parse(text: &str) -> Result<Vec<u32>, String> {
    let wrong = || "CPUs are numbers and ranges, for example 0,2-5".to_owned();
    let mut cpus = vec![];
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u32, u32) =
            (from.trim().parse().map_err(|_| wrong())?, to.trim().parse().map_err(|_| wrong())?);
        if from > to || to > 4096 {
            return Err(wrong());
        }
        cpus.extend(from..=to);
    }
    Ok(cpus)
}
