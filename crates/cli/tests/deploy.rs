//! `heddle apply`, `diff`, `status` and `remove`: real servers, sockets and policies. They need root and BPF.

#[allow(dead_code, reason = "these tests are not about where a command runs")]
#[path = "steer/room.rs"]
mod room;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use heddle_agent::guardian::{Backends as _, KernelBackends, Kind};
use heddle_test_support::{Running, TempDir, temp_dir, until, workspace_root};
use room::{Room, Server};
use serde_json::Value;

const OTHER_USER: &str = "65534";

/// A room and a folder for deployment files.
struct Setup {
    room: Room,
    folder: TempDir,
}

impl Setup {
    /// Prints a line and returns `None` if these tests cannot run here.
    fn new() -> Option<Self> {
        Some(Self { room: Room::new()?, folder: temp_dir() })
    }

    /// Writes `kv.toml`.
    fn file(&self, text: &str) -> String {
        let path = self.folder.path().join("kv.toml");
        fs::write(&path, text).expect("written");
        path.to_string_lossy().into_owned()
    }

    fn attachments(&self) -> Vec<Value> {
        let list = self.room.json(&["steer", "ls", "--json"]);
        list["attachments"].as_array().expect("a list").clone()
    }

    /// The numbers and policies of all attachments.
    fn policies(&self) -> Vec<(u64, String)> {
        let one = |one: &Value| {
            let attachment = if one["id"].is_null() { &one["attachment"] } else { one };
            let id = attachment["id"].as_u64().expect("a number");
            (id, attachment["policy"].as_str().expect("a name").to_owned())
        };
        self.attachments().iter().map(one).collect()
    }

    /// A UDP server with a socket for each of three workers.
    fn server(&self, port: u16) -> Server {
        self.room.server("udp", "127.0.0.1", port, 3, "own")
    }

    fn status(&self) -> Value {
        let output = self.room.heddle(&["status", "--json"]);
        let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        all["deployments"][0].clone()
    }
}

/// Returns how many requests each worker got of twelve.
fn counts(setup: &Setup, server: &Server) -> Vec<usize> {
    let mut counts = vec![0; 3];
    for worker in setup.room.ask(server, 12) {
        counts[worker] += 1;
    }
    counts
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn steer(port: u16, policy: &str) -> String {
    format!(
        "[[steer]]\nname = \"requests\"\npolicy = \"{policy}\"\nport = {port}\nprotocol = \"udp\"\n"
    )
}

#[test]
fn a_file_is_applied_compared_changed_and_removed() {
    let Some(setup) = Setup::new() else { return };
    let room = &setup.room;
    let server = setup.server(8101);
    let file = setup.file(&steer(8101, "round-robin"));

    let planned = room.ok(&["apply", &file, "--dry-run", "--explain"]);
    assert!(
        planned.contains("+ requests: attach round-robin to 3 sockets at udp 127.0.0.1:8101"),
        "{planned}"
    );
    assert!(
        planned.contains("because nothing is attached there, and line 1 asks for it"),
        "{planned}"
    );
    assert!(setup.policies().is_empty(), "a dry run does nothing");
    let before = room.heddle(&["diff", &file]);
    assert_eq!((before.status.code(), text(&before).lines().count()), (Some(1), 1));

    let done = room.ok(&["apply", &file]);
    assert!(done.contains("Deployment kv is in place"), "{done}");
    assert_eq!(counts(&setup, &server), [4, 4, 4], "the policy decides");
    let first = setup.policies();
    assert_eq!(first.len(), 1);

    // Again: nothing changes.
    let again = room.json(&["apply", &file, "--json"]);
    assert_eq!(again["steps"], serde_json::json!([]));
    assert_eq!(setup.policies(), first);
    let same = room.heddle(&["diff", &file]);
    assert_eq!((same.status.code(), text(&same)), (Some(0), String::new()));

    // Another policy: replaced while it runs, under the same number.
    setup.file(&steer(8101, "hash"));
    let differs = room.heddle(&["diff", &file, "--explain"]);
    assert_eq!(differs.status.code(), Some(1));
    assert!(
        text(&differs).contains("~ requests: replace round-robin by hash"),
        "{}",
        text(&differs)
    );
    room.ok(&["apply", &file]);
    assert_eq!(setup.policies(), [(first[0].0, "hash".into())]);

    let shown = setup.status();
    assert_eq!((&shown["name"], &shown["is_running"]), (&"kv".into(), &true.into()));
    let hook = &shown["hooks"][0];
    assert_eq!((&hook["state"], &hook["counts"]["present"]), (&"active".into(), &3.into()));
    assert!(hook["counts"]["decisions"].as_u64() >= Some(12), "{hook}");
    assert!(room.ok(&["status", &file]).contains("requests (socket-select): active: hash"));

    // A second section, and then the first one alone again.
    let more = setup.room.server("tcp", "127.0.0.1", 8102, 3, "own");
    let both = format!("{}[[steer]]\npolicy = \"round-robin\"\nport = 8102\n", steer(8101, "hash"));
    setup.file(&both);
    room.ok(&["apply", &file]);
    assert_eq!(setup.policies().len(), 2);
    assert_eq!(counts(&setup, &more), [4, 4, 4]);
    setup.file(&steer(8101, "hash"));
    let less = room.ok(&["apply", &file]);
    assert!(less.contains("- steer-2: detach round-robin from tcp 127.0.0.1:8102"), "{less}");
    assert_eq!(setup.policies(), [(first[0].0, "hash".into())]);

    let gone = room.ok(&["remove", &file]);
    assert!(gone.contains("- requests: detach hash") && gone.contains("is removed"), "{gone}");
    assert!(setup.policies().is_empty());
    assert_eq!(room.ok(&["status"]), "There are no deployments.\n");
    assert!(room.refused(1, &["remove", "kv"]).contains("nothing was applied from kv"));
    room.ok(&["remove", "kv", "--if-applied"]);
    server.end();
    more.end();
}

#[test]
fn a_failure_undoes_the_steps_before_it() {
    let Some(setup) = Setup::new() else { return };
    let room = &setup.room;
    let server = setup.server(8111);
    let broken = format!(
        "{}[[steer]]\nname = \"packets\"\npolicy = \"hash\"\nport = 8111\nhook = \"cpu-redirect\"\n\
            interface = \"nope0\"\ncpus = \"0\"\n",
        steer(8111, "round-robin")
    );
    let file = setup.file(&broken);
    let said = room.refused(1, &["apply", &file]);
    assert!(said.contains("`packets`: cannot attach hash") && said.contains("nope0"), "{said}");
    assert!(setup.policies().is_empty(), "the first section is undone");
    assert_eq!(room.ok(&["status"]), "There are no deployments.\n");

    // The same over a deployment: it is as before, replaced policy and all.
    setup.file(&steer(8111, "hash"));
    room.ok(&["apply", &file]);
    let before = setup.policies();
    setup.file(&broken);
    room.refused(1, &["apply", &file]);
    assert_eq!(setup.policies(), before);
    setup.file(&steer(8111, "hash"));
    assert_eq!(room.heddle(&["diff", &file]).status.code(), Some(0));
    room.ok(&["remove", &file]);
    server.end();
}

#[test]
fn packets_of_a_port_go_to_cpus_beside_a_policy_for_its_sockets() {
    let Some(setup) = Setup::new() else { return };
    let room = &setup.room;
    for words in [
        "link add hd0 type veth peer name hd1",
        "addr add 10.79.0.1/24 dev hd0",
        "link set hd0 up",
        "link set hd1 up",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        assert!(room.command("ip", &words).status().expect("ip").success(), "{words:?}");
    }
    let server = room.server("udp", "10.79.0.1", 8191, 3, "own");
    let with = |policy: &str, cpus: &str| {
        format!(
            "{}[[steer]]\nname = \"packets\"\nport = 8191\nprotocol = \"udp\"\nhook = \"cpu-redirect\"\n\
                interface = \"hd0\"\npolicy = \"{policy}\"\ncpus = \"{cpus}\"\n",
            steer(8191, "round-robin")
        )
    };
    let file = setup.file(&with("hash", "0"));
    let done = room.ok(&["apply", &file]);
    assert!(done.contains("+ packets: attach hash, which chooses among 1 CPUs"), "{done}");
    let first = setup.policies();
    assert_eq!(first.len(), 2);
    assert!(text(&room.heddle(&["diff", &file])).is_empty());
    assert!(room.ok(&["status", "kv"]).contains("packets (cpu-redirect): active: hash"));

    // Another policy is replaced; other CPUs take another attachment.
    setup.file(&with("round-robin", "0"));
    room.ok(&["apply", &file]);
    assert_eq!(setup.policies()[1], (first[1].0, "round-robin".into()));
    setup.file(&with("round-robin", "0,0"));
    let done = room.ok(&["apply", &file]);
    assert!(
        done.contains("- packets: detach round-robin") && done.contains("among 2 CPUs"),
        "{done}"
    );
    let last = setup.policies();
    assert_eq!((last.len(), last[0].0), (2, first[0].0));
    assert_ne!(last[1].0, first[1].0);
    room.ok(&["remove", "kv"]);
    assert!(setup.policies().is_empty());
    server.end();
}

#[test]
fn sockets_of_others_and_of_other_deployments_are_left_alone() {
    let Some(setup) = Setup::new() else { return };
    let room = &setup.room;
    let server = setup.server(8121);
    let policy = setup.folder.path().join("mine.c");
    fs::write(
        &policy,
        "#include <heddle.h>\nstatic u32 schedule(struct hd_in *in) { return 0; }\n",
    )
    .expect("written");
    let by_hand = ["steer", "attach", "--port", "8121", "--policy"];
    room.ok(&[&by_hand[..], &[policy.to_str().expect("text")]].concat());
    let file = setup.file(&steer(8121, "hash"));
    let said = room.refused(1, &["apply", &file]);
    assert!(
        said.contains("could not be restored") && said.contains("heddle steer detach"),
        "{said}"
    );
    room.ok(&["steer", "detach", "--all"]);

    // One of a shipped policy becomes the deployment's.
    room.ok(&[&by_hand[..], &["round-robin"]].concat());
    let id = setup.policies()[0].0;
    let done = room.ok(&["apply", &file]);
    assert!(
        done.contains("~ requests: keep attachment") && done.contains("~ requests: replace"),
        "{done}"
    );
    assert_eq!(setup.policies(), [(id, "hash".into())]);

    let other = setup.folder.path().join("other.toml");
    fs::write(&other, steer(8121, "hash")).expect("written");
    let said = room.refused(1, &["apply", other.to_str().expect("text")]);
    assert!(said.contains("belongs to deployment `kv`"), "{said}");
    // A policy of a file is known by its content.
    setup.file(&steer(8121, "./mine.c"));
    room.ok(&["apply", &file]);
    assert_eq!(room.heddle(&["diff", &file]).status.code(), Some(0));
    fs::write(
        &policy,
        "#include <heddle.h>\nstatic u32 schedule(struct hd_in *in) { return 1; }\n",
    )
    .expect("written");
    assert!(text(&room.heddle(&["diff", &file])).contains("replace mine (changed)"));
    room.ok(&["remove", "kv"]);
    server.end();
}

/// The capabilities that heddled's unit and its drop-in leave to it, as setpriv reads them.
fn capabilities_of_units() -> String {
    let mut set = "-all".to_owned();
    for name in ["heddled.service", "drop-ins/heddled.conf"] {
        let path = workspace_root().join("packaging/systemd").join(name);
        let unit = fs::read_to_string(path).expect("a unit");
        let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        for capability in line.expect("a set").split(' ') {
            let name = capability.strip_prefix("CAP_").expect("a capability");
            set += &format!(",+{}", name.to_lowercase());
        }
    }
    set
}

/// heddled in the room, with its watch, if it was built.
fn heddled(setup: &Setup, more: &[&str]) -> Option<Running> {
    let program = Path::new(env!("CARGO_BIN_EXE_heddle")).with_file_name("heddled");
    if !program.exists() {
        eprintln!("skipped: no heddled beside heddle (cargo build -p heddled)");
        return None;
    }
    // With what systemd would leave to it.
    let capabilities = format!("--bounding-set={}", capabilities_of_units());
    let program = program.to_str().expect("a path");
    let under = [&*capabilities, "--no-new-privs", program, "--deployments"];
    let arguments = [&under[..], more].concat();
    let running = Running::start_logged(&mut setup.room.command("setpriv", &arguments));
    let connected =
        ["-c", "import socket; socket.socket(socket.AF_UNIX).connect('/run/heddle/heddled.sock')"];
    until("heddled listens", || {
        let output = setup.room.command("python3", &connected).output();
        output.expect("python3").status.success()
    });
    Some(running)
}

fn is_attached(setup: &Setup, policy: &str, executors: u64) -> bool {
    let shown = setup.status();
    let hook = &shown["hooks"][0];
    hook["state"] == "active"
        && hook["policy"] == policy
        && hook["counts"]["present"].as_u64() == Some(executors)
}

#[test]
fn heddled_deploys_again_when_service_or_heddled_restart() {
    let Some(setup) = Setup::new() else { return };
    let room = &setup.room;
    let Some(mut daemon) = heddled(&setup, &[]) else { return };
    let mut server = setup.server(8131);
    let file = setup.file(&steer(8131, "round-robin"));
    room.ok(&["apply", &file]);
    assert_eq!(counts(&setup, &server), [4, 4, 4]);
    let first = setup.policies();

    // A worker restarts: its new socket is added.
    server.order("restart 1");
    until("the new worker's socket is an executor", || {
        text(&room.heddle(&["diff", &file])).is_empty()
    });
    assert_eq!(setup.policies(), first);

    // The service restarts.
    server.end();
    until("the attachment has ended", || setup.policies().is_empty());
    assert_eq!(room.heddle(&["status"]).status.code(), Some(1));
    let server = setup.server(8131);
    until("it is deployed again", || is_attached(&setup, "round-robin", 3));
    assert_eq!(counts(&setup, &server), [4, 4, 4]);
    assert_ne!(setup.policies(), first);

    // heddled is killed; what is deployed stays, and the next one deploys again.
    daemon.child().kill().expect("killed");
    daemon.wait();
    assert_eq!(counts(&setup, &server), [4, 4, 4]);
    let Some(mut daemon) = heddled(&setup, &[]) else { return };
    server.end();
    let server = setup.server(8131);
    until("it is deployed again", || is_attached(&setup, "round-robin", 3));
    assert_eq!(counts(&setup, &server), [4, 4, 4]);

    // What was removed stays removed.
    room.ok(&["remove", "kv"]);
    server.end();
    let server = setup.server(8131);
    let other = setup.server(8132);
    setup.file(&steer(8132, "hash"));
    room.ok(&["apply", &file]);
    other.end();
    let other = setup.server(8132);
    until("the watch has looked again", || is_attached(&setup, "hash", 3));
    assert_eq!(setup.policies().len(), 1);
    room.ok(&["remove", "kv"]);
    server.end();
    other.end();
    daemon.child().kill().expect("killed");
    daemon.wait();
}

/// The last CPU: the others stay free.
fn cpu() -> String {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").expect("sysfs");
    online.trim().rsplit([',', '-']).next().expect("a CPU").to_owned()
}

fn with_agent(port: u16, policy: &str, cpu: &str, more: &str) -> String {
    format!(
        "[service]\nport = {port}\n{}[agent]\npolicy = \"{policy}\"\ncpus = \"{cpu}\"\nbackend = \"rt\"\n\
            patience = \"0s\"\n{more}",
        steer(port, "scan-avoid")
    )
}

const CLASS_MAP: &str = "class-map = \"requests\"\nclass = \"be=work:3\"\n";

/// Prints a line and returns `None` if the real-time backend does not work here. The tests with an agent run one at
/// a time, since they share a CPU.
fn agents_work() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    if let Err(missing) = KernelBackends.probe(Kind::Rt) {
        eprintln!("skipped: {missing}");
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

fn enclave(setup: &Setup) -> Value {
    setup.room.json(&["agent", "status", "--json"])["enclaves"][0]["guardian"].clone()
}

#[test]
fn heddled_starts_the_agent_again_with_the_service() {
    let Some(_turn) = agents_work() else { return };
    let Some(setup) = Setup::new() else { return };
    let room = &setup.room;
    let Some(mut daemon) = heddled(&setup, &[]) else { return };
    let server = setup.server(8171);
    let file = setup.file(&with_agent(8171, "priority", &cpu(), CLASS_MAP));
    room.ok(&["apply", &file]);
    let (first, attachments) = (enclave(&setup), setup.policies());
    server.end();
    until("the attachment has ended", || setup.policies().is_empty());
    let server = setup.server(8171);
    // The new attachment has another number, which the new enclave reads.
    until("all is deployed again", || room.heddle(&["status"]).status.success());
    until("nothing is left to do", || text(&room.heddle(&["diff", &file])).is_empty());
    assert_ne!(setup.policies(), attachments);
    let second = enclave(&setup);
    assert_ne!(second["guardian"], first["guardian"]);
    assert_eq!(second["policy"], "priority");
    assert_eq!(setup.room.ask(&server, 3).len(), 3, "it serves");

    // The enclave outlives heddled, and its guardian is found again.
    daemon.child().kill().expect("killed");
    daemon.wait();
    let Some(mut daemon) = heddled(&setup, &[]) else { return };
    assert_eq!(enclave(&setup)["guardian"], second["guardian"]);
    room.ok(&["remove", "kv"]);
    server.end();
    daemon.child().kill().expect("killed");
    daemon.wait();
}

#[test]
fn an_agent_is_started_upgraded_and_stopped_with_the_file() {
    let Some(_turn) = agents_work() else { return };
    let Some(setup) = Setup::new() else { return };
    let room = &setup.room;
    let server = setup.server(8141);
    let cpu = cpu();
    let file = setup.file(&with_agent(8141, "priority", &cpu, CLASS_MAP));
    let done = room.ok(&["apply", &file]);
    assert!(done.contains("+ agent: start enclave `kv` with priority"), "{done}");
    let enclave = || enclave(&setup);
    let guardian = enclave()["guardian"].clone();
    assert!(
        enclave()["taken"]["processes"].as_array().is_some_and(|all| all.len() >= 4),
        "{}",
        enclave()
    );
    assert_eq!(setup.room.ask(&server, 3).len(), 3, "it serves");
    assert_eq!(room.heddle(&["diff", &file]).status.code(), Some(0));
    assert_eq!(setup.status()["hooks"][1]["state"], "active");

    // Another policy takes over without a new enclave; other options take one.
    setup.file(&with_agent(8141, "fifo", &cpu, CLASS_MAP));
    room.ok(&["apply", &file]);
    assert_eq!((&enclave()["policy"], &enclave()["guardian"]), (&"fifo".into(), &guardian));
    setup.file(&with_agent(8141, "fifo", &cpu, ""));
    let done = room.ok(&["apply", &file]);
    assert!(done.contains("~ agent: restart enclave `kv`"), "{done}");
    assert_ne!(enclave()["guardian"], guardian);

    // An enclave that cannot be made undoes the steering before it, and the enclave stays.
    let guardian = enclave()["guardian"].clone();
    let wrong = with_agent(8141, "fifo", &cpu, "")
        .replace("scan-avoid", "hash")
        .replace(&format!("\"{cpu}\""), "\"4000\"");
    setup.file(&wrong);
    let said = room.refused(1, &["apply", &file]);
    assert!(said.contains("`agent`: cannot restart enclave"), "{said}");
    assert_eq!(setup.policies()[0].1, "scan-avoid");
    assert_eq!(setup.status()["hooks"][1]["state"], "active");
    assert_ne!(enclave()["guardian"], guardian, "it was started again");

    room.ok(&["remove", "kv"]);
    let left = room.json(&["agent", "status", "--json"]);
    assert_eq!(left["enclaves"], serde_json::json!([]));
    assert!(setup.policies().is_empty());
    server.end();
}

#[test]
fn wrong_files_are_refused_with_line_key_and_advice() {
    let Some(setup) = Setup::new() else { return };
    let room = &setup.room;
    for (text, line, parts) in [
        ("", 1, ["no policy", "[[steer]]"]),
        (
            "[[steer]]\npolcy = \"jiq\"\n",
            2,
            ["no key `polcy` in [[steer]]", "did you mean `policy`?"],
        ),
        ("[[steer]]\nport = 1\npolicy = 3\n", 3, ["[[steer]] `policy`", "in quotes"]),
        (
            "[[steer]]\nport = 1\npolicy = \"jik\"\n",
            3,
            ["there is no policy `jik`", "did you mean `jiq`?"],
        ),
        ("[[steer]]\nport = 1\npolicy = \"sita:scam=2\"\n", 3, ["no parameter `scam`", "scan"]),
        ("[[steer]]\npolicy = \"jiq\"\n", 1, ["no `port`", "port = 8000"]),
        ("[[steer]]\npolicy = \"jiq\"\nport = 70000\n", 3, ["`port`", "from 0 to 65535"]),
        (
            "[[steer]]\npolicy = \"jiq\"\nport = 1\nhook = \"xdp\"\n",
            4,
            ["no hook `xdp`", "cpu-redirect"],
        ),
        (
            "[[steer]]\npolicy = \"jiq\"\nport = 1\nhook = \"cpu-redirect\"\n",
            4,
            ["interface", "cpus"],
        ),
        ("[[steer]]\npolicy = \"jiq\"\nport = 1\ncpus = \"0\"\n", 1, ["cpus", "cpu-redirect"]),
        (
            "[service]\nunit = \"a\"\npid = 1\n[agent]\npolicy = \"fifo\"\n",
            3,
            ["names the service twice", "`unit`"],
        ),
        ("[agent]\npolicy = \"fifo\"\n", 1, ["needs a service", "[service]"]),
        ("[service]\npid = 1\n[agent]\npolicy = \"fifoo\"\n", 4, ["[agent] `policy`", "fifo"]),
        (
            "[service]\npid = 1\n[agent]\npolicy = \"fifo\"\nclass-map = \"a\"\n",
            5,
            ["`class-map`", "`a`"],
        ),
        (
            "[service]\npid = 1\n[agent]\npolicy = \"fifo\"\ncpus = \"x\"\n",
            5,
            ["[agent] `cpus`", "x"],
        ),
        ("[[steer]]\npolicy = \"jiq\"\nport = [1, 2\n", 3, ["", ""]),
    ] {
        let file = setup.file(text);
        let said = room.refused(2, &["apply", &file]);
        assert!(said.contains(&format!("kv.toml:{line}: ")), "{text}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{text}: {said}");
        assert_eq!(room.refused(2, &["diff", &file]), said);
    }
    let file = setup.file(&format!("[service]\nunit = \"no-such-unit\"\n{}", steer(8151, "jiq")));
    let said = room.refused(1, &["apply", &file]);
    assert!(said.contains("kv.toml:3: `requests`: no unit no-such-unit.service"), "{said}");
    let file = setup.file(&steer(8151, "jiq"));
    assert!(room.refused(1, &["apply", &file]).contains("no process serves udp port 8151"));
    assert_eq!(room.heddle(&["diff", &file]).status.code(), Some(1));
    assert!(
        room.refused(1, &["apply", "/nonexistent.toml"]).contains("cannot read /nonexistent.toml")
    );
    assert!(setup.policies().is_empty());
}

/// `heddle` as the other user, with a folder of its own for records.
fn as_user(setup: &Setup, own: &Path, arguments: &[&str]) -> Command {
    // Where an unprivileged user can start it.
    let heddle = own.join("command");
    if !heddle.exists() {
        fs::copy(env!("CARGO_BIN_EXE_heddle"), &heddle).expect("copied");
    }
    let heddle = heddle.to_str().expect("a path");
    let (user, group) = (format!("--reuid={OTHER_USER}"), format!("--regid={OTHER_USER}"));
    let all = [&[&*user, &group, "--clear-groups", heddle], arguments].concat();
    let mut command = setup.room.command("setpriv", &all);
    command.env("XDG_RUNTIME_DIR", own);
    command
}

/// A server of the other user.
fn server_of_user(room: &Room, port: u16) -> Server {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/steer/server.py");
    let variable = format!("SERVER_UID={OTHER_USER}");
    let program = ["env", &variable, "python3", script];
    room.server_by(&program, "udp", "127.0.0.1", port, 3, "own")
}

#[test]
fn another_users_server_is_not_taken_for_the_service() {
    let Some(setup) = Setup::new() else { return };
    let room = &setup.room;
    let Some(mut daemon) = heddled(&setup, &[]) else { return };
    let server = setup.server(8181);
    // Without [service] it is found by its port; so is the second one, by its key.
    let file = setup.file(&steer(8181, "round-robin"));
    room.ok(&["apply", &file]);
    let other = setup.folder.path().join("port.toml");
    let second = setup.server(8182);
    fs::write(&other, format!("[service]\nport = 8182\n{}", steer(8182, "hash"))).expect("written");
    room.ok(&["apply", other.to_str().expect("text")]);
    server.end();
    second.end();
    until("the attachments have ended", || setup.policies().is_empty());

    let foreign = [server_of_user(room, 8181), server_of_user(room, 8182)];
    let shown = room.heddle(&["status"]);
    assert_eq!(shown.status.code(), Some(1));
    let shown = text(&shown);
    assert!(!shown.contains(": active:") && shown.matches(": absent").count() >= 2, "{shown}");
    // The watch has looked at least once when it has deployed something else.
    let third = setup.folder.path().join("third.toml");
    let server = setup.server(8183);
    fs::write(&third, steer(8183, "jiq")).expect("written");
    room.ok(&["apply", third.to_str().expect("text")]);
    server.end();
    let server = setup.server(8183);
    until("the third is deployed again", || room.heddle(&["status", "third"]).status.success());
    let policies: Vec<String> = setup.policies().into_iter().map(|(_, policy)| policy).collect();
    assert_eq!(policies, ["jiq"], "and nothing for the servers of another user");
    foreign.into_iter().for_each(Server::end);

    // The service's own user.
    let service = setup.server(8181);
    until("it is deployed again", || room.heddle(&["status", "kv"]).status.success());
    room.ok(&["remove", "kv"]);
    room.ok(&["remove", "port"]);
    room.ok(&["remove", "third"]);
    service.end();
    server.end();
    daemon.child().kill().expect("killed");
    daemon.wait();
}

fn folder_of_user(setup: &Setup) -> PathBuf {
    let own = setup.folder.path().join("run");
    fs::create_dir(&own).expect("a folder");
    let user = Some(OTHER_USER.parse().expect("a number"));
    std::os::unix::fs::chown(&own, user, user).expect("given away");
    own
}

#[test]
fn users_deploy_for_their_own_processes_and_root_watches_only_its_own() {
    let Some(setup) = Setup::new() else { return };
    let room = &setup.room;
    fs::set_permissions(setup.folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("open");
    let own = folder_of_user(&setup);
    let file = setup.file(&steer(8161, "round-robin"));
    let refused = |arguments: &[&str]| {
        let output = as_user(&setup, &own, arguments).output().expect("setpriv");
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        text(&output)
    };
    assert!(refused(&["apply", &file]).contains("no daemon listens"));
    let Some(mut daemon) = heddled(&setup, &["--everyone"]) else { return };
    // A server of root's: its sockets may not be copied.
    let server = setup.server(8161);
    let said = refused(&["apply", &file]);
    assert!(said.contains("8161"), "{said}");
    assert!(setup.policies().is_empty());
    server.end();
    let agent = setup.file(&format!(
        "[service]\nport = 8161\n{}[agent]\npolicy = \"fifo\"\n",
        steer(8161, "hash")
    ));
    assert!(refused(&["apply", &agent]).contains("[agent] takes root"));

    // The user's own server, within the user's rights and quotas. Root's watch has nothing to do with it.
    let start = || server_of_user(room, 8161);
    let server = start();
    setup.file(&steer(8161, "round-robin"));
    let done = as_user(&setup, &own, &["apply", &file]).output().expect("setpriv");
    assert!(
        done.status.success() && text(&done).contains("heddle apply --watch"),
        "{}",
        text(&done)
    );
    assert_eq!(counts(&setup, &server), [4, 4, 4]);
    assert_eq!(room.ok(&["status"]), "There are no deployments.\n", "root has none");
    server.end();
    let server = start();
    // The user's own watch deploys again.
    let _watch = Running::start_logged(&mut as_user(&setup, &own, &["apply", "--watch"]));
    until("it is deployed again", || {
        let shown = as_user(&setup, &own, &["status"]).output().expect("setpriv");
        shown.status.success() && text(&shown).contains("3 of 3 executors")
    });
    assert_eq!(counts(&setup, &server), [4, 4, 4]);
    let done = as_user(&setup, &own, &["remove", "kv"]).output().expect("setpriv");
    assert!(done.status.success(), "{}", text(&done));
    assert!(setup.policies().is_empty());
    server.end();
    daemon.child().kill().expect("killed");
    daemon.wait();
}

/// The text of the first block of a document in this language.
fn block<'a>(document: &'a str, language: &str) -> &'a str {
    let start = format!("\n```{language}\n");
    let rest = document.split_once(&start).expect("a block").1;
    rest.split_once("\n```").expect("it ends").0
}

/// Kills processes whose working directory is `folder`.
fn kill_all_in(folder: &Path) {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids {
        let is_here = fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder);
        if let Some(pid) = rustix::process::Pid::from_raw(pid).filter(|_| is_here) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[test]
fn the_example_of_the_manual_works() {
    let Some(setup) = Setup::new() else { return };
    let manual = fs::read_to_string(workspace_root().join("docs/deploy.md")).expect("the manual");
    let folder = setup.folder.path();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("written");
    write("server.py", block(&manual, "python"));
    write("echo.toml", block(&manual, "toml"));
    // Root needs no sudo, and the server would keep the test's pipe open.
    let script = block(&manual, "sh").replace("sudo heddle", env!("CARGO_BIN_EXE_heddle"));
    let script = script.replace("server.py ", "server.py > server.log 2>&1 ");
    let script = format!("cd {}\n{script}", folder.display());
    let output = setup.room.command("sh", &["-ec", &script]).output().expect("sh");
    kill_all_in(folder);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for part in [
        "+ requests: attach round-robin to 4 sockets at udp 127.0.0.1:8000",
        "~ requests: replace round-robin by jiq at udp 127.0.0.1:8000",
        "requests (socket-select): active: jiq",
        "Deployment echo is removed.",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
}
