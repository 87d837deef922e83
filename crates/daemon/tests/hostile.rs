//! Malicious objects: refused, or harmless, and parsed by a process that can do nothing else.

mod common;

use std::io::Write as _;
use std::process::{Command, Stdio};

use common::{
    Daemon, EXE, able, as_nobody, attach, compiled, group, passed, steering_of_nobody, traffic,
    until,
};
use heddle_steer::client::Steering;
use heddle_steer::policy;
use heddle_steer::request::{ErrorKind, Policy};

/// Malicious policies, and words of the refusal.
const HARMFUL: &[(&str, &str)] = &[
    (
        "static long (*const h)(void *, u32, const void *) = (void *)113;\nstatic u32 schedule(struct \
         hd_in *in) { u64 x = 0; h(&x, 8, in); return x; }",
        "calls helper 113",
    ),
    (
        "static u32 schedule(struct hd_in *in) \
         { u32 k = 0; while (1) { k += hd_random(); if (k == 7) break; } return k; }",
        "",
    ),
    ("static u32 schedule(struct hd_in *in) { return ((volatile u8 *)in)[5000]; }", ""),
    (
        "HD_TABLE(huge, u64, 1342177280);\nstatic u32 schedule(struct hd_in *in) \
         { u64 *n = hd_at(huge, 0); return n ? *n : 0; }",
        "MiB (map `huge`",
    ),
    (
        "HD_MAP(m, u64, 1);\nstatic u32 schedule(struct hd_in *in) { u64 *n = hd_at(m, 0); return n ? n[100] : 0; }",
        "",
    ),
];

#[test]
fn an_ordinary_user_cannot_do_harm_with_a_policy() {
    if !able() {
        return;
    }
    let daemon = Daemon::start(&["--everyone"]);
    passed(as_nobody("nobody_means_harm", &daemon.socket(), &[]));
    assert!(daemon.steering().list().expect("listed").is_empty());
}

fn object(bytes: Vec<u8>) -> Policy {
    Policy { name: "hostile".into(), parameters: Vec::new(), object: Some(bytes) }
}

#[test]
#[ignore = "run by another test, unprivileged"]
fn nobody_means_harm() {
    let Some(steering) = steering_of_nobody() else { return };
    let sockets = group(2, "127.0.0.1:0");
    let attached = attach(&steering, "round-robin", &sockets).expect("attached");
    for (source, why) in HARMFUL {
        let error = steering.replace(attached.id, compiled(source)).expect_err(source);
        assert!(error.text.contains(why), "{source}: {error}");
        assert_eq!(traffic(&sockets, 10), [5, 5]);
    }
    let good = policy::shipped("scan-avoid").expect("shipped");
    for bytes in
        [Vec::new(), b"\x7fELF".to_vec(), good[..good.len() / 2].to_vec(), vec![0xff; 4096]]
    {
        let error = steering.replace(attached.id, object(bytes)).expect_err("refused");
        assert!(matches!(error.kind, ErrorKind::Invalid | ErrorKind::Denied), "{error}");
    }
    mutations(&steering, attached.id, good);
    // An accepted policy only decides; the old or a new policy is in place, and inputs arrive.
    assert_eq!(traffic(&sockets, 10).iter().sum::<usize>(), 10);
}

/// Damaged objects: refused, or harmless. The daemon serves on.
fn mutations(steering: &Steering, id: u32, good: &[u8]) {
    let mut random = 1_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(random >> 33).expect("small") % below
    };
    for _ in 0..40 {
        let mut bytes = good.to_vec();
        for _ in 0..=next(8) {
            let at = next(bytes.len());
            bytes[at] = u8::try_from(next(256)).expect("a byte");
        }
        let _ = steering.replace(id, object(bytes));
    }
    assert_eq!(steering.list().expect("it serves on").len(), 1);
}

#[test]
fn the_policy_reader_process_can_do_nothing_else() {
    let object = policy::shipped("sita").expect("shipped");
    let mut reader = Command::new(EXE);
    reader.arg("--read-policy").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = reader.spawn().expect("started");
    let status = || std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("there");
    // Confined before it reads: it is waiting for bytes now.
    until("it is confined", || status().contains("Seccomp:\t2"));
    assert!(status().contains("NoNewPrivs:\t1"));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).expect("there");
    let limit = |name: &str| limits.lines().find(|line| line.starts_with(name)).expect("a limit");
    assert!(limit("Max open files").split_whitespace().nth(3) == Some("0"), "{limits}");
    assert!(limit("Max processes").split_whitespace().nth(2) == Some("0"), "{limits}");
    child.stdin.take().expect("piped").write_all(object).expect("written");
    let answer = child.wait_with_output().expect("ended").stdout;
    let answer: Result<policy::Object, heddle_steer::request::Error> =
        serde_json::from_slice(&answer).expect("an object");
    assert_eq!(answer.expect("read"), policy::read(object).expect("readable"));
}
