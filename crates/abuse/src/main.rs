//! Program behind `cargo xtask abuse` and `cargo xtask fuzz`. The library contains everything.

use std::process::ExitCode;

fn main() -> ExitCode {
    abuse::main()
}
