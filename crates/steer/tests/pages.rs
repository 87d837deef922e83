//! `docs/policies/steer` is accurate: every shipped policy has a page with its parameters and defaults, and
//! the index has its lines of code.

use std::fs;
use std::path::{Path, PathBuf};

use heddle_steer::policy::{params, read as read_object, shipped, shipped_names, shipped_source};

const FOLDER: &str = "docs/policies/steer";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    let path = root().join(FOLDER).join(format!("{name}.md"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Lines of `text` that hold code: neither blank nor only comment. Comments begin and end on lines of their own, as the
/// policies' do, or stand on one line.
fn lines_of_code(text: &str) -> usize {
    let mut comment = false;
    let mut count = 0;
    for line in text.lines().map(str::trim) {
        let begins = line.starts_with("/*");
        if !comment && !begins && !line.is_empty() {
            count += 1;
        }
        comment = (comment || begins) && !line.ends_with("*/");
    }
    count
}

#[test]
fn lines_of_code_exclude_blanks_and_comments() {
    let text = "/* Head\n * more. */\n#include <heddle.h>\n\n\tint x; /* here */\n\t/* why */\n}\n";
    assert_eq!(lines_of_code(text), 3);
}

#[test]
fn the_index_lists_every_policy_with_its_lines_of_code() {
    let index = page("README");
    let wrong = |name: &&str| {
        let lines = lines_of_code(shipped_source(name).expect("shipped"));
        let row = index.lines().find(|line| line.starts_with(&format!("| [{name}]({name}.md) |")));
        match row.and_then(|row| row.split('|').nth(3)).map(str::trim) {
            Some(says) if says == lines.to_string() => None,
            says => Some(format!("{name} has {lines} lines of code, not `{says:?}`")),
        }
    };
    let wrong: Vec<_> = shipped_names().filter_map(|name| wrong(&name)).collect();
    assert!(wrong.is_empty(), "\n{FOLDER}/README.md: {}", wrong.join("\n"));
}

#[test]
fn every_policy_has_a_page_and_every_page_a_policy() {
    let entries = fs::read_dir(root().join(FOLDER)).expect("the pages");
    let names =
        entries.map(|entry| entry.expect("a page").file_name().into_string().expect("text"));
    let mut pages: Vec<_> = names.filter(|name| name != "README.md").collect();
    let mut policies: Vec<_> = shipped_names().map(|name| format!("{name}.md")).collect();
    pages.sort();
    policies.sort();
    assert_eq!(pages, policies, "pages against policies");
}

#[test]
fn a_page_has_every_parameter_with_its_default_and_no_other() {
    for name in shipped_names() {
        let page = page(name);
        let section = page.split("**Parameters.**").nth(1).unwrap_or_default();
        let section = section.split("\n**").next().unwrap_or_default();
        let object = read_object(shipped(name).expect("shipped")).expect("readable");
        let params = params(&object);
        for param in &params {
            let row = format!("| `{}` | `{}` | {}", param.name, param.value, param.meaning);
            assert!(section.contains(&row), "{name}: no `{row}` under Parameters");
        }
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        assert_eq!(rows.count(), params.len(), "{name}: rows under Parameters");
    }
}
