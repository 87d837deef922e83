//! Frames through DPDK's devices in memory.

use heddle_dpdk::{DpdkWire, Eal, EalOptions, Error, PortOptions};
use heddle_netstack::wire::{Handle, Transmit, Wire};
use std::sync::OnceLock;

/// DPDK is initialised once in this process (I1); `None` without root.
fn eal() -> Option<&'static Eal> {
    static EAL: OnceLock<Option<Eal>> = OnceLock::new();
    let init = || {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: DPDK needs root");
            return None;
        }
        Some(Eal::init(&EalOptions::default()).unwrap())
    };
    EAL.get_or_init(init).as_ref()
}

fn open(eal: &Eal, device: &str) -> DpdkWire {
    eal.open(device, &PortOptions::default()).unwrap().pop().unwrap()
}

fn send(wire: &mut DpdkWire, frame: &[u8]) -> bool {
    wire.transmit().send_with(frame.len(), |to| to.copy_from_slice(frame))
}

fn receive(wire: &mut DpdkWire, max: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    wire.exchange(max, |frame, _| frames.push(frame.to_vec()));
    frames
}

#[test]
fn frames_come_back_from_a_ring_in_order() {
    let Some(eal) = eal() else { return };
    let mut wire = open(eal, "net_ring0");
    assert!(receive(&mut wire, 16).is_empty());
    for number in 0..40 {
        assert!(send(&mut wire, &[number; 60]));
    }
    assert_eq!(wire.publish(), 0, "it needs no kick");
    assert_eq!(receive(&mut wire, 16).len(), 16, "no more than asked for");
    let rest = [receive(&mut wire, 64), receive(&mut wire, 64)].concat();
    let expected: Vec<Vec<u8>> = (16..40).map(|number| vec![number; 60]).collect();
    assert_eq!(rest, expected);
    assert!(wire.link().unwrap().up);
    let stats = wire.stats().unwrap();
    assert_eq!((stats.sent, stats.received), (40, 40));
}

#[test]
fn answers_are_sent_by_the_receiver() {
    let Some(eal) = eal() else { return };
    let mut wire = open(eal, "net_ring1");
    assert!(send(&mut wire, b"question"));
    wire.publish();
    let answer = |_: &[u8], sender: &mut heddle_dpdk::DpdkSender| {
        assert!(sender.send_with(6, |to| to.copy_from_slice(b"answer")));
    };
    assert_eq!(wire.exchange(16, answer), 1);
    wire.publish();
    assert_eq!(receive(&mut wire, 16), [b"answer"]);
}

#[test]
fn a_full_ring_is_counted_and_what_waits_is_sent_later() {
    let Some(eal) = eal() else { return };
    let mut wire = open(eal, "net_ring2");
    let mut sent = 0_u32;
    while send(&mut wire, &sent.to_ne_bytes()) {
        sent += 1;
    }
    assert_eq!(wire.losses().send_full, 1);
    wire.publish();
    let mut received = 0_u32;
    loop {
        let frames = receive(&mut wire, 32);
        wire.publish();
        if frames.is_empty() {
            break;
        }
        for frame in frames {
            assert_eq!(frame, received.to_ne_bytes());
            received += 1;
        }
    }
    assert_eq!(received, sent, "none is lost, none is sent twice");
}

#[test]
fn frames_that_do_not_fit_are_refused() {
    let Some(eal) = eal() else { return };
    let mut wire = open(eal, "net_null0");
    assert!(
        send(&mut wire, &[0; 2048])
            && !send(&mut wire, &[0; 2049])
            && !send(&mut wire, &[0; 70_000])
    );
    assert!(!send(&mut wire, &[]));
    assert_eq!(wire.losses().send_full, 3);
    assert_eq!(receive(&mut wire, 16), vec![vec![0; 64]; 16], "what this device makes");
    assert!(wire.handle().is_ready(), "its driver cannot tell");
}

#[test]
fn a_receiver_that_panics_loses_no_buffer() {
    let Some(eal) = eal() else { return };
    let mut wire = open(eal, "net_null1");
    for _ in 0..1000 {
        let panics = std::panic::AssertUnwindSafe(|| {
            wire.exchange(32, |_, _| std::panic::resume_unwind(Box::new(())))
        });
        assert!(std::panic::catch_unwind(panics).is_err());
    }
    assert_eq!(receive(&mut wire, 16).len(), 16);
}

#[test]
fn a_device_can_be_opened_again_once_it_is_closed() {
    let Some(eal) = eal() else { return };
    for _ in 0..3 {
        let mut wires =
            eal.open("net_null2", &PortOptions { queues: 2, ..PortOptions::default() }).unwrap();
        assert_eq!(wires.len(), 2);
        let again = eal.open("net_null2", &PortOptions::default()).unwrap_err();
        assert!(matches!(again, Error::Attach { .. }), "{again}");
        let handle = wires[0].handle();
        assert!(send(&mut wires[1], b"unsent"));
        drop(wires);
        assert!(handle.is_ready(), "the port is open while a handle is there");
    }
}

#[test]
fn errors_name_the_device_and_the_reason() {
    let Some(eal) = eal() else { return };
    let none = eal.open("net_none0", &PortOptions::default()).unwrap_err().to_string();
    assert!(none.contains("\"net_none0\""), "{none}");
    let many = eal
        .open("net_ring9", &PortOptions { queues: 17, descriptors: 64 })
        .unwrap_err()
        .to_string();
    assert!(many.contains("17 queues of 64 descriptors"), "{many}");
    assert!(matches!(Eal::init(&EalOptions::default()), Err(Error::Initialised)));
}

#[test]
fn threads_are_registered_and_dpdk_leaves_no_folder() {
    let Some(eal) = eal() else { return };
    for _ in 0..3 {
        let registration = eal.register_thread().unwrap();
        drop(registration);
    }
    let folder = format!("/var/run/dpdk/heddle-{}", std::process::id());
    assert!(!std::path::Path::new(&folder).exists());
}
