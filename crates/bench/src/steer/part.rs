//! What the bench consists of, in the order of its tables.

crate::suite::parts! {
    /// A part.
    pub enum Part {
        /// The dilated server under the papers' mixes.
        Mixes = "mixes",
        /// What a decision costs.
        Cost = "cost",
        /// What access to a map costs.
        Maps = "maps",
        /// Replacing a policy under load.
        Replace = "replace",
        /// An unmodified UDP server of several processes' sockets.
        Udp = "udp",
        /// Unmodified gunicorn.
        Gunicorn = "gunicorn",
        /// Keys to their cores, across AF_XDP.
        Mica = "mica",
    }
}
