//! The share of CPUs that the program uses together with others.

use std::path::Path;

use heddle_agent::guardian::cpus;
use heddle_broker::query;

use super::Args;
use super::settings::Setting;
use crate::cmd::share::{Site, launch};
use crate::exit::Usage;

/// The classes of programs, without a pattern.
const CLASSES: [&str; 2] = ["lc", "be"];

/// Returns the rules about threads among `--class`; the rest is the program's class.
///
/// # Errors
/// If the program has a class for nothing, or two; if the share's file is wrong.
pub fn rules(args: &Args) -> Result<Vec<&str>, Usage> {
    let (classes, rules): (Vec<&str>, Vec<&str>) =
        args.class.iter().map(String::as_str).partition(|class| CLASSES.contains(class));
    let unknown = rules.iter().find(|rule| args.share.is_some() && !rule.contains('='));
    if let Some(class) = unknown {
        return Err(Usage(format!(
            "--class {class}: a program's class in a share is {}; that of threads has a pattern, as in be=compact*",
            CLASSES.join(" or ")
        )));
    }
    match (&classes[..], &args.share) {
        ([class, ..], None) => Err(Usage(format!(
            "--class {class} is the class of a program, which counts with --share FILE only; the class of threads has \
             a pattern, as in CLASS=PATTERN or {class}=compact*"
        ))),
        ([_, _, ..], Some(_)) => Err(Usage(format!(
            "a program has one class, and --class gives {}",
            classes.join(" and ")
        ))),
        (_, Some(file)) => match Site::of(file) {
            Ok(_) => Ok(rules),
            Err(error) => Err(Usage(error.to_string())),
        },
        (_, None) => Ok(rules),
    }
}

/// Returns the variables by which the runtime joins the share; starts its broker if none answers.
///
/// # Errors
/// If the broker cannot be started.
pub fn environment(args: &Args) -> anyhow::Result<Vec<Setting>> {
    let Some(file) = &args.share else { return Ok(Vec::new()) };
    let socket = launch::find_or_start(file)?;
    let cpus = query(&socket)?.share.cpus;
    let class = args.class.iter().find(|class| CLASSES.contains(&class.as_str()));
    let name = Path::new(&args.command[0]).file_name().unwrap_or(&args.command[0]);
    Ok(vec![
        ("HEDDLE_SHARE", socket.to_string_lossy().into_owned()),
        ("HEDDLE_SHARE_CLASS", class.cloned().unwrap_or_else(|| "lc".into())),
        ("HEDDLE_SHARE_NAME", name.to_string_lossy().into_owned()),
        ("HEDDLE_SHARE_CPUS", cpus::format(&cpus)),
    ])
}
