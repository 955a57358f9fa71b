//! The program behind `cargo xtask abuse` and `cargo xtask fuzz`. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    abuse::main()
}
