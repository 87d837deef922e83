//! Tables of a TOML file whose errors name the file, the line and the key.

use std::path::{Path, PathBuf};

use heddle_policies::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What is wrong in a file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {problem}", .file.display())]
pub struct FileError {
    file: PathBuf,
    line: usize,
    problem: String,
}

/// A file's text.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub file: &'a Path,
    pub text: &'a str,
}

/// A value, and the line that it begins in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    pub value: T,
    pub line: usize,
}

impl<'a> Source<'a> {
    /// Parses the text.
    pub fn parse(self) -> Result<Spanned<DeTable<'a>>, FileError> {
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(self.line(at), error.message().trim_end().replace('\n', "; "))
        })
    }

    /// Returns the line of a byte.
    pub fn line(self, at: usize) -> usize {
        self.text.get(..at).unwrap_or(self.text).matches('\n').count() + 1
    }

    /// Creates an error.
    pub fn error(self, line: usize, problem: impl Into<String>) -> FileError {
        FileError { file: self.file.into(), line, problem: problem.into() }
    }
}

/// A table with its name, such as `[agent]`.
pub struct Table<'a> {
    pub source: Source<'a>,
    pub name: &'static str,
    pub line: usize,
    table: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    /// Returns a table whose keys are all in `keys`.
    pub fn new(
        source: Source<'a>,
        name: &'static str,
        line: usize,
        table: &'a DeTable<'a>,
        keys: &[&'static str],
    ) -> Result<Self, FileError> {
        for key in table.keys() {
            let found: &str = key.get_ref();
            if !keys.contains(&found) {
                let hint = nearest(found, keys.iter().copied());
                let hint = hint.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
                let place = if name.is_empty() { String::new() } else { format!(" in {name}") };
                let text = format!("no key `{found}`{place}{hint}; there are: {}", keys.join(", "));
                return Err(source.error(source.line(key.span().start), text));
            }
        }
        Ok(Self { source, name, line, table })
    }

    fn value(&self, key: &str) -> Option<(&'a DeValue<'a>, usize)> {
        let value = self.table.get(key)?;
        Some((value.get_ref(), self.source.line(value.span().start)))
    }

    /// Creates an error about a key.
    pub fn wrong(&self, line: usize, key: &str, problem: &str) -> FileError {
        let name = if self.name.is_empty() { String::new() } else { format!("{} ", self.name) };
        self.source.error(line, format!("{name}`{key}`: {problem}"))
    }

    /// Returns the value of `key` as `read` understands it; the error of `read` says what is expected.
    pub fn get<T>(
        &self,
        key: &str,
        read: impl Fn(&DeValue<'_>) -> Result<T, String>,
    ) -> Result<Option<Located<T>>, FileError> {
        let Some((value, line)) = self.value(key) else { return Ok(None) };
        let value = read(value).map_err(|problem| self.wrong(line, key, &problem))?;
        Ok(Some(Located { value, line }))
    }

    /// Returns a text.
    pub fn text(&self, key: &str, expected: &str) -> Result<Option<Located<String>>, FileError> {
        self.get(key, |value| text(value, expected))
    }

    /// Returns a table inside this one.
    pub fn table(
        &self,
        key: &str,
        name: &'static str,
        keys: &[&'static str],
    ) -> Result<Option<Self>, FileError> {
        match self.value(key) {
            None => Ok(None),
            Some((DeValue::Table(table), line)) => {
                Self::new(self.source, name, line, table, keys).map(Some)
            }
            Some((_, line)) => Err(self.wrong(line, key, &format!("expected a table: {name}"))),
        }
    }

    /// Returns the tables of an array of tables.
    pub fn tables(
        &self,
        key: &str,
        name: &'static str,
        keys: &[&'static str],
    ) -> Result<Vec<Self>, FileError> {
        let expected = format!("expected tables: {name}, one for each");
        let Some((value, line)) = self.value(key) else { return Ok(Vec::new()) };
        let DeValue::Array(array) = value else { return Err(self.wrong(line, key, &expected)) };
        let table = |one: &'a Spanned<DeValue<'a>>| {
            let line = self.source.line(one.span().start);
            match one.get_ref() {
                DeValue::Table(table) => Self::new(self.source, name, line, table, keys),
                _ => Err(self.wrong(line, key, &expected)),
            }
        };
        array.iter().map(table).collect()
    }
}

/// Reads a text.
pub fn text(value: &DeValue<'_>, expected: &str) -> Result<String, String> {
    match value {
        DeValue::String(text) if !text.is_empty() => Ok(text.to_string()),
        _ => Err(format!("expected {expected}")),
    }
}

/// Reads a whole number from 0 to `most`.
pub fn number(value: &DeValue<'_>, most: u32) -> Result<u32, String> {
    let number = match value {
        DeValue::Integer(n) => u32::from_str_radix(n.as_str(), n.radix()).ok(),
        _ => None,
    };
    let number = number.filter(|number| *number <= most);
    number.ok_or_else(|| format!("expected a whole number from 0 to {most}"))
}

/// Reads `true` or `false`.
pub fn flag(value: &DeValue<'_>) -> Result<bool, String> {
    match value {
        DeValue::Boolean(flag) => Ok(*flag),
        _ => Err("expected true or false".into()),
    }
}

/// Reads one value, or an array of them.
pub fn list<T>(
    value: &DeValue<'_>,
    read: impl Fn(&DeValue<'_>) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    match value {
        DeValue::Array(array) => array.iter().map(|one| read(one.get_ref())).collect(),
        one => Ok(vec![read(one)?]),
    }
}
