//! Carrying out a plan: all of it, or nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use heddle_steer::client::Steering;
use heddle_steer::process::server;
use heddle_steer::request::Policy;

use super::enclave;
use super::file::{DeploymentFile, SteerSection};
use super::plan::{Action, Plan, Step};
use super::record::{AttachmentRecord, Record, Records};
use super::refused;
use super::service::ServiceProcesses;
use super::state::{self, SteerTarget};
use crate::cmd::steer::selector::Selector;
use crate::cmd::steer::{attach, detach, packets};

/// How to undo a step.
enum Undo {
    Detach(u32),
    Attach { section: Box<SteerSection>, record: AttachmentRecord },
    Replace { id: u32, old: Policy },
    StopAgent,
    StartAgent,
    UpgradeAgent(String),
}

/// Carries out the steps of a plan.
pub struct Executor<'a> {
    pub steering: &'a Steering,
    pub records: &'a Records,
    pub wanted: &'a DeploymentFile,
    /// What the record describes, to restore it.
    pub old: Option<&'a DeploymentFile>,
    pub processes: &'a ServiceProcesses,
    pub record: Record,
    undo: Vec<Undo>,
}

impl<'a> Executor<'a> {
    /// Starts from `record`, of which `plan.kept` stays.
    pub fn new(
        steering: &'a Steering,
        records: &'a Records,
        wanted: &'a DeploymentFile,
        old: Option<&'a DeploymentFile>,
        processes: &'a ServiceProcesses,
        mut record: Record,
        plan: &Plan,
    ) -> Self {
        // A section may have another name now.
        for one in &mut record.attachments {
            if let Some(kept) = plan.kept.iter().find(|kept| kept.id == one.id) {
                one.clone_from(kept);
            }
        }
        Self { steering, records, wanted, old, processes, record, undo: Vec::new() }
    }

    /// Carries out all steps. If one fails, or `stop` is set, undoes the earlier ones; the error says what could not
    /// be undone. Returns whether all were carried out.
    pub fn all(&mut self, plan: &Plan, stop: &AtomicBool) -> anyhow::Result<bool> {
        self.records.write(&self.record)?;
        for step in &plan.steps {
            if stop.load(Ordering::Relaxed) {
                return self.undo().map(|()| false);
            }
            let done = self.step(step).and_then(|()| self.records.write(&self.record));
            if let Err(error) = done {
                let error = error.context(format!(
                    "{}: `{}`: cannot {}; earlier steps were undone",
                    self.wanted.path.display(),
                    step.section,
                    step.what
                ));
                return Err(match self.undo() {
                    Ok(()) => error,
                    Err(left) => left.context(error),
                });
            }
        }
        Ok(true)
    }

    /// Carries out one step.
    pub fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        match &step.action {
            Action::Attach { section, target } => {
                let section = &self.wanted.steer[*section];
                let id = self.attach(section, target)?;
                self.undo.push(Undo::Detach(id));
            }
            Action::Adopt { section, target, id } => {
                self.record.attachments.push(AttachmentRecord {
                    section: self.wanted.steer[*section].name.clone(),
                    target: target.name.clone(),
                    namespace: target.namespace,
                    id: *id,
                });
            }
            Action::Replace { section, id, old } => {
                let policy = self.wanted.steer[*section].policy.clone();
                self.steering.replace(*id, policy).map_err(refused)?;
                self.undo.push(Undo::Replace { id: *id, old: old.clone() });
            }
            Action::Add { id, sockets } => {
                for socket in sockets {
                    // One that cannot be copied is closed already.
                    let Ok(copy) = socket.copy() else { continue };
                    let added = self.steering.add_executor(*id, None, socket.label(), copy);
                    added.map_err(refused)?;
                }
            }
            Action::Detach { id, restore } => self.detach(*id, restore.as_ref())?,
            Action::StartAgent => {
                self.start_agent(self.wanted)?;
                self.undo.push(Undo::StopAgent);
            }
            Action::UpgradeAgent { old } => {
                let policy = self.wanted.agent.as_ref().map(|agent| agent.policy.as_str());
                enclave::upgrade(&self.wanted.name, policy.unwrap_or_default())?;
                self.undo.push(Undo::UpgradeAgent(old.clone()));
            }
            Action::RestartAgent => {
                self.stop_agent()?;
                self.start_agent(self.wanted)?;
                self.undo.push(Undo::StopAgent);
            }
            Action::StopAgent => self.stop_agent()?,
        }
        Ok(())
    }

    fn attach(&mut self, section: &SteerSection, target: &SteerTarget) -> anyhow::Result<u32> {
        let sockets: Vec<_> = target.sockets().cloned().collect();
        let pid = self.processes.first.map(|first| first.pid).or_else(|| server(&sockets));
        let selector = Selector { pid, ..section.selector.clone() };
        let (steering, policy) = (self.steering, &section.policy);
        let attached = match &section.packets {
            None => attach::attach_group(steering, &selector, policy, target.groups[0].clone())?,
            Some(below) => {
                packets::attach(steering, &selector, policy, below, target.groups.clone())?
            }
        };
        let id = attached.attachment.id;
        self.record.attachments.push(AttachmentRecord {
            section: section.name.clone(),
            target: target.name.clone(),
            namespace: target.namespace,
            id,
        });
        Ok(id)
    }

    fn detach(&mut self, id: u32, restore: Option<&SteerSection>) -> anyhow::Result<()> {
        let list = self.steering.list().map_err(refused)?;
        if let Some(attachment) = list.iter().find(|one| one.id == id) {
            detach::one(self.steering, attachment).map_err(refused)?;
        }
        let at = self.record.attachments.iter().position(|one| one.id == id);
        let record = at.map(|at| self.record.attachments.remove(at));
        if let (Some(section), Some(record)) = (restore.cloned(), record) {
            self.undo.push(Undo::Attach { section: section.into(), record });
        }
        Ok(())
    }

    fn start_agent(&mut self, of: &DeploymentFile) -> anyhow::Result<()> {
        let agent = of.agent.as_ref().ok_or_else(|| anyhow::anyhow!("no [agent]"))?;
        let service = of.service.agent_options(self.processes).ok_or_else(|| {
            anyhow::anyhow!("no process of {} was found, whose threads to schedule", of.service)
        })?;
        let class_map = agent.class_map.as_deref().map(|section| self.class_map(section));
        let log = self.records.log(&of.name);
        let started = enclave::start(&of.name, agent, &service, class_map.transpose()?, &log)?;
        self.record.agent = Some(started);
        Ok(())
    }

    /// Returns the only attachment of a section.
    fn class_map(&self, section: &str) -> anyhow::Result<u32> {
        let of_it = self.record.attachments.iter().filter(|one| one.section == section);
        match of_it.map(|one| one.id).collect::<Vec<_>>()[..] {
            [id] => Ok(id),
            [] => anyhow::bail!("`{section}`, the section of `class-map`, has no attachment"),
            _ => anyhow::bail!(
                "`{section}`, the section of `class-map`, has several attachments, and an agent reads one: give \
                    the section one port, one protocol and one `address`"
            ),
        }
    }

    fn stop_agent(&mut self) -> anyhow::Result<()> {
        enclave::stop(&self.wanted.name)?;
        if self.record.agent.take().is_some() && self.old.is_some_and(|old| old.agent.is_some()) {
            self.undo.push(Undo::StartAgent);
        }
        Ok(())
    }

    /// Undoes what was done, the last step first, as far as possible.
    fn undo(&mut self) -> anyhow::Result<()> {
        let mut failed: Option<anyhow::Error> = None;
        while let Some(undo) = self.undo.pop() {
            if let Err(error) = self.undo_one(undo) {
                failed = Some(match failed {
                    None => error,
                    Some(before) => error.context(before),
                });
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn undo_one(&mut self, undo: Undo) -> anyhow::Result<()> {
        match undo {
            Undo::Detach(id) => self.detach(id, None),
            Undo::Attach { section, record } => {
                let targets = state::targets(&section, self.processes, &mut Vec::new());
                let targets = targets.map_err(anyhow::Error::msg)?;
                match targets.iter().find(|target| target.name == record.target) {
                    Some(target) => self.attach(&section, target).map(drop),
                    None => anyhow::bail!("{} is not served any more", record.target),
                }
            }
            Undo::Replace { id, old } => self.steering.replace(id, old).map_err(refused),
            Undo::StopAgent => {
                self.record.agent = None;
                enclave::stop(&self.wanted.name)
            }
            Undo::StartAgent => match self.old {
                Some(old) => self.start_agent(old),
                None => Ok(()),
            },
            Undo::UpgradeAgent(old) => enclave::upgrade(&self.wanted.name, &old),
        }
    }
}
