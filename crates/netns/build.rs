//! Compiles the kernel's programs that make faults (`bpf/faults`), so that users need no compiler.

fn main() {
    heddle_bpf_build::compile("bpf/faults", &["bpf/sched/include/bpf.h"], &[], "");
}
