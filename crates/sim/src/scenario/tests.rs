//! Files: parse errors say where and why, and flags override them.

mod properties;

use super::*;
use crate::costs::PreemptionSource;
use heddle_core::Ns;

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(text, "x.toml", Path::new(""))
}

/// A scenario whose last lines are `lines`, from line 7 on.
fn with(lines: &str) -> String {
    format!("policy = \"fifo\"\n[machine]\ncpus = 4\n[workload]\nmix = \"exp(1us)\"\n\n{lines}\n")
}

#[test]
fn a_short_file_is_enough() {
    let scenario = parse(&with("load = 0.7")).unwrap();
    let expected = Scenario::ideal("fifo", 4, "exp(1us)".parse().unwrap(), 0.7);
    assert_eq!(scenario, expected);
}

#[test]
fn a_file_may_say_everything() {
    let text = r#"
        policy = "shinjuku:quantum=30us"
        requests = 1_000
        warmup = "20%"
        seed = 7
        machine = { cpus = 20, smt = 2, llc = 10, node = 10 }
        batch.tasks = 3
        [costs]
        switch = "100ns"
        app-switch = "1905ns"
        migration = { llc = "200ns", far = "3us" }
        [preemption]
        mechanism = "uintr"
        send = "90ns"
        slowdown = "2.3%"
        by = "dispatcher"
        [dispatcher]
        admit = "100ns"
        [workload]
        mix = "rocksdb-50-50"
        arrivals = "mmpp(factor=5, share=10%, length=1ms)"
        rate = "30k/s"
        steering = "fewest(2)"
        bound = true
        base = "3us"
    "#;
    let scenario = parse(text).unwrap();
    assert_eq!((scenario.warmup, scenario.seed, scenario.batch), (0.2, 7, 3));
    assert_eq!(scenario.costs.migration, [0, 0, 200, 0, 3_000].map(Ns));
    let Preemption { by, send, deliver, slowdown_permille, .. } = scenario.preemption;
    assert_eq!(
        (by, send, deliver, slowdown_permille),
        (PreemptionSource::Dispatcher, Ns(90), Ns(606), 23)
    );
    assert_eq!(scenario.dispatcher.unwrap().admit, Ns(100));
    assert_eq!(scenario.load, Load::PerSecond(30_000.0));
    assert_eq!(scenario.steering, Steering { to: Steer::Fewest { choices: 2 }, binds: true });
    assert_eq!(parse(&scenario.to_toml()).unwrap(), scenario);
}

/// Whole texts and the start of their error.
const WRONG: &[(&str, &str)] = &[
    (
        "",
        "`policy` is missing; expected a policy and its parameters (heddle policies lists them), \
         for example \"shinjuku:quantum=30us\"",
    ),
    (
        "policy = \"fifo\"",
        "`machine.cpus` is missing; expected CPUs that run tasks, for example 20",
    ),
    ("policy = \"fifo\"\nmachine.cpus = 1", "`workload.mix` is missing"),
    ("policy = ", "x.toml:1:10: "),
    ("policy = \"fifo\"\npolicy = \"fifo\"", "x.toml:2:1: duplicate key"),
    ("policy = \"fifi\"", "x.toml:1:10: `policy`: no policy `fifi`, did you mean `fifo`?"),
    (
        "\n\npolicy = \"fifo:quantum=1us\"",
        "x.toml:3:10: `policy`: policy `fifo`: no parameter `quantum`",
    ),
    (
        "policy = 5",
        "x.toml:1:10: `policy`: 5 will not do; expected a policy, in quotes, for example",
    ),
];

/// Lines of [`with`], from line 7, and their error.
const WRONG_LINES: &[(&str, &str)] = &[
    ("", "`workload.load` is missing; expected a share of what the CPUs could do"),
    (
        "loda = 0.5",
        "x.toml:7:1: no key `workload.loda`, did you mean `workload.load`? expected one of \
         workload.arrivals, workload.mix",
    ),
    (
        "load = 0.5\n[mashine]\ncpus = 4",
        "x.toml:9:1: no key `mashine.cpus`, did you mean `machine.cpus`?",
    ),
    (
        "load = 0.5\n[elsewhere]\nthing = 4",
        "x.toml:9:1: no key `elsewhere.thing`; expected one of policy, requests",
    ),
    (
        "load = 1.0",
        "x.toml:7:8: `workload.load`: load above capacity: 4000000 requests/s arrive; expected less \
         than 4000000 requests/s",
    ),
    (
        "rate = \"5M/s\"",
        "x.toml:7:8: `workload.rate`: load above capacity: 5000000 requests/s arrive",
    ),
    (
        "rate = \"5 per second\"",
        "x.toml:7:8: `workload.rate`: `5 per second` will not do; expected requests per second \
         above zero, for example \"200k/s\"",
    ),
    (
        "load = 0",
        "x.toml:7:8: `workload.load`: 0 will not do; expected a share above 0 and below 1",
    ),
    ("load = -0.5", "x.toml:7:8: `workload.load`: -0.5 will not do"),
    ("load = nan", "x.toml:7:8: `workload.load`: NaN will not do"),
    ("load = true", "x.toml:7:8: `workload.load`: true will not do"),
    ("load = [0.5]", "x.toml:7:8: `workload.load`: a list will not do"),
    ("load = 0.5\nrate = 100", "x.toml:8:8: `workload.load` and `workload.rate` are both given"),
    (
        "arrivals = \"poison\"\nload = 0.5",
        "x.toml:7:12: `workload.arrivals`: `poison`, character 1: `poison` will not do; expected one of poisson",
    ),
    (
        "arrivals = \"closed(tasks=4, think=1us)\"\nload = 0.5",
        "x.toml:8:8: `workload.load`: in a closed loop the load follows from the clients",
    ),
    ("arrivals = \"trace(x.csv)\"", "x.toml:5:7: `workload.mix`: a trace says itself"),
    (
        "steering = \"hash\"\nload = 0.5",
        "x.toml:7:12: `workload.steering`: `hash`, character 1: flows is missing",
    ),
    (
        "steering = \"fewest(0)\"\nload = 0.5",
        "x.toml:7:12: `workload.steering`: `fewest(0)`, character 8: `0` will not do",
    ),
    (
        "bound = 1\nload = 0.5",
        "x.toml:7:9: `workload.bound`: 1 will not do; expected true or false",
    ),
    (
        "load = 0.5\n[costs]\nswitch = \"-5us\"",
        "x.toml:9:10: `costs.switch`: `-5us` will not do; expected a time of at least 0ns, in \
         quotes, for example \"100ns\"",
    ),
    (
        "load = 0.5\n[costs]\nswitch = 5",
        "x.toml:9:10: `costs.switch`: 5 will not do; expected a time",
    ),
    ("load = 0.5\n[costs]\nmigration = \"5us\"", "x.toml:9:1: no key `costs.migration`"),
    (
        "load = 0.5\n[costs.migration]\nllcc = \"5us\"",
        "x.toml:9:1: no key `costs.migration.llcc`, did you mean `costs.migration.llc`?",
    ),
    ("load = 0.5\n[costs]\n", "x.toml:8:2: no key `costs`; expected one of policy"),
    (
        "load = 0.5\n[preemption]\nmechanism = \"uint\"",
        "x.toml:9:13: `preemption.mechanism`: `uint` will not do; expected one of none, ideal, signal",
    ),
    (
        "load = 0.5\n[preemption]\nby = \"me\"",
        "x.toml:9:6: `preemption.by`: `me` will not do; expected one of nobody, local-timer",
    ),
    (
        "load = 0.5\n[preemption]\nby = \"dispatcher\"",
        "x.toml:9:6: `preemption.by`: preemption by the dispatcher, and there is none",
    ),
    (
        "load = 0.5\n[preemption]\nslowdown = \"2.35%\"",
        "x.toml:9:12: `preemption.slowdown`: `2.35%` will not do; expected a percentage",
    ),
    (
        "load = 0.5\n[dispatcher]\n",
        "x.toml:8:1: `dispatcher`: an empty table will not do; expected a table with admit",
    ),
    (
        "load = 0.5\n[batch]\ntasks = -1",
        "x.toml:9:9: `batch.tasks`: -1 will not do; expected a whole number from 0 to 1000000",
    ),
];

#[test]
fn errors_name_their_place() {
    let lines = WRONG_LINES.iter().map(|(lines, said)| (with(lines), said));
    let whole = WRONG.iter().map(|(text, said)| (text.to_string(), said));
    for (text, said) in whole.chain(lines) {
        let error = parse(&text).err().unwrap_or_else(|| panic!("parses:\n{text}")).to_string();
        assert!(error.starts_with(said), "{text}\n says: {error}\n not: {said}");
    }
}

#[test]
fn machines_and_extents_are_refused_with_their_place() {
    for (lines, said) in [
        (
            "machine.cpus = 0",
            "x.toml:3:16: `machine.cpus`: 0 will not do; expected a whole number from 1 to 1024, for example 20",
        ),
        ("machine.cpus = 1025", "x.toml:3:16: `machine.cpus`: 1025 will not do"),
        (
            "machine = { cpus = 8, llc = 3, node = 4 }",
            "x.toml:3:39: `machine.node`: a node of 4 CPUs does not hold whole caches of 3",
        ),
        (
            "machine = { cpus = 8, smt = 2, llc = 3 }",
            "x.toml:3:38: `machine.llc`: a cache of 3 CPUs does not hold whole cores of 2",
        ),
        (
            "machine.cpus = 1\nrequests = 10",
            "x.toml:4:12: `requests`: 10 will not do; expected a whole number of at least 100",
        ),
        (
            "machine.cpus = 1\nwarmup = 20",
            "x.toml:4:10: `warmup`: 20 will not do; expected a share of the requests, 0 to 10",
        ),
        (
            "machine.cpus = 1\nseed = 1.5",
            "x.toml:4:8: `seed`: 1.5 will not do; expected a whole number",
        ),
    ] {
        let text = format!(
            "policy = \"fifo\"\nworkload = {{ mix = \"exp(1us)\", load = 0.5 }}\n{lines}\n"
        );
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.starts_with(said), "{text}\n says: {error}\n not: {said}");
    }
}

#[test]
fn a_mix_points_into_itself() {
    let error = |mix: &str| {
        let text = format!(
            "policy = \"fifo\"\nmachine.cpus = 1\nworkload = {{ mix = \"{mix}\", load = 0.5 }}\n"
        );
        parse(&text).unwrap_err().to_string()
    };
    let sum = error("99% 1us, 0.4% 2us");
    assert_eq!(
        sum,
        "x.toml:3:20: `workload.mix`: the shares of a mix are above 0 % and sum to 100 %; these sum \
         to 99.4 %: 99% + 0.4%"
    );
    assert!(error("shinjuk").contains(
        "no mix is called `shinjuk`; expected shares and times, or one of shinjuku-99.5-0.5"
    ));
    assert!(
        error("exp(-1us)").starts_with(
            "x.toml:3:20: `workload.mix`: `exp(-1us)`, character 5: `-1us` will not do"
        )
    );
}

#[test]
fn a_missing_file_is_named() {
    let error = Scenario::read("no/such.toml").unwrap_err().to_string();
    assert!(error.starts_with("no/such.toml: cannot be read: "), "{error}");
}

#[test]
fn flags_lie_over_the_file() {
    let flags = [
        ("--load", "workload.load", "70%"),
        ("--mechanism", "preemption.mechanism", "signal"),
        ("--cpus", "machine.cpus", "2"),
    ];
    let flags = flags.map(|(name, key, value)| Flag::new(name, key, value));
    let shipped = Shipped::find("shinjuku").unwrap().draft().unwrap();
    let scenario = shipped.clone().flags(&flags).and_then(Draft::finish).unwrap();
    assert_eq!((scenario.load, scenario.machine.cpus), (Load::Share(0.7), 2));
    assert_eq!(scenario.preemption, Preemption::named("signal").unwrap());
    let wrong = |name, key, value| {
        shipped
            .clone()
            .flags(&[Flag::new(name, key, value)])
            .and_then(Draft::finish)
            .unwrap_err()
            .to_string()
    };
    assert!(
        wrong("--load", "workload.load", "1.2")
            .starts_with("--load: `workload.load`: load above capacity")
    );
    assert!(
        wrong("--cpus", "machine.cpus", "0").starts_with("--cpus: `machine.cpus`: 0 will not do")
    );
    assert!(
        wrong("--set polcy", "polcy", "x")
            .starts_with("--set polcy: no key `polcy`, did you mean `policy`?")
    );
    let closed = Flag::new("--arrivals", "workload.arrivals", "closed(tasks=4, think=1us)");
    assert!(
        shipped.flags(&[closed]).and_then(Draft::finish).is_ok(),
        "the file's load is of no use, and no harm"
    );
}

#[test]
fn the_examples_of_the_keys_are_right() {
    for key in keys().iter().filter(|key| key.path != "workload.rate") {
        let text = if key.path.contains("dispatcher") || key.path == "preemption.by" {
            ""
        } else {
            "dispatcher.admit = \"1ns\"\n"
        };
        let text = format!("{text}{} = {}\n", key.path, key.example);
        let base =
            with("load = 0.5").replace("[machine]\ncpus = 4", "").replace("[workload]\n", "");
        let base = base.replace("mix", "workload.mix").replace("load = 0.5", "workload.load = 0.5");
        let lines: Vec<&str> =
            base.lines().filter(|line| !line.starts_with(&format!("{} ", key.path))).collect();
        let cpus = if key.path == "machine.cpus" { "" } else { "machine.cpus = 128\n" };
        let senders = if key.path == "workload.dealt" { "workload.connections = 9\n" } else { "" };
        let text = format!("{}\n{cpus}{senders}{text}", lines.join("\n"));
        parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }
}
