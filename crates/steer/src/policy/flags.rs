/// How policies and Heddle's own programs are compiled, by the build and by `heddle steer check`.
pub const FLAGS: &[&str] = &[
    "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-function",
    "-ffreestanding", "-nostdinc",
];

/// Flags for compiling policies to shared objects for user space. The compiler may still call memcpy and the
/// like, which the process provides.
pub const NATIVE_FLAGS: &[&str] = &[
    "-O2", "-fPIC", "-shared", "-nostdlib", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter",
    "-Wno-unused-function", "-ffreestanding", "-nostdinc", "-Wl,-z,noexecstack",
];

/// The wrapper around a policy's file, which replaces `@`.
pub const UNIT: &str = "#define HD_POLICY\n#include <heddle.h>\nstatic u32 schedule(struct hd_in *in);\n\
    #include \"@\"\nu32 hd_policy(struct hd_in *in)\n{\n\treturn schedule(in);\n}\n";

/// The wrapper around the file of a `pick_next`, which replaces `@`.
pub const PICK_NEXT_UNIT: &str = "#include <heddle/pick_next.h>\nstatic u32 pick_next(struct hd_offers *offers);\n\
    #include \"@\"\nu32 hd_policy(struct hd_offers *offers)\n{\n\treturn pick_next(offers);\n}\n";
