//! Finds the known word that was most likely meant.

use alloc::vec::Vec;

/// Returns the word of `known` of which `given` is most likely a misspelling: at most a third of its
/// letters differ.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase();
    let ranked = known.into_iter().map(|word| (distance(&given, word), word));
    ranked.min().filter(|&(far, word)| far <= word.len() / 3).map(|(_, word)| word)
}

/// Returns how many letters must be added, dropped or replaced to turn `a` into `b` (Levenshtein).
/// Computes one row of the table at a time: `b` letters of memory, `a` times `b` steps.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.chars().count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_letters() {
        let cases = [("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("fifo", "fifo", 0)];
        for (a, b, far) in cases {
            assert_eq!(distance(a, b), far, "{a} {b}");
        }
    }

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["mechanism", "send", "workload.mix"];
        for (given, found) in [
            ("mecanism", Some("mechanism")),
            ("Send", Some("send")),
            ("workload.mux", Some("workload.mix")),
            ("sent", Some("send")),
            ("policy", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, known), found, "{given}");
        }
    }
}
