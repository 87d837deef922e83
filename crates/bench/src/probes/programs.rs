//! Real programs with probes: SQLite's speedtest1, zstd, RocksDB. Not built yet.
//!
//! They will be a part of their own, `programs` in [`super::Part`], which differs from [`super::kernels`] in where the
//! binaries come from. What it can take over:
//!
//! - [`super::variant::Variant`] and [`super::compiler::Compiler::command`]: the variants and the compiler of each, to
//!   hand to the program's own build (`CC='heddle cc --heddle-placement=...'`, `HEDDLE_CLANG`).
//! - [`super::kernels::Timed`] and [`super::kernels::add`]: a CPU time and a checksum of each variant in one round,
//!   turned into rows, slowdowns and invalid runs. A program's checksum is that of its output.
//! - The tables of [`super::report`], a line for each program and a column for each variant.
//!
//! What is new: where the sources are (`--sources FOLDER`, nothing is downloaded), and a time limit for builds.
