//! The words of an inline request, quoted as in redis-cli.

/// Splits a line at blanks. `"..."` takes the escapes `\n \r \t \b \a \xHH`, `'...'` only `\'`. Returns
/// `None` if a quote does not close or is followed by anything but a blank.
pub(super) fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let mut word = Vec::new();
        rest = take_word(rest, &mut word)?.trim_ascii_start();
        words.push(word);
    }
    Some(words)
}

fn take_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some((first, tail)) = rest.split_first() {
        match first {
            b'"' => return closed(take_double(tail, word)?),
            b'\'' => return closed(take_single(tail, word)?),
            byte if byte.is_ascii_whitespace() => return Some(rest),
            byte => word.push(*byte),
        }
        rest = tail;
    }
    Some(rest)
}

/// A closing quote is followed by a blank or the end.
fn closed(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(u8::is_ascii_whitespace).then_some(rest)
}

fn take_double<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, tail) = match rest {
            [b'"', tail @ ..] => return Some(tail),
            [b'\\', b'x', high, low, tail @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (nibble(*high) << 4 | nibble(*low), tail)
            }
            [b'\\', escaped, tail @ ..] => (unescaped(*escaped), tail),
            [byte, tail @ ..] => (*byte, tail),
            [] => return None,
        };
        word.push(byte);
        rest = tail;
    }
}

fn take_single<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, tail) = match rest {
            [b'\'', tail @ ..] => return Some(tail),
            [b'\\', b'\'', tail @ ..] => (b'\'', tail),
            [byte, tail @ ..] => (*byte, tail),
            [] => return None,
        };
        word.push(byte);
        rest = tail;
    }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

/// The value of a hexadecimal digit.
fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    fn words(line: &str) -> Option<Vec<String>> {
        let words = split(line.as_bytes())?;
        Some(words.into_iter().map(|w| String::from_utf8_lossy(&w).into_owned()).collect())
    }

    #[test]
    fn words_and_quotes() {
        let cases = [
            ("", vec![]),
            ("  GET  a ", vec!["GET", "a"]),
            (r#"SET k "two words""#, vec!["SET", "k", "two words"]),
            (r#"SET k "\x41\n\"\\""#, vec!["SET", "k", "A\n\"\\"]),
            (r"SET k 'it\'s \n'", vec!["SET", "k", r"it's \n"]),
            (r#"SET "" ''"#, vec!["SET", "", ""]),
        ];
        for (line, expected) in cases {
            assert_eq!(words(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn quotes_must_close() {
        for line in ["\"", "'", "\"a\"b", "'a'b", "\"a\\\"", "GET \"a"] {
            assert_eq!(words(line), None, "{line}");
        }
    }
}
