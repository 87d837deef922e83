//! Which processes a command is about.

use crate::exit::Usage;
use crate::out::printable;
use crate::sources::lanes::{self, Answer};

/// Processes by number or name.
#[derive(clap::Args)]
pub struct Which {
    /// Only these processes, by number or name.
    #[arg(value_name = "PROCESS")]
    processes: Vec<String>,
}

impl Which {
    /// Asks the processes. Returns their answers, and sentences about those that did not answer.
    ///
    /// # Errors
    /// If one that was named has no lanes.
    pub fn ask(&self, question: &str) -> anyhow::Result<(Vec<Answer>, Vec<String>)> {
        let (answers, silent) = lanes::ask(question, lanes::PATIENCE);
        let is =
            |answer: &Answer, name: &str| answer.name == name || answer.pid.to_string() == name;
        let mut named = self.processes.iter();
        if let Some(name) = named.find(|name| !answers.iter().any(|answer| is(answer, name))) {
            let why = silent.first().map(|why| format!("; {why}")).unwrap_or_default();
            return Err(Usage(format!(
                "no process `{}` shows lanes to you; `heddle net ls` lists those that do{why}",
                printable(name)
            ))
            .into());
        }
        let is_meant = |answer: &Answer| {
            self.processes.is_empty() || self.processes.iter().any(|name| is(answer, name))
        };
        Ok((answers.into_iter().filter(is_meant).collect(), silent))
    }
}

/// Returns what is said where no process has lanes.
pub fn no_process() -> String {
    let others = match rustix::process::geteuid().is_root() {
        true => "",
        false => " of yours; root sees those of all users",
    };
    format!("No process with lanes (HEDDLE_NET){others}.\n")
}

/// Returns the line above a process's table.
pub fn title(of: &Answer) -> String {
    let net = &of.net;
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    // Earlier versions do not say it.
    let congestion = match printable(&net.congestion) {
        name if name.is_empty() => String::new(),
        name => format!(", congestion {name}"),
    };
    format!(
        "{} ({}): {}{}, mode {}, {} on {}, policy {}, spin {}{congestion}",
        printable(&of.name),
        of.pid,
        printable(&net.interface),
        if net.up { "" } else { " (down)" },
        printable(&net.mode),
        plural(net.lanes, "lane"),
        plural(net.queues as usize, "queue"),
        printable(&net.policy),
        printable(&net.spin),
    )
}
