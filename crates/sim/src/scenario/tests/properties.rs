//! Printed scenarios parse, and no text causes a panic.

use super::parse;
use crate::costs::{Costs, Dispatcher, MECHANISMS, Preemption, PreemptionSource};
use crate::workload::{Arrivals, Mix, Service};
use crate::{Connections, Load, Machine, Scenario, Steer, Steering};
use heddle_core::Ns;
use proptest::option;
use proptest::prelude::*;

fn preemptions() -> impl Strategy<Value = Preemption> {
    let named = (0..MECHANISMS.len()).prop_map(|at| MECHANISMS[at].preemption);
    let teller = prop_oneof![
        Just(PreemptionSource::Disabled),
        Just(PreemptionSource::LocalTimer),
        Just(PreemptionSource::TimerCore)
    ];
    let times = [(); 4].map(|()| 0u64..1 << 40);
    let own = (teller, times, any::<bool>(), 0..=1000u32).prop_map(
        |(by, [send, deliver, receive, interval], skip, slowdown_permille)| Preemption {
            by,
            send: Ns(send),
            deliver: Ns(deliver),
            receive: Ns(receive),
            skip,
            interval: Ns(interval),
            slowdown_permille,
        },
    );
    prop_oneof![named, own]
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let cost = || 0u64..1 << 45;
    let dispatcher = option::of((cost(), cost(), cost(), cost()));
    let steer = prop_oneof![
        Just(Steer::RoundRobin),
        Just(Steer::Random),
        Just(Steer::ByPart),
        (1..u32::MAX).prop_map(|flows| Steer::Hash { flows }),
        (1..u32::MAX).prop_map(|choices| Steer::Fewest { choices }),
    ];
    let load =
        prop_oneof![(1e-6..0.999).prop_map(Load::Share), (1e-3..1e3).prop_map(Load::PerSecond)];
    let numbers = (100..u64::MAX >> 1, 0.0..10.0, 0..u64::MAX >> 1, 0usize..1000, cost());
    (
        numbers,
        1usize..64,
        [cost(), cost(), cost(), cost(), cost(), cost()],
        preemptions(),
        dispatcher,
        steer,
        any::<bool>(),
        load,
    )
        .prop_map(
            |(
                (requests, warmup, seed, batch, base),
                cores,
                costs,
                preemption,
                dispatcher,
                steer,
                binds,
                load,
            )| {
                let [switch, app_switch, wake, steal, central_lock, far] = costs.map(Ns);
                Scenario {
                    policy: "two-queue:quantum=5us".into(),
                    machine: Machine { cpus: 8 * cores, smt: 2, llc: 4, node: 8 },
                    costs: Costs {
                        switch,
                        app_switch,
                        wake,
                        steal,
                        central_lock,
                        migration: [Ns::ZERO, wake, steal, switch, far],
                    },
                    preemption,
                    dispatcher: dispatcher.map(|(a, n, d, h)| Dispatcher {
                        admit: Ns(a),
                        notice: Ns(n),
                        dispatch: Ns(d),
                        handoff: Ns(h),
                    }),
                    steering: Steering { to: steer, binds },
                    mix: Mix::of(Service::Exponential { mean: Ns::from_us(3) }),
                    arrivals: Arrivals::Poisson,
                    connections: Connections { count: batch as u32, dealt: binds && batch > 0 },
                    load,
                    batch,
                    base: Ns(base),
                    requests,
                    warmup,
                    seed,
                }
            },
        )
}

proptest! {
    /// A printed scenario parses to an equal one.
    #[test]
    fn scenarios_print_as_they_parse(scenario in scenarios()) {
        let text = scenario.to_toml();
        prop_assert_eq!(parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}")), scenario);
    }

    /// A text with one character missing or replaced causes no panic either.
    #[test]
    fn no_text_makes_it_panic(
        scenario in scenarios(),
        at in 0usize..600,
        c in any::<char>(),
        soup in "[a-z=\\[\\].\"0-9\n ]{0,80}",
    ) {
        let text = scenario.to_toml();
        let at = at % (text.chars().count() + 1);
        let less: String = text.chars().take(at).chain(text.chars().skip(at + 1)).collect();
        let other: String = text.chars().take(at).chain([c]).chain(text.chars().skip(at + 1)).collect();
        for text in [less, other, soup] {
            let _ = parse(&text).map_err(|error| error.to_string());
        }
    }
}
