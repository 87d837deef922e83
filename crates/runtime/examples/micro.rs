use heddle_rt::*;
use std::sync::Arc;
fn cpu() -> u64 {
    heddle_sys::clock::thread_cpu_time().0
}
fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let rt = RuntimeBuilder::new().policy("work-stealing").workers(1).build().unwrap();
    let run = |n: &str| only.is_empty() || only == n;
    for _ in 0..3 {
        rt.run(|| {
            let n = 1_000_000u64;
            if run("yield") {
                let other = spawn(move || {
                    for _ in 0..n {
                        yield_now()
                    }
                });
                let t = cpu();
                for _ in 0..n {
                    yield_now()
                }
                let y = (cpu() - t) as f64 / (2 * n) as f64;
                other.join().unwrap();
                print!("yield {y:.1} ");
            }
            if run("spawn") {
                let t = cpu();
                for _ in 0..n {
                    spawn(|| ()).join().unwrap()
                }
                let s = (cpu() - t) as f64 / n as f64;
                print!("spawn_join {s:.1} ");
            }
            if run("spawn_yield") {
                let t = cpu();
                for _ in 0..n {
                    drop(spawn(|| ()));
                    yield_now()
                }
                let sy = (cpu() - t) as f64 / n as f64;
                print!("spawn_yield {sy:.1} ");
            }
            if run("mutex") {
                let m = sync::Mutex::new(0u64);
                let t = cpu();
                for _ in 0..10 * n {
                    *std::hint::black_box(&m).lock() += 1;
                }
                let mu = (cpu() - t) as f64 / (10 * n) as f64;
                print!("mutex {mu:.1} ");
            }
            if run("condvar") {
                let p =
                    Arc::new((sync::Mutex::new(0u64), sync::Condvar::new(), sync::Condvar::new()));
                let q = p.clone();
                let other = spawn(move || {
                    for i in 0..n {
                        let mut g = q.0.lock();
                        while *g != 2 * i + 1 {
                            q.1.wait(&mut g)
                        }
                        *g += 1;
                        q.2.notify_one();
                    }
                });
                let t = cpu();
                for i in 0..n {
                    let mut g = p.0.lock();
                    *g += 1;
                    p.1.notify_one();
                    while *g != 2 * i + 2 {
                        p.2.wait(&mut g)
                    }
                }
                let c = (cpu() - t) as f64 / (2 * n) as f64;
                other.join().unwrap();
                print!("condvar {c:.1}");
            }
            println!();
        });
    }
}
