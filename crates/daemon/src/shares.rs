//! Brokers of shares of CPUs, each in a thread. Like policies, shares go on when heddled ends.

use std::os::unix::net::UnixStream;
use std::thread::{Builder, JoinHandle};

use anyhow::Context as _;
use heddle_broker::{Broker, Config, Options};

use crate::options;

/// Starts a broker for each share; each ends once `stop` is readable.
pub fn start(options: &options::Options, stop: &UnixStream) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    for file in &options.shares {
        let who =
            Options { group: options.group.clone(), everyone: options.everyone, until_idle: None };
        let broker = Broker::start(Config::read(file)?, file, who)
            .with_context(|| format!("no broker of the share {}", file.display()))?;
        eprintln!("heddled: the share {} is at {}", file.display(), broker.socket().display());
        let stop = stop.try_clone().context("cannot copy a descriptor")?;
        let run = move || {
            if let Err(error) = broker.run(stop) {
                eprintln!("heddled: a broker ends: {error}");
            }
        };
        let thread = Builder::new().name("heddle-broker".into()).spawn(run);
        threads.push(thread.context("cannot start a thread")?);
    }
    Ok(threads)
}

/// Waits until the brokers have ended: their sockets are gone.
pub fn wait(brokers: Vec<JoinHandle<()>>) {
    for broker in brokers {
        let _ = broker.join();
    }
}
