//! Everything needed to deploy a policy, from a program's point of view.

use std::os::fd::OwnedFd;
use std::path::Path;

use crate::hook::Hook;
use crate::policy::{CompileError, compile, pairs, split_params};
use crate::process::command;
use crate::request::{Error, ErrorKind, PacketTarget, Policy, Request, Role};

/// A policy and what it steers, for [`super::Steering::attach`].
#[derive(Debug)]
pub struct Deployment {
    policy: Policy,
    hook: Hook,
    below: Option<PacketTarget>,
    pid: u32,
    given: Vec<(Role, OwnedFd)>,
}

impl Deployment {
    /// Deploys `policy` at `hook` for this process.
    #[must_use]
    pub fn new(policy: Policy, hook: Hook) -> Self {
        Self { policy, hook, below: None, pid: std::process::id(), given: Vec::new() }
    }

    /// Adds an executor at the next index.
    #[must_use]
    pub fn executor(self, label: impl Into<String>, fd: OwnedFd) -> Self {
        let is_executor = |(role, _): &&(Role, OwnedFd)| matches!(role, Role::Executor { .. });
        let index = self.given.iter().filter(is_executor).count();
        let role =
            Role::Executor { index: u32::try_from(index).unwrap_or(u32::MAX), label: label.into() };
        self.with(role, fd)
    }

    /// Adds a descriptor in another role.
    #[must_use]
    pub fn with(mut self, role: Role, fd: OwnedFd) -> Self {
        self.given.push((role, fd));
        self
    }

    /// Uses `map`, of another attachment, instead of the map that the policy declares as `name`.
    #[must_use]
    pub fn share(self, name: impl Into<String>, map: OwnedFd) -> Self {
        self.with(Role::Map { name: name.into() }, map)
    }

    /// Sets where packets are intercepted, for hooks below sockets.
    #[must_use]
    pub fn below(self, below: PacketTarget) -> Self {
        Self { below: Some(below), ..self }
    }

    /// Sets the process that is steered, if it is not this one.
    #[must_use]
    pub fn process(self, pid: u32) -> Self {
        Self { pid, ..self }
    }

    pub(super) fn request(self) -> (Request, Vec<OwnedFd>) {
        let (roles, fds) = self.given.into_iter().unzip();
        let Self { policy, hook, below, pid, .. } = self;
        // For display only, so it is truncated.
        let command = command(pid).chars().take(256).collect();
        (Request::Attach { policy, hook, below, pid, command, roles }, fds)
    }
}

/// Resolves the text of a policy: `sita`, `sita:scan=2`, or a file, `./mine.c` (compiled here, as this user)
/// or `mine.o`.
///
/// # Errors
/// If the file cannot be read or does not compile.
pub fn policy_of(text: &str) -> Result<Policy, Error> {
    let (name, parameters) = split_params(text);
    let parameters =
        pairs(parameters).map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
    let path = Path::new(name);
    let object = match path.extension().and_then(|extension| extension.to_str()) {
        Some("c") => Some(compile(path).map_err(|error| not_compiled(name, &error))?),
        Some("o") => Some(
            std::fs::read(path)
                .map_err(|error| Error::system(format!("cannot read {name}"), &error))?,
        ),
        _ => None,
    };
    let stem = path.file_stem().map_or(name.into(), |stem| stem.to_string_lossy());
    let name = if object.is_some() { stem.into_owned() } else { name.to_owned() };
    Ok(Policy { name, parameters, object })
}

/// The compiler's messages name lines of the file, but not always the file.
fn not_compiled(file: &str, error: &CompileError) -> Error {
    let text = match error {
        CompileError::Rejected(_) => format!("{file} does not compile:\n{error}"),
        other => other.to_string(),
    };
    Error::new(ErrorKind::Invalid, text)
}
