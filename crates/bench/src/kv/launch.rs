//! The command line of a server and the line that says it is ready.

use super::options::KvOptions;
use super::system::{Net, System};
use heddle_netns::{NEAR, NEAR4};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// `heddle kv serve` for `system`, on the dataset in `data` where the store has one.
pub fn command(options: &KvOptions, system: &System, data: &Path) -> Command {
    let (mut command, udp) = at_its_place(options, system);
    command.args(["kv", "serve", "--system", system.runtime.name()]);
    command.args(["--store", options.store.name(), "--cpus", &options.cpus.server_list()]);
    command.args(["--udp", &udp, "--tcp", "none", "--until-stdin-closes"]);
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

/// The program, in the namespace of servers if there is one, and the address that it serves.
fn at_its_place(options: &KvOptions, system: &System) -> (Command, String) {
    let Some(pair) = &options.pair else {
        return (Command::new(&options.program), "127.0.0.1:0".to_owned());
    };
    // `ip netns exec` must not take itself for `/proc/self/exe`.
    let this = format!("/proc/{}/exe", std::process::id());
    let is_this = options.program == Path::new("/proc/self/exe");
    let program = if is_this { this.into() } else { options.program.to_string_lossy() };
    let mut command = pair.near.command(&program);
    command.env("HEDDLE_NET", system.net.unwrap_or(Net::Kernel).variable(NEAR));
    (command, format!("{NEAR4}:0"))
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
