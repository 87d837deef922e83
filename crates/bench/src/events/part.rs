//! What the bench consists of, in the order of its tables.

crate::suite::parts! {
    /// A part.
    pub enum Part {
        /// What an event costs, with nothing to do.
        Overhead = "overhead",
        /// Saturated pipes, on more and more threads.
        Pipes = "pipes",
        /// Requests of which a few are very long.
        ZippyDb = "zippydb",
        /// Connections of which a few bring long requests.
        Gis = "gis",
        /// Requests that are all alike.
        Uniform = "uniform",
        /// A client of high priority under full load.
        Priority = "priority",
    }
}
