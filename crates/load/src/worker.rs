//! Worker thread of a load: an event loop over its connections.
//!
//! 1. Send requests. In an open loop these are the arrivals whose time has come, in a closed loop
//!    as many as fill the limit. Frames collect in the output buffer of each connection.
//! 2. Write each buffer with one system call.
//! 3. Sleep until an answer or the next arrival, by a timer of nanosecond resolution. Above
//!    [`BATCH_ABOVE_PER_S`], arrivals are sent in batches at least [`BATCH_NS`] apart. That delay
//!    is part of the latency, which starts at the due time.
//! 4. Read answers and count them.

use rand::SeedableRng as _;
use rand::rngs::SmallRng;

use crate::arrivals::Arrivals;
use crate::clock::{SECOND_NS, thread_cpu_ns};
use crate::connection::{Broken, Connection, SentRequest};
use crate::connector::Wanted;
use crate::histogram::OpKind;
use crate::keys::Stride;
use crate::plan::{Channels, Plan};
use crate::poller::Poller;
use crate::reply::Reply;
use crate::requests::Requests;
use crate::routing::Shards;
use crate::statement::RowId;
use crate::tally::Tally;
use crate::timeline::{Message, Window};

/// Arrivals a second above which a thread does not wake for every arrival.
const BATCH_ABOVE_PER_S: f64 = 20_000.0;
/// Shortest sleep then, nanoseconds. 50 µs is a tenth of the p99 of a busy server on loopback.
const BATCH_NS: u64 = 50_000;
/// Longest sleep, nanoseconds. Bounds the reaction time to the stop flag.
const SLEEP_NS_MAX: u64 = 100_000_000;
/// Most requests sent before answers are read again.
const SEND_MAX: usize = 512;

/// A connection of the plan, kept while its socket is down.
#[derive(Debug)]
struct WorkerConnection {
    host: usize,
    shard: Option<(Shards, u32)>,
    quota: usize,
    /// Time before which a client that was refused sends nothing, nanoseconds since the run began.
    rests_until_ns: u64,
    open: Option<Connection>,
}

pub(crate) struct Worker {
    plan: Plan,
    channels: Channels,
    poller: Poller,
    places: Vec<WorkerConnection>,
    /// Next place to search for a free stream.
    next_place: usize,
    /// For each shard its places, and the next one to search.
    places_by_shard: Vec<(Vec<usize>, usize)>,
    rng: SmallRng,
    /// Separate from `rng`, so that arrival times do not depend on the requests.
    arrivals_rng: SmallRng,
    arrivals: Arrivals,
    requests: Requests,
    in_flight: usize,
    /// Time up to which `in_flight` is integrated.
    in_flight_since_ns: u64,
    down: usize,
    /// Time limit of a request whose client gives up, nanoseconds.
    time_limit_ns: Option<u64>,
    /// Time at which a limit last delayed a request.
    blocked_ns: Option<u64>,
    tallies: Vec<Tally>,
    stretch: usize,
    window: Window,
    window_cpu_ns: u64,
}

impl Worker {
    pub(crate) fn new(mut plan: Plan, channels: Channels) -> Result<Worker, std::io::Error> {
        let poller = Poller::new()?;
        let mut places = Vec::new();
        let shards = plan.sharding.map_or(0, |sharding| sharding.shards as usize);
        let mut places_by_shard = vec![(Vec::new(), 0); shards];
        for (index, opened) in std::mem::take(&mut plan.connections).into_iter().enumerate() {
            let connection = Connection::new(opened.stream, opened.quota)?;
            poller.add(connection.stream(), index)?;
            let owner = opened.owner.and_then(|owner| places_by_shard.get_mut(owner as usize));
            if let Some((places, _)) = owner {
                places.push(index);
            }
            places.push(WorkerConnection {
                host: opened.host,
                shard: opened.shard,
                quota: opened.quota,
                rests_until_ns: 0,
                open: Some(connection),
            });
        }
        let spec = &plan.spec;
        let stride = Stride { first: plan.worker as u64, step: spec.threads as u64 };
        let seed = spec.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(2 * stride.first);
        let mut arrivals_rng = SmallRng::seed_from_u64(seed);
        let stretches = if plan.open { plan.stretches.clone() } else { Vec::new() };
        Ok(Worker {
            arrivals: Arrivals::new(stretches, &mut arrivals_rng),
            requests: Requests::new(spec, stride),
            poller,
            places,
            next_place: 0,
            places_by_shard,
            rng: SmallRng::seed_from_u64(seed + 1),
            arrivals_rng,
            in_flight: 0,
            in_flight_since_ns: 0,
            down: 0,
            time_limit_ns: plan.spec.time_limit_s.filter(|_| plan.open).map(|limit| (limit * 1e9) as u64),
            blocked_ns: None,
            // One more for answers after the last stretch.
            tallies: vec![Tally::new(); plan.stretches.len() + 1],
            stretch: 0,
            window: Window::new(0, 0, 0),
            window_cpu_ns: thread_cpu_ns(),
            plan,
            channels,
        })
    }

    /// Runs to the end. Returns the counts of every stretch and of the wait after the last.
    pub(crate) fn run(mut self) -> Result<Vec<Tally>, std::io::Error> {
        let mut ready = Vec::with_capacity(256);
        let mut drain_until = None;
        self.plan.clock.wait_for_zero();
        self.window_cpu_ns = thread_cpu_ns();
        loop {
            let now = self.plan.clock.now_ns();
            let finished = self.stretch_end(now).is_none() || self.requests.over(self.in_flight);
            if drain_until.is_none() && (finished || self.channels.stop.is_set()) {
                self.count_unsent(now);
                self.enter(self.plan.stretches.len(), now);
                drain_until = Some(now + (self.plan.spec.drain_s * 1e9) as u64);
            }
            match drain_until {
                Some(until) if self.in_flight == 0 || now >= until => break,
                _ => {}
            }
            self.roll(now);
            let sending = drain_until.is_none();
            let due = if sending { self.send(now) } else { None };
            self.flush();
            self.take_reopened();
            let mut wake = self.window_end().min(now + SLEEP_NS_MAX).min(drain_until.unwrap_or(u64::MAX));
            if let Some(due) = due {
                wake = wake.min(due);
            }
            self.poller.wait(now, wake, &mut ready)?;
            for event in ready.drain(..) {
                self.handle(event.connection, event.readable);
            }
        }
        self.finish();
        Ok(self.tallies)
    }

    fn finish(&mut self) {
        let now = self.plan.clock.now_ns();
        let slots: Vec<SentRequest> = self
            .places
            .iter_mut()
            .filter_map(|place| place.open.as_mut())
            .flat_map(Connection::drain)
            .collect();
        for slot in slots {
            self.tallies[slot.stretch as usize].unanswered += 1;
        }
        self.close_window(now);
        // Without a receiver the run has failed, and its counts are unused.
        drop(self.channels.messages.send(Message::Ended(self.plan.worker)));
    }

    // ---- time: windows and stretches ----

    /// Returns the end of the stretch that contains `now`, and enters it. `None`: after the last.
    fn stretch_end(&mut self, now: u64) -> Option<u64> {
        while let Some(stretch) = self.plan.stretches.get(self.stretch) {
            if now < stretch.end_ns {
                return Some(stretch.end_ns);
            }
            let end = stretch.end_ns;
            self.enter(self.stretch + 1, end);
        }
        None
    }

    /// Closes the window and begins one in stretch `stretch`.
    fn enter(&mut self, stretch: usize, at: u64) {
        if self.stretch == stretch {
            return;
        }
        while self.window_end() < at {
            let end = self.window_end();
            self.close_window(end);
        }
        self.close_window(at);
        self.integrate(at);
        self.stretch = stretch;
        self.window.stretch = stretch;
    }

    /// Adds the requests in flight since the last call to the mean of this stretch, until its end.
    fn integrate(&mut self, now: u64) {
        let end = self.plan.stretches.get(self.stretch).map_or(u64::MAX, |stretch| stretch.end_ns);
        let now = now.min(end);
        let elapsed = now.saturating_sub(self.in_flight_since_ns);
        self.tallies[self.stretch].in_flight_ns += self.in_flight as f64 * elapsed as f64;
        let end = self.window_end();
        let since = self.in_flight_since_ns;
        self.in_flight_since_ns = since.max(now);
        self.window.integrate(self.in_flight, since..self.in_flight_since_ns, end);
    }

    /// Returns the end of the window: after one second, or at the end of the stretch.
    fn window_end(&self) -> u64 {
        let end = self.plan.stretches.get(self.stretch).map_or(u64::MAX, |stretch| stretch.end_ns);
        (self.window.begin_ns + SECOND_NS).min(end)
    }

    fn roll(&mut self, now: u64) {
        while now >= self.window_end() {
            let end = self.window_end();
            self.close_window(end);
        }
    }

    fn close_window(&mut self, end: u64) {
        let cpu = thread_cpu_ns();
        self.integrate(end);
        let next = self.window.next(end, self.stretch, self.in_flight);
        let mut closed = std::mem::replace(&mut self.window, next);
        closed.end_ns = end;
        closed.in_flight = self.in_flight;
        closed.cpu_ns = cpu - self.window_cpu_ns;
        self.window_cpu_ns = cpu;
        let tally = &mut self.tallies[closed.stretch];
        tally.cpu_ns += closed.cpu_ns;
        tally.wall_ns += end - closed.begin_ns;
        // Without a receiver the run has failed.
        drop(self.channels.messages.send(Message::Window(self.plan.worker, Box::new(closed))));
    }

    // ---- sending ----

    /// Sends requests. Returns the time to send again, or `None` if that depends on an answer.
    fn send(&mut self, now: u64) -> Option<u64> {
        if self.plan.open { self.send_open(now) } else { self.send_closed(now) }
    }

    fn send_open(&mut self, now: u64) -> Option<u64> {
        for _ in 0..SEND_MAX {
            let (due, stretch) = self.arrivals.peek()?;
            if due > now {
                let batching = self.plan.stretches[stretch].rate_per_s > BATCH_ABOVE_PER_S;
                return Some(if batching { due.max(now + BATCH_NS) } else { due });
            }
            if self.time_limit_ns.is_some() {
                self.send_or_give_up(now, due, stretch);
                self.arrivals.advance(&mut self.arrivals_rng);
                continue;
            }
            let Some((place, row, kind)) = self.next_request() else {
                self.blocked_ns = Some(now);
                return None;
            };
            let tally = &mut self.tallies[stretch];
            if self.blocked_ns.is_some_and(|blocked| due <= blocked) {
                tally.delayed += 1;
            } else {
                tally.lag.saturating_record(now - due);
            }
            self.submit(
                place,
                SentRequest { from_ns: due, sent_ns: now, row, kind, stretch: stretch as u32 },
            );
            self.arrivals.advance(&mut self.arrivals_rng);
        }
        Some(now)
    }

    /// Sends the request that is due on the next connection, or counts it as not sent. Connections
    /// take turns, and a request is never moved to another one: that is another client's.
    fn send_or_give_up(&mut self, now: u64, due: u64, stretch: usize) {
        let index = self.next_place;
        self.next_place = if index + 1 == self.places.len() { 0 } else { index + 1 };
        let place = &self.places[index];
        if now < place.rests_until_ns {
            self.tallies[stretch].turned_away += 1;
            return;
        }
        let is_free =
            self.in_flight < self.plan.in_flight_max && place.open.as_ref().is_some_and(Connection::has_room);
        let next = if is_free { self.requests.next(&mut self.rng) } else { None };
        match next {
            Some((row, kind)) => {
                self.tallies[stretch].lag.saturating_record(now - due);
                let sent = SentRequest { from_ns: due, sent_ns: now, row, kind, stretch: stretch as u32 };
                self.submit(index, sent);
            }
            None => self.tallies[stretch].unsent += 1,
        }
    }

    fn send_closed(&mut self, now: u64) -> Option<u64> {
        for _ in 0..SEND_MAX {
            let (place, row, kind) = self.next_request()?;
            let stretch = self.stretch as u32;
            self.submit(place, SentRequest { from_ns: now, sent_ns: now, row, kind, stretch });
        }
        Some(now)
    }

    /// Returns the next request and the connection for it. `None`: a limit is reached, or a prefill
    /// has no rows left. A request without a free connection is kept for the next call, so that the
    /// sequence of requests does not depend on the speed of answers.
    fn next_request(&mut self) -> Option<(usize, RowId, OpKind)> {
        if self.in_flight >= self.plan.in_flight_max {
            return None;
        }
        let (row, kind) = self.requests.next(&mut self.rng)?;
        let place = self.owning_place(row).or_else(|| self.free_place());
        if place.is_none() {
            self.requests.put_back(row, kind);
        }
        place.map(|place| (place, row, kind))
    }

    /// Returns a connection to the shard that owns the row, round-robin, if one has a free stream.
    fn owning_place(&mut self, row: RowId) -> Option<usize> {
        let shard = self.plan.sharding?.shard_of(schema::token::token(&row.key.to_be_bytes()));
        let (places, next) = self.places_by_shard.get_mut(shard as usize)?;
        for _ in 0..places.len() {
            let index = places[*next];
            *next = if *next + 1 == places.len() { 0 } else { *next + 1 };
            if self.places[index].open.as_ref().is_some_and(Connection::has_room) {
                return Some(index);
            }
        }
        None
    }

    /// Returns a connection with a free stream, round-robin.
    fn free_place(&mut self) -> Option<usize> {
        for _ in 0..self.places.len() {
            let index = self.next_place;
            self.next_place = if index + 1 == self.places.len() { 0 } else { index + 1 };
            if self.places[index].open.as_ref().is_some_and(Connection::has_room) {
                return Some(index);
            }
        }
        None
    }

    /// Sends a request on the connection with this index.
    fn submit(&mut self, index: usize, request: SentRequest) {
        self.integrate(request.sent_ns);
        let place = &mut self.places[index];
        let templates = &self.plan.templates[place.host];
        let template = match request.kind {
            OpKind::Read => &templates.read,
            OpKind::Write => &templates.write,
        };
        let (Some(connection), Some(template)) = (&mut place.open, template) else { return };
        let Some(stream) = connection.take(request) else { return };
        template.append(&mut connection.output, stream, request.row, &mut self.rng);
        self.in_flight += 1;
        self.window.sent += 1;
        self.window.in_flight_max = self.window.in_flight_max.max(self.in_flight);
        let tally = &mut self.tallies[request.stretch as usize];
        tally.sent += 1;
        tally.in_flight_max = tally.in_flight_max.max(self.in_flight);
    }

    fn flush(&mut self) {
        for index in 0..self.places.len() {
            let Some(connection) = &mut self.places[index].open else { continue };
            if connection.output.is_empty() || connection.awaits_writable {
                continue;
            }
            self.write(index);
        }
    }

    fn write(&mut self, index: usize) {
        let Some(connection) = &mut self.places[index].open else { return };
        match connection.flush() {
            Ok(all) => {
                if connection.awaits_writable == all {
                    connection.awaits_writable = !all;
                    if let Err(error) = self.poller.set_writable(connection.stream(), index, !all) {
                        self.break_off(index, Broken(error.to_string()));
                    }
                }
            }
            Err(broken) => self.break_off(index, broken),
        }
    }

    /// Counts every arrival that was due by `now` and never sent.
    fn count_unsent(&mut self, now: u64) {
        while let Some((due, stretch)) = self.arrivals.peek() {
            if due > now {
                return;
            }
            self.tallies[stretch].unsent += 1;
            self.arrivals.advance(&mut self.arrivals_rng);
        }
    }

    // ---- answers ----

    fn handle(&mut self, index: usize, readable: bool) {
        if readable && let Err(broken) = self.read(index) {
            self.break_off(index, broken);
            return;
        }
        if self.places[index].open.as_ref().is_some_and(|connection| connection.awaits_writable) {
            self.write(index);
        }
    }

    fn read(&mut self, index: usize) -> Result<(), Broken> {
        // Move the connection out, so that the closure can borrow `self`.
        let Some(mut connection) = self.places[index].open.take() else { return Ok(()) };
        let mut unprepared = false;
        let mut read_ns = 0;
        let mut rest_ns = 0;
        let outcome = connection.fill().and_then(|()| {
            // Read the clock for each socket. The time of the wake-up would shorten the latency of
            // later answers.
            let now = self.plan.clock.now_ns();
            read_ns = now;
            connection.answers(|slot, reply| {
                unprepared |= reply == Reply::Unprepared;
                rest_ns = rest_ns.max(reply.retry_after_ns().unwrap_or(0));
                self.count(slot, reply, now);
            })
        });
        if unprepared && !connection.preparing {
            connection.preparing = true;
            connection.output.extend_from_slice(&self.plan.templates[self.places[index].host].prepare);
        }
        self.places[index].open = Some(connection);
        if rest_ns > 0 {
            let place = &mut self.places[index];
            place.rests_until_ns = place.rests_until_ns.max(read_ns.saturating_add(rest_ns));
        }
        // The next request is due when one is answered. Waiting for the answers of all sockets
        // would lower the concurrency by the generator's own work.
        if self.plan.spec.in_turn
            && !self.plan.open
            && self.stretch < self.plan.stretches.len()
            && outcome.is_ok()
        {
            self.send_closed(read_ns);
        }
        outcome
    }

    fn count(&mut self, slot: SentRequest, reply: Reply, now: u64) {
        self.integrate(now);
        self.in_flight -= 1;
        let failure = match reply {
            Reply::Done { rows } => {
                let latency = now.saturating_sub(slot.from_ns);
                self.window.latencies.record(slot.kind, latency);
                self.tallies[self.stretch].answered_within += 1;
                let is_in_time = self.time_limit_ns.is_some_and(|limit| latency <= limit);
                self.tallies[self.stretch].in_time += u64::from(is_in_time);
                let tally = &mut self.tallies[slot.stretch as usize];
                tally.latencies.record(slot.kind, latency);
                tally.from_sent.saturating_record(now.saturating_sub(slot.sent_ns));
                tally.answered += 1;
                tally.rows += rows;
                tally.empty_reads += u64::from(slot.kind == OpKind::Read && rows == 0);
                self.requests.succeeded();
                return;
            }
            Reply::Failed { code, message } => (code, message),
            Reply::Unprepared => (0x2500, "the server no longer knows the statement".to_string()),
            Reply::Prepared => (0x000A, "got an answer of the wrong kind".to_string()),
        };
        self.window.errors += 1;
        let tally = &mut self.tallies[slot.stretch as usize];
        tally.errors.entry(failure.0).or_insert((0, failure.1)).0 += 1;
        self.requests.failed(slot.row);
    }

    // ---- broken connections ----

    fn break_off(&mut self, index: usize, Broken(why): Broken) {
        let Some(mut connection) = self.places[index].open.take() else { return };
        self.poller.remove(connection.stream());
        self.integrate(self.plan.clock.now_ns());
        let tally = &mut self.tallies[self.stretch];
        tally.connections_broken += 1;
        tally.broken_why = why;
        let slots: Vec<SentRequest> = connection.drain().collect();
        for slot in slots {
            self.in_flight -= 1;
            self.window.errors += 1;
            self.tallies[slot.stretch as usize].lost += 1;
            self.requests.failed(slot.row);
        }
        self.down += 1;
        self.request_reopen(index);
    }

    fn request_reopen(&self, index: usize) {
        let WorkerConnection { host, shard, .. } = self.places[index];
        // The connector outlives the workers.
        drop(self.channels.wanted.send(Wanted { worker: self.plan.worker, connection: index, host, shard }));
    }

    fn take_reopened(&mut self) {
        if self.down == 0 {
            return;
        }
        while let Ok((index, stream)) = self.channels.reopened.try_recv() {
            self.down -= 1;
            let opened = Connection::new(stream, self.places[index].quota)
                .and_then(|connection| self.poller.add(connection.stream(), index).map(|()| connection));
            match opened {
                Ok(connection) => self.places[index].open = Some(connection),
                Err(_) => {
                    self.down += 1;
                    self.request_reopen(index);
                }
            }
        }
    }
}
