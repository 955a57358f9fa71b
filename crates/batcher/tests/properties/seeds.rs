//! Loops over seeds.

/// Prints the seed if its run panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to replay: BATCHER_SEED={}", self.0);
        }
    }
}

/// Runs a property for the seeds 1 to `count`, or for the one of `BATCHER_SEED`.
pub(crate) fn seeds(count: u64, property: impl Fn(u64)) {
    let one = std::env::var("BATCHER_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in one.map_or(1..=count, |one: u64| one..=one) {
        let _seed = Seed(seed);
        property(seed);
    }
}
