//! Which attachment a command means: by number, by port, by process.

use heddle_steer::request::Attachment;

use super::refused;
use crate::exit::Usage;
use heddle_steer::client::Steering;

/// How a command names attachments.
#[derive(clap::Args)]
pub struct Which {
    /// The attachment's number, as `heddle attach` and `heddle ls` print it.
    #[arg(value_name = "ID", conflicts_with_all = ["port", "pid"])]
    id: Option<u32>,
    /// The attachments of this port.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// The attachments of this process, as it was given to `heddle attach`.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
}

impl Which {
    /// The attachments that are meant: at least one.
    pub fn all(&self, steering: &Steering) -> anyhow::Result<Vec<Attachment>> {
        if (self.id, self.port, self.pid) == (None, None, None) {
            let text = "which attachment? Its number (`heddle ls`), or --port or --pid";
            return Err(Usage(text.into()).into());
        }
        let list = steering.list().map_err(refused)?;
        let meant = |a: &&Attachment| {
            self.id.is_none_or(|id| a.id == id)
                && self.port.is_none_or(|port| a.port() == Some(port))
                && self.pid.is_none_or(|pid| a.pid == pid)
        };
        let found: Vec<Attachment> = list.iter().filter(meant).cloned().collect();
        if found.is_empty() {
            anyhow::bail!("{}; {}", self.nothing(), there_are(&list));
        }
        Ok(found)
    }

    /// The one attachment that is meant.
    pub fn one(&self, steering: &Steering) -> anyhow::Result<Attachment> {
        let mut found = self.all(steering)?;
        if found.len() > 1 {
            let text = format!(
                "that means several attachments ({}): name one by its number",
                list(&found)
            );
            return Err(Usage(text).into());
        }
        Ok(found.remove(0))
    }

    fn nothing(&self) -> String {
        match (self.id, self.port, self.pid) {
            (Some(id), ..) => format!("there is no attachment {id}"),
            (_, Some(port), None) => format!("nothing is attached to port {port}"),
            (_, None, Some(pid)) => format!("nothing is attached to process {pid}"),
            (_, Some(port), Some(pid)) => {
                format!("nothing is attached to process {pid} at port {port}")
            }
            (None, None, None) => "nothing is attached".into(),
        }
    }
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
