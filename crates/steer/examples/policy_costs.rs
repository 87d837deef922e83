//! The cost of a decision of each shipped policy on this machine:
//! `cargo run --release -p heddle-steer --example policy_costs [EXECUTORS]`.
//!
//! CPU time: in user space, and in the kernel inside the frame of a trial (as root). The number of instructions
//! that the verifier visited, and its time, are the cost of deployment.

use std::fs;

use heddle_steer::hook::trial::Trial;
use heddle_steer::native::{NativePolicy, Random, View, input};
use heddle_steer::policy::{read, shipped, shipped_names};

struct Busy(u32, Random);

impl View for Busy {
    fn executors(&self) -> u32 {
        self.0
    }
    fn idle(&mut self, _k: u32) -> bool {
        false
    }
    fn queue_length(&mut self, k: u32) -> u32 {
        k + 1
    }
    fn now(&mut self) -> u64 {
        0
    }
    fn random(&mut self) -> u32 {
        self.1.number()
    }
    fn cpu(&mut self) -> u32 {
        0
    }
}

fn main() {
    let executors = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(6);
    println!("{executors} executors, medians of 9, CPU time (the kernel's: wall time)");
    println!(
        "| policy | user space, ns | kernel, ns | verified | load, ms |\n|---|---|---|---|---|"
    );
    for name in shipped_names() {
        let native = native(name, executors);
        let kernel = match kernel(name, executors) {
            Ok((ns, verified, load)) => format!("{ns} | {verified} | {load:.1}"),
            Err(error) => format!("{error} | | "),
        };
        println!("| {name} | {native:.1} | {kernel} |");
    }
}

/// Returns this thread's CPU time, so that other load does not count.
fn cpu_ns() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

fn median<T: PartialOrd + Copy>(mut run: impl FnMut() -> T) -> T {
    let mut values: Vec<T> = (0..9).map(|_| run()).collect();
    values.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    values[4]
}

fn native(name: &str, executors: u32) -> f64 {
    const TIMES: u32 = 2_000_000;
    let mut policy = NativePolicy::shipped(name, "").expect("shipped");
    let mut view = Busy(executors, Random::new(1));
    let mut input = input(&[1; 48]);
    median(|| {
        let begin = cpu_ns();
        for _ in 0..TIMES {
            std::hint::black_box(policy.decide(std::hint::black_box(&mut input), &mut view));
        }
        (cpu_ns() - begin) / f64::from(TIMES)
    })
}

fn kernel(name: &str, executors: u32) -> Result<(u32, u32, f64), String> {
    let object = read(shipped(name).expect("shipped")).expect("readable");
    let load = || Trial::load(&object, executors);
    let trial = load().map_err(|error| error.to_string())?;
    let milliseconds = median(|| {
        let begin = cpu_ns();
        (0..10).for_each(|_| drop(load()));
        (cpu_ns() - begin) / 1e7
    });
    let ns =
        median(|| trial.decide(&input(&[1; 48]), 100_000).map_or(0, |tried| tried.nanoseconds));
    let verified = trial.program().info().map_err(|error| error.to_string())?.verified;
    Ok((ns, verified, milliseconds))
}
