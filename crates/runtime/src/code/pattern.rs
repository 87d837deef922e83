//! Names with `*` as a wildcard.

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern<'a>(pub(super) &'a str);

impl Pattern<'_> {
    /// Returns whether the whole of `name` matches.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        let mut parts = self.0.split('*').map(str::as_bytes);
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        for part in parts.filter(|part| !part.is_empty()) {
            let Some(at) = rest.windows(part.len()).position(|window| window == part) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        let yes =
            [("a", "a"), ("a*", "a"), ("a*", "ab"), ("*b", "ab"), ("*", ""), ("a*c*e", "abcde")];
        let no = [
            ("a", "ab"),
            ("a*", "ba"),
            ("*b", "ba"),
            ("a*c*e", "abcd"),
            ("ab*ba", "aba"),
            ("", "a"),
        ];
        for (pattern, name) in yes {
            assert!(Pattern(pattern).matches(name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in no {
            assert!(!Pattern(pattern).matches(name.as_bytes()), "{pattern} {name}");
        }
    }
}
