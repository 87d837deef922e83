//! Compiles the kernel's programs that observe (`bpf/observe/*.bpf.c`), so that users need no compiler.

fn main() {
    let arguments = ["-Wno-unused-parameter".to_owned()];
    heddle_bpf_build::compile("bpf/observe", &["bpf/sched/include/bpf.h"], &arguments, "");
}
