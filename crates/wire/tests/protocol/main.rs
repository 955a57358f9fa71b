//! Tests of the protocol from both sides: messages, framing, and arbitrary bytes from a peer. They
//! form one program, so that the corpus of all messages is shared and linked once.

mod corpus;
mod framing;
mod fuzz;
mod messages;
