//! The parts of the bench, in the order of its tables.

crate::suite::parts! {
    /// A part of the bench.
    pub enum Part {
        /// A switch between two applications on one CPU.
        Switch = "switch",
        /// A latency-critical server beside a batch program on one CPU.
        Service = "service",
        /// The same with Debian's memcached.
        Memcached = "memcached",
        /// The same with `heddle kv serve` on RocksDB.
        RocksDb = "rocksdb",
        /// How late a latency-critical program wakes up beside a batch program.
        Wake = "wake",
    }
}
