//! Mutations of bytes: of a frame, a message, or the text of a statement.

use super::random::Random;

/// Numbers that are frequent causes of wrong lengths and counts.
const NUMBERS: [u32; 8] = [0, 1, 0x7F, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE, 0xFFFF_FFFF];

/// Changes `bytes` in one to four places.
pub(super) fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(7) {
            0 => bytes.truncate(at),
            1 => {
                let count = random.length(64);
                let new = random.bytes(count);
                bytes.splice(at..at, new);
            }
            2 => {
                let end = (at + random.length(64)).min(bytes.len());
                bytes.drain(at..end);
            }
            3 => {
                let end = (at + random.length(200)).min(bytes.len());
                let again = bytes[at..end].repeat(1 + random.below(4));
                bytes.splice(at..at, again);
            }
            4 => {
                let number = random.pick(&NUMBERS).to_be_bytes();
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
}

/// Changes one text in six. The result is valid UTF-8.
pub(super) fn mutate_text(random: &mut Random, text: String) -> String {
    if !random.once_in(6) {
        return text;
    }
    let mut bytes = text.into_bytes();
    mutate(random, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutation_depends_on_the_seed_alone() {
        let mutated = |seed| {
            let mut bytes = b"SELECT v FROM yard.t WHERE k = 1".to_vec();
            mutate(&mut Random::new(seed), &mut bytes);
            bytes
        };
        assert!((0..500).all(|seed| mutated(seed) == mutated(seed)));
        assert!((0..500).any(|seed| mutated(seed) != mutated(0)));
        mutate(&mut Random::new(1), &mut Vec::new());
    }
}
