//! Splits source text into code and prose.
//!
//! Rust, C and Go share enough of their syntax for one splitter: line and block comments, strings, raw strings,
//! characters.

/// The two halves of a source text. Both have the lines of the text, with blanks in place of what belongs to the other.
#[derive(Debug, PartialEq, Eq)]
pub struct Split {
    /// Everything but comments, strings and characters.
    pub code: String,
    /// Comments, and strings that contain a space: messages, help, error texts.
    pub prose: String,
}

/// The programming languages that [`split`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Rust: nested block comments, lifetimes, `r#"..."#`.
    Rust,
    /// C: plain block comments.
    C,
    /// Go: as C, and raw strings in backquotes.
    Go,
}

/// What a piece of text that is no code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Comment,
    Text,
    Character,
}

/// Returns `text` with comments, strings and characters blanked. Lines stay lines.
pub fn code_only(text: &str) -> String {
    split(text, Language::Rust).code
}

/// Splits `text` into its code and its prose.
pub fn split(text: &str, language: Language) -> Split {
    let mut halves =
        Split { code: String::with_capacity(text.len()), prose: String::with_capacity(text.len()) };
    let mut rest = text;
    let mut before = None;
    while let Some(first) = rest.chars().next() {
        let (length, kind) = piece(rest, before, language).unwrap_or((0, Kind::Character));
        if length == 0 {
            halves.code.push(first);
            halves.prose.push(if first == '\n' { '\n' } else { ' ' });
            before = Some(first);
            rest = &rest[first.len_utf8()..];
        } else {
            let (piece, after) = rest.split_at(length);
            halves.code.extend(piece.chars().map(blank));
            match is_prose(piece, kind) {
                true => halves.prose.push_str(piece),
                false => halves.prose.extend(piece.chars().map(blank)),
            }
            before = Some(' ');
            rest = after;
        }
    }
    halves
}

fn blank(c: char) -> char {
    if c == '\n' { '\n' } else { ' ' }
}

/// A string without a space is a name, a key or an option.
fn is_prose(piece: &str, kind: Kind) -> bool {
    match kind {
        Kind::Comment => true,
        Kind::Text => piece.contains(' '),
        Kind::Character => false,
    }
}

/// The length in bytes and the kind of the comment, string or character at the start of `rest`; `None` if it begins
/// with code.
fn piece(rest: &str, before: Option<char>, language: Language) -> Option<(usize, Kind)> {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let is_rust = language == Language::Rust;
    match rest.as_bytes() {
        [b'/', b'/', ..] => Some((rest.find('\n').unwrap_or(rest.len()), Kind::Comment)),
        [b'/', b'*', ..] => Some((block_comment(rest, is_rust), Kind::Comment)),
        [b'"', ..] => Some((string(rest), Kind::Text)),
        [b'r', b'"' | b'#', ..] if is_rust && !in_word => Some((raw_string(rest)?, Kind::Text)),
        [b'`', ..] if language == Language::Go => Some((end(rest, 1, '`'), Kind::Text)),
        [b'\'', b'\\', ..] => Some((2 + end(&rest[2..], 1, '\''), Kind::Character)),
        [b'\'', ..] => Some((character(rest), Kind::Character)),
        _ => None,
    }
}

/// Up to and with the next `what` from the character `skip` on.
fn end(text: &str, skip: usize, what: char) -> usize {
    let from = text.char_indices().nth(skip).map_or(text.len(), |(i, _)| i);
    text[from..].find(what).map_or(text.len(), |i| from + i + 1)
}

/// Rust's block comments nest.
fn block_comment(rest: &str, nests: bool) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest.as_bytes()[at..] {
            [b'/', b'*', ..] if nests || depth == 0 => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    let close = rest[1..].find(|c| {
        let closes = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        closes
    });
    close.map_or(rest.len(), |i| i + 2)
}

fn raw_string(rest: &str) -> Option<usize> {
    let hashes = rest[1..].chars().take_while(|&c| c == '#').count();
    let body = rest[1 + hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let length = body.find(&close).map_or(body.len(), |i| i + close.len());
    Some(2 + hashes + length)
}

/// `'x'` is a character, `'x` a lifetime.
fn character(rest: &str) -> usize {
    let mut inside = rest[1..].chars();
    match (inside.next(), inside.next()) {
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_stays_in_place() {
        assert_eq!(code_only("a /* é\n */ b // c\nd"), "a     \n    b     \nd");
    }

    #[test]
    fn comments_and_messages_are_prose_and_keys_are_not() {
        let text = "f(\"a key\", \"key\", 'k'); // why\ng();";
        assert_eq!(split(text, Language::Rust).prose, "  \"a key\"               // why\n    ");
    }

    #[test]
    fn each_language_has_its_own_comments_and_strings() {
        let nested = "/* a /* b */ c";
        assert_eq!(split(nested, Language::C).code.trim(), "c");
        assert_eq!(split(nested, Language::Rust).code.trim(), "");
        assert_eq!(split("x := `a \" b` + y", Language::Go).code, "x :=         + y");
    }

    #[test]
    fn any_part_of_a_file_can_be_read() {
        let text = "let s = \"é\\\"\"; /* é */ r#\"é\"# 'é' '\\u{e9}' // é";
        for (cut, _) in text.char_indices() {
            code_only(&text[..cut]);
            code_only(&text[cut..]);
        }
    }
}
