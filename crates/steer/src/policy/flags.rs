/// How policies and Heddle's own programs are compiled, by the build and by `heddle check`.
pub const FLAGS: &[&str] = &[
    "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-function",
    "-ffreestanding", "-nostdinc",
];

/// What surrounds a policy's file, which takes the place of `@`.
pub const UNIT: &str = "#define HD_POLICY\n#include <heddle.h>\n#include \"@\"\nu32 hd_policy(struct hd_in *in)\n{\n\treturn schedule(in);\n}\n";
