//! The options of the pass, which begin with `--heddle-`, and the variable `HEDDLE_PROBES` by which it gets them.
//!
//! The variable's grammar is `placement=bounded,check=clock,period=2000,report=/absolute/path`; each part may be
//! missing. Users may set it too, for builds whose command lines they do not write. Options override it.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::search::variable;

/// The variable that carries the options to the pass.
pub const VARIABLE: &str = "HEDDLE_PROBES";

/// Where the options begin.
const PREFIX: &str = "--heddle-";

/// The report's name if the option gives none; it is written to the compiler's current folder.
const REPORT: &str = "heddle-report.jsonl";

/// The values of a period, in the pass's units of cost.
const PERIODS: RangeInclusive<u32> = 50..=1_000_000;

/// Where probes are placed.
const PLACEMENTS: [&str; 3] = ["bounded", "naive", "none"];

/// What a probe looks at.
const CHECKS: [&str; 2] = ["clock", "flag"];

/// The options with their values, for messages.
const VALID: &str = "--heddle-report[=FILE], --heddle-placement=bounded|naive|none, \
                     --heddle-check=clock|flag, --heddle-period=N";

/// Options of the pass; what is not set is left to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    placement: Option<&'static str>,
    check: Option<&'static str>,
    period: Option<u32>,
    report: Option<PathBuf>,
}

impl Options {
    /// Takes the options out of a command line, up to `--`, and adds those of the environment. Returns them and
    /// what remains of the command line.
    ///
    /// # Errors
    /// If an option or its value is not valid, or the variable is not.
    pub fn take(arguments: Vec<OsString>) -> Result<(Options, Vec<OsString>), Error> {
        let mut options = match variable(VARIABLE) {
            Some(text) => Options::parse(&text)?,
            None => Options::default(),
        };
        let current = std::env::current_dir().unwrap_or_default();
        let rest = options.take_from(arguments, &current)?;
        options.check_report()?;
        Ok((options, rest))
    }

    /// Parses a value of [`VARIABLE`].
    fn parse(text: &OsStr) -> Result<Options, Error> {
        let wrong = |what: &dyn Display| {
            let shown = text.to_string_lossy();
            Error::Usage(format!(
                "{VARIABLE}={shown}: {what}; its form is \
                 placement=bounded|naive|none,check=clock|flag,period=N,report=/PATH, each part optional"
            ))
        };
        let mut options = Options::default();
        for part in text.as_bytes().split(|byte| *byte == b',').filter(|part| !part.is_empty()) {
            let (key, value) = split(part);
            let value = value.unwrap_or_default();
            options.set(&key, value, None).map_err(|what| wrong(&what))?;
        }
        Ok(options)
    }

    fn take_from(&mut self, all: Vec<OsString>, current: &Path) -> Result<Vec<OsString>, Error> {
        let mut rest = Vec::with_capacity(all.len());
        let mut all = all.into_iter();
        for argument in all.by_ref() {
            match argument.as_bytes().strip_prefix(PREFIX.as_bytes()) {
                Some(option) => {
                    let (key, value) = split(option);
                    let value = value.unwrap_or(match &*key {
                        "report" => OsStr::new(REPORT),
                        _ => OsStr::new(""),
                    });
                    self.set(&key, value, Some(current)).map_err(|what| {
                        let shown = argument.to_string_lossy();
                        Error::Usage(format!("{shown}: {what}; the options are {VALID}"))
                    })?;
                }
                None if argument == "--" => {
                    rest.push(argument);
                    break;
                }
                None => rest.push(argument),
            }
        }
        rest.extend(all);
        Ok(rest)
    }

    /// Sets an option, or says what is wrong. A relative path is allowed only if there is a `current` folder.
    fn set(&mut self, key: &str, value: &OsStr, current: Option<&Path>) -> Result<(), String> {
        let text = value.to_str().unwrap_or_default();
        match key {
            "placement" => self.placement = Some(one_of(text, &PLACEMENTS)?),
            "check" => self.check = Some(one_of(text, &CHECKS)?),
            "period" => {
                let period = text.parse().ok().filter(|period| PERIODS.contains(period));
                let (least, most) = PERIODS.into_inner();
                self.period = Some(
                    period
                        .ok_or_else(|| format!("the period is a number from {least} to {most}"))?,
                );
            }
            "report" => self.report = Some(report(value, current)?),
            _ => return Err(format!("there is no option {key:?}")),
        }
        Ok(())
    }

    /// The pass cannot ask for a folder that is missing, so it is asked for here.
    fn check_report(&self) -> Result<(), Error> {
        let folder = self.report.as_deref().and_then(Path::parent);
        match folder.filter(|folder| !folder.is_dir()) {
            Some(folder) => Err(Error::Usage(format!(
                "the folder of the report, {}, does not exist; create it first",
                folder.display()
            ))),
            None => Ok(()),
        }
    }

    /// Returns the value of [`VARIABLE`] for the pass, or `None` if no option is set.
    pub fn to_variable(&self) -> Option<OsString> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        parts.extend(self.placement.map(|name| format!("placement={name}").into()));
        parts.extend(self.check.map(|name| format!("check={name}").into()));
        parts.extend(self.period.map(|period| format!("period={period}").into()));
        let report = self.report.as_ref();
        parts.extend(report.map(|path| [b"report=", path.as_os_str().as_bytes()].concat()));
        (!parts.is_empty()).then(|| OsString::from_vec(parts.join(&b',')))
    }
}

/// Splits `key=value`.
fn split(text: &[u8]) -> (String, Option<&OsStr>) {
    let mut parts = text.splitn(2, |byte| *byte == b'=');
    let key = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    (key, parts.next().map(OsStr::from_bytes))
}

fn one_of(text: &str, names: &[&'static str]) -> Result<&'static str, String> {
    let known = names.iter().find(|name| **name == text).copied();
    known.ok_or_else(|| format!("{text:?} is none of {}", names.join(", ")))
}

fn report(value: &OsStr, current: Option<&Path>) -> Result<PathBuf, String> {
    if value.is_empty() {
        return Err("the report needs the name of a file".into());
    }
    if value.as_bytes().iter().any(|byte| b",\n".contains(byte)) {
        return Err("the report's path must not contain a comma or a newline".into());
    }
    let path = Path::new(value);
    match current {
        Some(current) => Ok(current.join(path)),
        None if path.is_absolute() => Ok(path.to_owned()),
        None => Err("the report's path must be absolute".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    /// Returns the variable that results from a command line, and the rest of the line.
    fn taken(line: &str) -> Result<(String, String), String> {
        let mut options = Options::default();
        let rest = options.take_from(words(line), Path::new("/w")).map_err(|e| e.to_string())?;
        let variable = options.to_variable().unwrap_or_default().into_string().unwrap();
        Ok((variable, rest.join(OsStr::new(" ")).into_string().unwrap()))
    }

    #[test]
    fn options_are_taken_out_of_the_command_line() {
        let all = "--heddle-check=flag -c --heddle-period=50 a.c --heddle-placement=naive --heddle-report=r";
        let (variable, rest) = taken(all).unwrap();
        assert_eq!(variable, "placement=naive,check=flag,period=50,report=/w/r");
        assert_eq!(rest, "-c a.c");
        assert_eq!(taken("-c a.c").unwrap(), (String::new(), "-c a.c".into()));
    }

    #[test]
    fn a_report_without_a_name_is_in_the_current_folder() {
        assert_eq!(taken("--heddle-report a.c").unwrap().0, "report=/w/heddle-report.jsonl");
        assert_eq!(taken("--heddle-report=/tmp/x a.c").unwrap().0, "report=/tmp/x");
    }

    #[test]
    fn what_follows_two_dashes_is_not_ours() {
        assert_eq!(taken("run -- --heddle-x").unwrap().1, "run -- --heddle-x");
    }

    #[test]
    fn wrong_options_are_refused_with_the_valid_ones() {
        for (line, says) in [
            ("--heddle-speed=9", "there is no option \"speed\""),
            ("--heddle-placement", "\"\" is none of bounded, naive, none"),
            ("--heddle-check=never", "\"never\" is none of clock, flag"),
            ("--heddle-period=49", "from 50 to 1000000"),
            ("--heddle-period=1000001", "from 50 to 1000000"),
            ("--heddle-report=", "the name of a file"),
            ("--heddle-report=a,b", "must not contain a comma"),
        ] {
            let error = taken(line).unwrap_err();
            assert!(error.starts_with(line) && error.contains(says), "{error}");
            assert!(error.contains("--heddle-report[=FILE], --heddle-placement="), "{error}");
        }
    }

    #[test]
    fn the_variable_has_the_grammar_that_it_is_written_in() {
        let text = "placement=none,check=clock,period=1000000,report=/r=1";
        let options = Options::parse(OsStr::new(text)).unwrap();
        assert_eq!(options.to_variable().unwrap(), text);
        assert_eq!(Options::parse(OsStr::new("")).unwrap(), Options::default());
        for wrong in ["report=r", "period", "placement=all", "speed=1", "bounded"] {
            let error = Options::parse(OsStr::new(wrong)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("HEDDLE_PROBES={wrong}: ")), "{error}");
        }
    }

    #[test]
    fn options_override_the_variable() {
        let mut options = Options::parse(OsStr::new("check=flag,period=70")).unwrap();
        options.take_from(words("--heddle-period=80"), Path::new("/")).unwrap();
        assert_eq!(options.to_variable().unwrap(), "check=flag,period=80");
    }

    #[test]
    fn the_folder_of_a_report_must_exist() {
        let mut options = Options::default();
        options.take_from(words("--heddle-report=/no/such/folder/r"), Path::new("/")).unwrap();
        let error = options.check_report().unwrap_err().to_string();
        assert!(error.contains("/no/such/folder, does not exist"), "{error}");
    }
}
