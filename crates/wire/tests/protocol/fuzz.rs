//! The fuzz target over a corpus of every message, mutated by a seeded generator, and over garbage.

use crate::corpus::*;
use testkit::Random;
use wire::{Direction, Envelope, Framing, Header, fuzz};

/// Number of mutations of the corpus and of garbage inputs. They take one to two seconds
/// unoptimized.
const ITERATIONS: usize = 40_000;

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
    for _ in 0..=random.index(4) {
        let at = random.index(data.len().max(1));
        match random.index(6) {
            0 => data.truncate(at),
            1 => data.insert(at, random.index(256) as u8),
            2 if !data.is_empty() => drop(data.remove(at)),
            3 => data.drain(..at).for_each(drop),
            _ if !data.is_empty() => {
                let interesting = [0, 1, 0x7F, 0x80, 0xFF, random.index(256) as u8];
                data[at] = interesting[random.index(interesting.len())];
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
        let mut random = Random::new(iteration as u64);
        let mut data = match random.index(4) {
            0 => (0..random.index(300)).map(|_| random.index(256) as u8).collect(),
            _ => seeds[random.index(seeds.len())].clone(),
        };
        mutate(&mut data, &mut random);
        if data.len() >= 9 && random.index(2) == 0 {
            let length = (data.len() - 9) as u32;
            data[5..9].copy_from_slice(&length.to_be_bytes());
        }
        fuzz::decode_everything(&data);
    }
}
