//! The parts of the bench, in the order of its tables.

crate::suite::parts! {
    /// A part of the bench.
    pub enum Part {
        /// A short periodic thread next to hogs.
        Delay = "delay",
        /// Two services and batch work, in separate sessions.
        Services = "services",
        /// The operations of ghOSt's Table 3.
        Table3 = "table3",
        /// Sixteen commits in one group against sixteen single ones.
        Group = "group",
        /// A central agent over simulated CPUs.
        Scaling = "scaling",
        /// A key-value server with antagonists.
        RocksDb = "rocksdb",
        /// Workers of a packet-processing service with antagonists.
        Snap = "snap",
        /// Search queries over simulated sockets and caches.
        Search = "search",
        /// Virtual machines over simulated hyperthreads.
        Vm = "vm",
        /// An agent is killed.
        Recover = "recover",
        /// An agent is replaced under load.
        Upgrade = "upgrade",
        /// Affinities are toggled during commits.
        Storm = "storm",
    }
}
