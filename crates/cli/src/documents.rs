//! Documents against definitions: every command that a document shows exists, and the README's tour names every
//! command.

use std::fs;
use std::path::{Path, PathBuf};

use crate::definition;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown files under `folder`, without those of builds.
fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            let is_ours = !name.starts_with('.') && !["target", "heddle-demo"].contains(&&*name);
            if is_ours {
                documents(&path, found);
            }
        } else if name.ends_with(".md") && name != "CHANGELOG.md" {
            found.push(path);
        }
    }
}

/// The code in a document: the lines of its fenced blocks, and its inline spans.
fn code(text: &str) -> Vec<&str> {
    let mut code = Vec::new();
    for (at, block) in text.split("```").enumerate() {
        match at % 2 {
            1 => code.extend(block.lines().skip(1)),
            _ => code.extend(block.split('`').skip(1).step_by(2)),
        }
    }
    code
}

/// What is wrong with the first command in `code`, if anything. At gdb's prompt the words are gdb's.
fn problem(code: &str) -> Option<String> {
    if code.trim_start().starts_with("(gdb)") {
        return None;
    }
    let is_word = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
    };
    let is_heddle = |word: &str| word == "heddle" || word.ends_with("/heddle");
    let mut words = code.split_whitespace().skip_while(|word| !is_heddle(word)).skip(1);
    let noun = words.next().filter(is_word)?;
    let all = definition();
    let Some(command) = all.find_subcommand(noun) else {
        return Some(format!("there is no `heddle {noun}`"));
    };
    let verb = words.next().filter(is_word).filter(|_| command.has_subcommands())?;
    let is_known = verb == "help" || command.find_subcommand(verb).is_some();
    (!is_known).then(|| format!("there is no `heddle {noun} {verb}`"))
}

#[test]
fn every_command_in_a_document_exists() {
    let mut files = Vec::new();
    documents(&root(), &mut files);
    assert!(files.len() > 40, "{files:?}");
    let mut problems = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("text");
        let wrong = code(&text).into_iter().filter_map(problem);
        problems.extend(wrong.map(|problem| format!("{}: {problem}", file.display())));
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn the_tour_in_the_readme_names_every_command() {
    let text = fs::read_to_string(root().join("README.md")).expect("README.md");
    let tour = text.split("\n## ").find(|part| part.starts_with("A tour of the commands"));
    let tour = tour.expect("the section `A tour of the commands`");
    for command in definition().get_subcommands() {
        let name = command.get_name();
        assert!(tour.contains(&format!("`heddle {name}")), "no `heddle {name}` in the tour");
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let verb = verb.get_name();
            let is_named = tour.contains(&format!("`heddle {name} {verb}"))
                || tour.contains(&format!("`{verb}`"));
            assert!(is_named, "no `heddle {name} {verb}` in the tour");
        }
    }
}

#[test]
fn a_wrong_command_is_found_in_blocks_and_spans() {
    let text = "See `heddle steer ls`, `heddle attach 1`.\n```sh\nsudo ./heddle steer lst\nheddle start\n```\nand \
        `heddle`";
    let wrong: Vec<String> = code(text).into_iter().filter_map(problem).collect();
    let expected = ["heddle attach", "heddle steer lst", "heddle start"];
    assert_eq!(wrong, expected.map(|name| format!("there is no `{name}`")));
}
