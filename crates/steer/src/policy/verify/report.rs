//! The report on a policy, as data and as text.

use std::fmt;

use serde::Serialize;

use super::super::check::{MAX_INSTRUCTIONS, MAX_MAP_BYTES};
use crate::hook::Hook;

/// Everything known about a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The requested name.
    pub policy: String,
    /// Lines of its source with code on them; unknown for a compiled one.
    pub lines: Option<usize>,
    /// Its own instructions, before it is in a frame.
    pub instructions: usize,
    /// Its maps, sections of variables included.
    pub maps: Vec<MapReport>,
    /// Its parameters.
    pub parameters: Vec<ParamReport>,
    /// The kernel facilities it uses.
    pub helpers: Vec<&'static str>,
    /// Problems at every hook.
    pub problem: Option<Problem>,
    /// The kernel's verdict at each hook, if the policy itself is sound.
    pub hooks: Vec<HookReport>,
}

/// A map of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MapReport {
    /// Its name.
    pub name: String,
    /// `array`, `hash`, `variables` or `constants`.
    pub kind: &'static str,
    /// How many values it can hold.
    pub entries: u32,
    /// Bytes of one.
    pub value_bytes: u32,
    /// Bytes of the kernel's memory, about.
    pub bytes: u64,
}

/// A parameter of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParamReport {
    /// Its name.
    pub name: String,
    /// What it means.
    pub meaning: String,
    /// Its value.
    pub value: u64,
    /// Its minimum.
    pub least: u64,
    /// Its maximum.
    pub most: u64,
}

/// The kernel's verdict on a policy at a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HookReport {
    /// The hook.
    pub hook: Hook,
    /// The verdict.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The outcome at a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Outcome {
    /// It can be deployed there.
    Fits {
        /// Instructions that the verifier visited over all paths, at most 1,000,000: a bound on the work of
        /// one decision.
        verified: u32,
        /// Bytes of machine code, with the frame.
        machine_bytes: u32,
    },
    /// It needs something that this hook lacks.
    DoesNotFit {
        /// What.
        why: String,
    },
    /// The kernel's verifier refuses it.
    Refused {
        /// Why.
        problem: Problem,
    },
    /// Unknown.
    NotChecked {
        /// Why not.
        why: String,
    },
}

/// A problem of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where.
    pub place: Option<SourceLine>,
    /// What is wrong.
    pub what: String,
    /// What to do; empty if `what` says it.
    pub advice: String,
    /// The compiler's or the kernel's own message; empty if Heddle found it.
    pub said: String,
}

/// A line of a policy's source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceLine {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The text of the line.
    pub text: String,
}

impl Problem {
    /// A problem that needs no further explanation.
    pub(super) fn of(what: String) -> Self {
        Self { what, ..Self::default() }
    }
}

impl Report {
    pub(super) fn new(policy: String) -> Self {
        let (maps, parameters, helpers, hooks) = (vec![], vec![], vec![], vec![]);
        Self {
            policy,
            lines: None,
            instructions: 0,
            maps,
            parameters,
            helpers,
            problem: None,
            hooks,
        }
    }

    pub(super) fn failed(self, problem: Problem) -> Self {
        Self { problem: Some(problem), ..self }
    }

    /// Returns whether it can be deployed at some hook, as far as could be checked.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let fits =
            |h: &HookReport| matches!(h.outcome, Outcome::Fits { .. } | Outcome::NotChecked { .. });
        let refused = |h: &HookReport| matches!(h.outcome, Outcome::Refused { .. });
        self.problem.is_none() && self.hooks.iter().any(fits) && !self.hooks.iter().any(refused)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            writeln!(f, "{}:{}: {}", place.file, place.line, self.what)?;
            writeln!(f, "    {}", place.text)?;
        } else {
            writeln!(f, "{}", self.what)?;
        }
        if !self.advice.is_empty() {
            writeln!(f, "  {}", self.advice)?;
        }
        for line in self.said.lines() {
            writeln!(f, "  | {line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {}",
            self.policy,
            if self.is_good() { "good" } else { "cannot be deployed" }
        )?;
        if let Some(problem) = &self.problem {
            write!(f, "\n{problem}")?;
        }
        if self.instructions > 0 {
            self.contents(f)?;
        }
        self.places(f)
    }
}

impl Report {
    fn contents(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        if let Some(lines) = self.lines {
            writeln!(f, "  lines of code   {lines}")?;
        }
        writeln!(f, "  instructions    {} of {MAX_INSTRUCTIONS}", self.instructions)?;
        if !self.helpers.is_empty() {
            writeln!(f, "  asks for        {}", self.helpers.join(", "))?;
        }
        for map in &self.maps {
            let MapReport { name, kind, entries, value_bytes, .. } = map;
            writeln!(f, "  {kind:<15} {name}: {entries} x {value_bytes} bytes")?;
        }
        let bytes: u64 = self.maps.iter().map(|map| map.bytes).sum();
        if bytes > 0 {
            writeln!(
                f,
                "  memory          {} of {} KiB",
                bytes.div_ceil(1024),
                MAX_MAP_BYTES >> 10
            )?;
        }
        for ParamReport { name, meaning, value, least, most } in &self.parameters {
            writeln!(f, "  parameter       {name}={value}: {meaning} ({least} to {most})")?;
        }
        Ok(())
    }

    /// Problems common to several hooks are reported once.
    fn places(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reported: Vec<String> = Vec::new();
        for HookReport { hook, outcome } in &self.hooks {
            let name = hook.name();
            match outcome {
                Outcome::Fits { verified, .. } => {
                    writeln!(f, "  {name:<15} fits; {verified} instructions verified, of 1000000")?;
                }
                Outcome::DoesNotFit { why } => writeln!(f, "  {name:<15} does not fit: {why}")?,
                Outcome::NotChecked { why } => writeln!(f, "  {name:<15} not checked: {why}")?,
                Outcome::Refused { problem } => {
                    let text = problem.to_string();
                    writeln!(f, "  {name:<15} refused by the kernel's verifier")?;
                    if !reported.contains(&text) {
                        write!(f, "\n{text}\n")?;
                        reported.push(text);
                    }
                }
            }
        }
        Ok(())
    }
}
