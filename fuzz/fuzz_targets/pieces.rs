//! Streams that arrive in pieces.

/// Splits `bytes` into pieces of these lengths.
pub fn pieces<'a>(mut bytes: &'a [u8], lengths: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut lengths = lengths.iter().cycle();
    std::iter::from_fn(move || {
        let length = lengths.next().map_or(1, |&length| usize::from(length).max(1));
        let (piece, rest) = bytes.split_at(length.min(bytes.len()));
        bytes = rest;
        (!piece.is_empty()).then_some(piece)
    })
}
