//! The BPF instruction set, as far as linking and checking need it.

/// One instruction: 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction(pub u64);

/// Loads 64 bits; takes two instructions.
pub const LOAD_64: u8 = 0x18;
/// Calls a helper, a function of the program, or a function of the kernel.
pub const CALL: u8 = 0x85;

/// Returns.
pub const EXIT: u8 = 0x95;
/// Jumps unconditionally.
pub const JUMP: u8 = 0x05;

/// The low three bits of an opcode.
pub mod class {
    /// Special loads.
    pub const LOAD: u8 = 0;
    /// Memory to register.
    pub const LOAD_MEMORY: u8 = 1;
    /// Immediate to memory.
    pub const STORE_NUMBER: u8 = 2;
    /// Register to memory.
    pub const STORE: u8 = 3;
    /// 32-bit arithmetic.
    pub const NUMBERS_32: u8 = 4;
    /// Jumps; 64-bit comparisons.
    pub const JUMPS: u8 = 5;
    /// Jumps by 32-bit comparisons.
    pub const JUMPS_32: u8 = 6;
    /// 64-bit arithmetic.
    pub const NUMBERS_64: u8 = 7;
}

/// Addressing of loads and stores: the high three bits.
pub mod mode {
    /// The packet, at an immediate: `LD_ABS`.
    pub const ABSOLUTE: u8 = 0x20;
    /// The packet, at a register: `LD_IND`.
    pub const INDIRECT: u8 = 0x40;
    /// Memory.
    pub const MEMORY: u8 = 0x60;
    /// Memory, atomically; the immediate selects the operation.
    pub const ATOMIC: u8 = 0xc0;
}

/// The operation of arithmetic and jumps: the high four bits.
pub mod op {
    /// The last of the arithmetic operations.
    pub const SWAP_BYTES: u8 = 0xd0;
    /// An unconditional jump.
    pub const JUMP: u8 = 0x00;
    /// A call.
    pub const CALL: u8 = 0x80;
    /// The return.
    pub const EXIT: u8 = 0x90;
    /// The last of the comparisons: signed, less or equal.
    pub const LAST_COMPARISON: u8 = 0xd0;
}

/// The operation of an atomic store: the immediate.
pub mod atomic {
    /// Add, or, and, xor, without and with the old value; exchange; compare and exchange.
    pub const ALL: [i32; 10] = [0x00, 0x40, 0x50, 0xa0, 0x01, 0x41, 0x51, 0xa1, 0xe1, 0xf1];
}

/// What the source register of [`CALL`] means.
pub mod call {
    /// A helper; its number is the immediate.
    pub const HELPER: u8 = 0;
    /// A function of the program; the immediate is the distance to it.
    pub const FUNCTION: u8 = 1;
}

/// What the source register of [`LOAD_64`] means.
pub mod load {
    /// A number.
    pub const NUMBER: u8 = 0;
    /// A map, by its descriptor.
    pub const MAP: u8 = 1;
    /// An address in the only value of a map, by its descriptor.
    pub const MAP_VALUE: u8 = 2;
}

impl Instruction {
    /// Returns the opcode.
    #[must_use]
    pub fn opcode(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    /// Returns the source register, or the kind of a call or load.
    #[must_use]
    pub fn source(self) -> u8 {
        self.0.to_le_bytes()[1] >> 4
    }

    /// Returns the destination register.
    #[must_use]
    pub fn destination(self) -> u8 {
        self.0.to_le_bytes()[1] & 0x0f
    }

    /// Returns the offset.
    #[must_use]
    pub fn offset(self) -> i16 {
        let b = self.0.to_le_bytes();
        i16::from_le_bytes([b[2], b[3]])
    }

    /// Returns one of `class`.
    #[must_use]
    pub fn class(self) -> u8 {
        self.opcode() & 0x07
    }

    /// Returns one of `mode`, of loads and stores.
    #[must_use]
    pub fn mode(self) -> u8 {
        self.opcode() & 0xe0
    }

    /// Returns one of `op`, of arithmetic and jumps.
    #[must_use]
    pub fn op(self) -> u8 {
        self.opcode() & 0xf0
    }

    /// Returns whether the operand of arithmetic or a jump is a register.
    #[must_use]
    pub fn from_register(self) -> bool {
        self.opcode() & 0x08 != 0
    }

    /// Returns the bytes that a load or store moves.
    #[must_use]
    pub fn size(self) -> u8 {
        [4, 2, 1, 8][usize::from(self.opcode() >> 3 & 3)]
    }

    /// Returns how many slots it takes in the code.
    #[must_use]
    pub fn slots(self) -> usize {
        if self.opcode() == LOAD_64 { 2 } else { 1 }
    }

    /// Returns the distance, from the next instruction, of a jump's target.
    #[must_use]
    pub fn jump(self) -> Option<i16> {
        let jumps = matches!(self.class(), class::JUMPS | class::JUMPS_32);
        (jumps && !matches!(self.op(), op::CALL | op::EXIT)).then(|| self.offset())
    }

    /// Returns the immediate.
    #[must_use]
    pub fn immediate(self) -> i32 {
        let b = self.0.to_le_bytes();
        i32::from_le_bytes([b[4], b[5], b[6], b[7]])
    }

    /// Returns the same with another source register.
    #[must_use]
    pub fn with_source(self, source: u8) -> Self {
        let mut bytes = self.0.to_le_bytes();
        bytes[1] = (bytes[1] & 0x0f) | (source << 4);
        Self(u64::from_le_bytes(bytes))
    }

    /// Returns the same with another immediate.
    #[must_use]
    pub fn with_immediate(self, immediate: i32) -> Self {
        let mut bytes = self.0.to_le_bytes();
        bytes[4..].copy_from_slice(&immediate.to_le_bytes());
        Self(u64::from_le_bytes(bytes))
    }

    /// Returns whether it calls a function of the program.
    #[must_use]
    pub fn calls_function(self) -> bool {
        self.opcode() == CALL && self.source() == call::FUNCTION
    }
}
