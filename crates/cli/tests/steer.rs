//! `heddle steer`: the real command against real multi-process servers. Requires root, BPF and python3.

#[path = "steer/room.rs"]
mod room;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use room::{Room, Server};
use rustix::process::{Pid, Signal, kill_process};

/// Counts `answers` per worker.
fn per_worker(answers: &[usize], n: usize) -> Vec<usize> {
    (0..n).map(|worker| answers.iter().filter(|answer| **answer == worker).count()).collect()
}

fn attach(room: &Room, server: &Server, policy: &str) -> String {
    let json = room.json(&[
        "steer",
        "attach",
        "--pid",
        &server.pid(),
        "--port",
        &server.port(),
        "--policy",
        policy,
        "--json",
    ]);
    json["attachments"][0]["attachment"]["id"].to_string()
}

#[test]
fn a_running_server_is_steered_listed_and_released() {
    let Some(room) = Room::new() else { return };
    for (protocol, address) in
        [("udp", "127.0.0.1"), ("udp", "::1"), ("tcp", "127.0.0.1"), ("tcp", "::1"), ("tcp", "::")]
    {
        let server = room.server(protocol, address, 0, 3, "own");
        let text =
            room.ok(&["steer", "attach", "--port", &server.port(), "--policy", "round-robin"]);
        assert!(
            text.contains("round-robin chooses among 3 sockets")
                && text.contains("Undo: heddle steer detach"),
            "{text}"
        );
        assert_eq!(per_worker(&room.ask(&server, 30), 3), [10, 10, 10], "{protocol} {address}");

        let listed = &room.json(&["steer", "ls", "--json"])["attachments"][0];
        assert_eq!(
            (&listed["decisions"], &listed["present"], &listed["failed"]),
            (&30.into(), &3.into(), &0.into())
        );
        let stats = room.json(&["steer", "stats", "--port", &server.port(), "--json"]);
        assert_eq!((&stats["decisions"], &stats["skew"]), (&30.into(), &1.0.into()));
        assert_eq!(stats["executors"][2]["selected"], 10);

        let text = room.ok(&["steer", "detach", "--port", &server.port()]);
        assert!(
            text.contains("the kernel chooses again") && !text.contains("empty program"),
            "{text}"
        );
        assert_eq!(room.ask(&server, 10).len(), 10);
        assert_eq!(room.ok(&["steer", "ls"]), "Nothing is attached.\n");
    }
}

#[test]
fn a_policy_is_replaced_and_stays_if_the_new_one_is_refused() {
    let Some(room) = Room::new() else { return };
    let server = room.server("udp", "127.0.0.1", 0, 2, "own");
    let id = attach(&room, &server, "round-robin");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let all_to_one = file(
        "last.c",
        "#include <heddle.h>\nstatic u32 schedule(struct hd_in *in) { return hd_executors() - 1; }\n",
    );
    let text = room.ok(&["steer", "replace", &id, "--policy", &all_to_one]);
    assert!(text.contains("last replaces round-robin"), "{text}");
    assert_eq!(per_worker(&room.ask(&server, 10), 2), [0, 10]);
    let endless = file(
        "endless.c",
        "#include <heddle.h>\nstatic u32 schedule(struct hd_in *in) { u32 x = 0; for (;;) x += hd_random(); \
            return x; }\n",
    );
    let broken = file(
        "broken.c",
        "#include <heddle.h>\nstatic u32 schedule(struct hd_in *in) { return nonsense; }\n",
    );
    for wrong in [endless, broken] {
        let error = room.refused(1, &["steer", "replace", &id, "--policy", &wrong]);
        assert!(error.len() > 20, "{error}");
        assert_eq!(per_worker(&room.ask(&server, 4), 2), [0, 4], "the old policy decides");
    }
    assert_eq!(room.json(&["steer", "ls", "--json"])["attachments"][0]["policy"], "last");
    assert!(
        room.refused(2, &["steer", "replace", &id, "--policy", "round-robn"])
            .contains("did you mean `round-robin`?")
    );
    assert!(
        room.refused(1, &["steer", "replace", "77", "--policy", "jiq"])
            .contains("there is no attachment 77; there are: 1 at udp")
    );
    room.ok(&["steer", "detach", "--all"]);
}

#[test]
fn replacing_under_load_loses_nothing() {
    let Some(room) = Room::new() else { return };
    let server = room.server("udp", "127.0.0.1", 0, 3, "own");
    let id = attach(&room, &server, "round-robin");
    let answers = std::thread::scope(|scope| {
        let load = scope.spawn(|| room.ask(&server, 1000));
        for policy in ["jiq", "hash", "jsq", "round-robin"].iter().cycle().take(8) {
            room.ok(&["steer", "replace", &id, "--policy", policy]);
        }
        load.join().expect("every request is answered")
    });
    assert_eq!(answers.len(), 1000);
    let stats = room.json(&["steer", "stats", &id, "--json", "--sample", "0"]);
    assert_eq!((&stats["decisions"], &stats["failed"]), (&1000.into(), &0.into()));
}

#[test]
fn a_server_in_a_network_namespace_is_steered_from_outside_it() {
    let Some(room) = Room::new() else { return };
    for protocol in ["udp", "tcp"] {
        let server = room.server(protocol, "127.0.0.1", 0, 2, "own");
        let (pid, port) = (server.pid(), server.port());
        let output = room.heddle_outside(&[
            "steer",
            "attach",
            "--pid",
            &pid,
            "--port",
            &port,
            "--policy",
            "round-robin",
        ]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(per_worker(&room.ask(&server, 10), 2), [5, 5]);
        let output = room.heddle_outside(&["steer", "detach", "--pid", &pid]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains("the kernel chooses again") && !text.contains("empty program"),
            "{text}"
        );
    }
}

fn jiq<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["steer", "attach", "--policy", "jiq"], more].concat()
}

fn map<'a>(id: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["steer", "map", id], more].concat()
}

#[test]
fn refusals_to_attach_say_what_to_do() {
    let Some(room) = Room::new() else { return };
    let server = room.server("udp", "127.0.0.1", 0, 2, "own");
    let (pid, port) = (server.pid(), server.port());
    let other = (server.at.port() ^ 1).to_string();

    let error = room.refused(1, &jiq(&["--pid", &pid, "--port", &other]));
    assert!(
        error.contains(&format!("does not serve port {other}; it serves udp 127.0.0.1:{port}")),
        "{error}"
    );
    let error = room.refused(1, &jiq(&["--port", &port, "--protocol", "tcp"]));
    assert!(
        error.contains(&format!("no process serves tcp port {port}; it serves udp")),
        "{error}"
    );
    assert!(
        room.refused(1, &jiq(&["--pid", "4194305", "--port", &port]))
            .contains("there is no process 4194305")
    );

    for how in ["shared", "own"] {
        let one = room.server("tcp", "127.0.0.1", 0, if how == "own" { 1 } else { 3 }, how);
        let error = room.refused(1, &jiq(&["--port", &one.port()]));
        let wanted = if how == "own" { "with one socket" } else { "share one socket" };
        assert!(error.contains(wanted) && error.contains("worker"), "{error}");
    }

    let id = attach(&room, &server, "jiq");
    let error = room.refused(1, &jiq(&["--port", &port]));
    assert!(
        error.contains(&format!(
            "is attached already: {id}, policy jiq. `heddle steer replace {id}"
        )),
        "{error}"
    );
    room.ok(&["steer", "detach", &id]);
    let error = room.refused(1, &["steer", "detach", &id]);
    assert!(error.contains("there are no attachments"), "{error}");
}

#[test]
fn several_groups_on_a_port_are_all_attached_or_the_user_must_choose() {
    let Some(room) = Room::new() else { return };
    let four = room.server("udp", "127.0.0.1", 0, 2, "own");
    let six = room.server("udp", "::1", four.at.port(), 2, "own");
    let text = room.ok(&["steer", "attach", "--port", &four.port(), "--policy", "round-robin"]);
    assert!(text.contains("udp 127.0.0.1:") && text.contains("udp [::1]:"), "{text}");
    for server in [&four, &six] {
        assert_eq!(per_worker(&room.ask(server, 10), 2), [5, 5]);
    }
    room.ok(&["steer", "detach", "--port", &four.port()]);

    let _tcp = room.server("tcp", "127.0.0.1", four.at.port(), 2, "own");
    let error = room.refused(2, &["steer", "attach", "--port", &four.port(), "--policy", "jiq"]);
    assert!(error.contains("choose --protocol"), "{error}");
    room.ok(&["steer", "attach", "--port", &four.port(), "--policy", "jiq", "--protocol", "tcp"]);
    room.ok(&[
        "steer",
        "attach",
        "--port",
        &four.port(),
        "--policy",
        "jiq",
        "--protocol",
        "udp",
        "--address",
        "::1",
    ]);
    assert_eq!(room.json(&["steer", "ls", "--json"])["attachments"].as_array().unwrap().len(), 2);
    room.ok(&["steer", "detach", "--all"]);
}

#[test]
fn a_restarted_worker_is_served_by_the_kernel_until_it_is_added() {
    let Some(room) = Room::new() else { return };
    for protocol in ["udp", "tcp"] {
        let mut server = room.server(protocol, "127.0.0.1", 0, 3, "own");
        let id = attach(&room, &server, "round-robin");
        server.order("restart 1");
        let answers = room.ask(&server, 30);
        assert_eq!(answers.len(), 30, "every request was answered");
        let stats = room.json(&["steer", "stats", &id, "--json", "--sample", "0"]);
        assert_eq!(stats["failed"], 10, "{stats}");
        assert_eq!(stats["executors"][1]["present"], false);
        let text = room.ok(&["steer", "ls"]);
        assert!(text.contains("2/3") && text.contains("attach again with --follow"), "{text}");
        room.ok(&["steer", "detach", &id]);
    }
}

#[test]
fn remaining_workers_get_inputs_chosen_for_closed_sockets() {
    let Some(room) = Room::new() else { return };
    for protocol in ["udp", "tcp"] {
        let mut server = room.server(protocol, "127.0.0.1", 0, 4, "own");
        let id = attach(&room, &server, "round-robin");
        server.order("stop 1");
        server.order("stop 2");
        let answers = room.ask(&server, 40);
        let per = per_worker(&answers, 4);
        assert_eq!((answers.len(), per[0] + per[3]), (40, 40), "{per:?}");
        let stats = room.json(&["steer", "stats", &id, "--json", "--sample", "0"]);
        assert_eq!(
            (&stats["failed"], &stats["moved"], &stats["decisions"]),
            (&0.into(), &20.into(), &40.into()),
            "{stats}"
        );
        let text = room.ok(&["steer", "ls"]);
        assert!(text.contains("2/4") && text.contains("There is nothing to do"), "{text}");
        assert!(!text.contains("--follow"), "there is nothing to follow: {text}");
        room.ok(&["steer", "detach", &id]);
    }
}

/// `heddle steer attach --follow`, and what it prints.
struct Following {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Following {
    fn start(room: &Room, server: &Server) -> Following {
        Self::start_with(room, &["--pid", &server.pid(), "--port", &server.port()])
    }

    fn start_with(room: &Room, which: &[&str]) -> Following {
        let mut arguments =
            vec!["steer", "attach", "--policy", "round-robin", "--follow", "--json"];
        arguments.extend(which);
        let mut command = room.command(env!("CARGO_BIN_EXE_heddle"), &arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut following = Following { child, lines };
        assert_eq!(following.event()["event"], "attached");
        following
    }

    fn event(&mut self) -> serde_json::Value {
        serde_json::from_str(&self.lines.next().expect("an event").unwrap()).unwrap()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn following_keeps_all_workers_served_and_ends_with_the_server() {
    let Some(room) = Room::new() else { return };
    let mut server = room.server("tcp", "127.0.0.1", 0, 3, "own");
    let mut following = Following::start(&room, &server);
    for worker in [1, 0] {
        server.order(&format!("restart {worker}"));
        let event = following.event();
        assert_eq!(
            (&event["event"], &event["index"]),
            (&"executor".into(), &worker.into()),
            "{event}"
        );
    }
    assert_eq!(per_worker(&room.ask(&server, 30), 3), [10, 10, 10]);
    server.end();
    assert_eq!(following.event()["event"], "ended");
    assert!(following.child.wait().unwrap().success());
    assert!(room.ok(&["steer", "ls"]).starts_with("Nothing is attached.\n"));
}

#[test]
fn following_stays_in_the_network_namespace_of_the_attachment() {
    let (Some(room), Some(other)) = (Room::new(), Room::new()) else { return };
    for protocol in ["udp", "tcp"] {
        let mut server = room.server(protocol, "127.0.0.1", 0, 2, "own");
        let mut following = Following::start_with(&room, &["--port", &server.port()]);
        // The same address, in another namespace.
        let _foreign = other.server(protocol, "127.0.0.1", server.at.port(), 2, "own");
        for worker in [1, 0, 1] {
            server.order(&format!("restart {worker}"));
            let event = following.event();
            assert_eq!(
                (&event["event"], &event["index"]),
                (&"executor".into(), &worker.into()),
                "{event}"
            );
        }
        assert_eq!(per_worker(&room.ask(&server, 100), 2), [50, 50]);
        let listed = &room.json(&["steer", "ls", "--json"])["attachments"][0];
        assert_eq!(
            (&listed["failed"], &listed["present"], &listed["strangers"]),
            (&0.into(), &2.into(), &0.into()),
            "{listed}"
        );
        drop(following);
        room.ok(&["steer", "detach", "--all"]);
    }
}

#[test]
fn ctrl_c_while_following_detaches() {
    let Some(room) = Room::new() else { return };
    let server = room.server("udp", "127.0.0.1", 0, 2, "own");
    let mut following = Following::start(&room, &server);
    let pid = Pid::from_raw(following.child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(following.event()["event"], "detached");
    assert!(following.child.wait().unwrap().success());
    assert_eq!(room.ok(&["steer", "ls"]), "Nothing is attached.\n");
    assert_eq!(room.ask(&server, 6).len(), 6);
}

#[test]
fn a_server_that_ended_leaves_nothing_behind() {
    let Some(room) = Room::new() else { return };
    let server = room.server("udp", "127.0.0.1", 0, 2, "own");
    let id = attach(&room, &server, "jiq");
    server.end();
    let text = room.ok(&["steer", "ls"]);
    assert!(text.starts_with("Nothing is attached.\n"), "{text}");
    let error = room.refused(1, &["steer", "detach", &id]);
    assert!(error.contains("ended") && error.contains("its last socket was closed"), "{error}");
    let left = room.command("ls", &["/run/heddle", "/sys/fs/bpf/heddle"]).output().unwrap();
    let left = String::from_utf8(left.stdout).unwrap();
    assert!(!left.contains("json") && !left.contains(&format!("\n{id}\n")), "{left}");
}

#[test]
fn an_ended_attachment_is_reported_with_the_reason_and_what_to_do() {
    let Some(room) = Room::new() else { return };
    let server = room.server("udp", "127.0.0.1", 0, 2, "own");
    let (port, id) = (server.at.port(), attach(&room, &server, "jiq"));
    let arguments = ["steer", "stats", &id, "--watch", "--json", "--sample", "0"];
    let mut watch = room.command(env!("CARGO_BIN_EXE_heddle"), &arguments);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    lines.next().expect("it watches").unwrap();
    server.end();
    // Reads to the end, so that the watcher never blocks on the pipe.
    assert!(lines.all(|line| line.is_ok()));
    let output = watch.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    let is_explained = |text: &str| {
        let what = format!("Attachment {id} (jiq at udp 127.0.0.1:{port}) ended ");
        text.contains(&what)
            && text.contains("restarted with new sockets; attach again, and with --follow")
    };
    assert!(is_explained(&error), "{error}");
    let text = room.ok(&["steer", "ls"]);
    assert!(is_explained(&text), "{text}");
    assert_eq!(room.json(&["steer", "ls", "--json"])["ended"][0]["attachment"]["policy"], "jiq");

    // Until another attachment replaces it.
    let server = room.server("udp", "127.0.0.1", port, 2, "own");
    let id = attach(&room, &server, "jiq");
    assert!(!room.ok(&["steer", "ls"]).contains("ended"));
    room.ok(&["steer", "detach", &id]);
    assert_eq!(
        room.ok(&["steer", "ls"]),
        "Nothing is attached.\n",
        "a detached attachment is not reported as ended"
    );
}

#[test]
fn maps_are_listed_read_and_set_and_a_full_map_is_reported() {
    let Some(room) = Room::new() else { return };
    let server = room.server("udp", "127.0.0.1", 0, 2, "own");
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("maps.c");
    let source = "#include <heddle.h>\nHD_MAP(weights, u64, 4);\nHD_HASH(owners, u32, u64, 2);\nstatic u32 \
        schedule(struct hd_in *in)\n{\n\tu64 *weight = hd_at(weights, 0);\n\tu64 *owner = hd_find(owners, \
        1);\n\treturn owner ? (u32)*owner : weight ? (u32)*weight : HD_PASS;\n}\n";
    std::fs::write(&policy, source).unwrap();
    let id = attach(&room, &server, policy.to_str().unwrap());
    let listed = room.ok(&map(&id, &[]));
    assert!(
        listed.contains("weights") && listed.contains("owners") && listed.contains("hd_lines"),
        "{listed}"
    );

    room.ok(&map(&id, &["weights", "0", "1"]));
    assert_eq!(room.ok(&map(&id, &["weights", "0"])), "1\n");
    assert_eq!(per_worker(&room.ask(&server, 4), 2), [0, 4], "the policy sees it");
    room.ok(&map(&id, &["owners", "0x1", "hex:0000000000000000"]));
    assert_eq!(room.ok(&map(&id, &["owners"])), "1 0\n");
    assert_eq!(per_worker(&room.ask(&server, 4), 2), [4, 0]);
    room.ok(&map(&id, &["owners", "2", "7"]));
    assert!(room.refused(1, &map(&id, &["owners", "3", "7"])).contains("full (2 keys)"));
    room.ok(&map(&id, &["owners", "1", "--delete"]));
    assert!(room.refused(1, &map(&id, &["owners", "1"])).contains("has nothing at key 1"));
    assert!(room.refused(2, &map(&id, &["weights", "4"])).contains("keys 0 to 3, not 4"));
    assert!(room.refused(2, &map(&id, &["weights", "4", "1"])).contains("keys 0 to 3, not 4"));
    assert!(room.refused(2, &map(&id, &["weights", "0", "hex:01"])).contains("64 bytes"));
    assert!(room.refused(2, &map(&id, &["wieghts"])).contains("it has"));
    assert!(room.refused(2, &map(&id, &["hd_sockets", "0", "--delete"])).contains("Heddle's own"));
    assert_eq!(room.json(&map(&id, &["weights", "--json"]))["entries"][0]["value"][0], 1);
}

#[test]
fn unprivileged_users_see_which_privileges_are_missing() {
    let Some(room) = Room::new() else { return };
    let server = room.server("udp", "127.0.0.1", 0, 2, "own");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("heddle");
    std::fs::copy(env!("CARGO_BIN_EXE_heddle"), &copy).unwrap();
    room.command("chmod", &["755", folder.path().to_str().unwrap()]).status().unwrap();
    for command in [
        &["steer", "attach", "--port", &server.port(), "--policy", "jiq"][..],
        &["steer", "ls"],
        &["steer", "detach", "--all"],
    ] {
        let mut all =
            vec!["--reuid", "65534", "--regid", "65534", "--clear-groups", copy.to_str().unwrap()];
        all.extend(command);
        let output = room.command("setpriv", &all).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("root"), "{error}");
    }
}
