//! Steering from the command line: `heddle attach`, `detach`, `replace`, `ls`, `stats` and `map`.

mod advice;
pub mod attach;
mod below;
mod connect;
pub mod detach;
mod ended;
mod find;
mod follow;
mod living;
pub mod ls;
pub mod map;
mod numbers;
mod policy;
pub mod replace;
pub mod stats;
mod wanted;
mod which;

use heddle_steer::request::{Answer, Error, ErrorKind};

use crate::exit::Usage;

/// A refusal, as the command ends with it: what made no sense is wrong usage.
fn refused(error: Error) -> anyhow::Error {
    match error.kind {
        ErrorKind::Invalid => Usage(error.text).into(),
        _ => error.into(),
    }
}

/// An answer to another question: a mistake in Heddle, or a daemon of another version.
fn unexpected(answer: &Answer) -> anyhow::Error {
    anyhow::anyhow!(
        "an answer that does not fit the question (heddled of another version?): {answer:?}"
    )
}
