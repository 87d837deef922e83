//! A driver that counts waiting frames: net_vhost, with net_virtio_user at the other end of its socket.

use heddle_dpdk::{DpdkWire, Eal, EalOptions, PortOptions};
use heddle_netstack::wire::{Handle, Transmit, Wire};
use heddle_test_support::{temp_dir, until};

fn open(eal: &Eal, device: &str) -> DpdkWire {
    eal.open(device, &PortOptions { queues: 1, descriptors: 256 }).unwrap().pop().unwrap()
}

#[test]
fn a_handle_is_ready_while_frames_wait() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: DPDK needs root");
        return;
    }
    let eal = Eal::init(&EalOptions::default()).unwrap();
    let folder = temp_dir();
    let socket = folder.path().join("vhost");
    let mut host = open(&eal, &format!("net_vhost0,iface={}", socket.display()));
    let handle = host.handle();
    assert!(!handle.is_ready(), "nothing is connected");
    let mut guest = open(&eal, &format!("net_virtio_user0,path={}", socket.display()));
    until("the link is up", || host.link().unwrap().up);
    assert!(!handle.is_ready());

    let mut received = 0;
    assert!(guest.transmit().send_with(60, |frame| frame.fill(7)));
    guest.publish();
    until("a frame waits", || handle.is_ready());
    host.exchange(16, |frame, _| {
        assert_eq!(frame, [7; 60]);
        received += 1;
    });
    assert_eq!(received, 1);
    assert!(!handle.is_ready());
}
