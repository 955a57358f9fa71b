//! Hostile clients against a real server, and probes that measure what other clients see meanwhile.
//!
//! Each attack is one entry of one table ([`table`]): listener, rights, traffic, accepted answers.
//! Attacks, probes and the administrator use plain sockets on threads of their own, outside
//! `lanes`. A fault of the server therefore cannot hide from them. An attack runs in a child
//! process of low priority, so that its own CPU time has little effect on the probes.
//!
//! ```text
//!   main ── run ──┬─ server    a `fairlane serve` on a temporary folder; memory watch; stop by process id
//!                 ├─ setup     levels, roles, tables
//!                 ├─ probe     1,000 prepared reads a second and core, in another level and in the same one
//!                 ├─ admin     logs in and alters a level once a second, on both listeners; health checks
//!                 ├─ child     `abuse attack NAME`: one entry of the table, bounded in time and count
//!                 ├─ cpu, late CPU of each party; late wake-ups of the tool's own threads
//!                 └─ verdict ── results ── report     a file, made into tables and a page with a chart
//!        ── overload ─ the load generator beyond the capacity of one core, beside the administrator
//!        ── fuzz ───── sessions of mutated frames and random statements, each from one seed
//! ```
//!
//! The short form of a run decides by counts, bytes and answers alone. The server must live, its
//! memory must stay within a bound, every answer must be accepted, and the administrator must be
//! able to log in.
#![expect(clippy::disallowed_methods, reason = "the attackers and probes stand outside the lanes")]

mod admin;
mod answers;
mod attack;
mod attacks;
mod child;
mod cli;
mod cpu;
mod dial;
mod fuzz;
mod http;
mod late;
mod memory;
mod native;
mod overload;
mod postgres;
mod probe;
mod report;
mod results;
mod run;
mod server;
mod setup;
mod table;
mod target;
mod verdict;

pub use cli::main;
