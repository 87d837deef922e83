//! Earlier spellings of commands, which keep working with a hint, and `heddle help COMMAND`.

use std::ffi::{OsStr, OsString};

use crate::definition;

/// Commands that became verbs of a noun: the old word, and the noun before it.
const MOVED: [(&str, &str); 9] = [
    ("attach", "steer"),
    ("detach", "steer"),
    ("replace", "steer"),
    ("ls", "steer"),
    ("stats", "steer"),
    ("map", "steer"),
    ("check", "steer"),
    ("serve", "kv"),
    ("load", "kv"),
];

/// A command line in the current spelling.
#[derive(Debug, PartialEq, Eq)]
pub struct Typed {
    /// The words, the program's name first.
    pub words: Vec<OsString>,
    /// A line for the user if the spelling was an earlier one.
    pub hint: Option<String>,
}

/// Brings a command line to the current spelling.
pub fn current(mut words: Vec<OsString>) -> Typed {
    help_last(&mut words);
    let word = |at: usize| words.get(at).and_then(|word| word.to_str()).unwrap_or_default();
    if let Some((old, noun)) = MOVED.iter().find(|(old, _)| *old == word(1)) {
        words.insert(1, (*noun).into());
        let hint = format!("hint: `heddle {old}` is now `heddle {noun} {old}`");
        return Typed { words, hint: Some(hint) };
    }
    let is_run = word(1) == "agent" && word(2).starts_with('-');
    if !is_run || ["-h", "--help"].contains(&word(2)) {
        return Typed { words, hint: None };
    }
    let options = words.iter().take_while(|word| *word != "--");
    let is_quiet = options.into_iter().any(|word| word == "--quiet" || word == "-q");
    words.insert(2, "run".into());
    let hint = "hint: `heddle agent` with options is now `heddle agent run`";
    Typed { words, hint: (!is_quiet).then(|| hint.into()) }
}

/// Turns `heddle help COMMAND` and `heddle NOUN help VERB` into `heddle ... --help`.
fn help_last(words: &mut Vec<OsString>) {
    let mut command = definition();
    for at in 1..words.len() {
        if words[at] == OsStr::new("help") && command.has_subcommands() {
            words.remove(at);
            words.push("--help".into());
            return;
        }
        match command.find_subcommand(&words[at]) {
            Some(sub) => command = sub.clone(),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> (String, Option<String>) {
        let Typed { words, hint } = current(line.split(' ').map(OsString::from).collect());
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        (words.join(" "), hint)
    }

    #[test]
    fn every_earlier_spelling_becomes_a_command_that_exists() {
        for (old, noun) in MOVED {
            let (line, hint) = typed(&format!("heddle {old} --port 1"));
            assert_eq!(line, format!("heddle {noun} {old} --port 1"));
            assert_eq!(hint.unwrap(), format!("hint: `heddle {old}` is now `heddle {noun} {old}`"));
            let group = definition().find_subcommand(noun).unwrap().clone();
            assert!(group.find_subcommand(old).is_some(), "{noun} {old}");
        }
    }

    #[test]
    fn agent_without_a_verb_is_run() {
        let (line, hint) = typed("heddle agent --name x -- sleep -q");
        assert_eq!(line, "heddle agent run --name x -- sleep -q");
        assert!(hint.unwrap().contains("heddle agent run"));
        assert_eq!(typed("heddle agent -q --name x -- a").1, None, "--quiet is quiet");
        for same in ["heddle agent --help", "heddle agent status", "heddle agent", "heddle"] {
            assert_eq!(typed(same), (same.into(), None));
        }
    }

    #[test]
    fn only_the_first_word_is_a_command() {
        for same in ["heddle steer ls", "heddle go check", "heddle go help", "heddle sim list"] {
            assert_eq!(typed(same), (same.into(), None));
        }
    }

    #[test]
    fn help_is_a_command_of_every_group() {
        for (line, same) in [
            ("heddle help", "heddle --help"),
            ("heddle help steer attach", "heddle steer attach --help"),
            ("heddle steer help attach", "heddle steer attach --help"),
            ("heddle help attach", "heddle steer attach --help"),
        ] {
            assert_eq!(typed(line).0, same, "{line}");
        }
    }
}
