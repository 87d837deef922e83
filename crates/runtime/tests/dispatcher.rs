//! A central policy with a dispatcher on a CPU of its own.

use heddle_rt::sync::mpsc;
use heddle_rt::{ConfigError, Runtime, RuntimeBuilder, net, sleep, spawn, yield_now};
use std::time::Duration;

/// The runtime, or a message where this machine has one CPU only.
fn dispatched() -> Option<Runtime> {
    match RuntimeBuilder::new().policy("fifo").dispatcher(true).build() {
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
    let error = RuntimeBuilder::new().policy("two-queue").dispatcher(true).build().err().unwrap();
    let needs_cpu = matches!(error, ConfigError::DispatcherNeedsCpu);
    assert!(needs_cpu || error.to_string().contains("`two-queue` has a queue per CPU"), "{error}");
    let one = RuntimeBuilder::new().policy("fifo").cpus([0]).dispatcher(true).build();
    assert!(matches!(one, Err(ConfigError::DispatcherNeedsCpu | ConfigError::NoSuchCpu { .. })));
}
