//! Lists of CPUs, as the kernel writes them.

/// Returns the CPUs of a list such as `0-3,8`, as far as it is one.
///
/// ```
/// assert_eq!(heddle_observe::cpu_list("0-2,8"), [0, 1, 2, 8]);
/// assert!(heddle_observe::cpu_list("").is_empty());
/// ```
#[must_use]
pub fn cpu_list(text: &str) -> Vec<u32> {
    /// No machine has more; a file may say anything.
    const MOST: u32 = 1 << 16;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse::<u32>().ok()?.min(MOST))
    };
    text.split(',').filter_map(range).flatten().collect()
}
