//! HTTP: slow and many requests. Health checks must succeed meanwhile.

use std::io::Write;

use super::{is_closed, on_threads};
use crate::answers::{CLOSED, ServerAnswer};
use crate::attack::AttackRun;
use crate::dial::RUDE;
use crate::http::{get, open};
use crate::native::lost;
use crate::target::PATIENCE;

/// Number of connections, twice as many as the listener serves at once.
const CONNECTIONS: usize = 64;

/// Sends requests whose header never ends.
pub(crate) fn slow_header(run: &AttackRun) -> Result<(), ServerAnswer> {
    let mut held = Vec::new();
    while run.round() && held.len() < CONNECTIONS {
        let Ok(mut stream) = open(&run.target, RUDE, PATIENCE) else { continue };
        stream.write_all(b"GET /health/live HTTP/1.1\r\nX: ").map_err(|error| lost(&error))?;
        held.push(stream);
    }
    run.hold(|| {
        held.retain_mut(|stream| {
            let open = !is_closed(stream) && stream.write_all(b"x").is_ok();
            if !open {
                run.record(ServerAnswer::new(CLOSED));
            }
            open
        });
    });
    Ok(())
}

/// Requests the metrics on all connections, without pause.
pub(crate) fn metrics(run: &AttackRun) -> Result<(), ServerAnswer> {
    on_threads(CONNECTIONS, |_| {
        while run.round() {
            let answer = get(&run.target, RUDE, "/metrics", PATIENCE);
            run.count(answer.map(|answer| ServerAnswer::new(answer.label)));
        }
        Ok(())
    })
}
