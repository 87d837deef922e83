//! Texts: printed values parse, and errors say why a text does not.

use crate::workload::{Arrivals, Bursts, Lognormal, Mix, Pareto, Part, Service, WorkloadError};
use heddle_core::{Class, Ns};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::str::FromStr;

#[track_caller]
fn refuses<T: FromStr<Err = WorkloadError>>(cases: &[(&str, &str)]) {
    for (text, message) in cases {
        let error = text.parse::<T>().err().unwrap_or_else(|| panic!("`{text}` parses"));
        assert!(error.to_string().contains(message), "{error}\n  for {message}");
    }
}

#[test]
fn refuses_invalid_services() {
    refuses::<Service>(&[
        (
            "",
            "character 1: something is missing here; expected a service time, for example exp(10us)",
        ),
        ("10", "`10`, character 1: `10` will not do; expected a time above zero such as 250ns"),
        ("-5us", "character 1: `-5us` will not do; expected a time above zero"),
        ("0us", "character 1: `0us` will not do; expected a time above zero"),
        ("exp", "`exp`, character 1: mean is missing; expected exp(mean), for example exp(10us)"),
        ("exp(10)", "`exp(10)`, character 5: `10` will not do; expected a time above zero"),
        ("exp(10us", "character 4: this parenthesis, or a quote in it, stays open"),
        ("exp(10us))", "character 10: `)` is left over; expected the end"),
        ("exp(10us, 5us)", "character 11: `5us` will not do; expected exp(mean)"),
        ("exp(rate=5)", "character 5: `rate` will not do; expected exp(mean)"),
        ("exp(mean=1us, mean=2us)", "character 15: mean is given twice; expected it once"),
        (
            "gauss(1us)",
            "`gauss` will not do; expected one of exp, lognormal, pareto, uniform, empirical",
        ),
        ("lognormal(10us)", "cv is missing; expected lognormal(mean, cv=), for example lognormal("),
        ("lognormal(10us, cv=nan)", "character 20: `nan` will not do; expected a number above 0"),
        ("pareto(10us, shape=1)", "character 20: `1` will not do; expected a number above 1"),
        ("pareto(10us, shape=0, max=1s)", "`0` will not do; expected a number from 0.1 to 1000"),
        (
            "pareto(10us, shape=1, max=5us)",
            "character 27: `5us` will not do; expected a time above the",
        ),
        (
            "uniform(20us, 5us)",
            "character 15: `5us` will not do; expected a longest time that is not",
        ),
        (
            "empirical()",
            "file is missing; expected empirical(file), for example empirical(times.csv)",
        ),
        ("empirical(\"a)", "character 10: this parenthesis, or a quote in it, stays open"),
        (
            "empirical(\"a\"b)",
            "character 11: `\"a\"b` will not do; expected one text between two quotes",
        ),
        ("empirical(nowhere.csv)", "nowhere.csv: cannot be read: "),
    ]);
}

#[test]
fn refuses_invalid_mixes() {
    refuses::<Mix>(&[
        ("", "character 1: something is missing here"),
        (
            "shinjuk",
            "no mix is called `shinjuk`; expected shares and times, or one of shinjuku-99.5-0.5, ",
        ),
        ("50% 1us", "sum to 100 %; these sum to 50 %: 50%"),
        ("99% 1us, 0.4% 2us", "sum to 100 %; these sum to 99.4 %: 99% + 0.4%"),
        ("1us, 2us", "character 1: `1us` will not do; expected a share and a service time"),
        ("50% 1us, 50% 1us", "two parts are called `1us`; give one of them another name"),
        ("a: 50% 1us, a: 50% 2us", "two parts are called `a`"),
        ("a b: 10us", "character 1: `a b` will not do; expected a name of letters, digits and -_."),
        ("a(klass=1): 10us", "character 3: `klass=1` will not do; expected class= and 0 to 255"),
        ("a(class=256): 10us", "character 3: `class=256` will not do"),
        (
            "-5% 1us, 105% 2us",
            "character 1: `-5` will not do; expected a share above 0% and at most 100%",
        ),
        ("0% 1us, 100% 2us", "character 1: `0` will not do; expected a share above 0%"),
        ("50% , 50% 1us", "character 4: something is missing here; expected a service time"),
        (
            "50% 1us, ",
            "character 9: something is missing here; expected a share and a service time",
        ),
        (": 1us", "character 1: something is missing here; expected a name"),
        ("é: 50% 1us, 50% exp(1µs)", "character 21: `1µs` will not do; expected a time above zero"),
    ]);
}

#[test]
fn refuses_invalid_arrivals() {
    refuses::<Arrivals>(&[
        ("", "something is missing here; expected one of poisson, periodic, mmpp, closed, trace"),
        ("poison", "`poison` will not do; expected one of poisson, periodic, mmpp, closed, trace"),
        ("poisson(5)", "character 9: `5` will not do; expected no arguments for poisson"),
        ("mmpp", "factor is missing; expected mmpp(factor=, share=, length=)"),
        (
            "mmpp(factor=1, share=10%, length=1ms)",
            "character 13: `1` will not do; expected a number above",
        ),
        (
            "mmpp(factor=5, share=100%, length=1ms)",
            "`100%` will not do; expected a share above 0% and below",
        ),
        (
            "mmpp(factor=5, share=0.1, length=1ms)",
            "character 22: `0.1` will not do; expected a share",
        ),
        ("mmpp(5, share=10%, length=1ms)", "character 6: `5` will not do; expected mmpp(factor="),
        (
            "closed(tasks=0, think=1us)",
            "character 14: `0` will not do; expected a whole number of at least 1",
        ),
        ("closed(tasks=5)", "think is missing; expected closed(tasks=, think=)"),
        (
            "closed(tasks=5, think=exp(1))",
            "character 27: `1` will not do; expected a time above zero",
        ),
        ("trace(a b,c.csv)", "character 11: `c.csv` will not do; expected trace(file)"),
    ]);
}

#[test]
fn a_long_text_is_shortened() {
    let text = format!("exp({})", "é".repeat(1000));
    let message = text.parse::<Service>().unwrap_err().to_string();
    assert!(message.chars().count() < 500, "{message}");
}

#[test]
fn understands_what_people_write() {
    for (text, printed) in [
        (" exp( 10us ) ", "exp(10us)"),
        ("exp(mean=10us)", "exp(10us)"),
        ("100% 10us", "10us"),
        ("get:10us", "get: 10us"),
        ("(class=3): 10us", "(class=3): 10us"),
        ("get : 95 %1us,scan (class=1): 5% 260us", "get: 95% 1us, scan(class=1): 5% 260us"),
        ("syrup", "get: 99.5% 11us, scan: 0.5% 700us"),
    ] {
        assert_eq!(text.parse::<Mix>().unwrap().to_string(), printed);
    }
    for (text, printed) in [
        ("poisson()", "poisson"),
        ("trace(\"a b,(c.csv\")", "trace(\"a b,(c.csv\")"),
        ("closed(think=1us,tasks=2)", "closed(tasks=2, think=1us)"),
    ] {
        assert_eq!(text.parse::<Arrivals>().unwrap().to_string(), printed);
    }
}

fn times() -> impl Strategy<Value = Ns> {
    (1u64..1 << 20, 0u32..30).prop_map(|(ns, scale)| Ns(ns << scale))
}

fn services() -> impl Strategy<Value = Service> {
    prop_oneof![
        times().prop_map(Service::Fixed),
        times().prop_map(|mean| Service::Exponential { mean }),
        (times(), 1e-9..1e3).prop_map(|(m, cv)| Service::Lognormal(Lognormal::new(m, cv).unwrap())),
        (times(), 1.0001..1e3, option::of(1u64..1 << 40)).prop_map(|(mean, shape, above)| {
            let max = above.map(|above| mean + Ns(above));
            Service::Pareto(Pareto::new(mean, shape, max).unwrap())
        }),
        (times(), times()).prop_map(|(a, b)| Service::Uniform { from: a.min(b), to: a.max(b) }),
    ]
}

fn mixes() -> impl Strategy<Value = Mix> {
    let part = (services(), 1e-6..1.0, option::of("[a-z][a-z0-9_.-]{0,5}"), any::<u8>());
    vec(part, 1..6).prop_map(|parts| {
        let total: f64 = parts.iter().map(|(_, weight, _, _)| weight).sum();
        let parts = parts.into_iter().enumerate().map(|(i, (service, weight, name, class))| {
            let part = Part::new(weight / total, service);
            let part = name.map_or(part.clone(), |name| part.named(&format!("{name}{i}")));
            Part { class: Class(class), ..part }
        });
        Mix::new(parts.collect()).unwrap()
    })
}

fn arrivals() -> impl Strategy<Value = Arrivals> {
    prop_oneof![
        Just(Arrivals::Poisson),
        Just(Arrivals::Periodic),
        (1.001..1e6, 1e-9..0.999, times())
            .prop_map(|(f, share, length)| Arrivals::Mmpp(Bursts::new(f, share, length).unwrap())),
        (1..u32::MAX, services()).prop_map(|(tasks, think)| Arrivals::Closed { tasks, think }),
        any::<String>().prop_map(|file| Arrivals::Trace(file.trim().into())),
    ]
}

proptest! {
    /// I1.
    #[test]
    fn mixes_print_as_they_parse(mix in mixes()) {
        prop_assert_eq!(mix.to_string().parse::<Mix>().unwrap(), mix);
    }

    /// I1.
    #[test]
    fn arrivals_print_as_they_parse(arrivals in arrivals()) {
        prop_assert_eq!(arrivals.to_string().parse::<Arrivals>().unwrap(), arrivals);
    }

    /// I2.
    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), soup in "[a-z0-9(),:=%\" .\\\\é]{0,40}") {
        for text in [text, soup] {
            let _ = (text.parse::<Service>(), text.parse::<Mix>(), text.parse::<Arrivals>());
        }
    }

    /// I2: nor does a correct text with one character missing or replaced.
    #[test]
    fn no_slip_makes_it_panic(mix in mixes(), arrivals in arrivals(), at in 0usize..200, c in any::<char>()) {
        for text in [mix.to_string(), arrivals.to_string()] {
            let at = at % (text.chars().count() + 1);
            let less: String = text.chars().take(at).chain(text.chars().skip(at + 1)).collect();
            let other: String = text.chars().take(at).chain([c]).chain(text.chars().skip(at + 1)).collect();
            for text in [less, other] {
                let _ = (text.parse::<Service>(), text.parse::<Mix>(), text.parse::<Arrivals>());
            }
        }
    }
}
