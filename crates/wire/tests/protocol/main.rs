//! The protocol as both sides see it: messages, framing, and whatever bytes a peer may send. One program,
//! so that the corpus of all messages is shared and linked once.

mod corpus;
mod framing;
mod fuzz;
mod messages;
