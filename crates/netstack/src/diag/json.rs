//! Lines of JSON: an object each, with values that are numbers, texts and the like.

use std::fmt::{self, Display, Write as _};

/// An object that is being written.
pub(super) struct Line<'a>(&'a mut String);

impl<'a> Line<'a> {
    /// Begins a line about `is`.
    pub(super) fn new(text: &'a mut String, is: &str) -> Line<'a> {
        text.push_str("{\"is\":");
        quote(text, is);
        Line(text)
    }

    /// Adds a number or a boolean.
    pub(super) fn value(self, key: &str, value: impl Display) -> Self {
        // Writing to a string cannot fail, here and below.
        let _ = write!(self.0, ",\"{key}\":{value}");
        self
    }

    /// Adds a text.
    pub(super) fn text(self, key: &str, value: impl Display) -> Self {
        let _ = write!(self.0, ",\"{key}\":");
        quote(self.0, value);
        self
    }

    /// Adds an object of numbers.
    pub(super) fn counts(
        self,
        key: &str,
        counts: impl Iterator<Item = (&'static str, u64)>,
    ) -> Self {
        let _ = write!(self.0, ",\"{key}\":{{");
        for (at, (name, count)) in counts.enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(self.0, "{comma}\"{name}\":{count}");
        }
        self.0.push('}');
        self
    }

    pub(super) fn end(self) {
        self.0.push_str("}\n");
    }
}

/// Appends `value` as a JSON string.
fn quote(text: &mut String, value: impl Display) {
    text.push('"');
    let _ = write!(Escaped(text), "{value}");
    text.push('"');
}

/// Escapes what is written to it.
struct Escaped<'a>(&'a mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for c in part.chars() {
            match c {
                '"' | '\\' => self.0.extend(['\\', c]),
                c if c.is_control() => write!(self.0, "\\u{:04x}", u32::from(c))?,
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_a_line() {
        let mut text = String::new();
        let line = Line::new(&mut text, "net").text("name", "a\"b\\c\n").value("n", 3);
        line.counts("counts", [("x", 1), ("y", 2)].into_iter()).end();
        let expected = r#"{"is":"net","name":"a\"b\\c\u000a","n":3,"counts":{"x":1,"y":2}}"#;
        assert_eq!(text, format!("{expected}\n"));
    }
}
