//! Dead relative links in Markdown files.

use crate::finding::Finding;
use std::path::Path;

/// Reports every dead relative link of `text`, which is the content of `path` below `root`.
pub fn check(root: &Path, path: &Path, text: &str) -> Vec<Finding> {
    let folder = root.join(path).parent().expect("a file lies in a folder").to_path_buf();
    let dead = |target: &str| {
        let file = target.split('#').next().unwrap_or(target);
        let from = if file.starts_with('/') { root } else { &folder };
        !file.is_empty() && !from.join(file.trim_start_matches('/')).exists()
    };
    let relative = targets(text).into_iter().filter(|(_, target)| is_relative(target));
    relative
        .filter(|(_, target)| dead(target))
        .map(|(line, target)| Finding::error(path, Some(line), format!("dead link `{target}`")))
        .collect()
}

fn is_relative(target: &str) -> bool {
    let scheme = target.split(':').next().unwrap_or_default();
    !(target.contains(':') && scheme.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// Returns the targets of all links outside code, `[text](target)` and `[label]: target`, with their lines.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (i, line) in text.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") || start.starts_with("~~~") {
            fenced = !fenced;
        } else if !fenced {
            found.extend(inline(line).into_iter().chain(reference(start)).map(|t| (i + 1, t)));
        }
    }
    found
}

fn inline(line: &str) -> Vec<&str> {
    // Text between backquotes is at the odd places.
    let prose = line.split('`').enumerate().filter(|(i, _)| i % 2 == 0).map(|(_, part)| part);
    let links = prose.flat_map(|part| part.split("](").skip(1));
    links.filter_map(|rest| first_word(rest.split(')').next()?)).collect()
}

fn reference(line: &str) -> Option<&str> {
    let (label, target) = line.split_once("]: ")?;
    label.starts_with('[').then(|| first_word(target))?
}

/// Returns the target without a title after it.
fn first_word(text: &str) -> Option<&str> {
    Some(text.split_whitespace().next()?.trim_matches(['<', '>']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        targets(text).into_iter().map(|(_, target)| target).collect()
    }

    #[test]
    fn links_are_found_in_prose_and_not_in_code() {
        let text = "see [a](a.md) and [b](<b.md> \"title\"), not `[c](c.md)`\n\
                    ```\n[d](d.md)\n```\n[e]: e.md\n`x` [f](f.md#part)";
        assert_eq!(found(text), ["a.md", "b.md", "e.md", "f.md#part"]);
    }

    #[test]
    fn a_link_on_code_is_found() {
        assert_eq!(found("[`code`](x.md)"), ["x.md"]);
    }

    #[test]
    fn a_dead_link_is_reported_with_its_line_and_a_live_one_is_not() {
        let text =
            "[live](Cargo.toml) [part](#part) [web](https://example.org/no)\n[dead](none.md)";
        let findings = check(&crate::root(), Path::new("README.md"), text);
        assert_eq!(
            findings,
            [Finding::error(Path::new("README.md"), Some(2), "dead link `none.md`")]
        );
        let nested =
            check(&crate::root(), Path::new("docs/page.md"), "[up](../Cargo.toml) [x](/xtask)");
        assert!(nested.is_empty(), "{nested:?}");
    }
}
