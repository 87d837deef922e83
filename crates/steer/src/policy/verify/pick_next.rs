//! A `pick_next` of agents: no steering policy, but compiled, read, checked and verified as one.

use std::path::Path;

use heddle_bpf::Fentry;

use super::super::check::check;
use super::super::compile::{CompileError, compile_pick_next};
use super::super::framed::{load_pick_next, pick_next_image};
use super::super::link::LinkError;
use super::super::load::LoadError;
use super::super::params::{ParamError, pairs, set_params, split_params};
use super::super::read::read;
use super::super::shipped::shipped_pick_next;
use super::{Problem, compiler, is_denied, kernel, start_of};

/// Why the file of a `pick_next` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PickNextError {
    /// It cannot be read, or there is no compiler.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Its parameters.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// What is wrong with it, and where.
    #[error("{0}")]
    Refused(Problem),
    /// The kernel loads no programs for this process.
    #[error("the kernel verifies programs for root only")]
    Denied,
    /// Its maps.
    #[error(transparent)]
    Load(LoadError),
}

/// Words about steering policies, and the same about a `pick_next`.
const WORDS: &[(&str, &str)] = &[
    ("static u32 schedule(struct hd_in *in)", "static u32 pick_next(struct hd_offers *offers)"),
    ("schedule", "pick_next"),
    ("no policy", "no pick_next"),
    ("than a policy does", "than a pick_next does"),
    (
        "the index of an executor, HD_PASS or HD_DROP",
        "the index of an offer, HD_IN_ORDER or HD_NONE",
    ),
    ("HD_MAX_EXECUTORS", "HD_OFFERS"),
    ("HD_PASS", "HD_IN_ORDER"),
    (
        "<heddle.h> only: it has the types, hd_load for the payload, maps",
        "<heddle/pick_next.h> only: it has the types, maps",
    ),
    ("; read the payload with hd_load, which needs no bounds", " or `i < HD_OFFERS`"),
    ("heddle.h", "heddle/pick_next.h"),
    ("policies can", "a pick_next can"),
    ("policies may", "a pick_next may"),
    ("what they define themselves", "what it defines itself"),
    ("has what they may", "has what it may"),
];

/// Compiles, checks and verifies a `pick_next`, with the parameters that are given after a colon: a shipped one by its
/// name, or a file, C or compiled by clang.
///
/// # Errors
/// See [`PickNextError`]; nothing is left in the kernel.
pub fn pick_next(given: &str) -> Result<Fentry, PickNextError> {
    let (name, parameters) = split_params(given);
    let bytes = match shipped_pick_next(name) {
        Some(shipped) => shipped.to_vec(),
        None => elf(Path::new(name))?,
    };
    let mut object = match read(&bytes) {
        Ok(object) => object,
        Err(error) => return refused(Problem::of(error.to_string())),
    };
    set_params(&mut object, &pairs(parameters)?)?;
    if let Err(why) = check(&object) {
        return refused(Problem { place: why.place.map(Into::into), ..Problem::of(why.why) });
    }
    match load_pick_next(&object) {
        Ok(code) => Ok(code),
        Err(LoadError::Refused(why)) if is_denied(&why) => Err(PickNextError::Denied),
        Err(LoadError::Refused(why)) => refused(kernel::explain_in(&why, &object, pick_next_image)),
        Err(LoadError::Link(LinkError::Undefined { name, .. })) => {
            refused(Problem::of(format!("it uses `{name}`, which is for steering policies")))
        }
        Err(error) => Err(PickNextError::Load(error)),
    }
}

fn elf(file: &Path) -> Result<Vec<u8>, PickNextError> {
    let bytes = start_of(file)?;
    if bytes.starts_with(b"\x7fELF") {
        return Ok(bytes);
    }
    match compile_pick_next(file) {
        Err(CompileError::Rejected(said)) => {
            // As it would be said of a steering policy, for which there are explanations.
            let said = said.replace("'pick_next'", "'schedule'");
            refused(compiler::explain(&said, &file.display().to_string()))
        }
        compiled => Ok(compiled?),
    }
}

fn refused<T>(problem: Problem) -> Result<T, PickNextError> {
    let translate = |text: String| {
        WORDS.iter().fold(text, |text, (steering, here)| text.replace(steering, here))
    };
    let Problem { place, what, advice, said } = problem;
    let [what, advice] = [what, advice].map(translate);
    let said = said.replace("'schedule'", "'pick_next'");
    Err(PickNextError::Refused(Problem { place, what, advice, said }))
}
