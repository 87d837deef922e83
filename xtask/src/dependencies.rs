//! Every external library has a row in `docs/design/dependencies.md`: what it is for, and what it replaces.

use crate::finding::Finding;
use cargo_metadata::Metadata;
use std::collections::BTreeSet;
use std::path::Path;

/// The page, from the root of the workspace.
const PAGE: &str = "docs/design/dependencies.md";

/// Returns the external dependencies of the workspace that the page at `root` lacks.
///
/// # Errors
/// The page cannot be read.
pub fn check(metadata: &Metadata, root: &Path) -> Result<Vec<Finding>, String> {
    let page = std::fs::read_to_string(root.join(PAGE)).map_err(|e| format!("{PAGE}: {e}"))?;
    let packages = metadata.workspace_packages();
    let all = packages.iter().flat_map(|package| &package.dependencies);
    let external: BTreeSet<&str> =
        all.filter(|d| d.path.is_none()).map(|d| d.name.as_str()).collect();
    let missing = missing(&page, external.into_iter());
    let finding = |name| {
        let problem = format!("no row for the dependency `{name}`: say why it is there");
        Finding::error(Path::new(PAGE), None, problem)
    };
    Ok(missing.into_iter().map(finding).collect())
}

/// The names that no row of a table starts with. A row can be about several: `serde, serde_json`.
fn missing<'a>(page: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let listed: BTreeSet<&str> = rows.flat_map(|cell| cell.split(", ")).collect();
    names.filter(|name| !listed.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_without_a_row_is_missing() {
        let page = "| crate | locked |\n|---|---|\n| serde, serde_json | 1 |\n| toml | 1 |\nlibc\n";
        let names = ["libc", "serde", "serde_json", "toml"];
        assert_eq!(missing(page, names.into_iter()), ["libc"]);
    }
}
