//! The instruction set of BPF, as far as linking and checking need it.

/// One instruction: 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction(pub u64);

/// Loads 64 bits; takes two instructions.
pub const LOAD_64: u8 = 0x18;
/// Calls a helper, a function of the program, or a function of the kernel.
pub const CALL: u8 = 0x85;

/// What the source register of [`CALL`] says.
pub mod call {
    /// A helper; its number is the immediate.
    pub const HELPER: u8 = 0;
    /// A function of the program; the immediate is the distance to it.
    pub const FUNCTION: u8 = 1;
}

/// What the source register of [`LOAD_64`] says.
pub mod load {
    /// A number.
    pub const NUMBER: u8 = 0;
    /// A map, by its descriptor.
    pub const MAP: u8 = 1;
    /// A place in the one value of a map, by its descriptor.
    pub const MAP_VALUE: u8 = 2;
}

impl Instruction {
    /// What it does.
    #[must_use]
    pub fn opcode(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    /// The source register, or what it says of a call or a load.
    #[must_use]
    pub fn source(self) -> u8 {
        self.0.to_le_bytes()[1] >> 4
    }

    /// The number in it.
    #[must_use]
    pub fn immediate(self) -> i32 {
        let b = self.0.to_le_bytes();
        i32::from_le_bytes([b[4], b[5], b[6], b[7]])
    }

    /// The same with another source register.
    #[must_use]
    pub fn with_source(self, source: u8) -> Self {
        let mut bytes = self.0.to_le_bytes();
        bytes[1] = (bytes[1] & 0x0f) | (source << 4);
        Self(u64::from_le_bytes(bytes))
    }

    /// The same with another number.
    #[must_use]
    pub fn with_immediate(self, immediate: i32) -> Self {
        let mut bytes = self.0.to_le_bytes();
        bytes[4..].copy_from_slice(&immediate.to_le_bytes());
        Self(u64::from_le_bytes(bytes))
    }

    /// Whether it calls a function of the program.
    #[must_use]
    pub fn calls_function(self) -> bool {
        self.opcode() == CALL && self.source() == call::FUNCTION
    }
}
