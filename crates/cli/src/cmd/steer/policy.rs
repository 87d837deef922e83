//! What `--policy` means: a shipped policy, a source that is compiled here, as the caller, or a compiled file.

use std::path::Path;

use heddle_steer::policy::{CompileError, compile, shipped_names, split_params};
use heddle_steer::request::Policy;

use crate::exit::Usage;

/// Reads `--policy NAME[:PARAMETER=NUMBER,...]`.
pub fn parse(text: &str) -> anyhow::Result<Policy> {
    let (name, parameters) = split_params(text);
    let parameters = settings(parameters)?;
    if shipped_names().any(|shipped| shipped == name) {
        return Ok(Policy { name: name.into(), parameters, object: None });
    }
    let path = Path::new(name);
    let object = match path.extension().and_then(|extension| extension.to_str()) {
        Some("c") => compile(path).map_err(|error| told(name, error))?,
        Some("o") => {
            std::fs::read(path).map_err(|error| anyhow::anyhow!("cannot read {name}: {error}"))?
        }
        _ => return Err(unknown(name).into()),
    };
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Ok(Policy { name: stem.unwrap_or_else(|| name.into()), parameters, object: Some(object) })
}

/// The compiler's words name the lines of the file, but not always the file.
fn told(name: &str, error: CompileError) -> anyhow::Error {
    match error {
        CompileError::Rejected(_) => anyhow::anyhow!("{name} does not compile:\n{error}"),
        other => other.into(),
    }
}

fn settings(text: &str) -> Result<Vec<(String, String)>, Usage> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (name, value) = part
            .split_once('=')
            .ok_or_else(|| Usage(format!("--policy: `{part}` is not of the form name=number")))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    parts.map(pair).collect()
}

fn unknown(name: &str) -> Usage {
    let names: Vec<&str> = shipped_names().collect();
    let nearest = names.iter().min_by_key(|known| distance(known, name));
    let nearest = nearest.filter(|known| distance(known, name) <= 1 + name.len() / 3);
    let meant = nearest.map_or(String::new(), |known| format!(" (did you mean `{known}`?)"));
    Usage(format!(
        "there is no policy `{name}`{meant}. Shipped are {}; one of your own is a file FILE.c or FILE.o",
        names.join(", ")
    ))
}

/// How many letters differ (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for j in 0..b.len() {
            let replaced = before + usize::from(letter != b[j]);
            before = row[j + 1];
            row[j + 1] = replaced.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// A policy as people write it.
pub fn display(name: &str, parameters: &[(String, String)]) -> String {
    let set: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    match set.as_slice() {
        [] => name.into(),
        set => format!("{name}:{}", set.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shipped_policy_with_its_parameters() {
        let policy = parse("sita:scan=2, type-offset=0").unwrap();
        assert_eq!(display(&policy.name, &policy.parameters), "sita:scan=2,type-offset=0");
        assert_eq!(policy.object, None);
    }

    #[test]
    fn a_wrong_name_meets_the_nearest_and_all_that_there_are() {
        let error = parse("jqi").unwrap_err();
        assert!(error.is::<Usage>());
        let text = error.to_string();
        assert!(text.contains("did you mean `jiq`?") && text.contains("round-robin"), "{text}");
        assert!(!parse("nothing-like-it").unwrap_err().to_string().contains("did you mean"));
    }

    #[test]
    fn what_is_missing_or_does_not_compile_is_named_with_its_file() {
        let text = parse("/nonexistent/policy.c").unwrap_err().to_string();
        assert!(text.contains("/nonexistent/policy.c"), "{text}");
        assert!(parse("sita:scan").unwrap_err().is::<Usage>());
    }
}
