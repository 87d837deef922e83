//! Findings counted by crate: who has what left to do.

use crate::finding::{Check, Finding};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Returns a table of the findings, a row for each crate or top-level folder.
pub fn table(findings: &[Finding]) -> String {
    let mut rows = BTreeMap::<String, [usize; Check::ALL.len()]>::new();
    for finding in findings {
        rows.entry(room(&finding.path)).or_default()[finding.check as usize] += 1;
    }
    let mut out = row("", &Check::ALL.map(|check| check.heading().to_owned()));
    for (room, counts) in &rows {
        out += &row(room, &counts.map(|count| count.to_string()));
    }
    out + &row("total", &Check::ALL.map(|check| count(findings, check).to_string()))
}

fn count(findings: &[Finding], check: Check) -> usize {
    findings.iter().filter(|finding| finding.check == check).count()
}

fn row(name: &str, cells: &[String]) -> String {
    let mut line = format!("{name:<24}");
    cells.iter().for_each(|cell| write!(line, "{cell:>12}").expect("a string takes everything"));
    line + "\n"
}

/// The crate, or else the top-level folder, that `path` lies in; files at the top share a row.
fn room(path: &Path) -> String {
    let names: Vec<_> = path.iter().map(|name| name.to_string_lossy()).collect();
    match &names[..] {
        [crates, compat, name, _, ..] if crates == "crates" && compat == "compat" => {
            format!("crates/compat/{name}")
        }
        [crates, name, _, ..] if crates == "crates" => format!("crates/{name}"),
        [folder, _, ..] => folder.to_string(),
        _ => "(top)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_counted_by_crate() {
        let finding = |path: &str, check| Finding::new(check, Path::new(path), None, String::new());
        let table = table(&[
            finding("crates/agent/src/lib.rs", Check::Names),
            finding("crates/agent/tests/x.rs", Check::Names),
            finding("crates/agent/src/lib.rs", Check::Prose),
            finding("crates/compat/kqueue/src/lib.rs", Check::Names),
            finding("docs/go/README.md", Check::LineLength),
            finding("README.md", Check::Structure),
        ]);
        let rows: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
        let wanted = [
            "(top) 1 0 0 0 0",
            "crates/agent 0 0 0 2 1",
            "crates/compat/kqueue 0 0 0 1 0",
            "docs 0 0 1 0 0",
            "total 1 0 1 3 1",
        ];
        let rows: Vec<String> = rows[1..].iter().map(|row| row.join(" ")).collect();
        assert_eq!(rows, wanted);
    }
}
