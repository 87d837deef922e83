//! Which attachments a command means: by number, or by what they steer.

use std::net::SocketAddr;

use heddle_steer::client::Steering;
use heddle_steer::process::Protocol;
use heddle_steer::request::Attachment;

use super::wanted::{Place, Wanted};
use super::{ended, refused};
use crate::exit::Usage;

/// How a command names attachments.
#[derive(clap::Args)]
pub struct Which {
    /// The attachments' numbers, as `heddle attach` and `heddle ls` print them.
    #[arg(value_name = "ID", conflicts_with_all = ["pid", "ports", "protocols", "addresses"])]
    ids: Vec<u32>,
    #[command(flatten)]
    wanted: Wanted,
}

impl Which {
    /// Whether none is named.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.wanted.is_empty()
    }

    /// The attachments that are meant: at least one.
    pub fn all(&self, steering: &Steering) -> anyhow::Result<Vec<Attachment>> {
        if self.is_empty() {
            let text = "which attachment? Its number (`heddle ls`), or --port, --protocol, --address or --pid";
            return Err(Usage(text.into()).into());
        }
        let list = steering.list().map_err(refused)?;
        self.among(&list).map_err(|nothing| {
            let ended = self.ids.iter().find_map(|id| ended::note(steering, *id));
            anyhow::anyhow!(ended.unwrap_or_else(|| format!("{nothing}; {}", there_are(&list))))
        })
    }

    /// Those of `list` that are meant, or what is not there.
    fn among(&self, list: &[Attachment]) -> Result<Vec<Attachment>, String> {
        if let Some(id) = self.ids.iter().find(|id| list.iter().all(|a| a.id != **id)) {
            return Err(format!("there is no attachment {id}"));
        }
        let found: Vec<Attachment> = list.iter().filter(|one| self.means(one)).cloned().collect();
        let places: Vec<Place> = found.iter().filter_map(place).collect();
        match self.wanted.missing(&places) {
            Some(named) => Err(nothing(&self.wanted.only(named))),
            None if found.is_empty() => Err(nothing(&self.wanted)),
            None => Ok(found),
        }
    }

    fn means(&self, attachment: &Attachment) -> bool {
        if !self.ids.is_empty() {
            return self.ids.contains(&attachment.id);
        }
        self.wanted.pid.is_none_or(|pid| attachment.pid == pid)
            && place(attachment).is_some_and(|place| self.wanted.fits(place))
    }
}

fn place(attachment: &Attachment) -> Option<Place> {
    let address: SocketAddr = attachment.address.parse().ok()?;
    Some((Protocol::from_name(&attachment.protocol)?, address))
}

fn nothing(wanted: &Wanted) -> String {
    let mut text = "nothing is attached to".to_owned();
    let at = Wanted { pid: None, ..wanted.clone() };
    if let Some(pid) = wanted.pid {
        text += &format!(" process {pid}{}", if at.is_empty() { "" } else { " at" });
    }
    if at.is_empty() { text } else { format!("{text} {at}") }
}

fn list(attachments: &[Attachment]) -> String {
    let name = |a: &Attachment| format!("{} at {} {}", a.id, a.protocol, a.address);
    attachments.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn there_are(attachments: &[Attachment]) -> String {
    match attachments {
        [] => "there are no attachments (one ends by itself when its server's last socket closes)"
            .into(),
        all => format!("there are: {}", list(all)),
    }
}
