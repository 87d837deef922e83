//! Keys and values of maps as text: an integer if they have the size of one, a list of eight-byte words if they
//! have the size of several, else bytes.

use serde_json::{Value, json};

/// Returns the value `now` with `text` written over it. In a value wider than an integer (a line of a map is 64
/// bytes), `3` sets the first word and `3,4` the first two; the rest stay.
///
/// # Errors
/// A message with the expected size.
pub fn overwrite(text: &str, now: &[u8]) -> Result<Vec<u8>, String> {
    let words = now.len() / 8;
    if !is_words(now) || text.starts_with("hex:") {
        return parse(text, now.len());
    }
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() > words {
        return Err(format!("`{text}`: a value has {} bytes, so at most {words} words", now.len()));
    }
    let mut value = now.to_vec();
    for (word, part) in value.chunks_exact_mut(8).zip(parts) {
        word.copy_from_slice(&parse(part, 8)?);
    }
    Ok(value)
}

/// Whether `bytes` has the size of several words.
fn is_words(bytes: &[u8]) -> bool {
    bytes.len() > 8 && bytes.len().is_multiple_of(8)
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).filter_map(number).collect()
}

/// Parses an integer of `size` bytes: `17`, `-1`, `0x11`, or `hex:` and every byte.
///
/// # Errors
/// A message with the expected size.
pub fn parse(text: &str, size: usize) -> Result<Vec<u8>, String> {
    if let Some(digits) = text.strip_prefix("hex:") {
        return bytes(digits, size);
    }
    if !matches!(size, 1 | 2 | 4 | 8) {
        return Err(format!(
            "`{text}`: it must have {size} bytes: write hex: and {} digits, as `heddle steer map` prints it",
            size * 2
        ));
    }
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => {
            text.parse().ok().or_else(|| text.parse::<i64>().ok().and_then(|n| signed(n, size)))
        }
    };
    let most = u64::MAX >> (64 - 8 * size);
    let number = number.filter(|number| *number <= most).ok_or_else(|| {
        format!("`{text}` is neither an integer of {size} bytes (0 to {most}, also as 0x...) nor hex: and {} \
            digits", size * 2)
    })?;
    Ok(native(number, size))
}

/// Returns a negative integer in `size` bytes, if it fits.
fn signed(number: i64, size: usize) -> Option<u64> {
    let bits = 64 - 8 * u32::try_from(size).ok()?;
    let fits = number << bits >> bits == number;
    fits.then(|| number.cast_unsigned() << bits >> bits)
}

fn native(number: u64, size: usize) -> Vec<u8> {
    let bytes = number.to_ne_bytes();
    if cfg!(target_endian = "big") { bytes[8 - size..].to_vec() } else { bytes[..size].to_vec() }
}

fn bytes(digits: &str, size: usize) -> Result<Vec<u8>, String> {
    let wrong =
        || format!("`hex:{digits}`: expected {size} bytes, so {} digits from 0 to f", size * 2);
    if digits.len() != size * 2 || !digits.is_ascii() {
        return Err(wrong());
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16).map_err(|_| wrong());
    (0..size).map(byte).collect()
}

/// Formats bytes the way [`parse`] and [`overwrite`] read them, without trailing zero words.
#[must_use]
pub fn format(bytes: &[u8]) -> String {
    if let Some(number) = number(bytes) {
        return number.to_string();
    }
    if is_words(bytes) {
        let words = words(bytes);
        let used = words.iter().rposition(|word| *word != 0).unwrap_or(0) + 1;
        return words[..used].iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    }
    bytes.iter().fold("hex:".into(), |text, byte| format!("{text}{byte:02x}"))
}

/// The same as JSON: a number, an array of words, or text.
#[must_use]
pub fn as_json(bytes: &[u8]) -> Value {
    match number(bytes) {
        Some(number) => json!(number),
        None if is_words(bytes) => json!(words(bytes)),
        None => json!(format(bytes)),
    }
}

/// Returns the integer in `bytes`, if they have the size of one.
#[must_use]
pub fn number(bytes: &[u8]) -> Option<u64> {
    Some(match bytes.len() {
        1 => bytes[0].into(),
        2 => u16::from_ne_bytes(bytes.try_into().ok()?).into(),
        4 => u32::from_ne_bytes(bytes.try_into().ok()?).into(),
        8 => u64::from_ne_bytes(bytes.try_into().ok()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_values_can_be_parsed() {
        for (bytes, text) in
            [(vec![7], "7"), (vec![1, 2, 3], "hex:010203"), (7_u64.to_ne_bytes().to_vec(), "7")]
        {
            assert_eq!(format(&bytes), text);
            assert_eq!(parse(text, bytes.len()), Ok(bytes));
        }
    }

    #[test]
    fn the_first_words_of_a_wide_value_are_set() {
        let mut line = [0; 64];
        assert_eq!(format(&line), "0");
        line[8] = 9;
        assert_eq!((format(&line).as_str(), as_json(&line)[1].as_u64()), ("0,9", Some(9)));
        let now = overwrite("7", &line).unwrap();
        assert_eq!(format(&now), "7,9");
        assert_eq!(format(&overwrite("1, 0x2,3", &now).unwrap()), "1,2,3");
        assert!(overwrite("1,2,3,4,5,6,7,8,9", &now).unwrap_err().contains("8 words"));
        assert!(overwrite("hex:00", &now).unwrap_err().contains("64 bytes"));
        assert_eq!(overwrite("5", &[0; 4]), Ok(5_u32.to_ne_bytes().to_vec()));
    }

    #[test]
    fn numbers_have_signs_bases_and_limits() {
        assert_eq!(parse("0xff", 1), Ok(vec![255]));
        assert_eq!(parse("-1", 4), Ok(vec![255; 4]));
        assert_eq!(parse("-128", 1), Ok(vec![128]));
        for (wrong, size) in [
            ("256", 1),
            ("-129", 1),
            ("x", 4),
            ("", 8),
            ("1", 3),
            ("hex:1", 1),
            ("hex:zz", 1),
            ("hex:1é", 2),
        ] {
            let error = parse(wrong, size).unwrap_err();
            assert!(
                error.contains(&format!("{size} bytes")) || error.contains(&format!("{size} byte")),
                "{error}"
            );
        }
        assert_eq!(parse("18446744073709551615", 8), Ok(vec![255; 8]));
    }
}
