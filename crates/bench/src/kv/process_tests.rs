use super::*;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn start(script: &str) -> Result<(ServerProcess, u16), StartError> {
    let ready = |line: &str| line.strip_prefix("ready ")?.parse().ok();
    ServerProcess::start("fake", shell(script), &AtomicBool::new(false), ready)
}

fn exists(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_server_ends_when_its_owner_drops_it() {
    let (mut server, port) = start("echo opening; echo ready 7000; cat >/dev/null").unwrap();
    assert_eq!(port, 7000);
    assert!(server.ended().is_none());
    let pid = server.pid();
    drop(server);
    assert!(!exists(pid));
}

#[test]
fn a_server_that_does_not_heed_its_input_is_killed() {
    let (server, _) = start("echo ready 7000; exec sleep 600").unwrap();
    let pid = server.pid();
    drop(server);
    assert!(!exists(pid));
}

#[test]
fn a_server_that_fails_says_why() {
    let error =
        start("echo opening; echo port 7000 is in use >&2; exit 3").unwrap_err().to_string();
    assert!(error.contains("fake ended before it was ready"), "{error}");
    assert!(error.contains("exit status: 3") && error.contains("port 7000 is in use"), "{error}");
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let command = Command::new("/nonexistent/heddle");
    let error = ServerProcess::start("fake", command, &AtomicBool::new(false), |_| Some(()));
    assert!(error.unwrap_err().to_string().starts_with("cannot start fake"));
}

#[test]
fn an_interrupt_ends_the_wait_and_the_child() {
    let stop = AtomicBool::new(true);
    let result = ServerProcess::start("fake", shell("cat >/dev/null"), &stop, |_| Some(()));
    assert!(matches!(result, Err(StartError::Interrupted)));
}
