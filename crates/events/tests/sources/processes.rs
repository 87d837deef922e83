//! Ends of processes.

use super::{delivered, delivered_now};
use heddle_events::{EventError, EventOptions, EventQueue};

/// Starts a child that ends when its input does.
fn child(then: &str) -> (std::process::Child, std::process::ChildStdin) {
    let mut command = std::process::Command::new("sh");
    let command = command.arg("-c").arg(format!("read line; {then}"));
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take().unwrap();
    (child, input)
}

#[test]
fn the_end_of_a_child_is_reported_once_with_its_status_and_can_be_waited_for() {
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    for (token, (then, status)) in [("exit 3", 3 << 8), ("kill -9 $$", 9)].into_iter().enumerate() {
        let (mut child, input) = child(then);
        let process =
            queue.register_process(child.id(), token as u64, EventOptions::default()).unwrap();
        assert_eq!(delivered_now(&mut worker), []);
        drop(input);
        assert_eq!(delivered(&mut worker, 1), [(token as u64, status)]);
        // Another worker, and so another registration of a descriptor that is readable forever.
        drop(queue.worker().unwrap());
        assert_eq!(delivered_now(&mut worker), []);
        assert!(matches!(queue.deregister(process), Err(EventError::Ended)));
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(child.wait().unwrap().into_raw(), status as i32);
    }
    assert!(queue.is_empty());
}

#[test]
fn an_ended_child_is_reported_unless_it_was_waited_for() {
    let queue = EventQueue::new().unwrap();
    let (mut child, input) = child("exit 0");
    drop(input);
    let pid = child.id();
    queue.register_process(pid, 1, EventOptions::default().high()).unwrap();
    // No worker has joined yet.
    let mut worker = queue.worker().unwrap();
    assert_eq!(delivered(&mut worker, 1), [(1, 0)]);
    queue.register_process(pid, 2, EventOptions::default()).unwrap();
    assert_eq!(delivered(&mut worker, 1), [(2, 0)]);
    child.wait().unwrap();
    let refused = queue.register_process(pid, 3, EventOptions::default());
    assert!(matches!(refused, Err(EventError::NoProcess(p)) if p == pid));
    assert!(matches!(
        queue.register_process(0, 3, EventOptions::default()),
        Err(EventError::NoProcess(0))
    ));
    assert_eq!(EventError::NoProcess(pid).errno(), 3);
}

#[test]
fn a_deregistered_process_is_not_reported() {
    let queue = EventQueue::new().unwrap();
    let mut worker = queue.worker().unwrap();
    let (mut child, input) = child("exit 0");
    let options = EventOptions::default();
    let ended = queue.register_process(child.id(), 1, options).unwrap();
    queue.register_process(child.id(), 2, options).unwrap();
    queue.deregister(ended).unwrap();
    drop(input);
    assert_eq!(delivered(&mut worker, 1), [(2, 0)]);
    assert_eq!(delivered_now(&mut worker), []);
    child.wait().unwrap();
}
