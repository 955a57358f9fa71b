//! A delay line: a listener that forwards connections to a server and holds back all bytes for a
//! constant time in both directions. It stands for a network between a client and a server on one
//! machine, where loopback hides the cost of round trips.
//!
//! ```text
//!   client ──► reader ──► chunks with due times ──► writer ──► server      and the same back
//! ```

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Largest chunk that is forwarded at once, bytes.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks of a direction in the line. At this number the line reads no more, so that the sender
/// waits.
const CHUNKS_MAX: usize = 4096;

/// A running delay line. It ends when dropped, with its connections.
#[derive(Debug)]
pub struct DelayLine {
    address: SocketAddr,
    shared: Arc<DelayedSockets>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct DelayedSockets {
    is_over: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
}

/// Bytes that are due at a time.
struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

impl DelayLine {
    /// Name of the threads that forward bytes.
    const THREAD: &str = "delay-line";

    /// Starts a line to a server. Each direction is delayed by `delay`, so that a round trip takes
    /// twice as long.
    ///
    /// # Errors
    /// The address is none, or no port is free.
    pub fn start(server: &str, delay: Duration) -> std::io::Result<DelayLine> {
        let server: SocketAddr = server
            .parse()
            .map_err(|_| std::io::Error::other(format!("expected HOST:PORT with an IP, got `{server}`")))?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(DelayedSockets::default());
        let of_listener = shared.clone();
        let thread = std::thread::spawn(move || accept(&listener, server, delay, &of_listener));
        Ok(DelayLine { address, shared, listener: Some(thread) })
    }

    /// Returns the address to connect to.
    pub fn address(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // Wakes the listener.
        let _refused = TcpStream::connect(self.address);
        if let Some(listener) = self.listener.take() {
            let _failed = listener.join();
        }
        for socket in self.shared.sockets.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _closed = socket.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, server: SocketAddr, delay: Duration, shared: &DelayedSockets) {
    for client in listener.incoming() {
        if shared.is_over.load(Ordering::Acquire) {
            return;
        }
        // A server that refuses closes the client's connection, as without the line.
        let Ok(client) = client else { continue };
        let Ok(server) = TcpStream::connect(server) else { continue };
        let _failed = connect(&client, &server, delay, shared);
    }
}

/// Starts both directions.
fn connect(
    client: &TcpStream,
    server: &TcpStream,
    delay: Duration,
    shared: &DelayedSockets,
) -> std::io::Result<()> {
    for socket in [client, server] {
        socket.set_nodelay(true)?;
        let kept = socket.try_clone()?;
        shared.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
    }
    for (from, to) in [(client, server), (server, client)] {
        let from = from.try_clone()?;
        let to = to.try_clone()?;
        let (sender, chunks) = sync_channel(CHUNKS_MAX);
        named(move || read(from, delay, &sender))?;
        named(move || write(to, &chunks))?;
    }
    Ok(())
}

/// Starts a thread whose name tells its CPU time from that of the client.
fn named(body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(DelayLine::THREAD.to_string()).spawn(body).map(drop)
}

/// Reads until the end of the connection.
fn read(mut from: TcpStream, delay: Duration, chunks: &SyncSender<Chunk>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let chunk = Chunk { due: Instant::now() + delay, bytes: buffer[..count].to_vec() };
        if chunks.send(chunk).is_err() {
            return;
        }
    }
}

/// Writes chunks when they are due, then closes this direction.
fn write(mut to: TcpStream, chunks: &Receiver<Chunk>) {
    for Chunk { due, bytes } in chunks {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _closed = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(20);

    /// Starts a server that answers with what it gets.
    fn echo() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut from = stream.try_clone().expect("a socket");
                    let mut to = stream;
                    let _closed = std::io::copy(&mut from, &mut to);
                });
            }
        });
        address
    }

    #[test]
    fn round_trip_takes_both_delays_and_keeps_bytes() {
        let line = DelayLine::start(&echo(), DELAY).expect("a line");
        let mut client = TcpStream::connect(line.address()).expect("the line listens");
        let sent: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        let begin = Instant::now();
        let mut writing = client.try_clone().expect("a socket");
        let bytes = sent.clone();
        let writer = std::thread::spawn(move || writing.write_all(&bytes));
        let mut got = vec![0; sent.len()];
        client.read_exact(&mut got).expect("an echo");
        assert!(begin.elapsed() >= 2 * DELAY, "{:?}", begin.elapsed());
        assert_eq!(got, sent);
        writer.join().expect("a writer").expect("all was sent");
    }

    #[test]
    fn dropped_line_closes_its_connections() {
        let line = DelayLine::start(&echo(), DELAY).expect("a line");
        let mut client = TcpStream::connect(line.address()).expect("the line listens");
        client.write_all(b"a").expect("sent");
        client.read_exact(&mut [0]).expect("an echo");
        let address = line.address();
        drop(line);
        assert!(!matches!(client.read(&mut [0]), Ok(1..)));
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn name_in_place_of_an_address_is_refused() {
        let refused = DelayLine::start("localhost", DELAY).expect_err("no port").to_string();
        assert!(refused.contains("localhost"), "{refused}");
    }
}
