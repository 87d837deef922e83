//! First come, first served on several CPUs, by a simulator that shares only the random numbers: exact to the bucket.

use heddle_sim::{Scenario, reference, run};

#[test]
fn first_come_first_served_is_that_of_a_plain_simulator() {
    let cases = [
        ("exp(10us)", "poisson", 0.8),
        ("exp(10us)", "poisson", 0.98),
        ("short: 99.5% 4us, long: 0.5% 10ms", "poisson", 0.6),
        ("lognormal(10us, cv=2)", "periodic", 0.9),
        ("uniform(5us, 20us)", "mmpp(factor=5, share=10%, length=1ms)", 0.7),
    ];
    for (mix, arrivals, load) in cases {
        for cpus in [1, 2, 3, 16, 20, 65] {
            let ideal = Scenario::ideal("fifo", cpus, mix.parse().unwrap(), load);
            let arrivals = arrivals.parse().unwrap();
            let scenario = Scenario { arrivals, requests: 10_000, seed: 5, ..ideal };
            let outcome = run(&scenario).unwrap();
            assert_eq!(
                outcome.all.response,
                reference::fifo(&scenario).unwrap(),
                "{mix} on {cpus} CPUs"
            );
        }
    }
}
