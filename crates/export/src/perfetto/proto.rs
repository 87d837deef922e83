//! The few messages of Perfetto's trace format that are written, with the official field numbers
//! (`protos/perfetto/trace` of the Perfetto project). Every field is optional there, and numbers are never used again.

use prost::Message;

/// Clocks, as the format numbers them.
pub mod clock {
    /// `CLOCK_MONOTONIC`.
    pub const MONOTONIC: u32 = 3;
    /// `CLOCK_BOOTTIME`, which times of the kernel's scheduling are in.
    pub const BOOTTIME: u32 = 6;
    /// The first number that a sequence may give to a clock of its own.
    pub const OF_SEQUENCE: u32 = 64;
}

/// Bits of [`Packet::sequence_flags`].
pub mod sequence {
    /// The sequence begins anew: names and clocks of before are forgotten.
    pub const CLEARED: u32 = 1;
    /// The packet refers to names or clocks of before.
    pub const NEEDS_STATE: u32 = 2;
}

/// The type of a [`TrackEvent`].
pub mod event_type {
    /// A slice begins.
    pub const BEGIN: i32 = 1;
    /// The latest slice of the track ends.
    pub const END: i32 = 2;
    /// A moment.
    pub const INSTANT: i32 = 3;
    /// A new value.
    pub const COUNTER: i32 = 4;
}

#[derive(Clone, PartialEq, Message)]
pub struct Packet {
    #[prost(message, optional, tag = "1")]
    pub ftrace_events: Option<FtraceBundle>,
    #[prost(message, optional, tag = "2")]
    pub process_tree: Option<ProcessTree>,
    #[prost(message, optional, tag = "6")]
    pub clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub sequence: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub interned: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    #[prost(bool, optional, tag = "42")]
    pub previous_dropped: Option<bool>,
    #[prost(message, optional, tag = "45")]
    pub system_info: Option<SystemInfo>,
    #[prost(uint32, optional, tag = "58")]
    pub timestamp_clock: Option<u32>,
    #[prost(message, optional, tag = "59")]
    pub defaults: Option<Defaults>,
    #[prost(message, optional, tag = "60")]
    pub track: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Defaults {
    #[prost(uint32, optional, tag = "58")]
    pub timestamp_clock: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
    #[prost(uint32, optional, tag = "2")]
    pub primary: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Clock {
    #[prost(uint32, optional, tag = "1")]
    pub id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub timestamp: Option<u64>,
    #[prost(bool, optional, tag = "3")]
    pub is_incremental: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SystemInfo {
    #[prost(message, optional, tag = "1")]
    pub utsname: Option<Utsname>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Utsname {
    #[prost(string, optional, tag = "1")]
    pub sysname: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub release: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    pub processes: Vec<Process>,
    #[prost(message, repeated, tag = "2")]
    pub threads: Vec<Thread>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Process {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(string, repeated, tag = "3")]
    pub cmdline: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Thread {
    #[prost(int32, optional, tag = "1")]
    pub tid: Option<i32>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(int32, optional, tag = "3")]
    pub tgid: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FtraceBundle {
    #[prost(uint32, optional, tag = "1")]
    pub cpu: Option<u32>,
    #[prost(bool, optional, tag = "3")]
    pub lost_events: Option<bool>,
    #[prost(message, optional, tag = "4")]
    pub compact_sched: Option<CompactSched>,
}

/// Switches and wakeups in columns. A time is the difference from the one before, the first from 0.
#[derive(Clone, PartialEq, Message)]
pub struct CompactSched {
    #[prost(uint64, repeated, packed = "true", tag = "1")]
    pub switch_at: Vec<u64>,
    #[prost(int64, repeated, packed = "true", tag = "2")]
    pub switch_prev_state: Vec<i64>,
    #[prost(int32, repeated, packed = "true", tag = "3")]
    pub switch_next: Vec<i32>,
    #[prost(int32, repeated, packed = "true", tag = "4")]
    pub switch_next_priority: Vec<i32>,
    /// The names that the two columns of names count from 0.
    #[prost(string, repeated, tag = "5")]
    pub names: Vec<String>,
    #[prost(uint32, repeated, packed = "true", tag = "6")]
    pub switch_next_name: Vec<u32>,
    #[prost(uint64, repeated, packed = "true", tag = "7")]
    pub waking_at: Vec<u64>,
    #[prost(int32, repeated, packed = "true", tag = "8")]
    pub waking: Vec<i32>,
    #[prost(int32, repeated, packed = "true", tag = "9")]
    pub waking_cpu: Vec<i32>,
    #[prost(int32, repeated, packed = "true", tag = "10")]
    pub waking_priority: Vec<i32>,
    #[prost(uint32, repeated, packed = "true", tag = "11")]
    pub waking_name: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub parent: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {}

#[derive(Clone, PartialEq, Message)]
pub struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub categories: Vec<Name>,
    #[prost(message, repeated, tag = "2")]
    pub names: Vec<Name>,
}

/// A name and the number that stands for it on the sequence, from 1.
#[derive(Clone, PartialEq, Message)]
pub struct Name {
    #[prost(uint64, optional, tag = "1")]
    pub number: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub categories: Vec<u64>,
    #[prost(int32, optional, tag = "9")]
    pub event_type: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    pub name: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub track: Option<u64>,
    #[prost(int64, optional, tag = "30")]
    pub value: Option<i64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flows: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub ended_flows: Vec<u64>,
    #[prost(uint64, optional, tag = "52")]
    pub correlation: Option<u64>,
}
