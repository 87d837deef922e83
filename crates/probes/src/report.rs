//! What the pass did to each function: the lines that it writes with `--heddle-report`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;

/// A function, and what the pass did to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its symbol.
    pub function: String,
    /// The source file that it was compiled in.
    pub module: String,
    /// How many loops it has.
    #[serde(default)]
    pub loops: u64,
    /// Loops that cost too little to need a probe.
    #[serde(default)]
    pub bounded: u64,
    /// Loops that end early for a probe, and begin again.
    #[serde(default)]
    pub split: u64,
    /// Loops with a probe in each iteration.
    #[serde(default)]
    pub latch: u64,
    /// Calls with a probe before them.
    #[serde(default)]
    pub calls: u64,
    /// The estimated longest work between two probes, in units of cost.
    #[serde(default)]
    pub gap: u64,
    /// What it calls that is defined in other files.
    #[serde(default)]
    pub elsewhere: Vec<String>,
    /// Why it has no probes, if it was left alone.
    #[serde(default)]
    pub skipped: Option<String>,
}

/// A function that is called and was not compiled with probes, for all that the reports say: the C library's, the
/// precompiled part of Rust's, or one that the pass left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WithoutProbes {
    /// Its symbol.
    pub function: String,
    /// How many functions call it.
    pub callers: u64,
    /// One of them.
    pub caller: String,
}

/// Returns what `functions` call that has no probes, that with the most callers first.
pub fn without_probes(functions: &[Function]) -> Vec<WithoutProbes> {
    let covered = functions.iter().filter(|of| of.skipped.is_none());
    let covered: HashSet<&str> = covered.map(|of| of.function.as_str()).collect();
    let mut found: HashMap<&str, WithoutProbes> = HashMap::new();
    for caller in functions {
        for callee in caller.elsewhere.iter().filter(|name| !covered.contains(name.as_str())) {
            let entry = found.entry(callee).or_insert_with(|| WithoutProbes {
                function: callee.clone(),
                callers: 0,
                caller: caller.function.clone(),
            });
            entry.callers += 1;
        }
    }
    let mut found: Vec<_> = found.into_values().collect();
    found.sort_by(|a, b| b.callers.cmp(&a.callers).then_with(|| a.function.cmp(&b.function)));
    found
}

/// Reads reports, the largest gap first. Of a function that was compiled several times, the last line counts.
///
/// # Errors
/// If a file cannot be read, or a line is not the pass's.
pub fn read(files: &[impl AsRef<Path>]) -> Result<Vec<Function>, Error> {
    let mut functions = Vec::new();
    for path in files.iter().map(AsRef::as_ref) {
        // Paths in reports need not be UTF-8.
        let bytes = fs::read(path).map_err(|source| Error::Report { path: path.into(), source })?;
        functions.extend(parse(path, &String::from_utf8_lossy(&bytes))?);
    }
    let mut functions = latest(functions);
    functions.sort_by(|a, b| {
        let name = |f: &Function| (f.module.clone(), f.function.clone());
        b.gap.cmp(&a.gap).then_with(|| name(a).cmp(&name(b)))
    });
    Ok(functions)
}

fn parse(path: &Path, text: &str) -> Result<Vec<Function>, Error> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(at, line)| {
        serde_json::from_str(line).map_err(|source| Error::ReportLine {
            path: path.into(),
            line: at + 1,
            source,
        })
    });
    parsed.collect()
}

fn latest(functions: Vec<Function>) -> Vec<Function> {
    let mut latest = HashMap::new();
    for function in functions {
        latest.insert((function.module.clone(), function.function.clone()), function);
    }
    latest.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"function":"f","module":"a.c","loops":2,"split":1,"gap":90,"skipped":null}
{"function":"g","module":"a.c","loops":0,"gap":900,"skipped":null}

{"function":"h","module":"b.c","loops":0,"gap":0,"skipped":"naked","later":1}
{"function":"f","module":"a.c","loops":2,"gap":80,"skipped":null}
"#;

    #[test]
    fn the_largest_gap_comes_first_and_the_last_line_counts() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), LINES).unwrap();
        let functions = read(&[file.path()]).unwrap();
        let gaps: Vec<_> = functions.iter().map(|f| (&*f.function, f.gap)).collect();
        assert_eq!(gaps, [("g", 900), ("f", 80), ("h", 0)]);
        assert_eq!(functions[2].skipped.as_deref(), Some("naked"));
    }

    #[test]
    fn what_is_called_and_was_not_compiled_with_probes_is_listed() {
        let line = |name: &str, elsewhere: &[&str], skipped: Option<&str>| Function {
            function: name.into(),
            module: "a.c".into(),
            loops: 0,
            bounded: 0,
            split: 0,
            latch: 0,
            calls: 0,
            gap: 0,
            elsewhere: elsewhere.iter().map(|&name| name.into()).collect(),
            skipped: skipped.map(Into::into),
        };
        let functions = [
            line("f", &["g", "memcpy"], None),
            line("g", &["memcpy", "naked"], None),
            line("naked", &[], Some("naked")),
        ];
        let found = without_probes(&functions);
        let found: Vec<_> =
            found.iter().map(|of| (&*of.function, of.callers, &*of.caller)).collect();
        assert_eq!(found, [("memcpy", 2, "f"), ("naked", 1, "g")]);
    }

    #[test]
    fn what_is_no_report_is_refused_with_its_line() {
        let error = parse(Path::new("r"), "\n{\"function\":\"f\"").unwrap_err().to_string();
        assert!(error.starts_with("r, line 2: ") && error.contains("--heddle-report"), "{error}");
        let error = read(&["/no/such/report"]).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /no/such/report: "), "{error}");
    }
}
