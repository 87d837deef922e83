//! The program at every switch of a CPU: histograms always; events, threads and bursts on request.

mod layout;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use heddle_bpf::{Link, Map, MapKind, MapSpec, MapView, Object, OpenObject, Ring};
use heddle_core::Ns;

pub(crate) use layout::readable;
pub use layout::{BUCKETS, GROUPS, Switch, Use};
use layout::{BURST, BURSTS, EVENT, PIDS, RECORD, THREADS, USE, control, sampled_every};

use crate::spans::WAYS;
use crate::{Burst, ObserveError, features, objects};

const PROGRAM: &str = "observe_switch";
/// Of the ring of a CPU: two seconds at 20,000 switches a second.
const RING_BYTES: u32 = 1 << 21;
const BURST_RING_BYTES: u32 = 1 << 21;

/// What [`Switches`] does beside the histograms, which cost about 200 ns a switch alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchOptions {
    /// Records each switch, for [`Switches::take_events`].
    pub events: bool,
    /// Adds up what each thread uses, for [`Switches::uses`], and who runs while threads of a group wait.
    pub threads: bool,
    /// Takes a sample of each thread's bursts, for [`Switches::bursts`]. Needs `threads`.
    pub bursts: bool,
    /// Bytes of the ring of events of each CPU, a power of two; 0 for the default of 2 MiB. An event has 40.
    pub ring_bytes: u32,
}

/// Watches every switch of every CPU, until it is dropped.
#[derive(Debug)]
pub struct Switches {
    object: Object,
    control: MapView,
    counts: MapView,
    groups: MapView,
    group_of: MapView,
    use_keys: MapView,
    uses: MapView,
    rings: Vec<Ring>,
    burst_ring: Ring,
    bursts: BTreeMap<u32, Vec<(u64, Burst)>>,
    _link: Link,
}

/// Times of the threads of a group, in buckets: below 8 ns each value has one, above there are 8 for each power of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupTimes {
    /// How long they waited in a run queue before each turn.
    pub run_queue: Vec<u64>,
    /// How long they ran at a time.
    pub burst: Vec<u64>,
}

impl Switches {
    /// Loads and attaches the program.
    ///
    /// # Errors
    /// Missing privileges, or the kernel's reason.
    pub fn start(options: SwitchOptions) -> Result<Switches, ObserveError> {
        features::require(false)?;
        let cpus = heddle_bpf::possible_cpus()?;
        let mut open = OpenObject::read("switch", objects::SWITCH)?;
        for (map, entries) in [
            ("counts", cpus),
            ("groups", cpus * GROUPS as u32),
            ("rings", cpus),
            ("group_of", highest_pid() / PIDS as u32 + 1),
            ("bursts", BURST_RING_BYTES),
        ] {
            open.set_entries(map, entries)?;
        }
        let object = open.load()?;
        let bytes = if options.ring_bytes == 0 { RING_BYTES } else { options.ring_bytes };
        let rings = match options.events {
            true => rings(&object.map("rings")?, cpus, bytes)?,
            false => Vec::new(),
        };
        let view = |name: &str| MapView::new(&object.map(name)?);
        let control = view("control")?;
        let flags =
            [(options.events, RECORD), (options.threads, THREADS), (options.bursts, BURSTS)];
        let flags =
            flags.into_iter().filter(|(wanted, _)| *wanted).fold(0, |all, (_, bit)| all | bit);
        control.word(0, control::FLAGS).store(flags, Relaxed);
        Ok(Switches {
            control,
            counts: view("counts")?,
            groups: view("groups")?,
            group_of: view("group_of")?,
            use_keys: view("use_keys")?,
            uses: view("uses")?,
            rings,
            burst_ring: Ring::new(object.map("bursts")?)?,
            bursts: BTreeMap::new(),
            _link: object.attach(PROGRAM)?,
            object,
        })
    }

    /// Puts a process and all its threads into a group from now on; 0 takes it out.
    ///
    /// # Panics
    /// If `group` is not below [`GROUPS`].
    pub fn set_group(&self, process: u32, group: u8) {
        assert!(usize::from(group) < GROUPS, "there are {GROUPS} groups");
        let (at, byte) = (process as usize / PIDS, process as usize % PIDS);
        if at >= self.group_of.len() {
            return; // above the highest process id: it cannot exist
        }
        let (word, shift) = (self.group_of.word(at, byte / 8), 8 * (byte % 8));
        let put = |old: u64| {
            let old = u64::from_le(old) & !(0xff << shift);
            Some((old | u64::from(group) << shift).to_le())
        };
        let _ = word.fetch_update(Relaxed, Relaxed, put);
    }

    /// Returns the times of a group since the start, over all CPUs. No system call.
    ///
    /// # Panics
    /// If `group` is not below [`GROUPS`].
    #[must_use]
    pub fn times(&self, group: u8) -> GroupTimes {
        assert!(usize::from(group) < GROUPS, "there are {GROUPS} groups");
        let mut times = GroupTimes { run_queue: vec![0; BUCKETS], burst: vec![0; BUCKETS] };
        for at in (usize::from(group)..self.groups.len()).step_by(GROUPS) {
            for bucket in 0..BUCKETS {
                times.run_queue[bucket] += self.groups.word(at, bucket).load(Relaxed);
                times.burst[bucket] += self.groups.word(at, BUCKETS + bucket).load(Relaxed);
            }
        }
        times
    }

    /// Returns the number of switches of all CPUs since the start.
    #[must_use]
    pub fn count(&self) -> u64 {
        (0..self.counts.len())
            .map(|cpu| self.counts.word(cpu, control::SWITCHES).load(Relaxed))
            .sum()
    }

    /// Returns the number of events for which a ring had no room, for each CPU.
    #[must_use]
    pub fn lost_events(&self) -> Vec<u64> {
        (0..self.counts.len())
            .map(|cpu| self.counts.word(cpu, control::LOST).load(Relaxed))
            .collect()
    }

    /// Returns the number of bursts for which the ring had no room, and of threads for which the table had none.
    #[must_use]
    pub fn lost(&self) -> (u64, u64) {
        let count = |word| self.control.word(0, word).load(Relaxed);
        (count(control::BURSTS_LOST), count(control::REFUSED))
    }

    /// Takes the switches that were recorded, in order for each CPU, one CPU after another. To be called every 50 ms:
    /// nothing wakes the reader.
    pub fn take_events(&self, mut each: impl FnMut(Switch)) {
        for ring in &self.rings {
            // What comes meanwhile is for the next call, which would else never end.
            let mut left = ring.backlog() / (8 * EVENT as u64 + 8);
            while left > 0 {
                let Some(words) = ring.next::<EVENT>() else { break };
                each(Switch::of(&words));
                left -= 1;
            }
        }
    }

    /// Returns what each thread used since the start.
    #[must_use]
    pub fn uses(&self) -> Vec<Use> {
        let used =
            |entry: &usize| self.use_keys.word(entry / WAYS, entry % WAYS).load(Relaxed) != 0;
        let read = |entry| {
            Use::of(&std::array::from_fn::<u64, USE, _>(|word| {
                self.uses.word(entry, word).load(Relaxed)
            }))
        };
        (0..self.uses.len()).filter(used).map(read).filter(|one| one.thread != 0).collect()
    }

    /// Takes the bursts out of their ring. To be called every 50 ms.
    pub fn collect_bursts(&mut self) {
        while let Some([number, slept, ran, who]) = self.burst_ring.next::<BURST>() {
            let burst = Burst { slept: Ns(slept), ran: Ns(ran) };
            self.bursts.entry(who as u32).or_default().push((number, burst));
        }
    }

    /// Returns an even sample of the bursts of each thread, in order of time: all if there were few.
    #[must_use]
    pub fn bursts(&self) -> BTreeMap<u32, Vec<Burst>> {
        let even = |all: &Vec<(u64, Burst)>| {
            let every = sampled_every(all.last().map_or(0, |(number, _)| *number));
            let kept = all.iter().filter(|(number, _)| number % every == 0);
            kept.map(|(_, burst)| *burst).collect()
        };
        self.bursts.iter().map(|(thread, all)| (*thread, even(all))).collect()
    }

    /// Returns the run time of the program, nanoseconds, while it was counted.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn run_time(&self) -> Result<u64, ObserveError> {
        Ok(self.object.program(PROGRAM)?.info()?.run_time)
    }
}

/// Makes a ring for each CPU.
fn rings(map: &Map, cpus: u32, bytes: u32) -> Result<Vec<Ring>, ObserveError> {
    let ring = |cpu: u32| {
        let name = format!("switches_{cpu}");
        let (kind, entries) = (MapKind::RingBuffer, bytes);
        let spec = MapSpec { name, kind, key_size: 0, value_size: 0, entries, read_only: false };
        let ring = Ring::new(Map::create(&spec)?)?;
        map.put_fd(cpu, std::os::fd::AsFd::as_fd(ring.map()))?;
        Ok(ring)
    };
    (0..cpus).map(ring).collect()
}

fn highest_pid() -> u32 {
    /// The kernel's own limit (`PID_MAX_LIMIT`).
    const LIMIT: u32 = 1 << 22;
    let text = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    text.trim().parse().unwrap_or(LIMIT)
}
