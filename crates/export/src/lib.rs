//! What other tools read of Heddle: traces and metrics of all layers, in the formats of others.
//!
//! - [`perfetto`] writes events as a trace that [Perfetto](https://ui.perfetto.dev) opens.
//! - [`openmetrics`] writes counters and histograms as text that Prometheus scrapes.
//!
//! # Invariants
//!
//! - **I1** Memory does not grow with the length of a trace: packets go out when they are full, and what is remembered
//!   is bounded by the numbers of threads, CPUs and requests in work.
//! - **I2** Names come from other programs. Whatever they are, what is written has the right form.
//! - **I3** Nothing is stored between two scrapes but what ended processes had counted: counters never fall.

#![forbid(unsafe_code)]

pub mod openmetrics;
pub mod perfetto;
