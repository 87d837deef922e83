//! Loom models of user interrupts: senders, the processors, and the context switch of the kernel module (`load`,
//! `unload`, `end`, `become_receiver` and `uintr_post` in `kmod/thread.c`). The module is in C, so these are twins of
//! its code: a change there needs the same change here.
//!
//! What the processor does is in Intel's Software Developer's Manual, volume 3, chapter "User Interrupts". A receiver
//! has a descriptor (UPID) in memory, with a set of posted vectors (PIR) and a state: ON says that a notification is on
//! its way, SN asks for none, NDST names the CPU for it. The instruction SENDUIPI changes all of it in one locked
//! operation. A notification is an interrupt; a CPU that has the receiver loaded clears ON, takes PIR into its register
//! of requests (UIRR), and delivers those in user mode. A CPU that has not drops the notification. (Skyloft, section
//! 3.2, has timer interrupts taken for notifications; a timer here posts as an instruction would.)
//!
//! # Why no interrupt is lost
//!
//! A sender sets its bit of PIR first. Then it notifies, or finds ON, or finds SN.
//!
//! - It finds SN: the receiver has no CPU. `load` clears SN before it takes PIR, and so takes the bit.
//! - It finds ON: another sender notifies. The CPU clears ON before it takes PIR, and so takes the bit. If that
//!   notification comes to a CPU that the receiver has left, `load` did the same, or will.
//! - It notifies the CPU that NDST names. NDST and SN change together, so the receiver is loaded there or has left; if
//!   it has left, `load` takes the bit and clears ON, as the notification may be dropped.
//!
//! Not modelled are the flag that holds deliveries back (UIF), and the delegated timer, with which SN stays set.

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread::{self, JoinHandle};
use std::mem::take;
use std::sync::Arc;

/// Three forced switches find each of the faults below; five keep all models together to seconds.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(5);
    builder.check(model);
}

/// A set of vectors, as in PIR and UIRR. The processor sees a bit for each; the model counts the interrupts that have
/// merged in it, and so notices one that is lost and one that is handled twice. Zero is a clear bit.
type Vectors = [u32; 2];

/// Adds `from` to `to`.
fn merge(to: &mut Vectors, from: Vectors) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

/// The first word of a descriptor.
#[derive(Clone, Copy, PartialEq)]
struct State {
    on: bool,
    sn: bool,
    ndst: usize,
}

struct Fields {
    state: State,
    pir: Vectors,
    /// All that was ever sent: the model's own.
    sent: Vectors,
}

/// A descriptor of posted interrupts.
struct Upid(Mutex<Fields>);

impl Upid {
    fn new() -> Arc<Upid> {
        let state = State { on: false, sn: true, ndst: 0 };
        Arc::new(Upid(Mutex::new(Fields { state, pir: [0; 2], sent: [0; 2] })))
    }

    /// One locked operation, or one access to a word. There is nothing to explore inside.
    fn atomically<R>(&self, operation: impl FnOnce(&mut Fields) -> R) -> R {
        operation(&mut self.0.lock().unwrap())
    }

    fn set_pir(fields: &mut Fields, vector: usize) {
        fields.pir[vector] += 1;
        fields.sent[vector] += 1;
    }
}

/// For each CPU, whether it has yet to take a notification: a bit of the local APIC, in which several merge.
#[derive(Default)]
struct Apics([AtomicBool; 2]);

impl Apics {
    /// Sends a notification, which is on its way for as long as loom lets others run before this. (A store instead
    /// would be one that loom may order before an exchange that came earlier.)
    fn notify(&self, cpu: usize) {
        self.0[cpu].swap(true, Ordering::AcqRel);
    }
}

/// The instruction: one locked operation, and an interrupt.
fn senduipi(upid: &Upid, apics: &Apics, vector: usize) {
    let destination = upid.atomically(|fields| {
        Upid::set_pir(fields, vector);
        let state = &mut fields.state;
        let notifies = !state.on && !state.sn;
        state.on |= notifies;
        notifies.then_some(state.ndst)
    });
    if let Some(cpu) = destination {
        apics.notify(cpu);
    }
}

/// What timers know of a registered thread: `struct thread`.
struct Registration {
    upid: Arc<Upid>,
    cpu: AtomicUsize,
}

impl Registration {
    fn new(upid: &Arc<Upid>) -> Arc<Registration> {
        Arc::new(Registration { upid: upid.clone(), cpu: AtomicUsize::new(0) })
    }
}

/// `uintr_post`: PIR and the state one after the other, and a CPU that is not NDST's.
fn uintr_post(thread: &Registration, apics: &Apics, vector: usize) {
    let upid = &thread.upid;
    upid.atomically(|fields| Upid::set_pir(fields, vector));
    let mut seen = upid.atomically(|fields| fields.state);
    loop {
        if seen.on || seen.sn {
            return;
        }
        let actual = upid.atomically(|fields| {
            let actual = fields.state;
            fields.state.on |= actual == seen;
            actual
        });
        if actual == seen {
            break;
        }
        seen = actual;
    }
    apics.notify(thread.cpu.load(Ordering::Relaxed));
}

/// How a sender sends.
#[derive(Clone, Copy)]
enum Means {
    Instruction,
    Timer,
}

/// Starts a thread that sends each of `vectors` to `thread`.
fn send(
    thread: &Arc<Registration>,
    apics: &Arc<Apics>,
    means: Means,
    vectors: &'static [usize],
) -> JoinHandle<()> {
    let (thread, apics) = (thread.clone(), apics.clone());
    thread::spawn(move || {
        for &vector in vectors {
            match means {
                Means::Instruction => senduipi(&thread.upid, &apics, vector),
                Means::Timer => uintr_post(&thread, &apics, vector),
            }
        }
    })
}

/// A fault that a model finds.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// `load` takes PIR and forgets it.
    DropsPir,
    /// `load` leaves ON as it is.
    KeepsOn,
    /// `load` clears SN and ON, and sets NDST afterwards.
    DestinationLate,
    /// `load` takes PIR before it clears SN.
    PirEarly,
    /// `load` says on which CPU the thread is after senders may notify.
    CpuLate,
    /// `unload` does not save UIRR.
    DropsUirr,
    /// `unload` saves UIRR but does not clear it.
    KeepsUirr,
    /// `unload` leaves UINV as it is.
    KeepsUinv,
    /// `unload` does not set SN.
    NoSn,
    /// `become_receiver` leaves PIR as it is.
    InheritsPir,
    /// `clear_place` does not wait for the timer of the thread that has ended.
    KeepsTimer,
}

/// A thread that receives, and what only its own CPU touches of it.
struct Receiver {
    thread: Arc<Registration>,
    /// UIRR while it has no CPU.
    rr: Vectors,
    handled: Vectors,
    /// How often its handler ran.
    runs: Vectors,
}

impl Receiver {
    fn new(upid: &Arc<Upid>) -> Receiver {
        Receiver { thread: Registration::new(upid), rr: [0; 2], handled: [0; 2], runs: [0; 2] }
    }

    /// `become_receiver`: takes the place of a thread that has ended. Returns what had been sent until then.
    fn take_over(upid: &Arc<Upid>, fault: Option<Fault>) -> (Receiver, Vectors) {
        upid.atomically(|fields| fields.state = State { on: false, sn: true, ndst: 0 });
        let before = upid.atomically(|fields| {
            if fault != Some(Fault::InheritsPir) {
                fields.pir = [0; 2];
            }
            fields.sent
        });
        (Receiver::new(upid), before)
    }
}

/// A CPU. Its steps follow each other, so it is a part of one loom thread; both may be in the same one.
struct Cpu {
    number: usize,
    apics: Arc<Apics>,
    /// The receiver that is the current thread.
    receiver: Option<Receiver>,
    /// The descriptor that a notification leads to, if UINV names the vector of notifications.
    upid: Option<Arc<Upid>>,
    uirr: Vectors,
    /// What was delivered to a thread that is not registered.
    foreign: Vectors,
    fault: Option<Fault>,
}

impl Cpu {
    fn two(apics: &Arc<Apics>, fault: Option<Fault>) -> [Cpu; 2] {
        [0, 1].map(|number| Cpu {
            number,
            apics: apics.clone(),
            receiver: None,
            upid: None,
            uirr: [0; 2],
            foreign: [0; 2],
            fault,
        })
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Has interrupts on for a moment, in the kernel: takes a notification that has arrived. The two steps of
    /// notification processing are locked operations of their own.
    fn take_interrupts(&mut self) {
        let arrived = self.apics.0[self.number].swap(false, Ordering::AcqRel);
        if let (true, Some(upid)) = (arrived, &self.upid) {
            upid.atomically(|fields| fields.state.on = false);
            let taken = upid.atomically(|fields| take(&mut fields.pir));
            merge(&mut self.uirr, taken);
        }
    }

    /// Is in user mode for a moment: takes a notification that has arrived, and delivers.
    fn run(&mut self) {
        self.take_interrupts();
        let delivered = take(&mut self.uirr);
        match &mut self.receiver {
            Some(receiver) => {
                merge(&mut receiver.handled, delivered);
                merge(&mut receiver.runs, delivered.map(|n| n.min(1)));
            }
            None => merge(&mut self.foreign, delivered),
        }
    }

    /// `load`. Interrupts are off: a notification that arrives waits.
    fn load(&mut self, mut receiver: Receiver) {
        let thread = receiver.thread.clone();
        let upid = &thread.upid;
        let take_pir = || upid.atomically(|fields| take(&mut fields.pir));
        let mut early = [0; 2];
        if self.has(Fault::PirEarly) {
            early = take_pir();
        }
        if !self.has(Fault::CpuLate) {
            thread.cpu.store(self.number, Ordering::Relaxed);
        }
        upid.atomically(|fields| {
            let on = self.has(Fault::KeepsOn) && fields.state.on;
            let ndst =
                if self.has(Fault::DestinationLate) { fields.state.ndst } else { self.number };
            fields.state = State { on, sn: false, ndst };
        });
        if self.has(Fault::DestinationLate) {
            upid.atomically(|fields| fields.state.ndst = self.number);
        }
        if self.has(Fault::CpuLate) {
            thread.cpu.store(self.number, Ordering::Relaxed);
        }
        let taken = if self.has(Fault::PirEarly) { early } else { take_pir() };
        if !self.has(Fault::DropsPir) {
            merge(&mut receiver.rr, taken);
        }
        self.upid = Some(upid.clone());
        self.uirr = take(&mut receiver.rr);
        self.receiver = Some(receiver);
    }

    /// `unload`. Interrupts are off from before UINV goes until after SN is set.
    fn unload(&mut self) -> Receiver {
        let mut receiver = self.receiver.take().expect("one is loaded");
        if !self.has(Fault::KeepsUinv) {
            self.upid = None;
        }
        if !self.has(Fault::DropsUirr) {
            receiver.rr = self.uirr;
        }
        if !self.has(Fault::KeepsUirr) {
            self.uirr = [0; 2];
        }
        if !self.has(Fault::NoSn) {
            receiver.thread.upid.atomically(|fields| fields.state.sn = true);
        }
        receiver
    }

    /// Checks, once all is quiet, that its receiver handled what was sent `after` a moment, each once.
    fn check(&self, after: Vectors) {
        let receiver = self.receiver.as_ref().expect("one is loaded");
        let (pir, sent) = receiver.thread.upid.atomically(|fields| (fields.pir, fields.sent));
        assert_eq!(pir, [0; 2], "an interrupt is lost: it stays posted");
        let expected = [0, 1].map(|v| sent[v] - after[v]);
        assert_eq!(receiver.handled, expected, "an interrupt is lost, or none of this thread's");
        assert!([0, 1].iter().all(|&v| receiver.runs[v] <= expected[v]), "one is handled twice");
    }
}

fn join(senders: impl IntoIterator<Item = JoinHandle<()>>) {
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

/// A receiver runs on each CPU of `route` in turn, while `senders` send.
///
/// Interrupts are off from the one thread to the next, or on for a moment: both are explored.
fn travel<const N: usize>(
    route: &'static [usize],
    senders: [(Means, &'static [usize]); N],
    fault: Option<Fault>,
) {
    for interruptible in [false, true] {
        check(move || {
            let apics = Arc::new(Apics::default());
            let mut cpus = Cpu::two(&apics, fault);
            let receiver = Receiver::new(&Upid::new());
            let thread = receiver.thread.clone();
            let mut cpu = route[0];
            cpus[cpu].load(receiver);
            let senders = senders.map(|(means, vectors)| send(&thread, &apics, means, vectors));
            cpus[cpu].run();
            for &next in &route[1..] {
                // On the way to the switch a notification may still be taken, but is not delivered.
                cpus[cpu].take_interrupts();
                let receiver = cpus[cpu].unload();
                if interruptible {
                    cpus[cpu].take_interrupts();
                }
                cpu = next;
                cpus[cpu].load(receiver);
                cpus[cpu].run();
            }
            join(senders);
            cpus.iter_mut().for_each(Cpu::run);
            cpus[cpu].check([0; 2]);
            // One more, which a receiver with ON left set never gets.
            senduipi(&thread.upid, &apics, 1);
            cpus[cpu].run();
            cpus[cpu].check([0; 2]);
            assert!(cpus.iter().all(|cpu| cpu.foreign == [0; 2]), "delivered to another thread");
        });
    }
}

#[test]
fn no_interrupt_is_lost_when_its_receiver_resumes() {
    travel(&[0, 0], [(Means::Instruction, &[0, 0, 1])], None);
}

#[test]
fn no_interrupt_is_lost_when_its_receiver_migrates() {
    travel(&[0, 1], [(Means::Instruction, &[0, 0, 1])], None);
}

#[test]
fn no_interrupt_is_lost_when_its_receiver_migrates_and_returns() {
    travel(&[0, 1, 0], [(Means::Instruction, &[0, 0])], None);
}

#[test]
fn no_interrupt_of_a_timer_is_lost_when_its_receiver_resumes() {
    travel(&[0, 0], [(Means::Timer, &[0, 0])], None);
}

#[test]
fn no_interrupt_of_a_timer_is_lost_when_its_receiver_migrates() {
    travel(&[0, 1, 0], [(Means::Timer, &[0, 0])], None);
}

#[test]
fn two_senders_of_a_vector_merge_and_lose_none() {
    travel(&[0, 1], [(Means::Instruction, &[0, 0]), (Means::Instruction, &[0])], None);
}

#[test]
fn a_sender_and_a_timer_lose_none() {
    travel(&[0, 1], [(Means::Instruction, &[0, 0]), (Means::Timer, &[1])], None);
}

/// A receiver without SN only has its senders disturb the CPU that it left.
#[test]
fn no_interrupt_is_lost_without_sn() {
    travel(&[0, 1, 0], [(Means::Instruction, &[0, 0])], Some(Fault::NoSn));
    leave(Some(Fault::NoSn));
}

#[test]
#[should_panic(expected = "an interrupt is lost")]
fn what_is_posted_to_a_receiver_without_cpu_must_be_taken() {
    travel(&[0, 1], [(Means::Instruction, &[0, 0])], Some(Fault::DropsPir));
}

#[test]
#[should_panic(expected = "an interrupt is lost")]
fn requests_must_be_saved() {
    travel(&[0, 1], [(Means::Instruction, &[0, 0])], Some(Fault::DropsUirr));
}

/// The notification was dropped by the CPU that was left. With ON, no sender sends another.
#[test]
#[should_panic(expected = "an interrupt is lost")]
fn on_must_be_cleared_with_the_move() {
    travel(&[0, 1], [(Means::Instruction, &[0, 0])], Some(Fault::KeepsOn));
}

/// The same on one CPU, which takes the notification between `unload` and `load`.
#[test]
#[should_panic(expected = "an interrupt is lost")]
fn on_must_be_cleared_where_the_receiver_resumes() {
    travel(&[0, 0], [(Means::Instruction, &[0, 0])], Some(Fault::KeepsOn));
}

/// A sender between the two steps sets ON and notifies the CPU that was left.
#[test]
#[should_panic(expected = "an interrupt is lost")]
fn the_destination_must_be_there_when_senders_may_notify() {
    travel(&[0, 1], [(Means::Instruction, &[0, 0])], Some(Fault::DestinationLate));
}

/// A sender between the two steps finds SN.
#[test]
#[should_panic(expected = "an interrupt is lost")]
fn pir_must_be_taken_after_senders_may_notify() {
    travel(&[0, 1], [(Means::Instruction, &[0, 0])], Some(Fault::PirEarly));
}

/// A timer between the two steps notifies the CPU that was left.
#[test]
#[should_panic(expected = "an interrupt is lost")]
fn the_cpu_of_timers_must_be_there_when_they_may_notify() {
    travel(&[0, 1], [(Means::Timer, &[0, 0])], Some(Fault::CpuLate));
}

/// A receiver migrates, and the CPU that it left runs a thread that is not registered and then another process's
/// receiver: at the same time, as CPUs do. Each receiver is sent one interrupt. A notification that was on its way to
/// the first one is dropped, or makes that CPU look at the second one's descriptor.
fn leave(fault: Option<Fault>) {
    check(move || {
        let apics = Arc::new(Apics::default());
        let [mut left, mut entered] = Cpu::two(&apics, fault);
        let [receiver, other] = [(); 2].map(|()| Receiver::new(&Upid::new()));
        let threads = [&receiver, &other].map(|receiver| receiver.thread.clone());
        left.load(receiver);
        let sender = thread::spawn(move || {
            senduipi(&threads[0].upid, &apics, 0);
            senduipi(&threads[1].upid, &apics, 1);
        });
        left.take_interrupts();
        let receiver = left.unload();
        let left = thread::spawn(move || {
            left.run();
            left.load(other);
            left.run();
            left
        });
        entered.load(receiver);
        entered.run();
        let mut left = left.join().unwrap();
        join([sender]);
        left.run();
        entered.run();
        assert_eq!(
            (left.foreign, entered.foreign),
            ([0; 2], [0; 2]),
            "delivered to another thread"
        );
        left.check([0; 2]);
        entered.check([0; 2]);
    });
}

#[test]
fn none_reaches_another_process_on_the_cpu_that_was_left() {
    leave(None);
}

#[test]
#[should_panic(expected = "delivered to another thread")]
fn requests_must_leave_the_cpu_with_their_receiver() {
    leave(Some(Fault::KeepsUirr));
}

#[test]
#[should_panic(expected = "delivered to another thread")]
fn a_cpu_must_not_know_the_descriptor_of_a_receiver_that_left() {
    leave(Some(Fault::KeepsUinv));
}

/// A receiver unregisters, and its thread goes on.
fn end(means: Means, fault: Option<Fault>) {
    check(move || {
        let apics = Arc::new(Apics::default());
        let [mut cpu, _] = Cpu::two(&apics, fault);
        let upid = Upid::new();
        let receiver = Receiver::new(&upid);
        let sender = send(&receiver.thread, &apics, means, &[0, 0]);
        cpu.load(receiver);
        cpu.run();
        cpu.take_interrupts();
        let ended = cpu.unload();
        cpu.run();
        join([sender]);
        cpu.run();
        assert_eq!((cpu.uirr, cpu.foreign), ([0; 2], [0; 2]), "delivered after the end");
        let (pir, sent) = upid.atomically(|fields| (fields.pir, fields.sent));
        let rest = [0, 1].map(|v| sent[v] - ended.handled[v]);
        assert_eq!(rest, [0, 1].map(|v| ended.rr[v] + pir[v]), "the rest is pending, or posted");
        senduipi(&upid, &apics, 1);
        let notified = apics.0[0].swap(false, Ordering::AcqRel);
        assert!(!notified, "notified after the end");
    });
}

#[test]
fn none_is_delivered_after_the_end() {
    end(Means::Instruction, None);
}

#[test]
fn none_of_a_timer_is_delivered_after_the_end() {
    end(Means::Timer, None);
}

#[test]
#[should_panic(expected = "delivered after the end")]
fn requests_must_leave_the_cpu_at_the_end() {
    end(Means::Instruction, Some(Fault::KeepsUirr));
}

#[test]
#[should_panic(expected = "notified after the end")]
fn sn_must_be_set_at_the_end() {
    end(Means::Instruction, Some(Fault::NoSn));
}

/// A receiver ends, and a new thread takes its place, on the same CPU or on the other one. The new one receives what is
/// sent from then on, and nothing older. A sender that has the target goes on meanwhile; a timer ends before.
fn take_over(means: Means, fault: Option<Fault>) {
    for number in [0, 1] {
        check(move || {
            let apics = Arc::new(Apics::default());
            let mut cpus = Cpu::two(&apics, fault);
            let upid = Upid::new();
            let first = Receiver::new(&upid);
            let sender = send(&first.thread, &apics, means, &[0, 0]);
            cpus[0].load(first);
            cpus[0].take_interrupts();
            drop(cpus[0].unload());
            let outlives = matches!(means, Means::Instruction) || fault == Some(Fault::KeepsTimer);
            let (still, ended) = if outlives { (Some(sender), None) } else { (None, Some(sender)) };
            join(ended);
            let (second, before) = Receiver::take_over(&upid, fault);
            cpus[number].load(second);
            // This begins after the take-over, and races with the old sender.
            senduipi(&upid, &apics, 1);
            cpus[number].run();
            join(still);
            cpus.iter_mut().for_each(Cpu::run);
            cpus[number].check(before);
        });
    }
}

#[test]
fn a_new_receiver_gets_what_is_sent_from_then_on() {
    take_over(Means::Instruction, None);
}

#[test]
#[should_panic(expected = "none of this thread's")]
fn a_new_receiver_must_not_get_what_was_sent_before() {
    take_over(Means::Instruction, Some(Fault::InheritsPir));
}

#[test]
fn a_new_receiver_gets_nothing_of_a_timer_of_the_old_one() {
    take_over(Means::Timer, None);
}

/// It notifies the CPU of the thread that has ended, and leaves ON to the new one.
#[test]
#[should_panic(expected = "an interrupt is lost")]
fn a_timer_must_end_before_its_place_is_taken() {
    take_over(Means::Timer, Some(Fault::KeepsTimer));
}
