//! Selecting attachments by number, or by what they steer.

use std::net::SocketAddr;

use heddle_steer::client::Steering;
use heddle_steer::process::Protocol;
use heddle_steer::request::Attachment;

use super::selector::{Endpoint, Selector};
use super::{history, refused};
use crate::exit::Usage;

/// Options that select attachments.
#[derive(clap::Args)]
pub struct AttachmentSelector {
    /// Attachment numbers, as printed by `heddle steer attach` and `heddle steer ls`.
    #[arg(value_name = "ID", conflicts_with_all = ["pid", "ports", "protocols", "addresses"])]
    ids: Vec<u32>,
    #[command(flatten)]
    selector: Selector,
}

impl AttachmentSelector {
    /// Whether nothing was selected.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.selector.is_empty()
    }

    /// Returns the selected attachments: at least one.
    pub fn resolve(&self, steering: &Steering) -> anyhow::Result<Vec<Attachment>> {
        if self.is_empty() {
            let text = "no attachment selected: give its number (`heddle steer ls`), or --port, --protocol, \
                --address or --pid";
            return Err(Usage(text.into()).into());
        }
        let list = steering.list().map_err(refused)?;
        self.select(&list).map_err(|problem| {
            let ended = self.ids.iter().find_map(|id| history::note(steering, *id));
            anyhow::anyhow!(ended.unwrap_or_else(|| format!("{problem}; {}", existing(&list))))
        })
    }

    /// Returns the selected ones of `list`, or a message about what does not exist.
    fn select(&self, list: &[Attachment]) -> Result<Vec<Attachment>, String> {
        if let Some(id) = self.ids.iter().find(|id| list.iter().all(|a| a.id != **id)) {
            return Err(format!("there is no attachment {id}"));
        }
        let found: Vec<Attachment> = list.iter().filter(|one| self.selects(one)).cloned().collect();
        let endpoints: Vec<Endpoint> = found.iter().filter_map(endpoint).collect();
        match self.selector.missing(&endpoints) {
            Some(criterion) => Err(no_match(&self.selector.only(criterion))),
            None if found.is_empty() => Err(no_match(&self.selector)),
            None => Ok(found),
        }
    }

    fn selects(&self, attachment: &Attachment) -> bool {
        if !self.ids.is_empty() {
            return self.ids.contains(&attachment.id);
        }
        self.selector.pid.is_none_or(|pid| attachment.pid == pid)
            && endpoint(attachment).is_some_and(|endpoint| self.selector.matches(endpoint))
    }
}

fn endpoint(attachment: &Attachment) -> Option<Endpoint> {
    let address: SocketAddr = attachment.address.parse().ok()?;
    Some((Protocol::from_name(&attachment.protocol)?, address))
}

fn no_match(selector: &Selector) -> String {
    let mut text = "nothing is attached to".to_owned();
    let at = Selector { pid: None, ..selector.clone() };
    if let Some(pid) = selector.pid {
        text += &format!(" process {pid}{}", if at.is_empty() { "" } else { " at" });
    }
    if at.is_empty() { text } else { format!("{text} {at}") }
}

fn list(attachments: &[Attachment]) -> String {
    let name = |a: &Attachment| format!("{} at {} {}", a.id, a.protocol, a.address);
    attachments.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn existing(attachments: &[Attachment]) -> String {
    match attachments {
        [] => "there are no attachments (an attachment ends when its server's last socket closes)"
            .into(),
        all => format!("there are: {}", list(all)),
    }
}
