//! Lists of CPUs as text, and which the machine has.

use std::fs;
use std::io;

use heddle_sys::cpu_list;
use heddle_sys::scheduling::Mask;

pub use heddle_sys::cpu_list::format;

/// Reads `2-7,9`; the result is sorted and has each CPU once.
///
/// # Errors
/// What is expected.
pub fn parse(text: &str) -> Result<Vec<u32>, String> {
    Ok(cpu_list::parse(text)?.into_iter().collect())
}

/// Returns the CPUs that are online.
///
/// # Errors
/// If /sys cannot be read.
pub fn online() -> io::Result<Vec<u32>> {
    parse(&fs::read_to_string("/sys/devices/system/cpu/online")?).map_err(io::Error::other)
}

/// Returns the CPUs of `cpus` that `mask` lacks.
pub fn missing(cpus: &[u32], mask: &Mask) -> Vec<u32> {
    let has =
        |cpu: u32| mask.get(cpu as usize / 64).is_some_and(|word| word & (1 << (cpu % 64)) != 0);
    cpus.iter().copied().filter(|&cpu| !has(cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        assert_eq!(parse(" 2-4,9,3\n"), Ok(vec![2, 3, 4, 9]));
        assert_eq!(format(&[2, 3, 4, 9]), "2-4,9");
        for wrong in ["", "a", "3-1", "0-4096", "1,,2", "-1"] {
            assert!(parse(wrong).unwrap_err().contains("such as 2-7,9"), "{wrong}");
        }
    }

    #[test]
    fn missing_cpus_are_those_that_the_mask_lacks() {
        let mut mask = Mask::default();
        mask[1] = 1 << 6;
        assert_eq!(missing(&[1, 70, 71, 5000], &mask), [1, 71, 5000]);
    }
}
