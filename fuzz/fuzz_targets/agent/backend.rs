//! An enclave that says whatever the fuzzer wants.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use heddle_agent::model::{
    CpuWord, EnclaveWord, FromWords, Group, Message, Outcome, QueueId, QueueWord, Seq, ThreadWord,
    Transaction,
};
use heddle_agent::{Backend, BackendError, Takers, Traits};
use heddle_core::{CpuId, CpuInfo, CpuSet, Ns, TaskId};

pub const CPUS: usize = 4;
pub const THREADS: usize = 16;

pub fn cpus() -> [CpuInfo; CPUS] {
    [0, 1, 2, 3].map(|at| CpuInfo { os_id: u32::from(at) * 2, node: at / 2, llc: at / 2, core: at })
}

/// Where made-up values come from; zeros at its end.
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub fn new(bytes: &'a [u8]) -> Source<'a> {
        Source(bytes)
    }

    pub fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    /// Small mostly, as what is plausible gets far.
    pub fn word(&mut self) -> u64 {
        match self.byte() {
            255 => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
            254 => u64::MAX - u64::from(self.byte()),
            253 => u64::from(self.byte() % 16) << 32 | u64::from(self.byte() % 16),
            small => small.into(),
        }
    }

    pub fn words<const N: usize>(&mut self) -> [u64; N] {
        std::array::from_fn(|_| self.word())
    }
}

pub struct Hostile {
    source: Mutex<Vec<u8>>,
    now: AtomicU64,
    cpus: [CpuInfo; CPUS],
}

impl Hostile {
    pub fn new(source: Source<'_>) -> Hostile {
        let source = Mutex::new(source.0.iter().rev().copied().collect());
        Hostile { source, now: AtomicU64::new(1), cpus: cpus() }
    }

    /// The next bytes, raw.
    pub fn take(&self, count: usize) -> Vec<u8> {
        let mut source = self.source.lock().expect("no panic before");
        let left = source.len().saturating_sub(count);
        source.split_off(left).into_iter().rev().collect()
    }

    pub fn is_over(&self) -> bool {
        self.source.lock().expect("no panic before").is_empty()
    }

    /// Something made of the next bytes.
    fn made<T>(&self, make: impl FnOnce(&mut Source<'_>) -> T) -> T {
        let mut all = self.source.lock().expect("no panic before");
        let most = all.len().saturating_sub(16 * 9);
        let next: Vec<u8> = all[most..].iter().rev().copied().collect();
        let mut source = Source(&next);
        let made = make(&mut source);
        let left = all.len() - (next.len() - source.0.len());
        all.truncate(left);
        made
    }

    fn word<const N: usize, T: FromWords<N> + Default>(&self) -> T {
        self.made(|source| T::from_words(source.words()).unwrap_or_default())
    }

    fn byte(&self) -> u8 {
        self.made(|source| source.byte())
    }
}

impl Backend for Hostile {
    fn traits(&self) -> Traits {
        Traits {
            name: "hostile",
            parks: true,
            atomic: true,
            groups: true,
            below_ordinary: true,
            offers: true,
            picks: true,
        }
    }
    fn cpus(&self) -> &[CpuInfo] {
        &self.cpus
    }
    /// The only field that others do not write.
    fn now(&self) -> Ns {
        Ns(self.now.fetch_add(1000, Ordering::Relaxed))
    }
    fn attach(&self) -> Result<(), BackendError> {
        Ok(())
    }
    fn detach(&self) {}
    fn next(&self, _: QueueId) -> Option<Message> {
        if self.is_over() {
            return None;
        }
        self.made(|source| Message::from_words(source.words()).ok())
    }
    fn wait(&self, _: QueueId, _: Option<Ns>) {}
    fn wake(&self, _: QueueId) {}
    fn queue(&self, _: QueueId) -> QueueWord {
        self.word()
    }
    fn default_queue(&self) -> QueueId {
        QueueId(0)
    }
    fn create_queue(&self, _: bool) -> Result<QueueId, BackendError> {
        Err(BackendError::NoRoom(0))
    }
    fn configure_queue(&self, _: QueueId, _: bool) -> Result<(), BackendError> {
        Ok(())
    }
    fn destroy_queue(&self, _: QueueId) -> Result<(), BackendError> {
        Ok(())
    }
    fn associate(&self, thread: TaskId, _: QueueId) -> Result<(), BackendError> {
        if self.byte() & 1 == 1 { Err(BackendError::Pending(thread)) } else { Ok(()) }
    }
    fn associate_cpu(&self, _: CpuId, _: QueueId) -> Result<(), BackendError> {
        Ok(())
    }
    /// Backends count slots and read none that is not there.
    fn threads(&self) -> Vec<TaskId> {
        let bits = self.byte();
        (0..THREADS as u32).filter(|slot| bits >> (slot % 8) & 1 == 1).map(TaskId).collect()
    }
    fn thread(&self, _: TaskId) -> ThreadWord {
        self.word()
    }
    fn affinity(&self, _: TaskId) -> CpuSet {
        let bits = self.byte();
        let mut set = CpuSet::EMPTY;
        (0..CPUS as u16).filter(|cpu| bits >> cpu & 1 == 0).for_each(|cpu| set.insert(CpuId(cpu)));
        set
    }
    fn cpu(&self, _: CpuId) -> CpuWord {
        self.word()
    }
    fn enclave(&self) -> EnclaveWord {
        self.word()
    }
    /// The agent's requests are valid, whatever messages it got.
    fn commit(&self, transactions: &mut [Transaction], _: Group) -> usize {
        for (at, one) in transactions.iter().enumerate() {
            assert!(one.cpu.index() < CPUS && one.thread.index() < THREADS, "{one:?}");
            let others = &transactions[..at];
            assert!(others.iter().all(|other| other.cpu != one.cpu), "a CPU twice");
            assert!(others.iter().all(|other| other.thread != one.thread), "a thread twice");
        }
        for one in &mut *transactions {
            let number = usize::from(self.byte());
            one.outcome = Outcome::ALL.get(number).copied().unwrap_or(Outcome::Committed);
        }
        transactions.iter().filter(|one| one.outcome == Outcome::Committed).count()
    }
    fn recall(&self, _: CpuId) -> Option<TaskId> {
        let slot = u32::from(self.byte());
        (slot < THREADS as u32).then_some(TaskId(slot))
    }
    fn preempt(&self, _: CpuId) -> bool {
        self.byte() & 1 == 1
    }
    fn offer(&self, thread: TaskId, _: Seq, takers: Takers) -> bool {
        let (Takers::Node(cpu) | Takers::Cpu(cpu)) = takers;
        assert!(cpu.index() < CPUS && thread.index() < THREADS, "{thread} {cpu:?}");
        self.byte() & 1 == 0
    }
    fn revoke(&self, thread: TaskId) -> bool {
        assert!(thread.index() < THREADS, "{thread}");
        self.byte() & 1 == 0
    }
}
