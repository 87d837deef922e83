//! Line length: 120 characters in code, 200 in Markdown.
//!
//! Exempt is what cannot be broken: rows of a Markdown table, link definitions, and lines with a word (a URL, a path,
//! a link) that would be too long on a line of its own, after the indentation and a comment marker.

use crate::finding::{Check, Finding};
use std::path::Path;

/// The longest line of code, comments included.
const CODE: usize = 120;
/// The longest line of Markdown.
const MARKDOWN: usize = 200;
/// The width of a comment marker and its space: `/// `.
const MARKER: usize = 4;

/// Reports each line of `text` that is too long.
pub fn check(path: &Path, text: &str) -> Vec<Finding> {
    let is_markdown = path.extension().is_some_and(|e| e == "md");
    let limit = if is_markdown { MARKDOWN } else { CODE };
    let long = text.lines().enumerate().filter(|(_, line)| is_too_long(line, limit, is_markdown));
    let report = |(i, line): (usize, &str)| {
        let message = format!("{} characters; at most {limit}", width(line));
        Finding::new(Check::LineLength, path, Some(i + 1), message)
    };
    long.map(report).collect()
}

/// Characters, a tab counted as four.
fn width(line: &str) -> usize {
    line.chars().map(|c| if c == '\t' { 4 } else { 1 }).sum()
}

fn is_too_long(line: &str, limit: usize, is_markdown: bool) -> bool {
    // Bytes are never fewer than characters: most lines are done here.
    if line.len() + 3 * line.matches('\t').count() <= limit || width(line) <= limit {
        return false;
    }
    let is_exempt =
        is_markdown && is_table_or_definition(line) || has_unbreakable_word(line, limit);
    !is_exempt
}

fn is_table_or_definition(line: &str) -> bool {
    let start = line.trim_start();
    start.starts_with('|') || (start.starts_with('[') && start.contains("]: "))
}

/// Whether a word of the line would be too long even on a line of its own.
fn has_unbreakable_word(line: &str, limit: usize) -> bool {
    let indentation = width(&line[..line.len() - line.trim_start().len()]);
    let longest = line.split_whitespace().map(width).max().unwrap_or_default();
    indentation + MARKER + longest > limit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(path: &str, text: &str) -> Vec<usize> {
        check(Path::new(path), text).into_iter().filter_map(|f| f.line).collect()
    }

    #[test]
    fn a_line_at_the_limit_is_fine_and_a_longer_one_is_not() {
        let words = |n: usize| "ab ".repeat(n / 3 + 1)[..n].to_owned();
        assert!(numbers("x.rs", &words(CODE)).is_empty());
        assert_eq!(numbers("x.rs", &format!("\n{}", words(CODE + 1))), [2]);
        assert!(numbers("x.md", &words(MARKDOWN)).is_empty());
        assert_eq!(numbers("x.md", &words(MARKDOWN + 1)), [1]);
    }

    #[test]
    fn characters_count_and_not_bytes() {
        assert!(numbers("x.rs", &"é ".repeat(CODE / 2)).is_empty());
        assert_eq!(numbers("x.go", &format!("\t{}", "a ".repeat(59))), [1]);
    }

    #[test]
    fn what_cannot_be_broken_is_exempt() {
        let url = format!("// see https://example.org/{}", "a".repeat(CODE));
        assert!(numbers("x.rs", &url).is_empty());
        let short = format!("// see https://example.org/ {}", "and more ".repeat(CODE / 9));
        assert_eq!(numbers("x.rs", &short), [1]);
        let row = format!("| {} |", "a ".repeat(MARKDOWN));
        assert!(numbers("x.md", &row).is_empty());
        assert_eq!(numbers("x.rs", &row), [1], "no table in code");
        assert!(numbers("x.md", &format!("[a]: b \"{}\"", "a ".repeat(MARKDOWN))).is_empty());
    }
}
