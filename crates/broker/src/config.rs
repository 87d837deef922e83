//! The file that describes a share.
//!
//! ```toml
//! cpus = "2-7"                # the CPUs that applications share
//! policy = "priority"         # how best-effort applications compare with latency-critical ones
//! slice = "3ms"               # how long one of weight 1024 keeps a CPU for which an equal waits
//! realtime = "auto"           # real-time workers: auto, always, never
//! priority = 10               # their priority
//!
//! [weights]                   # shares of applications among equals, by name
//! compaction = 512
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use heddle_core::{BestEffort, Ns, Policy};
use heddle_policies::{Visitor, names, nearest, with_policy};
use heddle_share::Kind;
use heddle_share::abi::{APPS, CPUS, PRIORITIES};
use toml::de::{DeTable, DeValue};

use crate::cpus;
use crate::paths::{Owner, UnusablePath, check_length};

/// The weight of an application that the file does not name.
const USUAL_WEIGHT: u32 = 1024;

/// The keys of a file.
const KEYS: [&str; 9] = [
    "cpus",
    "policy",
    "slice",
    "weights",
    "realtime",
    "priority",
    "whole_machine",
    "max_apps",
    "socket",
];

/// Whether active workers are real-time threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Realtime {
    /// If the broker may grant that.
    #[default]
    Auto,
    /// Always: a broker that may not grant it does not start.
    Always,
    /// Never.
    Never,
}

/// A share, as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The CPUs, sorted.
    pub cpus: Vec<u32>,
    /// The policy, as it is written.
    pub policy: String,
    /// What best-effort applications get compared with latency-critical ones, by the policy.
    pub best_effort: BestEffort,
    /// How long a member of weight 1024 keeps a CPU for which others of its rank wait.
    pub slice: Ns,
    /// Weights by the applications' names.
    pub weights: BTreeMap<String, u32>,
    /// Whether workers are real-time threads.
    pub realtime: Realtime,
    /// The lowest real-time priority of active workers; the broker's is five above it.
    pub priority: u32,
    /// Whether real-time workers may have all CPUs of the machine.
    pub whole_machine: bool,
    /// The most applications.
    pub max_apps: usize,
    /// The broker's socket, if it is not the default one.
    pub socket: Option<PathBuf>,
}

/// Why a file describes no share.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Its content is wrong.
    #[error("{}:{line}: {problem}", .file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key, and what is allowed.
        problem: String,
    },
}

impl Config {
    /// Reads the file.
    ///
    /// # Errors
    /// [`ConfigError`], with the line and what is allowed there.
    pub fn read(file: &Path) -> Result<Config, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { file: file.into(), source };
        Config::parse(&fs::read_to_string(file).map_err(unreadable)?, file)
    }

    /// Reads the text of `file`.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
        let wrong = |at: usize, problem: String| {
            let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
            ConfigError::Content { file: file.into(), line, problem }
        };
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            wrong(at, error.message().trim_end().replace('\n', "; "))
        })?;
        let mut config = Config::default();
        for (key, value) in table.get_ref() {
            let name = key.get_ref().as_ref();
            if !KEYS.contains(&name) {
                return Err(wrong(key.span().start, unknown_key(name)));
            }
            let set = config.set(name, value.get_ref());
            set.map_err(|problem| wrong(value.span().start, format!("`{name}`: {problem}")))?;
        }
        match config.cpus.is_empty() {
            true => Err(wrong(
                0,
                "there is no `cpus`, the list of shared CPUs, as in cpus = \"2-7\"".into(),
            )),
            false => Ok(config),
        }
    }

    fn set(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), String> {
        match key {
            "cpus" => self.cpus = cpu_list(value)?,
            "policy" => {
                self.policy = text(value, "the name of a policy, in quotes")?.into();
                self.best_effort = best_effort(&self.policy)?;
            }
            "slice" => self.slice = time(value)?,
            "weights" => self.weights = weights(value)?,
            "realtime" => self.realtime = realtime(value)?,
            // Two higher priorities are needed beside it.
            "priority" => self.priority = number(value, 1, 99 - PRIORITIES)?,
            "whole_machine" => {
                let DeValue::Boolean(whole) = value else { return Err(not("true or false")) };
                self.whole_machine = *whole;
            }
            "max_apps" => self.max_apps = number(value, 1, APPS as u32)? as usize,
            _ => {
                let path = PathBuf::from(text(value, "a path, in quotes")?);
                check_length(&path).map_err(|problem| problem.to_string())?;
                self.socket = Some(path);
            }
        }
        Ok(())
    }

    /// Returns where the broker of the share in `file` listens, if `owner` runs it: the path that the file gives, or a
    /// default that depends on the file's canonical path.
    ///
    /// # Errors
    /// [`UnusablePath::TooLong`].
    pub fn socket_path(&self, file: &Path, owner: &Owner) -> Result<PathBuf, UnusablePath> {
        let path = self.socket.clone().unwrap_or_else(|| owner.socket(file));
        check_length(&path)?;
        Ok(path)
    }

    /// Returns the rank and the weight of an application.
    #[must_use]
    pub fn place(&self, name: &str, kind: Kind) -> (u32, u32) {
        let is_best_effort = kind == Kind::BestEffort;
        let (rank, weight) = match self.best_effort {
            BestEffort::Below if is_best_effort => (1, USUAL_WEIGHT),
            BestEffort::Weight(weight) if is_best_effort => (0, weight.max(1)),
            _ => (0, USUAL_WEIGHT),
        };
        (rank, self.weights.get(name).copied().unwrap_or(weight))
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            cpus: Vec::new(),
            policy: "priority".into(),
            best_effort: BestEffort::Below,
            slice: Ns::from_ms(3),
            weights: BTreeMap::new(),
            realtime: Realtime::Auto,
            priority: 10,
            whole_machine: false,
            max_apps: APPS,
            socket: None,
        }
    }
}

fn unknown_key(name: &str) -> String {
    let hint = nearest(name, KEYS).map(|near| format!(", did you mean `{near}`?"));
    format!("no key `{name}`{}; there are: {}", hint.unwrap_or_default(), KEYS.join(", "))
}

fn not(expected: &str) -> String {
    format!("expected {expected}")
}

fn text<'a>(value: &'a DeValue<'_>, expected: &str) -> Result<&'a str, String> {
    match value {
        DeValue::String(text) => Ok(text),
        _ => Err(not(expected)),
    }
}

fn number(value: &DeValue<'_>, least: u32, most: u32) -> Result<u32, String> {
    let number = match value {
        DeValue::Integer(n) => u32::from_str_radix(n.as_str(), n.radix()).ok(),
        _ => None,
    };
    let in_range = number.filter(|number| (least..=most).contains(number));
    in_range.ok_or_else(|| not(&format!("a whole number from {least} to {most}")))
}

fn cpu_list(value: &DeValue<'_>) -> Result<Vec<u32>, String> {
    let cpus = cpus::parse(text(value, "a list of CPUs, in quotes, such as \"2-7,9\"")?)?;
    match cpus.len() <= CPUS {
        true => Ok(cpus),
        false => Err(format!("{} CPUs; a share has at most {CPUS}", cpus.len())),
    }
}

fn time(value: &DeValue<'_>) -> Result<Ns, String> {
    const EXPECTED: &str = "a time above zero, in quotes, for example \"3ms\", \"500us\" or \"1s\"";
    let time: Option<Ns> = text(value, EXPECTED)?.parse().ok();
    time.filter(|&time| time > Ns::ZERO).ok_or_else(|| not(EXPECTED))
}

fn realtime(value: &DeValue<'_>) -> Result<Realtime, String> {
    match value {
        DeValue::String(text) if text == "auto" => Ok(Realtime::Auto),
        DeValue::String(text) if text == "always" => Ok(Realtime::Always),
        DeValue::String(text) if text == "never" => Ok(Realtime::Never),
        _ => Err(not("\"auto\", \"always\" or \"never\"")),
    }
}

fn weights(value: &DeValue<'_>) -> Result<BTreeMap<String, u32>, String> {
    let DeValue::Table(table) = value else {
        return Err(not("a table of applications' names and weights, as in [weights]"));
    };
    let weight = |(name, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let name: &std::borrow::Cow<'_, str> = name.get_ref();
        match number(value.get_ref(), 1, 10_000) {
            Ok(weight) => Ok((name.to_string(), weight)),
            Err(problem) => Err(format!("weight of `{name}`: {problem}")),
        }
    };
    table.iter().map(weight).collect()
}

/// Returns a policy's terms for best-effort work; `None` if it has none that apply to applications.
struct Terms;

impl Visitor for Terms {
    type Out = Option<BestEffort>;

    fn visit<P: Policy>(self, policy: P) -> Self::Out {
        policy.fair_terms().map(|terms| terms.best_effort)
    }
}

fn best_effort(policy: &str) -> Result<BestEffort, String> {
    let terms = |text| with_policy(text, Terms).map_err(|error| error.to_string());
    terms(policy)?.ok_or_else(|| {
        let usable: Vec<&str> =
            names().filter(|name| terms(name).is_ok_and(|terms| terms.is_some())).collect();
        format!(
            "the policy `{policy}` orders the tasks of one program and says nothing about applications; use one of {}",
            usable.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("a.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn cpus_suffice_and_the_rest_has_defaults() {
        let config = parse("cpus = \"1\"").unwrap();
        assert_eq!(config, Config { cpus: vec![1], ..Config::default() });
        assert_eq!(config.place("x", Kind::Critical), (0, 1024));
        assert_eq!(config.place("x", Kind::BestEffort), (1, 1024));
    }

    #[test]
    fn every_key_is_read() {
        let config = parse(
            "cpus = \"0-1\"\npolicy = \"cfs\"\nslice = \"500us\"\nrealtime = \"never\"\npriority = 20\n\
             whole_machine = true\nmax_apps = 2\nsocket = \"/x/y.sock\"\n[weights]\nbatch = 64\n",
        )
        .unwrap();
        assert_eq!((&config.cpus[..], config.slice), (&[0, 1][..], Ns::from_us(500)));
        assert_eq!((config.realtime, config.priority), (Realtime::Never, 20));
        assert!(config.whole_machine && config.max_apps == 2);
        assert_eq!(config.socket, Some("/x/y.sock".into()));
        assert_eq!(config.place("batch", Kind::Critical), (0, 64));
        assert_eq!(config.place("other", Kind::BestEffort).0, 0, "cfs weighs, and ranks not");
        assert_eq!(
            parse("cpus = \"1\"\npolicy = \"round-robin\"").unwrap().best_effort,
            BestEffort::Alike
        );
    }

    #[test]
    fn errors_name_line_key_and_what_is_allowed() {
        let long = format!("cpus = \"1\"\nsocket = \"/{}\"", "x".repeat(107));
        for (text, says) in [
            ("", ["a.toml:1: ", "there is no `cpus`"]),
            ("cpus = ", ["a.toml:1: ", ""]),
            ("cpus = 1", ["a.toml:1: `cpus`", "\"2-7,9\""]),
            ("\ncpus = \"3-1\"", ["a.toml:2: `cpus`", "`3-1`"]),
            ("cpus = \"0-300\"", ["`cpus`", "at most 200"]),
            (
                "cpus = \"1\"\ncpu = 3",
                ["a.toml:2: no key `cpu`, did you mean `cpus`?", "slice, weights"],
            ),
            ("policy = \"two-queue\"", ["`policy`", "use one of "]),
            ("policy = \"prioritty\"", ["`policy`", "did you mean `priority`"]),
            ("slice = \"0ms\"", ["`slice`", "above zero"]),
            ("slice = 3", ["`slice`", "\"3ms\""]),
            ("[weights]\nx = 0", ["`weights`: weight of `x`", "1 to 10000"]),
            ("weights = 3", ["`weights`", "a table"]),
            ("realtime = \"maybe\"", ["`realtime`", "\"always\""]),
            ("priority = 95", ["`priority`", "1 to 94"]),
            ("max_apps = 33", ["`max_apps`", "1 to 32"]),
            ("whole_machine = 1", ["`whole_machine`", "true or false"]),
            (&long, ["a.toml:2: `socket`", "107 bytes"]),
        ] {
            let error = parse(text).unwrap_err();
            assert!(says.iter().all(|part| error.contains(part)), "{text}: {error}");
        }
    }

    #[test]
    fn a_policy_that_does_not_apply_is_refused_with_those_that_do() {
        let error = parse("policy = \"fifo\"").unwrap_err();
        for name in ["priority", "cfs", "eevdf", "round-robin", "shinjuku"] {
            assert!(error.contains(name), "{error}");
        }
    }

    fn owner(uid: u32, runtime_dir: Option<&str>) -> Owner {
        Owner { uid, runtime_dir: runtime_dir.map(PathBuf::from) }
    }

    #[test]
    fn each_file_and_user_has_a_socket() {
        let config = Config::default();
        let path = |file: &str, owner: &Owner| config.socket_path(Path::new(file), owner).unwrap();
        let root = path("/etc/my share.toml", &owner(0, Some("/run/user/0")));
        let name = root.to_str().unwrap();
        assert!(
            name.starts_with("/run/heddle/share/my_share-") && name.ends_with(".sock"),
            "{name}"
        );
        assert_eq!(root, path("/etc/my share.toml", &Owner::root()), "the same each time");
        assert_ne!(root.file_name(), path("/srv/my share.toml", &Owner::root()).file_name());
        let user = owner(7, Some("/run/user/7"));
        assert!(path("/a.toml", &user).starts_with("/run/user/7/heddle/share"));
        assert!(path("/a.toml", &owner(7, None)).starts_with("/tmp/heddle-7/share"));
        let given = Config { socket: Some("/x.sock".into()), ..config.clone() };
        assert_eq!(given.socket_path(Path::new("/a.toml"), &user).unwrap(), Path::new("/x.sock"));
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        let long = owner(7, Some(&format!("/{}", "x".repeat(90))));
        let error = Config::default().socket_path(Path::new("/a.toml"), &long).unwrap_err();
        assert!(error.to_string().contains("at most 107 bytes"), "{error}");
    }
}
