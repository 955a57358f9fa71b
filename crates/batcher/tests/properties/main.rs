//! Properties of the batcher, over seeded random histories in virtual time.
//!
//! | property | test |
//! |---|---|
//! | P1 state and outputs equal sequential execution | `order::any_strategy_equals_sequential_execution` |
//! | P2 `levels` is the longest chain of dependencies | `rounds::levels_are_the_longest_chains` |
//! | P3 two phases, one read and one write of a slot | `order::batch_uses_each_slot_once_in_two_phases` |
//! | P4 writes of a slot do not overlap, stamps rise | checked by [`store::Sim`] in each test |
//! | P5 acknowledged writes survive a crash | `crashes::acknowledged_writes_survive_a_crash` |
//! | P6 P1 despite lost and late answers and late copies | `order::faults_do_not_change_the_result` |
//! | P7 bounds on commands held and operations in flight | `bounds`, and [`store::Sim`] in each test |
//! | P8 every command ends | `crashes::every_command_ends`, and [`history::Run`] in each test |
//! | P9 throughput does not depend on keys | `throughput::throughput_is_independent_of_keys` |
//! | P10 the worked example | `rounds::worked_example_takes_two_rounds` |
//! | P11 the tests see a missing rule 3 | `rounds::missing_rule_three_is_seen` |
//!
//! `BATCHER_SEED=7 cargo test -p batcher --test properties NAME` replays a seed that failed.

mod bounds;
mod crashes;
mod executor;
mod history;
mod order;
mod random;
mod rounds;
mod store;
mod throughput;
