//! The parts of the bench, in the order of its tables.

crate::suite::parts! {
    /// A part of the bench.
    pub enum Part {
        /// The cost of an event with an empty handler.
        Overhead = "overhead",
        /// Saturated pipes, on more and more threads.
        Pipes = "pipes",
        /// Requests, a few of which are very long.
        ZippyDb = "zippydb",
        /// Connections, a few of which carry long requests.
        Gis = "gis",
        /// The same on twelve threads whose services sleep.
        Dilated = "dilated",
        /// Uniform requests.
        Uniform = "uniform",
        /// memcached with Facebook's ETC workload.
        Memcached = "memcached",
        /// A web server whose files are in no cache.
        Web = "web",
        /// A client of high priority under full load.
        Priority = "priority",
        /// Idle threads beside busy ones.
        Idle = "idle",
    }
}
