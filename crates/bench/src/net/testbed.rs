//! The two namespaces, and the processes at their ends.

use super::child::{Client, Job, Load, RESULT, Role};
use super::measured::Measured;
use super::options::NetOptions;
use super::system::{System, Waiting};
use crate::kv::{ServerProcess, StartError};
use heddle_core::Ns;
use heddle_netns::faults::{Loss, LossOptions};
use heddle_netns::{FAR, NEAR, NEAR4, Namespace, Pair};
use serde::de::DeserializeOwned;
use std::io;
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// What is compared: both ends and the load between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) server: (System, Waiting),
    pub(super) client: (System, Waiting),
    pub(super) load: Load,
    /// The server's `rto-min`, if not the default.
    pub(super) rto_min: Option<Ns>,
    pub(super) losses: Losses,
    /// The server's congestion control, if not the default.
    pub(super) congestion_control: Option<&'static str>,
}

/// Shares of packets that are lost at the client's end: tc does not see what lanes send or receive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Losses {
    pub(super) to_client: f64,
    pub(super) to_server: f64,
}

/// How much longer runs with losses are: a request whose retransmission takes 200 ms counts if it is answered in time.
const LONGER: u64 = 2;

/// The least duration of a run with losses: a packet that is lost twice stops a stream for 600 ms.
const LONG: Ns = Ns::from_ms(2_000);

/// A pair of namespaces, and what runs in them.
pub(super) struct Testbed<'a> {
    pub(super) pair: Pair,
    pub(super) options: &'a NetOptions,
    pub(super) stop: &'a AtomicBool,
}

impl<'a> Testbed<'a> {
    /// Creates the namespaces.
    ///
    /// # Errors
    /// The message of `ip`.
    pub(super) fn new(options: &'a NetOptions, stop: &'a AtomicBool) -> io::Result<Testbed<'a>> {
        Ok(Testbed { pair: Pair::new(1)?, options, stop })
    }

    /// The same with the default offloads: the kernel sends segments longer than the MTU, without checksums.
    ///
    /// # Errors
    /// The message of `ip` or `ethtool`.
    pub(super) fn with_offloads(
        options: &'a NetOptions,
        stop: &'a AtomicBool,
    ) -> io::Result<Testbed<'a>> {
        let testbed = Testbed::new(options, stop)?;
        for (namespace, interface) in [(&testbed.pair.near, NEAR), (&testbed.pair.far, FAR)] {
            let output =
                namespace.command("ethtool").args(["-K", interface, "tx", "on"]).output()?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(io::Error::other(format!(
                    "ethtool -K {interface} tx on: {}",
                    said.trim()
                )));
            }
        }
        Ok(testbed)
    }

    /// Runs both ends once. The same packets are lost in each run with the same `seed`.
    ///
    /// # Errors
    /// An end failed, with what it said; `stop` is set ([`io::ErrorKind::Interrupted`]).
    pub(super) fn run(&self, setting: Setting, seed: u64) -> io::Result<Measured> {
        let _loss = self.lose(setting.losses, seed)?;
        let role = match setting.load {
            Load::Udp { .. } => Role::UdpServer,
            Load::Tcp { .. } => Role::TcpServer,
            Load::Send | Load::Receive => Role::StreamServer {
                congestion_control: setting.congestion_control.map(str::to_owned),
            },
        };
        let (server, port) = self.serve(setting.server, setting.rto_min, role)?;
        let client = Client {
            target: (NEAR4, port).into(),
            server: server.pid(),
            duration: self.duration(setting.losses).0,
            load: setting.load,
        };
        let job = self.job(self.options.cpus.load, setting.client, None, Role::Client(client));
        let before = received(&self.pair.near)?;
        let measured: Measured = self
            .result("the client", &self.pair.far, &job)
            .map_err(|error| io::Error::new(error.kind(), format!("{error}{}", server.said())))?;
        Ok(Measured { by_kernel: received(&self.pair.near)? - before, ..measured })
    }

    fn duration(&self, losses: Losses) -> Ns {
        let duration = self.options.duration;
        if losses == Losses::default() { duration } else { LONG.max(Ns(duration.0 * LONGER)) }
    }

    /// Starts a server. Returns it with its port.
    pub(super) fn serve(
        &self,
        (system, waiting): (System, Waiting),
        rto_min: Option<Ns>,
        role: Role,
    ) -> io::Result<(ServerProcess, u16)> {
        let job = self.job(self.options.cpus.server[0], (system, waiting), rto_min, role);
        let port = |line: &str| line.strip_prefix("port ")?.parse().ok();
        let name = format!("the server ({system})");
        let command = self.command(&self.pair.near, &job)?;
        ServerProcess::start(&name, command, self.stop, port).map_err(into_io)
    }

    /// Loses packets until the result is dropped.
    fn lose(&self, losses: Losses, seed: u64) -> io::Result<Option<Loss>> {
        if losses == Losses::default() {
            return Ok(None);
        }
        let Losses { to_client, to_server } = losses;
        let options = LossOptions {
            seed,
            incoming_loss: to_client,
            outgoing_loss: to_server,
            ..LossOptions::default()
        };
        Loss::new(&self.pair.far, FAR, options).map(Some)
    }

    pub(super) fn job(
        &self,
        cpu: u32,
        (system, waiting): (System, Waiting),
        rto_min: Option<Ns>,
        role: Role,
    ) -> Job {
        Job { cpu, system, waiting, rto_min: rto_min.map(|time| time.0), role }
    }

    /// Runs a job that prints a result.
    pub(super) fn result<T: DeserializeOwned>(
        &self,
        name: &str,
        namespace: &Namespace,
        job: &Job,
    ) -> io::Result<T> {
        let result = |line: &str| serde_json::from_str(line.strip_prefix(RESULT)?).ok();
        let command = self.command(namespace, job)?;
        ServerProcess::start(name, command, self.stop, result)
            .map(|(_, result)| result)
            .map_err(into_io)
    }

    fn command(&self, namespace: &Namespace, job: &Job) -> io::Result<Command> {
        let mut command = namespace.command(&self.options.program.to_string_lossy());
        command.args(["bench", "net", "--child", &serde_json::to_string(job)?]);
        Ok(command)
    }
}

/// Returns how many segments and datagrams the kernel's stack has received in `namespace`.
fn received(namespace: &Namespace) -> io::Result<u64> {
    let text = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))?;
    Ok(counter(&text, "Tcp:", "InSegs") + counter(&text, "Udp:", "InDatagrams"))
}

/// Returns a counter from the text of `/proc/net/snmp`: a line of names, then one of values.
fn counter(text: &str, protocol: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.split(' ').next() == Some(protocol));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs.find(|(of, _)| *of == name).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

fn into_io(error: StartError) -> io::Error {
    match error {
        StartError::Interrupted => io::ErrorKind::Interrupted.into(),
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let text = "Tcp: ActiveOpens InSegs\nTcp: 5 70\nUdp: InDatagrams NoPorts\nUdp: 8 9\n\
                    UdpLite: InDatagrams\nUdpLite: 1\n";
        assert_eq!(counter(text, "Tcp:", "InSegs"), 70);
        assert_eq!(counter(text, "Udp:", "InDatagrams"), 8);
        assert_eq!(counter(text, "Sctp:", "InDatagrams"), 0);
    }
}
