//! `heddle apply`, `diff`, `status` and `remove`: the policies of a service at several hooks, described by one file.
//! `docs/design/deploy.md` explains the design.

mod act;
pub mod apply;
pub mod diff;
mod enclave;
mod file;
mod plan;
mod record;
pub mod remove;
mod service;
mod show;
mod state;
pub mod status;
mod toml_table;
mod watch;

use std::path::PathBuf;

use anyhow::Context as _;
use heddle_steer::client::Steering;

use self::file::DeploymentFile;
use self::plan::Plan;
use self::record::{Record, Records};
use self::state::Current;
use crate::cmd::steer::refused;
use crate::exit::Usage;

/// Wrong content of a file is wrong usage.
fn usage(error: impl std::fmt::Display) -> anyhow::Error {
    Usage(error.to_string()).into()
}

/// Returns the user's records without the one called `name`.
fn others(records: &Records, name: &str) -> anyhow::Result<Vec<Record>> {
    let mut all = records.list()?;
    all.retain(|record| record.name != name);
    Ok(all)
}

/// A file compared with what is in force.
struct Comparison {
    record: Option<Record>,
    /// What the record describes.
    old: Option<DeploymentFile>,
    current: Current,
    plan: Plan,
}

impl Comparison {
    /// Compares `wanted` with what is in force. Hold the records' lock if something is to be done about it.
    fn of(steering: &Steering, records: &Records, wanted: &DeploymentFile) -> anyhow::Result<Self> {
        let record = records.read(&wanted.name)?;
        if let Some(record) = record.as_ref().filter(|record| record.file != wanted.path) {
            let text = format!(
                "deployment `{}` is that of {}: remove it first (`heddle remove {0}`), or give {} another `name`",
                record.name,
                record.file.display(),
                wanted.path.display()
            );
            return Err(usage(text));
        }
        let old = record.as_ref().map(Record::deployment).transpose()?;
        let others = others(records, &wanted.name)?;
        // The file may mean another user's service now.
        let current = Current::of(steering, wanted, service::ServiceIdentity::default(), &others)?;
        let plan = plan::plan(wanted, &current, record.as_ref(), old.as_ref())?;
        Ok(Self { record, old, current, plan })
    }
}

/// Returns the record that a name or a file's path means.
fn named(records: &Records, which: &str) -> anyhow::Result<Record> {
    let path = std::path::absolute(which).unwrap_or_else(|_| PathBuf::from(which));
    let all = records.list()?;
    let found = all
        .iter()
        .find(|record| record.file == path)
        .or_else(|| all.iter().find(|record| record.name == which));
    found.cloned().with_context(|| {
        let names: Vec<&str> = all.iter().map(|record| record.name.as_str()).collect();
        let names = if names.is_empty() { "none".into() } else { names.join(", ") };
        format!("nothing was applied from {which}; deployments: {names}")
    })
}
