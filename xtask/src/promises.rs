//! The tests that SPECIFICATION.md names exist: every `path::test` of its tables is a function somewhere in the tree.

use crate::finding::Finding;
use std::collections::HashSet;
use std::path::Path;

/// The document that names tests.
pub const DOCUMENT: &str = "SPECIFICATION.md";

/// The names of functions in the files that were read, of any language.
#[derive(Default)]
pub struct Functions(HashSet<String>);

impl Functions {
    /// Adds the functions, and modules, of a file.
    pub fn add(&mut self, text: &str) {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let mut words = text.split(|c| !is_part(c)).filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            if matches!(word, "fn" | "func" | "def" | "mod") {
                self.0.extend(words.next().map(str::to_owned));
            }
        }
    }

    /// Reports the tests and files in the last columns of `text`'s tables that do not exist.
    pub fn check(&self, root: &Path, text: &str) -> Vec<Finding> {
        let rows = text.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
        let cells = rows.filter_map(|(i, line)| Some((i + 1, line.rsplit('|').nth(1)?)));
        let named = cells
            .flat_map(|(line, cell)| cell.split('`').skip(1).step_by(2).map(move |t| (line, t)));
        named
            .filter_map(|(line, test)| self.missing(root, test).map(|m| (line, m)))
            .map(report)
            .collect()
    }

    fn missing(&self, root: &Path, test: &str) -> Option<String> {
        let (path, name) = test.split_once("::")?;
        let name = name.rsplit("::").next().unwrap_or(name);
        if path.starts_with("crates/") && !root.join(path).exists() {
            return Some(format!("no file `{path}`"));
        }
        (!self.0.contains(name)).then(|| format!("no test `{test}`"))
    }
}

fn report((line, message): (usize, String)) -> Finding {
    Finding::error(Path::new(DOCUMENT), Some(line), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tests_and_files_are_reported() {
        let mut functions = Functions::default();
        functions.add("mod model { fn it_holds() {} }");
        functions.add("func TestIt(t *testing.T) {}\ndef test_it():");
        let text = "`no::table`\n| `x.rs::it_holds`, `::test_it`, `go/x.go::TestIt`, `a`, `x.rs::model` |\n\
                    | `a::type` | `x.rs::it_does_not`, `crates/none/x.rs::it_holds` |";
        let found = functions.check(&crate::root(), text);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let wanted = [
            "error: SPECIFICATION.md:3: no test `x.rs::it_does_not`",
            "error: SPECIFICATION.md:3: no file `crates/none/x.rs`",
        ];
        assert_eq!(found, wanted);
    }
}
