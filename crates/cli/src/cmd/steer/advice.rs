//! Advice for servers that give a policy nothing to choose among: the table of servers that Heddle knows.
//!
//! A server is recognised by its program's name. Some have an option that gives each worker a socket; for the
//! others, another hook of Heddle may help.

use std::fs;
use std::path::Path;

use heddle_steer::process::command;

/// Why a server has a single socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketSharing {
    /// Several processes share it; `marked` if it has SO_REUSEPORT all the same.
    Shared { marked: bool },
    /// One process owns it, without SO_REUSEPORT.
    Exclusive,
    /// One process owns it, with SO_REUSEPORT: there is one worker, or the others are not among the inspected
    /// processes.
    Single,
}

/// A server, and what it takes to steer it. `PID` in a text stands for its process ID.
struct Server {
    /// Its program names.
    programs: &'static [&'static str],
    /// What to do.
    advice: Advice,
}

enum Advice {
    /// An option gives each worker a socket.
    Option(&'static str),
    /// The same in later versions; the second text is for an older version that has the option but still shares
    /// one socket.
    Later(&'static str, &'static str),
    /// No option does; the reason, and an alternative.
    Cannot(&'static str),
}

use Advice::{Cannot, Later, Option as Has};

static SERVERS: [Server; 15] = [
    Server {
        programs: &["gunicorn"],
        advice: Later(
            "Start gunicorn 24 or later with --reuse-port and several workers; before 24 (such as 20.1 of Debian \
                12) the workers share one socket anyway",
            "Before version 24 (such as 20.1 of Debian 12) gunicorn's --reuse-port gives no worker its own \
                socket, as here: install gunicorn 24 or later, and let it bind the port itself",
        ),
    },
    Server {
        programs: &["nginx"],
        advice: Has(
            "Write `listen ... reuseport` (nginx 1.9.1 or later), with several worker_processes",
        ),
    },
    Server {
        programs: &["haproxy"],
        advice: Has(
            "Write `bind ... shards by-thread` (HAProxy 2.5 or later), with nbthread above 1",
        ),
    },
    Server {
        programs: &["envoy"],
        advice: Has("Leave the listener's `enable_reuse_port` on, with --concurrency above 1"),
    },
    Server {
        programs: &["apache2", "httpd"],
        advice: Has(
            "Set `ListenCoresBucketsRatio` (Apache 2.4.13 or later), which gives groups of workers a socket each",
        ),
    },
    Server {
        programs: &["unbound"],
        advice: Has("Set `so-reuseport: yes` and num-threads above 1"),
    },
    Server {
        programs: &["knotd"],
        advice: Has("Set udp-workers and tcp-workers above 1, and `tcp-reuseport: on` for TCP"),
    },
    Server {
        programs: &["named"],
        advice: Has("Set `reuseport yes;` (BIND 9.18 or later), and let it use several CPUs (-n)"),
    },
    Server { programs: &["nsd"], advice: Has("Set `reuseport: yes` and server-count above 1") },
    Server {
        programs: &["pgbouncer"],
        advice: Has("Start several PgBouncers with `so_reuseport = 1` on the same port"),
    },
    Server {
        programs: &["uwsgi", "uwsgi-core"],
        advice: Cannot(
            "uWSGI's workers share one socket, even with --reuse-port: start several uWSGI masters with \
                --reuse-port on the same port",
        ),
    },
    Server {
        programs: &["memcached"],
        advice: Cannot(
            "memcached cannot have more: one thread accepts and assigns connections to the others. `heddle agent \
                run --pid PID` schedules its threads (docs/agents/README.md); docs/events/memcached.md describes \
                a memcached whose threads share one event queue",
        ),
    },
    Server {
        programs: &["redis-server", "valkey-server"],
        advice: Cannot(
            "Redis cannot have more: one thread serves all connections. `heddle agent run --pid PID` gives that \
                thread its CPU before other work (docs/agents/README.md); several instances on different ports \
                use several CPUs",
        ),
    },
    Server {
        programs: &["postgres", "postmaster"],
        advice: Cannot(
            "PostgreSQL cannot have more: one process accepts and starts another for each connection. `heddle \
                agent run --pid PID` schedules them (docs/agents/README.md); several PgBouncers with \
                `so_reuseport = 1` in front of it can be steered",
        ),
    },
    Server {
        programs: &["mariadbd", "mysqld"],
        advice: Cannot(
            "MariaDB and MySQL cannot have more: one thread accepts for all. `heddle agent run --pid PID` \
                schedules the threads that serve connections (docs/agents/README.md)",
        ),
    },
];

/// Advice for a socket that may not be the only one.
const OTHERS: &str =
    "If it has more workers, use --pid to name the process that all of them descend from";
const UNKNOWN: &str = "A policy needs a socket for each worker: start the server with its option for \
    SO_REUSEPORT, if it has one. If it has none, `heddle agent run --pid PID` schedules its threads \
    (docs/agents/README.md), and your own server can share one event queue (docs/events/README.md)";

/// Returns what to do about the server of process `pid`.
pub fn for_server(pid: u32, socket: SocketSharing) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    advice(name.trim_end(), &command(pid), socket).replace("PID", &pid.to_string())
}

fn advice(name: &str, command: &str, socket: SocketSharing) -> String {
    match (find(name, command).map(|server| &server.advice), socket) {
        (Some(Cannot(text)), _) => text.to_string(),
        (Some(Later(_, old)), SocketSharing::Shared { marked: true }) => old.to_string(),
        (Some(Has(text) | Later(text, _)), SocketSharing::Single) => format!("{text}. {OTHERS}"),
        (Some(Has(text) | Later(text, _)), _) => text.to_string(),
        (None, SocketSharing::Single) => format!("Start more workers. {OTHERS}"),
        (None, _) => UNKNOWN.into(),
    }
}

/// Finds the server by its process name and command line.
fn find(name: &str, command: &str) -> Option<&'static Server> {
    let names = names(name, command);
    let is = |server: &&Server| server.programs.iter().any(|one| names.contains(one));
    SERVERS.iter().find(is)
}

/// Returns the names a program may have: the process name, and the program, script or module that was started.
fn names<'a>(name: &'a str, command: &'a str) -> Vec<&'a str> {
    let file = |word: &'a str| {
        let name = Path::new(word).file_name().and_then(|name| name.to_str());
        // As in `nginx: master process`.
        name.unwrap_or_default().trim_end_matches(':')
    };
    let words: Vec<&str> = command.split_whitespace().take(3).collect();
    let mut names = vec![name.trim_end_matches(':')];
    names.extend(words.first().map(|word| file(word)));
    if words.first().is_some_and(|word| file(word).starts_with("python")) {
        let script = if words.get(1) == Some(&"-m") { words.get(2) } else { words.get(1) };
        names.extend(script.map(|word| file(word)));
    }
    names
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn servers_are_recognised_by_name() {
        for (name, command, program) in [
            ("redis-server", "redis-server 127.0.0.1:6379", "redis-server"),
            ("nginx", "nginx: master process /usr/sbin/nginx", "nginx"),
            ("postgres", "/usr/lib/postgresql/15/bin/postgres -D /data", "postgres"),
            ("gunicorn", "/usr/bin/python3 /usr/bin/gunicorn app", "gunicorn"),
            ("python3", "python3 -m gunicorn app", "gunicorn"),
            ("gunicorn: maste", "gunicorn: master [app]", "gunicorn"),
            ("iou-wrk", "/usr/bin/memcached -m 64", "memcached"),
        ] {
            let server = find(name, command).unwrap_or_else(|| panic!("{command}"));
            assert!(server.programs.contains(&program), "{command}");
        }
        for (name, command) in [("", ""), ("cat", "cat nginx"), ("python3", "python3 app.py")] {
            assert!(find(name, command).is_none(), "{command}");
        }
    }

    #[test]
    fn no_option_is_advised_if_none_helps() {
        for name in ["memcached", "redis-server", "postgres", "mariadbd"] {
            for socket in [
                SocketSharing::Exclusive,
                SocketSharing::Single,
                SocketSharing::Shared { marked: false },
            ] {
                let text = advice(name, "", socket);
                assert!(text.contains("cannot") && text.contains("heddle agent"), "{text}");
                assert!(!text.contains("reuse-port"), "{text}");
            }
        }
        let old = advice("gunicorn", "", SocketSharing::Shared { marked: true });
        assert!(old.contains("20.1") && old.contains("install gunicorn 24"), "{old}");
        assert!(
            advice("gunicorn", "", SocketSharing::Shared { marked: false })
                .contains("--reuse-port")
        );
        assert!(advice("server", "", SocketSharing::Exclusive).contains("docs/events/README.md"));
        // Its single socket has SO_REUSEPORT for any number of threads.
        assert!(advice("haproxy", "", SocketSharing::Single).contains("shards by-thread"));
        assert!(advice("server", "", SocketSharing::Single).starts_with("Start more workers"));
    }

    #[test]
    fn each_program_is_listed_once_and_each_document_exists() {
        let all: Vec<&str> = SERVERS.iter().flat_map(|server| server.programs).copied().collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let table = SERVERS.iter().map(|server| match &server.advice {
            Has(text) | Later(text, _) | Cannot(text) => *text,
        });
        for text in table.chain([UNKNOWN]) {
            for word in text.split([' ', '(', ')', ';']).filter(|word| word.starts_with("docs/")) {
                assert!(root.join(word).exists(), "{word}");
            }
        }
    }
}
