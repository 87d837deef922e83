//! The parts of the bench, in the order of its tables.

crate::suite::parts! {
    /// A part of the bench.
    pub enum Part {
        /// Single operations on one CPU.
        Micro = "micro",
        /// Wake-up latency of workers that compute, on more workers than CPUs.
        Schbench = "schbench",
        /// Throughput of threads that compute and share a queue.
        Compute = "compute",
        /// A first thread that computes beside one that wakes up.
        First = "first",
        /// A server with a thread for each connection, short and long requests.
        Server = "server",
        /// Debian's MariaDB, point selects beside aggregates.
        Mariadb = "mariadb",
        /// Debian's memcached, an event loop in each thread.
        Memcached = "memcached",
        /// A server on tokio, short and long requests.
        Tokio = "tokio",
    }
}
