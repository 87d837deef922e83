//! The command line of a server and the line that says it is ready.

use super::options::KvOptions;
use super::system::System;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// `heddle kv serve` for `system`, on the dataset in `data` where the store has one.
pub fn command(options: &KvOptions, system: &System, data: &Path) -> Command {
    let mut command = Command::new(&options.program);
    command.args(["kv", "serve", "--system", system.runtime.name()]);
    command.args(["--store", options.store.name(), "--cpus", &options.cpus.server_list()]);
    command.args(["--udp", "127.0.0.1:0", "--tcp", "none", "--until-stdin-closes"]);
    command.args(["--keys", &options.keys.to_string()]);
    command.args(["--value-size", &options.value_len.to_string()]);
    if let Some(policy) = &system.policy {
        command.args(["--policy", policy]);
    }
    if let Some(mechanism) = system.mechanism {
        command.args(["--mechanism", mechanism.name()]);
    }
    if options.store == super::StoreKind::RocksDb {
        command.arg("--dir").arg(data);
    }
    command
}

/// The server's UDP address, if `line` says that it is ready: `ready udp=127.0.0.1:7000 ...`.
pub fn ready(line: &str) -> Option<SocketAddr> {
    let mut words = line.split_whitespace();
    if words.next() != Some("ready") {
        return None;
    }
    words.find_map(|word| word.strip_prefix("udp=")?.parse().ok())
}

/// As a person types it: this program is often started through a path that says nothing to others.
pub fn in_words(command: &std::process::Command) -> String {
    let words = command.get_args().map(|word| quoted(&word.to_string_lossy()));
    std::iter::once("heddle".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    if word.contains(' ') { format!("'{word}'") } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_gives_the_address() {
        let addr = Some(([127, 0, 0, 1], 7001).into());
        assert_eq!(ready("ready udp=127.0.0.1:7001 tcp=127.0.0.1:7000"), addr);
        assert_eq!(ready("ready tcp=127.0.0.1:7000"), None);
        assert_eq!(ready("loading udp=127.0.0.1:7001"), None);
    }
}
