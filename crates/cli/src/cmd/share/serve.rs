//! `heddle share serve`: the broker.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use heddle_broker::{Broker, Config, Options};
use heddle_core::Ns;
use heddle_sys::cpu_list;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::launch;
use crate::exit::{Outcome, Usage};
use crate::out::{self, printable};

/// Options of `heddle share serve`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sudo heddle share serve share.toml
  sudo heddle share serve share.toml --group heddle
  heddle share serve share.toml --until-idle 10s

A file:
  cpus = \"2-7\"             the CPUs that applications share; the only key that must be there
  policy = \"priority\"      best-effort applications have what others leave; or cfs:weight=512
  slice = \"3ms\"            how long one of weight 1024 keeps a CPU for which an equal waits
  realtime = \"auto\"        workers are real-time threads if the broker may grant that; always, never
  priority = 10            their priority
  whole_machine = true     real-time workers may have all CPUs of the machine
  max_apps = 32            the most applications
  socket = \"/run/x.sock\"   where the broker listens
  [weights]                parts of applications among equals, by name; 1024 if not given
  batch = 512

The end of the broker changes nothing for applications; they join the next one.")]
pub struct Args {
    /// The file that describes the share.
    file: PathBuf,
    /// End once the share has had no application for so long.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    until_idle: Option<Ns>,
    /// Let the members of this group join, besides root and your other programs.
    #[arg(long, conflicts_with = "everyone")]
    group: Option<String>,
    /// Let every user join.
    #[arg(long)]
    everyone: bool,
    /// Start the broker in the background, and end once it answers.
    #[arg(long, hide = true)]
    detached: bool,
}

fn duration(text: &str) -> Result<Ns, String> {
    text.parse().map_err(|_| format!("`{text}` is not a duration such as 500ms or 10s"))
}

/// Serves until Ctrl-C.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    if args.detached {
        return launch::from_background(&args.file);
    }
    let wrong = |error: heddle_broker::ConfigError| Usage(printable(&error.to_string()));
    let config = Config::read(&args.file).map_err(wrong)?;
    let options = Options {
        group: args.group.clone(),
        everyone: args.everyone,
        until_idle: args.until_idle.map(|time| Duration::from_nanos(time.0)),
    };
    let text = format!(
        "CPUs {} by {}, slice {}",
        cpu_list::format(&config.cpus),
        config.policy,
        config.slice
    );
    let broker = Broker::start(config, &args.file, options)
        .map_err(|error| anyhow::anyhow!("{}", printable(&error.to_string())))?;
    let (stop, sender) = UnixStream::pair().context("cannot make a pair of sockets")?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let sender = sender.try_clone().context("cannot copy a descriptor")?;
        signal_hook::low_level::pipe::register(signal, sender).context("no signal handler")?;
    }
    let threads = match broker.priority() {
        Some(priority) => format!("real-time threads of priority {priority}"),
        None => "ordinary threads".into(),
    };
    let text = format!("heddle share: {text}, {threads}, at {}\n", broker.socket().display());
    out::text(&text)?;
    broker.run(stop).context("the broker cannot go on")?;
    Ok(Outcome::Done)
}
