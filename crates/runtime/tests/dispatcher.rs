//! A central policy with a dispatcher on a CPU of its own.

mod common;

use common::{child, is_child, text};
use heddle_rt::sync::mpsc;
use heddle_rt::{ConfigError, Runtime, RuntimeBuilder, net, sleep, spawn, yield_now};
use std::time::Duration;

/// The first CPU that the test may use.
fn first_cpu() -> u32 {
    heddle_sys::thread::affinity().unwrap()[0]
}

/// The runtime, or a message where this machine has one CPU only.
fn dispatched() -> Option<Runtime> {
    match RuntimeBuilder::new().policy("fifo").dispatcher(first_cpu()).build() {
        Ok(runtime) => Some(runtime),
        Err(ConfigError::DispatcherNeedsCpu) => {
            println!("one CPU only: a dispatcher cannot be tested here");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn tasks_run_yield_block_and_end() {
    let Some(rt) = dispatched() else { return };
    let sum = rt.run(|| {
        let (tx, rx) = mpsc::sync_channel(4);
        for i in 0..500u64 {
            let tx = tx.clone();
            drop(spawn(move || {
                yield_now();
                tx.send(i).unwrap();
            }));
        }
        drop(tx);
        rx.iter().sum::<u64>()
    });
    assert_eq!(sum, 124_750);
}

#[test]
fn sleepers_and_sockets_wake_a_dispatcher_that_sleeps() {
    let Some(rt) = dispatched() else { return };
    rt.run(|| {
        let socket = net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        let echo = spawn(move || {
            let mut buf = [0; 16];
            for _ in 0..20 {
                socket.recv_from(&mut buf).unwrap();
            }
        });
        let out = net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..20 {
            sleep(Duration::from_millis(2));
            out.send_to(b"x", to).unwrap();
        }
        echo.join().unwrap();
    });
    // From a thread, while everything sleeps.
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(rt.spawn(|| 5).join().unwrap(), 5);
}

#[test]
fn a_policy_with_queues_per_cpu_is_refused() {
    let builder = RuntimeBuilder::new().policy("two-queue").dispatcher(first_cpu());
    let error = builder.build().err().unwrap();
    let needs_cpu = matches!(error, ConfigError::DispatcherNeedsCpu);
    assert!(needs_cpu || error.to_string().contains("`two-queue` has a queue per CPU"), "{error}");
}

#[test]
fn a_dispatcher_needs_a_cpu_that_exists_and_leaves_one_for_a_worker() {
    let cpu = first_cpu();
    let one = RuntimeBuilder::new().policy("fifo").cpus([cpu]).dispatcher(cpu).build();
    assert!(matches!(one, Err(ConfigError::DispatcherNeedsCpu)));
    let none = RuntimeBuilder::new().policy("fifo").dispatcher(4000).build();
    assert!(matches!(none, Err(ConfigError::NoSuchCpu { cpu: 4000, .. })));
}

/// In processes of its own, whose environment it is.
#[test]
fn the_environment_chooses_the_dispatcher_as_the_builder_does() {
    let test = "the_environment_chooses_the_dispatcher_as_the_builder_does";
    let cpus = heddle_sys::thread::affinity().unwrap();
    if is_child(test) {
        let error = RuntimeBuilder::new().policy("two-queue").build().err().unwrap();
        println!("two-queue: {error}");
        let rt = RuntimeBuilder::new().policy("fifo").build().unwrap();
        return println!("fifo: {} on {} worker(s)", rt.run(|| 42), rt.stats().kernel_threads);
    }
    if cpus.len() == 1 {
        return println!("one CPU only: a dispatcher cannot be tested here");
    }
    let mut child = child(test);
    let said = text(&child.env("HEDDLE_DISPATCHER", first_cpu().to_string()).output().unwrap());
    assert!(said.contains("two-queue: policy `two-queue` has a queue per CPU"), "{said}");
    assert!(said.contains(&format!("fifo: 42 on {} worker(s)", cpus.len() - 1)), "{said}");
}
