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
