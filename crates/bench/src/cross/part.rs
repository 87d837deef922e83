//! The parts of the bench.

crate::suite::parts! {
    /// A part of the bench.
    pub enum Part {
        /// Half GETs, half SCANs: Syrup's Figure 8.
        Half = "half",
    }
}
