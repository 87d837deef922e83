//! The value of `--policy`: a shipped policy, a source that is compiled here with the caller's rights, or a
//! compiled file.

use heddle_policies::nearest;
use heddle_steer::client::policy_of;
use heddle_steer::policy::{shipped_names, split_params};
use heddle_steer::request::Policy;

use super::refused;
use crate::exit::Usage;

/// Parses `--policy NAME[:PARAMETER=NUMBER,...]`.
pub fn parse(text: &str) -> anyhow::Result<Policy> {
    let (name, _) = split_params(text);
    // A bad file is not wrong usage.
    let is_file = name.ends_with(".c") || name.ends_with(".o");
    let policy =
        policy_of(text).map_err(|error| if is_file { error.into() } else { refused(error) })?;
    if policy.object.is_none() && shipped_names().all(|shipped| shipped != name) {
        return Err(unknown(name).into());
    }
    Ok(policy)
}

fn unknown(name: &str) -> Usage {
    let meant = nearest(name, shipped_names());
    let meant = meant.map_or(String::new(), |known| format!(" (did you mean `{known}`?)"));
    let names: Vec<&str> = shipped_names().collect();
    Usage(format!(
        "there is no policy `{name}`{meant}. Shipped policies: {}; your own is a file FILE.c or FILE.o",
        names.join(", ")
    ))
}

/// Formats a policy the way `--policy` reads it.
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
    fn a_shipped_policy_is_parsed_with_its_parameters() {
        let policy = parse("sita:scan=2, type-offset=0").unwrap();
        assert_eq!(display(&policy.name, &policy.parameters), "sita:scan=2,type-offset=0");
        assert_eq!(policy.object, None);
    }

    #[test]
    fn an_unknown_policy_is_answered_with_the_nearest_and_all_names() {
        let error = parse("jiqq").unwrap_err();
        assert!(error.is::<Usage>());
        let text = error.to_string();
        assert!(text.contains("did you mean `jiq`?") && text.contains("round-robin"), "{text}");
        assert!(!parse("nothing-like-it").unwrap_err().to_string().contains("did you mean"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let text = parse("/nonexistent/policy.c").unwrap_err().to_string();
        assert!(text.contains("/nonexistent/policy.c"), "{text}");
        assert!(parse("sita:scan").unwrap_err().is::<Usage>());
    }
}
