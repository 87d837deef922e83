//! Standard output: the one way that results leave a command (I2), and the one place that decides on colour (I3).

use std::io::{self, IsTerminal as _, Write};

use heddle_metrics::TextStyle;
use serde::Serialize;

/// Writes `text` to standard output as it is.
///
/// # Errors
/// When the reader is gone, or the disk that output is redirected to is full.
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

/// How tables and lines look on standard output: coloured only on a terminal, and not when `NO_COLOR` is set.
pub fn style() -> TextStyle {
    TextStyle::for_stream(&io::stdout())
}

/// Whether a line that was written can be taken back: standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// `text` without what a terminal would obey: names and command lines are what some program chose. A newline is a character like others.
pub fn printable(text: &str) -> String {
    // Marks that change the direction of what follows make a line say something else than it does.
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() || turns(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_obey_nothing_of_a_name() {
        assert_eq!(printable("./server --größe 3"), "./server --größe 3");
        assert_eq!(printable("\x1b]0;x\x07a\nb\u{9b}1A"), "\\u{1b}]0;x\\u{7}a\\nb\\u{9b}1A");
        assert_eq!(printable("a\u{202e}b"), "a\\u{202e}b");
    }
}
