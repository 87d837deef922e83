//! The plan: the steps from what there is to what a file describes. Pure, so `apply`, `diff`, `remove` and the watch
//! agree.

use std::collections::BTreeSet;

use anyhow::bail;
use heddle_steer::policy::{read, shipped_names};
use heddle_steer::process::Serving;
use heddle_steer::request::{Attachment, Policy, Status};

use super::file::{AgentSection, DeploymentFile, SteerSection};
use super::record::{AttachmentRecord, Record};
use super::state::{Current, SteerTarget};
use crate::cmd::steer::policy::display;

/// What a step does.
#[derive(Clone, Debug)]
pub enum Action {
    Attach {
        section: usize,
        target: SteerTarget,
    },
    /// Keeps an attachment that no deployment had.
    Adopt {
        section: usize,
        target: SteerTarget,
        id: u32,
    },
    Replace {
        section: usize,
        id: u32,
        old: Policy,
    },
    Add {
        id: u32,
        sockets: Vec<Serving>,
    },
    /// `restore` is the section that it was attached for.
    Detach {
        id: u32,
        restore: Option<SteerSection>,
    },
    StartAgent,
    UpgradeAgent {
        old: String,
    },
    /// Stops the enclave, and starts it with other options.
    RestartAgent,
    StopAgent,
}

/// A step of a plan, with the words for it.
#[derive(Clone, Debug)]
pub struct Step {
    pub action: Action,
    /// The section, or `agent`.
    pub section: String,
    /// What it does: `attach jiq to 4 sockets at tcp 0.0.0.0:8000`.
    pub what: String,
    /// Why, and what the service notices.
    pub why: String,
}

/// The steps, in order, and the attachments that stay.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub kept: Vec<AttachmentRecord>,
    /// Sections for which there is nothing to attach to, with the reason.
    pub absent: Vec<(String, String)>,
}

impl Step {
    /// `+`, `~` or `-`, as `diff` prints.
    pub fn sign(&self) -> char {
        match self.action {
            Action::Attach { .. } | Action::StartAgent => '+',
            Action::Detach { .. } | Action::StopAgent => '-',
            _ => '~',
        }
    }
}

/// Plans the way from `current` to what `wanted` describes. `record` is the deployment's, and `old` the file that it
/// records.
pub fn plan(
    wanted: &DeploymentFile,
    current: &Current,
    record: Option<&Record>,
    old: Option<&DeploymentFile>,
) -> anyhow::Result<Plan> {
    let mut planner = Planner { wanted, current, record, old, plan: Plan::default() };
    for (index, targets) in current.targets.iter().enumerate() {
        let section = &wanted.steer[index];
        match targets {
            Ok(targets) => {
                for target in targets {
                    planner.steer(index, target)?;
                }
            }
            Err(why) => planner.absent(section, why),
        }
    }
    planner.agent()?;
    planner.detach_the_rest();
    Ok(planner.plan)
}

/// Plans the way to nothing.
pub fn removal(record: &Record, current: &Current) -> Plan {
    let mut plan = Plan::default();
    if record.agent.is_some() && is_ours(record, current) {
        plan.push("agent", Action::StopAgent, stop_text(&record.name), "the deployment ends");
    }
    for one in record.attachments.iter().rev() {
        if let Some(attachment) = current.attachment(one.id) {
            let what = detach_text(attachment, &one.target);
            let action = Action::Detach { id: one.id, restore: None };
            plan.push(&one.section, action, what, "the deployment ends; the kernel chooses again");
        }
    }
    plan
}

impl Plan {
    fn push(&mut self, section: &str, action: Action, what: String, why: impl Into<String>) {
        self.steps.push(Step { action, section: section.into(), what, why: why.into() });
    }
}

struct Planner<'a> {
    wanted: &'a DeploymentFile,
    current: &'a Current,
    record: Option<&'a Record>,
    old: Option<&'a DeploymentFile>,
    plan: Plan,
}

impl<'a> Planner<'a> {
    fn push(&mut self, section: &str, action: Action, what: String, why: impl Into<String>) {
        self.plan.push(section, action, what, why);
    }

    fn absent(&mut self, section: &SteerSection, why: &str) {
        self.plan.absent.push((section.name.clone(), why.into()));
        // What is attached stays: the sockets may be there again in an instant.
        let there = self.recorded().filter(|one| one.section == section.name).cloned();
        let there: Vec<_> = there.filter(|one| self.current.attachment(one.id).is_some()).collect();
        self.plan.kept.extend(there);
    }

    fn recorded(&self) -> impl Iterator<Item = &'a AttachmentRecord> + use<'a> {
        self.record.into_iter().flat_map(|record| &record.attachments)
    }

    fn old_section(&self, name: &str) -> Option<&'a SteerSection> {
        self.old?.steer.iter().find(|section| section.name == name)
    }

    fn steer(&mut self, index: usize, target: &SteerTarget) -> anyhow::Result<()> {
        let (wanted, current) = (self.wanted, self.current);
        let section = &wanted.steer[index];
        let is_it = |one: &&AttachmentRecord| {
            one.target == target.name && one.namespace == target.namespace
        };
        let recorded = self.recorded().filter(is_it);
        let recorded = recorded.filter_map(|one| Some((one, current.attachment(one.id)?))).next();
        match recorded {
            Some((one, attachment)) => self.existing(index, target, attachment, Some(one)),
            None => match current.at_sockets(target) {
                Some(attachment) => self.existing(index, target, attachment, None),
                None => {
                    self.attach(
                        index,
                        target,
                        &format!(
                            "nothing is attached there, and {} asks for it",
                            self.place(section.line)
                        ),
                    );
                    Ok(())
                }
            },
        }
    }

    /// `line 6`
    fn place(&self, line: usize) -> String {
        format!("line {line}")
    }

    fn attach(&mut self, index: usize, target: &SteerTarget, why: &str) {
        let section = &self.wanted.steer[index];
        let policy = display(&section.policy.name, &section.policy.parameters);
        let what = match &section.packets {
            None => format!(
                "attach {policy} to {} sockets at {}",
                target.sockets().count(),
                target.name
            ),
            Some(packets) => format!(
                "attach {policy}, which chooses among {} CPUs, to packets for {}",
                packets.cpus.len(),
                target.name
            ),
        };
        let why = format!("{why}; the service is neither changed nor restarted");
        self.push(
            &section.name,
            Action::Attach { section: index, target: target.clone() },
            what,
            why,
        );
    }

    fn existing(
        &mut self,
        index: usize,
        target: &SteerTarget,
        attachment: &Attachment,
        recorded: Option<&AttachmentRecord>,
    ) -> anyhow::Result<()> {
        let section = &self.wanted.steer[index];
        let id = attachment.id;
        if let Some(owner) = self.current.owners.get(&id) {
            bail!(
                "{}:{}: `{}`: attachment {id} at {} belongs to deployment `{owner}`: remove it first (`heddle \
                    remove {owner}`), or leave these sockets to it",
                self.wanted.path.display(),
                section.line,
                section.name,
                target.name
            );
        }
        if recorded.is_none() && attachment.uid != rustix::process::geteuid().as_raw() {
            bail!(
                "{}:{}: `{}`: attachment {id} at {} is user {}'s: detach it first (`heddle steer detach {id}`)",
                self.wanted.path.display(),
                section.line,
                section.name,
                target.name,
                attachment.uid
            );
        }
        let before = recorded.and_then(|one| self.old_section(&one.section));
        let packets = before.map(|before| &before.packets);
        if packets.is_some_and(|packets| *packets != section.packets) {
            let what = detach_text(attachment, &target.name);
            let action = Action::Detach { id, restore: before.cloned() };
            self.push(
                &section.name,
                action,
                what,
                "its interface or CPUs changed, which takes another attachment",
            );
            self.attach(index, target, "with the new interface and CPUs");
            return Ok(());
        }
        if recorded.is_none() {
            let what = format!("keep attachment {id} at {}, which no deployment had", target.name);
            let action = Action::Adopt { section: index, target: target.clone(), id };
            self.push(&section.name, action, what, "it steers the same sockets");
        }
        self.plan.kept.push(AttachmentRecord {
            section: section.name.clone(),
            target: target.name.clone(),
            namespace: target.namespace,
            id,
        });
        self.policy(index, target, attachment, before.map(|before| &before.policy))?;
        self.sockets(section, target, attachment);
        Ok(())
    }

    fn policy(
        &mut self,
        index: usize,
        target: &SteerTarget,
        attachment: &Attachment,
        before: Option<&Policy>,
    ) -> anyhow::Result<()> {
        let section = &self.wanted.steer[index];
        let is_named = |policy: &Policy| {
            policy.name == attachment.policy && policy.parameters == attachment.parameters
        };
        let before = before.filter(|before| is_named(before));
        // What is attached is known by its name; the code of a file of the user's own is known from the record.
        let is_same = match before {
            Some(before) => is_same_policy(before, &section.policy),
            None => is_named(&section.policy) && section.policy.object.is_none(),
        };
        if is_same && attachment.status == Status::Active {
            return Ok(());
        }
        let is_shipped = shipped_names().any(|name| name == attachment.policy);
        let old = match before {
            Some(before) => before.clone(),
            None if is_shipped => Policy {
                name: attachment.policy.clone(),
                parameters: attachment.parameters.clone(),
                object: None,
            },
            None => bail!(
                "{}:{}: `{}`: attachment {} at {} has policy `{}` of a file, which could not be restored if a later \
                    step failed: detach it first (`heddle steer detach {}`)",
                self.wanted.path.display(),
                section.line,
                section.name,
                attachment.id,
                target.name,
                attachment.policy,
                attachment.id
            ),
        };
        let (from, to) = (
            display(&attachment.policy, &attachment.parameters),
            display(&section.policy.name, &section.policy.parameters),
        );
        let change = if from == to { format!("{to} (changed)") } else { format!("{from} by {to}") };
        let what = format!("replace {change} at {}, attachment {}", target.name, attachment.id);
        let why = match &attachment.status {
            Status::Evicted(why) => format!("heddled evicted it: {why}"),
            Status::Active => format!("{} asks for it", self.place(section.line)),
        };
        let why =
            format!("{why}; each input meets the old policy or the new one, and none is lost");
        self.push(
            &section.name,
            Action::Replace { section: index, id: attachment.id, old },
            what,
            why,
        );
        Ok(())
    }

    fn sockets(&mut self, section: &SteerSection, target: &SteerTarget, attachment: &Attachment) {
        let Some(executors) = self.current.executors.get(&attachment.id) else { return };
        let sockets: Vec<Serving> =
            target.sockets().filter(|socket| !executors.contains(&socket.inode)).cloned().collect();
        if sockets.is_empty() {
            return;
        }
        let (n, id) = (sockets.len(), attachment.id);
        let what = format!("add {n} sockets at {} to attachment {id}", target.name);
        let why = "they are new, as of a restarted worker, and the policy does not choose them yet";
        self.push(&section.name, Action::Add { id, sockets }, what, why);
    }

    fn agent(&mut self) -> anyhow::Result<()> {
        let Some(agent) = &self.wanted.agent else {
            if let Some(record) = self.record.filter(|record| is_ours(record, self.current)) {
                let why = "the file has no [agent] any more; its threads go back to the default scheduler";
                self.push("agent", Action::StopAgent, stop_text(&record.name), why);
            }
            return Ok(());
        };
        if let Err(why) = &self.current.processes {
            self.plan.absent.push(("agent".into(), why.clone()));
            return Ok(());
        }
        let name = &self.wanted.name;
        let Some(enclave) = &self.current.enclave else {
            let what = format!(
                "start enclave `{name}` with {}, for {}",
                agent.policy, self.wanted.service
            );
            let why =
                format!("there is no enclave `{name}`, and {} asks for it", self.place(agent.line));
            self.push("agent", Action::StartAgent, what, why);
            return Ok(());
        };
        if !self.record.is_some_and(|record| is_ours(record, self.current)) {
            bail!(
                "{}:{}: [agent]: there is an enclave `{name}` that this deployment did not start: end it (`heddle \
                    agent stop {name}`), or give the deployment another `name`",
                self.wanted.path.display(),
                agent.line
            );
        }
        if let Some(why) = self.must_restart(agent)? {
            let what = format!("restart enclave `{name}` with {}", agent.policy);
            let why = format!("{why}; meanwhile the default scheduler has the threads");
            self.push("agent", Action::RestartAgent, what, why);
        } else if enclave.policy != agent.policy {
            let old = enclave.policy.clone();
            let what = format!("replace {old} by {} in enclave `{name}`", agent.policy);
            let why = format!(
                "{} asks for it; the new agent takes over while threads run",
                self.place(agent.line)
            );
            self.push("agent", Action::UpgradeAgent { old }, what, why);
        }
        Ok(())
    }

    /// Returns why the enclave must be started anew, if so.
    fn must_restart(&self, agent: &AgentSection) -> anyhow::Result<Option<&'static str>> {
        let enclave = self.current.enclave.as_ref();
        if enclave.is_some_and(|enclave| !enclave.is_active) {
            return Ok(Some("its agent has ended, and its threads were given back"));
        }
        let old = self.old.and_then(|old| Some((&old.service, old.agent.as_ref()?)));
        let is_same = |(service, old): (_, &AgentSection)| {
            service == &self.wanted.service
                && old.options == agent.options
                && old.class_map == agent.class_map
        };
        if !old.is_some_and(is_same) {
            return Ok(Some("its options changed"));
        }
        let Some(section) = &agent.class_map else { return Ok(None) };
        let is_attached =
            self.plan.steps.iter().any(|step| {
                step.section == *section && matches!(step.action, Action::Attach { .. })
            });
        let known = self.record.and_then(|record| record.agent.as_ref()?.class_map);
        let now = self.plan.kept.iter().find(|one| one.section == *section).map(|one| one.id);
        let changed = is_attached || (now.is_some() && now != known);
        Ok(changed.then_some("the attachment of its class-map has another number"))
    }

    /// Detaches what is recorded and not wanted.
    fn detach_the_rest(&mut self) {
        let is_used = |step: &Step| match step.action {
            Action::Detach { id, .. } => Some(id),
            _ => None,
        };
        let mut used: BTreeSet<u32> = self.plan.steps.iter().filter_map(is_used).collect();
        used.extend(self.plan.kept.iter().map(|one| one.id));
        let rest: Vec<_> = self.recorded().filter(|one| !used.contains(&one.id)).collect();
        for one in rest {
            let Some(attachment) = self.current.attachment(one.id) else { continue };
            let what = detach_text(attachment, &one.target);
            let restore = self.old_section(&one.section).cloned();
            let why = "the file does not have it any more; the kernel chooses again";
            self.push(&one.section, Action::Detach { id: one.id, restore }, what, why);
        }
    }
}

/// Whether two policies are the same, wherever and whenever they were compiled: lines of the source and the names of
/// temporary folders do not count.
fn is_same_policy(a: &Policy, b: &Policy) -> bool {
    let code = |policy: &Policy| {
        let mut object = read(policy.object.as_deref()?).ok()?;
        object.functions.iter_mut().for_each(|function| function.lines.clear());
        Some(object)
    };
    let is_same_code = || match (&a.object, &b.object) {
        (None, None) => true,
        (Some(one), Some(other)) => one == other || code(a).is_some_and(|it| Some(it) == code(b)),
        _ => false,
    };
    a.name == b.name && a.parameters == b.parameters && is_same_code()
}

/// Whether the enclave is the one that the deployment started.
fn is_ours(record: &Record, current: &Current) -> bool {
    match (&record.agent, &current.enclave) {
        (Some(agent), Some(enclave)) => {
            (agent.guardian, agent.guardian_began) == (enclave.guardian, enclave.guardian_began)
        }
        _ => false,
    }
}

fn detach_text(attachment: &Attachment, target: &str) -> String {
    let policy = display(&attachment.policy, &attachment.parameters);
    format!("detach {policy} from {target}, attachment {}", attachment.id)
}

fn stop_text(name: &str) -> String {
    format!("stop enclave `{name}`")
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
