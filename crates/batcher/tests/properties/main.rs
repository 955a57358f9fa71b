//! Properties of the batcher, over seeded random histories in virtual time.
//!
//! | property | module |
//! |---|---|
//! | P1 state and outputs equal sequential execution | `order` |
//! | P2 `levels` is the longest chain of dependencies | `rounds` |
//! | P3 one read and one write of a slot for all commands that wait | `order` |
//! | P4 writes of a slot do not overlap, stamps rise | `store`, in each test |
//! | P5 acknowledged writes survive a crash | `crashes` |
//! | P6 P1 despite lost answers, late answers and late copies | `order` |
//! | P7 bounds on commands held and operations in flight | `bounds`, and `store` in each test |
//! | P8 every command ends | `crashes`, and `history` in each test |
//! | P9 throughput depends neither on keys nor on slow operations | `throughput` |
//! | P10 the worked example | `rounds` |
//! | P11 the tests see a missing rule 3 | `rounds` |
//!
//! `BATCHER_SEED=7 cargo test -p batcher --test properties NAME` replays a seed that failed.

mod bounds;
mod crashes;
mod executor;
mod history;
mod order;
mod rounds;
mod seeds;
mod store;
mod throughput;
