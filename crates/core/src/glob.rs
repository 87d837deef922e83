//! Patterns of names: `*` is any text, `?` any character, everything else itself.

/// Whether all of `text` fits `pattern`. Takes at worst the product of their lengths, as it backtracks only to the
/// last `*`. Allocates nothing.
pub fn fits(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // Where to resume if the last star must match one more character.
    let mut star = None;
    loop {
        let (mut after_pattern, mut after_text) = (pattern.clone(), text.clone());
        match (after_pattern.next(), after_text.next()) {
            (Some('*'), _) => {
                star = Some((after_pattern.clone(), text.clone()));
                pattern = after_pattern;
            }
            (None, None) => return true,
            (Some(c), Some(d)) if c == '?' || c == d => {
                (pattern, text) = (after_pattern, after_text);
            }
            (Some(_), None) => return false,
            _ => {
                let Some((after, from)) = &mut star else { return false };
                from.next();
                (pattern, text) = (after.clone(), from.clone());
            }
        }
    }
}

/// Returns the length in bytes of the shortest name that fits `pattern`.
pub fn least_bytes(pattern: &str) -> usize {
    pattern.chars().filter(|&c| c != '*').map(char::len_utf8).sum()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// The definition: exponential, but plain.
    fn plainly(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], _) => text.is_empty(),
            (['*', rest @ ..], _) => (0..=text.len()).any(|n| plainly(rest, &text[n..])),
            (['?', rest @ ..], [_, tail @ ..]) => plainly(rest, tail),
            ([c, rest @ ..], [d, tail @ ..]) => c == d && plainly(rest, tail),
            (_, []) => false,
        }
    }

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text, expected) in [
            ("compact*", "compaction-1", true),
            ("compact*", "compact", true),
            ("compact*", "my-compact", false),
            ("worker?", "worker3", true),
            ("worker?", "worker", false),
            ("*-io-*", "serve-io-3", true),
            ("", "", true),
            ("", "x", false),
            ("*", "", true),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_name_has_as_many_bytes_as_the_pattern_has_without_stars() {
        assert_eq!([least_bytes("a*b?"), least_bytes("*"), least_bytes("ä*")], [3, 0, 2]);
    }

    proptest! {
        #[test]
        fn fits_what_the_plain_definition_fits(pattern in "[ab*?]{0,7}", text in "[ab]{0,7}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(fits(&pattern, &text), plainly(&chars(&pattern), &chars(&text)));
        }
    }
}
