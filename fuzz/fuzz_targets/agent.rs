//! The memory that agents share with their members, written by a hostile one: rings, lines, status words, messages.
//! Whatever it holds, the agent's side reads it without a panic or a hang, and stays within bounds.
#![no_main]

#[path = "agent/backend.rs"]
mod backend;
#[path = "agent/memory.rs"]
mod memory;

use std::fmt::Debug;

use backend::{Hostile, Source};
use heddle_agent::classes::{Classes, Rule};
use heddle_agent::model::{
    CpuWord, EnclaveWord, FromWords, Message, Outcome, QueueId, QueueWord, ThreadWord, ToWords,
};
use heddle_agent::policy::{Scheduler, Settings};
use heddle_core::{CpuId, Policy, TaskId};
use heddle_policies::{Visitor, names, with_policy};
use libfuzzer_sys::fuzz_target;

/// Decoded words are the same after encoding and decoding them again.
fn round_trip<const N: usize, T: FromWords<N, Error: Debug> + ToWords<N> + PartialEq + Debug>(
    source: &mut Source<'_>,
) {
    if let Ok(read) = T::from_words(source.words()) {
        assert_eq!(T::from_words(read.to_words()).expect("as it was written"), read);
    }
}

/// Runs a few rounds of a policy's agent on an enclave whose words are all invented.
struct Rounds<'a>(Source<'a>);

impl Visitor for Rounds<'_> {
    type Out = ();

    fn visit<P: Policy>(self, policy: P) {
        const MESSAGES: usize = 32;
        let (rules, mut source) = (["be=work:7", "lc=pid:9"], self.0);
        let rules = rules.iter().filter_map(|rule| rule.parse::<Rule>().ok()).collect();
        let mode = source.byte();
        let (local, fast_path) = (mode & 1 == 1, mode & 2 == 0);
        let enclave = Hostile::new(source);
        let classes = Classes::new(rules).with_map(memory::lines(&enclave.take(512)));
        let settings =
            Settings { threads: backend::THREADS, messages: MESSAGES, seed: 1, classes, fast_path };
        let mut agent = Scheduler::new(policy, &enclave, settings);
        if local {
            agent.set_queues(&[0, 1, 2, 3].map(QueueId));
        }
        agent.adopt();
        for number in 0..16 {
            let cpu = CpuId(number % backend::CPUS as u16);
            let round = if local { agent.round_of(cpu) } else { agent.round() };
            assert!(round.messages <= MESSAGES, "a round is bounded");
            if enclave.is_over() {
                return;
            }
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut source = Source::new(bytes);
    match source.byte() % 4 {
        0 => memory::ring(bytes),
        1 => {
            let lines = memory::lines(bytes);
            let mut hint = usize::from(source.byte());
            for tid in [0, 1, u32::MAX, u32::from(source.byte())] {
                assert_ne!(lines.work_of(tid, &mut hint), Some(0), "idle is no work");
            }
            let mut classes = Classes::new(Vec::new()).with_map(lines);
            if let Ok(word) = ThreadWord::from_words(source.words()) {
                let _ = classes.class_of(TaskId(source.byte().into()), &word);
            }
        }
        2 => {
            round_trip::<8, ThreadWord>(&mut source);
            round_trip::<8, CpuWord>(&mut source);
            round_trip::<16, EnclaveWord>(&mut source);
            round_trip::<8, QueueWord>(&mut source);
            let _ = Outcome::from_words(source.words());
            if let Ok(message) = Message::from_words(source.words()) {
                assert!(
                    message.cpu(&backend::cpus()).is_none_or(|cpu| cpu.index() < backend::CPUS)
                );
            }
        }
        _ => {
            let all: Vec<&str> = names().collect();
            let name = all[usize::from(source.byte()) % all.len()];
            with_policy(name, Rounds(source)).expect("a policy of the registry");
        }
    }
});
