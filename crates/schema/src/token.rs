//! Tokens: Cassandra's Murmur3 of the partition key, and ScyllaDB's rule that gives a token to a shard.

/// A partition's token. `i64::MIN` is no partition's: the hash of it is moved to `i64::MAX`, as in Cassandra.
pub type Token = i64;

/// How tokens go to shards: "biased-token-round-robin" of ScyllaDB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharding {
    /// The number of shards, at least 1.
    pub shards: u32,
    /// How many of the token's most significant bits are ignored, so that a shard's range is cut fine.
    pub ignore_msb: u32,
}
