//! Connections with real lanes and loopback sockets.
#![expect(clippy::disallowed_methods, reason = "the clients run outside of the lanes")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use frontdoor::{Connections, Limits, Refusals, Refused, TRANSFERS_MAX};
use lanes::{Group, Lanes};
use testkit::{start_lanes, until};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Time after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(20);

fn on_core_0<T: Send + 'static, F: Future<Output = T> + 'static>(
    lanes: &Lanes,
    f: impl FnOnce() -> F + Send + 'static,
) -> T {
    lanes.block_on(0, Group::CONTROL, f)
}

#[test]
fn core_with_a_full_queue_is_skipped() {
    const SOCKETS: usize = TRANSFERS_MAX + 20;
    let lanes = start_lanes(2);
    let connections = Connections::new(Limits::of_sessions(1000), |_| ());
    let (blocked, release) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_blocked, is_released) = (blocked.clone(), release.clone());
    lanes.run_on_core(1, Group::CONTROL, move || {
        is_blocked.store(true, SeqCst);
        while !is_released.load(SeqCst) {
            std::hint::spin_loop();
        }
    });
    until("core 1 is busy", || blocked.load(SeqCst));
    let begun: Arc<[AtomicUsize; 2]> = Arc::default();
    let (counted, own) = (begun.clone(), connections.clone());
    // Returns while core 1 is blocked: no step waits for that core.
    on_core_0(&lanes, move || async move {
        own.begin();
        let listener = lanes::net::listen(SocketAddr::from((PEER, 0)), false).expect("listens");
        let at = listener.local_addr().expect("bound");
        for _ in 0..SOCKETS {
            let _client = TcpStream::connect(at).expect("connects");
            let (stream, peer) = listener.accept().await.expect("accepts");
            let counted = counted.clone();
            own.hand_over(1, stream, own.accept(peer.ip()), move |_, _| {
                counted[lanes::current_core()].fetch_add(1, SeqCst);
            });
        }
    });
    assert_eq!([begun[0].load(SeqCst), begun[1].load(SeqCst)], [SOCKETS - TRANSFERS_MAX, 0]);
    release.store(true, SeqCst);
    until("the other sockets have begun", || begun[1].load(SeqCst) == TRANSFERS_MAX);
    until("all slots are released", || connections.open() == 0);
    lanes.shutdown();
}

#[test]
fn login_ends_when_its_connection_is_closed_for_another() {
    let lanes = start_lanes(2);
    let limits = Limits { logins_max: 2, logins_per_address_max: 2, ..Limits::of_sessions(10) };
    let connections = Connections::new(limits, |_| ());
    let own = connections.clone();
    let first = on_core_0(&lanes, move || async move {
        own.begin();
        own.accept(PEER)
    });
    let (ended, ends) = mpsc::channel();
    lanes.run_on_core(1, Group::DRIVER, move || {
        let login = async move {
            let first = first;
            let login = first.log_in(TIMEOUT, std::future::pending::<()>()).await;
            ended.send((login, first.enter("late", true).await)).expect("the test waits");
        };
        lanes::spawn(Group::DRIVER, login).detach();
    });
    let own = connections.clone();
    let others = on_core_0(&lanes, move || async move { [own.accept(PEER), own.accept(PEER)] });
    assert_eq!(ends.recv_timeout(TIMEOUT), Ok((None, Err(Refused::Closed))));
    until("the slot of the closed connection is released", || connections.open() == 2);
    drop(others);
    lanes.shutdown();
}

#[test]
fn panicking_task_releases_its_slot() {
    let lanes = start_lanes(2);
    let connections = Connections::new(Limits { reserved_max: 0, ..Limits::of_sessions(1) }, |_| ());
    let enter = |then_panics: bool| {
        let own = connections.clone();
        let slot = on_core_0(&lanes, move || async move { own.accept(PEER) });
        let (entered, result) = mpsc::channel();
        lanes.run_on_core(1, Group::CONTROL, move || {
            let task = async move {
                let slot = slot;
                let _ = entered.send(slot.enter("role", false).await);
                assert!(!then_panics, "this panic is part of the test");
            };
            lanes::spawn(Group::CONTROL, task).detach();
        });
        result.recv_timeout(TIMEOUT).expect("an answer")
    };
    let own = connections.clone();
    on_core_0(&lanes, move || async move { own.begin() });
    assert_eq!(enter(true), Ok(()));
    until("the slot is released", || connections.open() == 0);
    assert_eq!(enter(false), Ok(()));
    lanes.shutdown();
}

#[test]
fn refusals_within_a_second_are_one_report() {
    const TOO_MANY: u64 = 100;
    let lanes = start_lanes(1);
    let (reports, sum) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, summed) = (reports.clone(), sum.clone());
    let report = move |refusals: &Refusals| {
        counted.fetch_add(1, SeqCst);
        summed.fetch_add(refusals.closed + refusals.refused, SeqCst);
    };
    let limits = Limits { logins_max: 1, logins_per_address_max: 1, ..Limits::of_sessions(10) };
    let connections = Connections::new(limits, report);
    let own = connections.clone();
    let slots = on_core_0(&lanes, move || async move {
        own.begin();
        (0..=TOO_MANY).map(|_| own.accept(PEER)).collect::<Vec<_>>()
    });
    until("a report comes", || reports.load(SeqCst) > 0);
    assert_eq!((reports.load(SeqCst), sum.load(SeqCst)), (1, TOO_MANY));
    assert_eq!(connections.closed(), TOO_MANY);
    drop(slots);
    lanes.shutdown();
}

/// A crowd of silent sockets: at most those of the limits are open, the newest get in, and serving
/// goes on as soon as the crowd has left.
#[test]
fn silent_crowd_takes_only_the_sockets_of_the_limits() {
    const CROWD: usize = 300;
    let limits = Limits { logins_max: 16, logins_per_address_max: 16, ..Limits::of_sessions(8) };
    let lanes = start_lanes(2);
    let connections = Connections::new(limits, |_| ());
    let (most, served) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (own, seen, serves) = (connections.clone(), most.clone(), served.clone());
    let at = on_core_0(&lanes, move || async move {
        own.begin();
        let listener = lanes::net::listen(SocketAddr::from((PEER, 0)), false).expect("listens");
        let at = listener.local_addr().expect("bound");
        let accepting = async move {
            let take = |stream, peer: SocketAddr| {
                let serves = serves.clone();
                own.hand_over(1, stream, own.accept(peer.ip()), move |mut stream, slot| {
                    let greet = async move {
                        use tokio::io::{AsyncReadExt, AsyncWriteExt};
                        let login = async { stream.read_u8().await.is_ok() };
                        if slot.log_in(TIMEOUT, login).await == Some(true) {
                            serves.fetch_add(1, SeqCst);
                            let _ = stream.write_all(b"!").await;
                        }
                    };
                    lanes::spawn(Group::DRIVER, greet).detach();
                });
                seen.fetch_max(own.open(), SeqCst);
            };
            frontdoor::accept(listener, &own, take, |error| panic!("{error}")).await;
        };
        lanes::spawn(Group::CONTROL, accepting).detach();
        at
    });
    let crowd: Vec<TcpStream> = (0..CROWD).map(|_| TcpStream::connect(at).expect("connects")).collect();
    let greeted = || {
        use std::io::{Read, Write};
        let mut client = TcpStream::connect(at).expect("connects");
        client.set_read_timeout(Some(TIMEOUT)).expect("a time limit");
        client.write_all(b"?").expect("sends");
        client.read_exact(&mut [0]).expect("a greeting, beside the crowd");
    };
    greeted();
    until("the crowd is accepted", || connections.closed() as usize >= CROWD - 32);
    assert!(most.load(SeqCst) <= connections.sockets_max(), "{} sockets", most.load(SeqCst));
    drop(crowd);
    until("all sockets are closed", || connections.open() == 0);
    greeted();
    assert_eq!(served.load(SeqCst), 2);
    lanes.shutdown();
}
