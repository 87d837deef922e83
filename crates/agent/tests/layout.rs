//! The words of this crate against the C header that the kernel's programs are compiled with: a C program fills
//! each structure by field names and prints its words.

use heddle_agent::model::{
    CpuOccupant, CpuWord, EnclaveWord, FromWords, Kind, Message, Outcome, Phase, QueueId,
    QueueWord, Seq, State, ThreadWord, ToWords, Transaction,
};
use heddle_core::{Class, CpuId, Ns, TaskId};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn header() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf/sched/include/layout.h")
}

/// Returns the output of the C program `body`: lines of a name and numbers.
fn compile_and_run(name: &str, body: &str) -> BTreeMap<String, Vec<u64>> {
    let folder = std::env::temp_dir().join(format!("heddle-layout-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    let header = header();
    let header = header.display();
    let text = format!(
        "#include <linux/types.h>\n#include <stdio.h>\n#include \"{header}\"\n\
         #define WORDS(x) do {{ printf(#x); const unsigned long long *w = (const void *)&x; \
         for (unsigned i = 0; i < sizeof x / 8; i++) printf(\" %llu\", w[i]); puts(\"\"); }} while (0)\n\
         #define NUMBER(x) printf(#x \" %llu\\n\", (unsigned long long)(x))\n\
         int main(void) {{\n{body}\nreturn 0; }}\n"
    );
    fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    let made = cc.args(["-Wall", "-Werror", "-o"]).arg(&program).arg(&source).status();
    assert!(made.expect("a C compiler").success());
    let output = Command::new(&program).output().unwrap();
    fs::remove_dir_all(&folder).unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(line).collect()
}

fn line(line: &str) -> (String, Vec<u64>) {
    let mut parts = line.split(' ').map(str::to_owned);
    let name = parts.next().unwrap();
    (name, parts.map(|number| number.parse().unwrap()).collect())
}

fn words<const N: usize>(all: &BTreeMap<String, Vec<u64>>, name: &str) -> [u64; N] {
    all[name].clone().try_into().unwrap_or_else(|words| panic!("{name} has other words: {words:?}"))
}

#[test]
fn a_thread_is_read_as_it_is_written_in_c() {
    let all = compile_and_run(
        "thread",
        "struct hd_thread thread = { .tid = 1, .tgid = 2, .state = HD_LATCHED, .cpu = 3, .tseq = 4, .on_at = 5,
           .runtime = 6, .runnable_at = 7, .enclave = 8, .queue = 9, .weight = 10 };
         struct hd_thread staged = { .state = HD_STAGED };
         WORDS(thread); WORDS(staged);",
    );
    let staged = ThreadWord { state: State::Parked, ..ThreadWord::default() };
    assert_eq!(ThreadWord::from_words(words(&all, "staged")), Ok(staged));
    let expected = ThreadWord {
        tid: 1,
        tgid: 2,
        state: State::Latched,
        os_cpu: 3,
        tseq: Seq(4),
        on_at: Ns(5),
        runtime: Ns(6),
        runnable_at: Ns(7),
        enclave: 8,
        queue: QueueId(9),
        weight: 10,
    };
    assert_eq!(ThreadWord::from_words(words(&all, "thread")), Ok(expected));
    assert_eq!(expected.to_words(), words::<8>(&all, "thread"));
}

#[test]
fn a_cpu_is_read_as_it_is_written_in_c() {
    let all = compile_and_run(
        "cpu",
        "struct hd_cpu cpu = { .occupant = HD_REALTIME, .current = 1, .latched = 8, .since = 3,
           .online = 1, .handoff = 4 };
         struct hd_cpu others = { .enclave = 9, .queue = 9, .agent = 9, .claim = 9, .ticks = 9 };
         WORDS(cpu); WORDS(others);",
    );
    let expected = CpuWord {
        occupant: CpuOccupant::Realtime,
        current: Some(TaskId(0)),
        latched: Some(TaskId(7)),
        since: Ns(3),
        online: true,
        handoff: 4,
    };
    assert_eq!(CpuWord::from_words(words(&all, "cpu")), Ok(expected));
    assert_eq!(expected.to_words(), words::<8>(&all, "cpu"));
    assert_eq!(CpuWord::from_words(words(&all, "others")), Ok(CpuWord::default()));
}

#[test]
fn an_enclave_is_read_as_it_is_written_in_c() {
    let all = compile_and_run(
        "enclave",
        "struct hd_enclave enclave = { .state = HD_ENCLAVE_ACTIVE, .agent = 2, .generation = 3,
           .committed = 4, .failed = 5, .threads = 6, .picked = 7, .declined = 8, .misjudged = 10 };
         struct hd_enclave others = { .guardian = 9, .queue = 9, .patience = 9, .grace = 9,
           .deadline = 9, .flags = 9, .orphaned = 9 };
         WORDS(enclave); WORDS(others);",
    );
    let expected = EnclaveWord {
        phase: Phase::Active,
        agent: Some(2),
        generation: 3,
        committed: 4,
        failed: 5,
        threads: 6,
        picked: 7,
        declined: 8,
        misjudged: 10,
    };
    assert_eq!(EnclaveWord::from_words(words(&all, "enclave")), Ok(expected));
    assert_eq!(expected.to_words(), words::<16>(&all, "enclave"));
    assert_eq!(EnclaveWord::from_words(words(&all, "others")), Ok(EnclaveWord::default()));
}

#[test]
fn a_queue_is_read_as_it_is_written_in_c() {
    let all = compile_and_run(
        "queue",
        "struct hd_queue queue = { .aseq = 1, .lost = 2, .associated = 3 };
         struct hd_queue others = { .enclave = 9, .wakeup = 9 };
         WORDS(queue); WORDS(others);",
    );
    let expected = QueueWord { aseq: Seq(1), lost: 2, associated: 3 };
    assert_eq!(QueueWord::from_words(words(&all, "queue")), Ok(expected));
    assert_eq!(expected.to_words(), words::<8>(&all, "queue"));
    assert_eq!(QueueWord::from_words(words(&all, "others")), Ok(QueueWord::default()));
}

#[test]
fn a_message_is_read_as_it_is_written_in_c() {
    let all = compile_and_run(
        "message",
        "struct hd_message message = { .kind = HD_THREAD_WAKEUP, .slot = 1, .tid = 2, .cpu = 3, .tseq = 4,
           .aseq = 5, .at = 6, .info = 7 };
         struct hd_message unknown = { .kind = 99 };
         WORDS(message); WORDS(unknown);",
    );
    let expected = Message {
        kind: Kind::ThreadWakeup,
        thread: TaskId(1),
        tid: 2,
        os_cpu: 3,
        tseq: Seq(4),
        aseq: Seq(5),
        at: Ns(6),
        info: 7,
    };
    assert_eq!(Message::from_words(words(&all, "message")), Ok(expected));
    assert_eq!(Message::from_words(words(&all, "unknown")), Err(99));
}

#[test]
fn a_transaction_is_written_as_c_reads_it() {
    let all = compile_and_run(
        "txn",
        "struct hd_txn plain = { .slot = 1, .tid = 2, .cpu = 33 };
         struct hd_txn full = { .slot = 1, .tid = 2, .cpu = 33, .tseq = 4, .aseq = 5, .slice = 6,
           .queue = 7, .result = HD_AGAIN,
           .flags = HD_TXN_PREEMPT | HD_TXN_CHECK_TSEQ | HD_TXN_CHECK_ASEQ | HD_TXN_DIRECT | HD_TXN_ONLY_FREE
             | HD_TXN_BEST_EFFORT };
         struct hd_txn direct = { .slot = 1, .tid = 2, .cpu = 33, .flags = HD_TXN_DIRECT };
         WORDS(plain); WORDS(full); WORDS(direct);",
    );
    let new = Transaction::new(TaskId(1), 2, CpuId(0), Seq(4));
    let plain = Transaction { tseq: None, preempt: false, ..new };
    let direct = Transaction { direct: true, ..plain };
    let full = Transaction {
        aseq: Some((QueueId(7), Seq(5))),
        direct: true,
        only_free: true,
        class: Class::BE,
        slice: Some(Ns(6)),
        outcome: Outcome::Again,
        ..new
    };
    for (name, transaction) in [("plain", plain), ("full", full), ("direct", direct)] {
        assert_eq!(transaction.to_words(33), words::<6>(&all, name), "{name}");
    }
    assert_eq!(Outcome::from_words(words(&all, "full")), Ok(Outcome::Again));
}

/// Returns the names between the braces of `enum name` in the header, so that a new one is not overlooked.
fn names_of(text: &str, name: &str) -> Vec<String> {
    let (_, after) = text.split_once(&format!("enum {name} {{")).expect("the enum");
    let (inside, _) = after.split_once('}').expect("its end");
    let lines = inside.lines().map(|line| line.split("/*").next().unwrap_or(""));
    let names = lines.flat_map(|line| line.split(','));
    let names = names.map(|name| name.split('=').next().unwrap_or("").trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// `HD_THREAD_WAKEUP` and `ThreadWakeup` are the same name. One result has another name in C, where a message has
/// the name already.
fn same_name(c: &str, prefix: &str, rust: &impl Debug) -> bool {
    let c = c.trim_start_matches(prefix).replace("CPU_TAKEN", "CPU_BUSY").replace('_', "");
    c.eq_ignore_ascii_case(&format!("{rust:?}"))
}

fn compare<T: Debug + Copy>(name: &str, prefix: &str, all: &[T], number: impl Fn(T) -> u32) {
    let names = names_of(&fs::read_to_string(header()).unwrap(), name);
    let body: String = names.iter().map(|name| format!("NUMBER({name});\n")).collect();
    let numbers = compile_and_run(name, &body);
    assert_eq!(names.len(), all.len(), "{name}: {names:?} against {all:?}");
    for (c, rust) in names.iter().zip(all) {
        assert!(same_name(c, prefix, rust), "{c} is {rust:?} in Rust");
        assert_eq!(numbers[c], [u64::from(number(*rust))], "{c}");
    }
}

#[test]
fn the_numbers_of_states_messages_and_results_are_those_of_c() {
    compare("hd_state", "HD_", &State::ALL, |one| one as u32);
    compare("hd_occupant", "HD_", &CpuOccupant::ALL, |one| one as u32);
    compare("hd_enclave_state", "HD_ENCLAVE_", &Phase::ALL, |one| one as u32);
    compare("hd_message_kind", "HD_", &Kind::ALL, |one| one as u32);
    compare("hd_result", "HD_", &Outcome::ALL, |one| one as u32);
}
