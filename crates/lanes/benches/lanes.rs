//! Shares, wake-ups, caps and switches, measured on this machine.
fn main() {}
