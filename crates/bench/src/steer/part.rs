//! The parts of the bench, in the order of its tables.

crate::suite::parts! {
    /// A part of the bench.
    pub enum Part {
        /// The dilated server under the papers' mixes.
        Mixes = "mixes",
        /// The cost of a decision.
        Cost = "cost",
        /// The cost of map access.
        Maps = "maps",
        /// Replacing a policy under load.
        Replace = "replace",
        /// An unmodified UDP server in another process.
        Udp = "udp",
        /// Unmodified gunicorn.
        Gunicorn = "gunicorn",
        /// Keys to their cores, across AF_XDP.
        Mica = "mica",
    }
}
