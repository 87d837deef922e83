//! Standard output: the one way that results leave a command (I2), and the one place that decides on colour (I3).

use std::io::{self, IsTerminal, Write};

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

/// Whether standard output may carry colour: it is a terminal that knows colour, and nobody asked for none.
pub fn colour() -> bool {
    io::stdout().is_terminal() && wants_colour(|name| std::env::var(name).ok())
}

fn wants_colour(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable("NO_COLOR").is_none_or(|v| v.is_empty())
        && variable("TERM").is_none_or(|t| t != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_and_dumb_terminals_are_obeyed() {
        assert!(wants_colour(|_| None));
        assert!(!wants_colour(|name| (name == "NO_COLOR").then(|| "1".into())));
        assert!(wants_colour(|name| (name == "NO_COLOR").then(String::new)));
        assert!(!wants_colour(|name| (name == "TERM").then(|| "dumb".into())));
    }
}
