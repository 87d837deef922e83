//! Finds what is on the word list ([`words`]): in identifiers, names of files, and prose.

use crate::finding::{Check, Finding};
use crate::lexer::{self, Language};
use crate::words::{self, Entry};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::LazyLock;

type Index = HashMap<&'static str, &'static str>;
/// A phrase as its words, with its entry.
type Phrase = (Vec<&'static str>, &'static Entry);

static PARTS: LazyLock<Index> = LazyLock::new(|| words::PARTS.iter().copied().collect());
static TYPES: LazyLock<Index> = LazyLock::new(|| words::TYPES.iter().copied().collect());
/// Each phrase by its first word.
static PHRASES: LazyLock<HashMap<&str, Vec<Phrase>>> = LazyLock::new(|| {
    let mut index = HashMap::<_, Vec<_>>::new();
    for entry in words::PHRASES {
        let words: Vec<&str> = entry.0.split(' ').collect();
        index.entry(words[0]).or_default().push((words, entry));
    }
    index
});

/// What stands before the name of a type where it is defined.
const DEFINES: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// Reports what `text`, which is the content of `path`, has of the word list.
pub fn check(path: &Path, text: &str) -> Vec<Finding> {
    let mut findings = check_file_name(path);
    match language(path) {
        Some(language) => {
            let halves = lexer::split(text, language);
            findings.extend(each_line(path, Check::Names, &halves.code, names));
            findings.extend(each_line(path, Check::Prose, &halves.prose, phrases));
        }
        None => findings.extend(each_line(path, Check::Prose, &outside_fences(text), phrases)),
    }
    findings
}

fn language(path: &Path) -> Option<Language> {
    match path.extension().and_then(OsStr::to_str)? {
        "rs" => Some(Language::Rust),
        "c" | "h" => Some(Language::C),
        "go" => Some(Language::Go),
        _ => None,
    }
}

/// Runs `find` on each line; it returns entries of the word list.
fn each_line(
    path: &Path,
    check: Check,
    text: &str,
    find: impl Fn(&str) -> Vec<Entry>,
) -> Vec<Finding> {
    let lines = text.lines().enumerate();
    let found = lines.flat_map(|(i, line)| find(line).into_iter().map(move |e| (i + 1, e)));
    let allowed = found.filter(|(_, (word, _))| !is_exception(path, word));
    allowed.map(|(line, entry)| Finding::new(check, path, Some(line), message(entry))).collect()
}

fn is_exception(path: &Path, word: &str) -> bool {
    let matches = |(start, entry, _): &(&str, &str, &str)| {
        path.starts_with(start) && (entry.is_empty() || *entry == word)
    };
    words::EXCEPTIONS.iter().any(matches)
}

fn message((word, instead): Entry) -> String {
    match instead {
        "" => format!("`{word}`: choose a noun that can be searched for (xtask/src/words.rs)"),
        _ => format!("`{word}`: {instead} (xtask/src/words.rs)"),
    }
}

fn check_file_name(path: &Path) -> Vec<Finding> {
    let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let whole = words::FILES.iter().copied().find(|(word, _)| *word == stem);
    let found = whole.into_iter().chain(parts(stem));
    let allowed = found.filter(|(word, _)| !is_exception(path, word));
    allowed.map(|entry| Finding::new(Check::Names, path, None, message(entry))).collect()
}

/// The entries in the identifiers of a line of code, each once.
fn names(line: &str) -> Vec<Entry> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut before = "";
    for identifier in line.split(|c| !is_part(c)).filter(|word| !word.is_empty()) {
        found.extend(parts(identifier));
        if DEFINES.contains(&before) {
            found.extend(TYPES.get_key_value(identifier).map(|(word, instead)| (*word, *instead)));
        }
        before = identifier;
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The entries among the parts of an identifier: `is_told`, `isTold` and `IsTold` have the part `told`.
fn parts(identifier: &str) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut part = String::new();
    for c in identifier.chars().chain(['_']) {
        let ends = !c.is_alphabetic() || (c.is_uppercase() && part.ends_with(char::is_lowercase));
        if ends {
            let entry = PARTS.get_key_value(part.to_lowercase().as_str());
            found.extend(entry.map(|(word, instead)| (*word, *instead)));
            part.clear();
        }
        if c.is_alphabetic() {
            part.push(c);
        }
    }
    found
}

/// The phrases in a line of prose. What stands between backquotes is no prose.
fn phrases(line: &str) -> Vec<Entry> {
    let prose = line.split('`').step_by(2);
    let clauses = prose.flat_map(|text| text.split([',', '.', ';', ':', '(', ')']));
    clauses.flat_map(|text| phrases_of(&words_of(text))).collect()
}

fn words_of(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '\'' | '-' | '/');
    let words = text.split(|c| !is_part(c)).filter(|word| !word.is_empty());
    words.map(|word| word.trim_matches('\'').to_lowercase()).collect()
}

fn phrases_of(words: &[String]) -> Vec<Entry> {
    let mut found = Vec::new();
    for (i, first) in words.iter().enumerate() {
        for (phrase, entry) in PHRASES.get(first.as_str()).into_iter().flatten() {
            if words[i..].len() >= phrase.len()
                && words[i..].iter().zip(phrase).all(|(a, b)| a == b)
            {
                found.push(**entry);
            }
        }
    }
    found
}

/// Markdown with its fenced code blanked.
fn outside_fences(text: &str) -> String {
    let mut is_fenced = false;
    let blank_code = |line: &str| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        if is_fenced || is_fence { "\n".to_owned() } else { format!("{line}\n") }
    };
    text.lines().map(blank_code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let word = |f: Finding| f.message.split('`').nth(1).unwrap_or_default().to_owned();
        let findings = check(Path::new(path), text).into_iter();
        findings.map(|f| (f.line.unwrap_or_default(), word(f))).collect()
    }

    fn is_found(path: &str, text: &str, wanted: &[(usize, &str)]) {
        let wanted: Vec<_> = wanted.iter().map(|(n, word)| (*n, (*word).to_owned())).collect();
        assert_eq!(found(path, text), wanted, "{text}");
    }

    #[test]
    fn parts_of_identifiers_are_found_and_other_words_are_not() {
        is_found(
            "x.rs",
            "fn is_told() {}\nlet seatOf = BedTime;",
            &[(1, "told"), (2, "bed"), (2, "seat")],
        );
        is_found("x.rs", "embedded(); background(); let tolds = \"told\"; // told", &[]);
        is_found("x.go", "func (s *Seat) f() {}", &[(1, "seat")]);
        is_found("x.rs", "TOLD_AT + told2", &[(1, "told")]);
    }

    #[test]
    fn a_type_is_reported_where_it_is_defined() {
        is_found(
            "x.rs",
            "pub enum Is { On, At }\nlet x: Is = Is::On;\ntype At = u8;",
            &[(1, "Is"), (3, "At")],
        );
    }

    #[test]
    fn names_of_files_are_checked() {
        is_found("src/told.rs", "", &[(0, "told")]);
        is_found("src/left.rs", "", &[(0, "left")]);
        is_found("src/left/right.rs", "", &[]);
    }

    #[test]
    fn phrases_are_found_in_comments_messages_and_documents() {
        is_found(
            "x.rs",
            "// Nobody waits\nf(\"this has to\"); g(\"nobody\")",
            &[(1, "nobody"), (2, "has to")],
        );
        is_found("x.md", "That one.\n```\nnobody\n```\nsetuid `nobody`\n", &[(1, "that one")]);
        is_found("scripts/x", "# of one's own\n", &[(1, "of one's own")]);
        is_found("x.md", "not has-to, that, one; has to", &[(1, "has to")]);
    }

    #[test]
    fn the_lists_are_sorted_and_have_nothing_twice() {
        for list in [words::PARTS, words::TYPES, words::FILES, words::PHRASES] {
            assert!(list.is_sorted_by(|(a, _), (b, _)| a < b), "{:?}", list[0]);
        }
        assert!(words::PHRASES.iter().all(|(phrase, _)| *phrase == phrase.to_lowercase()));
    }

    #[test]
    fn the_list_itself_is_an_exception() {
        assert!(found("xtask/src/words.rs", "// nobody").is_empty());
    }
}
