//! Standard output: the only way results leave a command (I2), and the only place that decides on colour (I3).

use std::io::{self, IsTerminal as _, Write};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use heddle_metrics::TextStyle;
use serde::Serialize;

/// Writes `text` to standard output unchanged.
///
/// # Errors
/// If the reader is gone, or the disk that output is redirected to is full.
pub fn text(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes `value` as indented JSON and a newline.
///
/// # Errors
/// As [`text`].
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_string_pretty(value)?;
    line.push('\n');
    Ok(text(&line)?)
}

/// Returns the style of standard output: coloured only on a terminal, and not if `NO_COLOR` is set.
pub fn style() -> TextStyle {
    TextStyle::for_stream(&io::stdout())
}

/// Whether standard output is a terminal, so that written lines can be erased.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Escapes everything in `text` that a terminal would interpret, since other programs choose names and command
/// lines. Newlines are escaped as well.
pub fn printable(text: &str) -> String {
    // Direction marks can make a line read differently.
    const DIRECTION_MARKS: [RangeInclusive<char>; 3] =
        ['\u{200e}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    let is_direction_mark = |c: char| DIRECTION_MARKS.iter().any(|marks| marks.contains(&c));
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() || is_direction_mark(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Parses the path of a file that will be written at the end of long work: refuses it now if it cannot be written.
pub fn new_file(text: &str) -> Result<PathBuf, heddle_metrics::Error> {
    heddle_metrics::check_writable(text).map(|()| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_escapes_in_names_are_defused() {
        assert_eq!(printable("./server --größe 3"), "./server --größe 3");
        assert_eq!(printable("\x1b]0;x\x07a\nb\u{9b}1A"), "\\u{1b}]0;x\\u{7}a\\nb\\u{9b}1A");
        assert_eq!(printable("a\u{202e}b"), "a\\u{202e}b");
    }
}
