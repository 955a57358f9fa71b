//! The fuzz target over a corpus of every message, mutated by a seeded generator, and over garbage.

use crate::corpus::*;
use wire::{Direction, Envelope, Framing, Header, fuzz};

/// Number of mutations of the corpus and of garbage inputs. They take one to two seconds
/// unoptimized.
const ITERATIONS: usize = 40_000;

/// Small random generator (xorshift). The number of an iteration alone replays its failure.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end.max(1)
    }
}

fn corpus() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (version, framing) in FRAMINGS {
        let mut requests = encoder(Direction::Request, version, framing);
        all_requests(&mut requests, |_| ());
        let mut responses = encoder(Direction::Response, version, framing);
        all_responses(&mut responses);
        for (from, bytes) in
            [(Direction::Request, requests.finish()), (Direction::Response, responses.finish())]
        {
            if framing == Framing::Startup {
                let envelopes = decode_all(from, framing, bytes).unwrap();
                seeds.extend(envelopes.iter().map(|envelope| alone(from, envelope)));
            }
            seeds.push(bytes.to_vec());
        }
    }
    seeds
}

/// Returns the bytes of one envelope, so that mutations hit its body instead of breaking a whole
/// stream.
fn alone(from: Direction, envelope: &Envelope) -> Vec<u8> {
    let &Envelope { version, flags, stream, opcode, ref body } = envelope;
    let header = Header { version, flags, stream, opcode, length: body.len() };
    [header.emit(from).as_slice(), body].concat()
}

fn mutate(data: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(data.len());
        match random.below(6) {
            0 => data.truncate(at),
            1 => data.insert(at, random.below(256) as u8),
            2 if !data.is_empty() => drop(data.remove(at)),
            3 => data.drain(..at).for_each(drop),
            _ if !data.is_empty() => {
                let interesting = [0, 1, 0x7F, 0x80, 0xFF, random.below(256) as u8];
                data[at] = interesting[random.below(interesting.len())];
            }
            _ => {}
        }
    }
}

#[test]
fn decoder_survives_mutated_and_random_bytes() {
    let seeds = corpus();
    seeds.iter().for_each(|seed| fuzz::decode_everything(seed));
    for iteration in 0..ITERATIONS {
        let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (iteration as u64 + 1) << 20);
        // The first outputs of neighbouring seeds are similar.
        for _ in 0..4 {
            random.below(2);
        }
        let mut data = match random.below(4) {
            0 => (0..random.below(300)).map(|_| random.below(256) as u8).collect(),
            _ => seeds[random.below(seeds.len())].clone(),
        };
        mutate(&mut data, &mut random);
        if data.len() >= 9 && random.below(2) == 0 {
            let length = (data.len() - 9) as u32;
            data[5..9].copy_from_slice(&length.to_be_bytes());
        }
        fuzz::decode_everything(&data);
    }
}
