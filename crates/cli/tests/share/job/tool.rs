//! The Rust program of the compile job.

pub fn sorted(mut words: Vec<String>) -> String {
    words.sort();
    words.join(" ")
}

pub fn main() {
    println!("{}", sorted(std::env::args().skip(1).collect()));
}
