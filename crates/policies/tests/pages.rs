//! `docs/policies` is accurate: every policy has a page with its parameters and defaults, and the index
//! has its lines of code.

use heddle_policies::{Info, list};
use std::fs;
use std::path::{Path, PathBuf};

const INDEX: &str = "docs/policies/README.md";
const SOURCES: &str = "crates/policies/src";

/// Sources that are neither a policy nor shared by policies.
const FRAME: [&str; 4] = ["lib.rs", "registry.rs", "error.rs", "nearest.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Returns the names of the files in `folder` that end in `extension`.
fn files(folder: &str, extension: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(extension)).collect()
}

fn source(name: &str) -> String {
    name.replace('-', "_") + ".rs"
}

/// Returns how many lines of `text` up to the tests hold code: neither blank nor only comment.
fn lines_of_code(text: &str) -> usize {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// Returns the lines of code of the module in `file` and of those in its folder, if it has one.
fn lines_of_module(file: &str) -> usize {
    let folder = format!("{SOURCES}/{}", file.trim_end_matches(".rs"));
    let below = if root().join(&folder).is_dir() { files(&folder, ".rs") } else { Vec::new() };
    let below = below.iter().filter(|name| *name != "tests.rs");
    let paths = below.map(|name| format!("{folder}/{name}")).chain([format!("{SOURCES}/{file}")]);
    paths.map(|path| lines_of_code(&read(&path))).sum()
}

/// Returns what is wrong with the index row that links to `link` and should count the lines of `file`.
fn wrong_row(index: &str, link: &str, file: &str) -> Option<String> {
    let lines = lines_of_module(file);
    let row = index.lines().find(|line| line.starts_with('|') && line.contains(link));
    match row.and_then(|row| row.split('|').nth(3)).map(str::trim) {
        Some(says) if says == lines.to_string() => None,
        Some(says) => Some(format!("{INDEX}: {file} has {lines} lines of code, not `{says}`")),
        None => Some(format!("{INDEX}: no row with `{link}` in column 1 and {lines} in column 3")),
    }
}

#[test]
fn lines_of_code_are_neither_blank_nor_comments_nor_tests() {
    let text =
        "//! Head.\n\nuse a::b;\n    // why\n  fn f() {} // here\n#[cfg(test)]\nmod tests {}\n";
    assert_eq!(lines_of_code(text), 2);
}

#[test]
fn the_index_lists_every_policy_with_its_lines_of_code() {
    let index = read(INDEX);
    let row =
        |info: &Info| wrong_row(&index, &format!("[{0}]({0}.md)", info.name), &source(info.name));
    let wrong: Vec<_> = list().iter().filter_map(row).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_index_has_what_policies_share() {
    let index = read(INDEX);
    let is_policy = |file: &String| list().iter().any(|info| source(info.name) == *file);
    let shared = |file: &String| !FRAME.contains(&file.as_str()) && !is_policy(file);
    let files = files(SOURCES, ".rs").into_iter().filter(shared);
    let wrong: Vec<_> =
        files.filter_map(|file| wrong_row(&index, &format!("[`{file}`]"), &file)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_policy_has_a_page_and_every_page_a_policy() {
    let mut pages = files("docs/policies", ".md");
    let mut policies: Vec<_> = list().iter().map(|info| format!("{}.md", info.name)).collect();
    pages.retain(|page| page != "README.md");
    pages.sort();
    policies.sort();
    assert_eq!(pages, policies, "pages against policies");
}

/// Returns the paragraphs of `page` under the heading `Parameters`.
fn parameters(page: &str) -> &str {
    let section = page.split("**Parameters.**").nth(1).unwrap_or_default();
    section.split("\n**").next().unwrap_or_default()
}

#[test]
fn a_page_has_every_parameter_with_its_default_and_no_other() {
    for info in list() {
        let path = format!("docs/policies/{}.md", info.name);
        let page = read(&path);
        let section = parameters(&page);
        for param in info.params {
            let row = format!("| `{}` | `{}`", param.key, param.default);
            assert!(section.contains(&row), "{path}: no `{row}` under Parameters");
        }
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        assert_eq!(rows.count(), info.params.len(), "{path}: rows under Parameters");
    }
}
