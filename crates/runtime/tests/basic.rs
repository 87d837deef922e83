//! The runtime as its users see it.

use heddle_rt::{Runtime, RuntimeBuilder, spawn, yield_now};

fn runtime(policy: &str) -> Runtime {
    RuntimeBuilder::new().policy(policy).workers(1).build().unwrap()
}

#[test]
fn tls_is_laid_out_from_a_verified_template() {
    let rt = runtime("fifo");
    println!("{:?}", rt.tls());
}

#[test]
fn a_task_returns_its_value() {
    let rt = runtime("fifo");
    let sum = rt.run(|| {
        let handles: Vec<_> = (0..1000)
            .map(|i| {
                spawn(move || {
                    yield_now();
                    i
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap()).sum::<i32>()
    });
    assert_eq!(sum, 499_500);
}
