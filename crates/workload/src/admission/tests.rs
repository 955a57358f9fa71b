use std::sync::Arc;

use super::*;
use crate::{LevelEntry, LevelSpec};

#[test]
fn interactive_is_refused_first_and_batch_never() {
    use Decision::{Admit, CoreFull, Hold, LevelFull};
    use WorkloadType::{Batch, Interactive};
    let (level, core) = (LEVEL_IN_FLIGHT_MAX, CORE_IN_FLIGHT_MAX);
    for (kind, of_level, of_core, expected) in [
        (None, 0, 0, Admit),
        (None, level - 1, core - 1, Admit),
        (None, level, level, LevelFull(level)),
        (None, 1, core, CoreFull(core)),
        (Some(Interactive), level / 2 - 1, core / 2 - 1, Admit),
        (Some(Interactive), level / 2, level, LevelFull(INTERACTIVE_IN_FLIGHT_MAX)),
        (Some(Interactive), 1, core / 2, CoreFull(core / 2)),
        (Some(Batch), level - 1, core - 1, Admit),
        (Some(Batch), level, level, Hold),
        (Some(Batch), 1, core, Hold),
    ] {
        let (of_level_max, entitlement_ppm) = (level, 1);
        let in_flight =
            StatementsInFlight { of_level, of_level_max, of_core, entitlement_ppm, is_only: false };
        assert_eq!(decide(kind, in_flight), expected, "{kind:?} {of_level} {of_core}");
    }
}

#[test]
fn level_within_its_part_is_admitted_whatever_others_have_in_flight() {
    let decide = |workload_type, of_level| {
        let (of_level_max, of_core) = (LEVEL_IN_FLIGHT_MAX, 10 * CORE_IN_FLIGHT_MAX);
        let entitlement_ppm = 100_000;
        let in_flight =
            StatementsInFlight { of_level, of_level_max, of_core, entitlement_ppm, is_only: false };
        decide(workload_type, in_flight)
    };
    let part = CORE_IN_FLIGHT_MAX / 10;
    assert_eq!(decide(None, part - 1), Decision::Admit);
    assert_eq!(decide(None, part), Decision::CoreFull(CORE_IN_FLIGHT_MAX));
    assert_eq!(decide(Some(WorkloadType::Batch), part - 1), Decision::Admit);
    let interactive = Some(WorkloadType::Interactive);
    assert_eq!(decide(interactive, part / 2 - 1), Decision::Admit);
    assert_eq!(decide(interactive, part / 2), Decision::CoreFull(CORE_IN_FLIGHT_MAX / 2));
}

/// A request with a time limit of 10 s that has waited since `since_ns`.
fn since(since_ns: u64) -> Arrived {
    Arrived { since_ns, time_limit_ns: 10_000_000_000, is_only: false }
}

#[test]
fn only_request_of_a_connection_is_admitted_beside_those_that_pour() {
    for of_level_max in [LEVEL_IN_FLIGHT_MAX, 2] {
        let (of_core, entitlement_ppm) = (2 * CORE_IN_FLIGHT_MAX, 1);
        let decide = |is_only| {
            let of_level = LEVEL_IN_FLIGHT_MAX;
            decide(None, StatementsInFlight { of_level, of_level_max, of_core, entitlement_ppm, is_only })
        };
        assert_eq!(decide(false), Decision::LevelFull(of_level_max));
        assert_eq!(decide(true) == Decision::Admit, of_level_max != 2, "2 is the administrator's number");
    }
}

#[test]
fn server_option_limits_levels_without_their_own() {
    let level = effective("olap", None);
    let default = |limit| level.level.set_limit(&level.spec, limit);
    default(crate::DefaultLimit::Statements(2));
    let admission = Admission::new(0);
    let inside = [0, 0].map(|_| admission.check(&level, since(0), 0, false).expect("below the limit"));
    assert!(matches!(admission.check(&level, since(0), 0, false), Err(Refused::Overloaded(_))));
    drop(inside);
    default(crate::DefaultLimit::Auto);
    assert!(level.level.is_limited());
    let mut own = level.spec.clone();
    own.slots.max_concurrency = Some(3);
    level.level.set_limit(&own, crate::DefaultLimit::Auto);
    assert!(!level.level.is_limited(), "its own option comes first");
}

fn effective(name: &str, workload_type: Option<WorkloadType>) -> Rc<Effective> {
    let spec = LevelSpec { workload_type, ..LevelSpec::new(name) };
    let level = Arc::new(Level::new(spec.name.clone(), lanes::Group::DEFAULT, 1, &crate::Memory::new(0)));
    Rc::new(Effective::of(&LevelEntry { level, spec }))
}

#[test]
fn refusal_names_level_limit_and_retry_delay() {
    let (admission, level) = (Admission::new(0), effective("olap", None));
    level.level.record(0, crate::RequestKind::Read, 1_000_000, 0, false);
    let inside: Vec<_> =
        (0..LEVEL_IN_FLIGHT_MAX).map(|_| admission.check(&level, since(0), 0, false).ok().unwrap()).collect();
    let text = "The service level 'olap' is overloaded: its queue is full (16384 statements in flight on this \
                core, limit 16384). Try again in 1 ms.";
    assert_eq!(
        admission.check(&level, since(0), 0, false).err(),
        Some(Refused::Overloaded(Rejection { text: text.into(), pause_ns: 0 }))
    );
    assert!(
        admission.check(&effective("oltp", None), since(0), 0, false).is_ok(),
        "another level has capacity"
    );
    let batch = effective("etl", Some(WorkloadType::Batch));
    batch.level.set_in_flight(0, LEVEL_IN_FLIGHT_MAX);
    assert_eq!(admission.check(&batch, since(0), 0, false).err(), Some(Refused::Hold));
    drop(inside);
    assert_eq!((admission.in_flight(), level.level.in_flight(0)), (0, 0));
    assert!(admission.check(&level, since(0), 0, false).is_ok());
}

#[test]
fn request_enters_waits_or_is_refused() {
    let admission = Admission::new(0);
    let full = |name, workload_type| {
        let level = effective(name, workload_type);
        level.level.set_in_flight(0, LEVEL_IN_FLIGHT_MAX);
        level
    };
    let enter = |level: &Rc<Effective>, exempt: bool| match admission.enter(level, since(0), 0, || exempt) {
        Entrance::In(_) => "in",
        Entrance::Held(_) => "held",
        Entrance::Refused(_) => "refused",
    };
    assert_eq!(enter(&effective("oltp", None), false), "in");
    let (olap, etl) = (full("olap", None), full("etl", Some(WorkloadType::Batch)));
    assert_eq!([enter(&olap, false), enter(&olap, true)], ["refused", "in"]);
    assert_eq!([enter(&etl, false), enter(&etl, true)], ["held", "in"]);
    let unasked = || panic!("a request that is admitted at once is not looked into");
    assert!(matches!(admission.enter(&effective("oltp", None), since(0), 0, unasked), Entrance::In(_)));
}

/// Runs `task` on the fast lane of a core.
fn on_core<T: Send + 'static>(task: impl AsyncFnOnce() -> T + Send + 'static) -> T {
    let lanes = lanes::Lanes::start(lanes::Config { cores: vec![0], pin: false, ..lanes::Config::detect() });
    let lanes = lanes.expect("lanes start");
    let result = lanes.block_on(0, Group::CONTROL, move || async move { task().await });
    lanes.shutdown();
    result
}

fn poll(held: &mut std::pin::Pin<Box<impl Future<Output = Result<InFlight, Rejection>>>>) -> bool {
    held.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn held_requests_resume_in_turn_when_one_ends() {
    on_core(async || {
        let (admission, batch) = (Admission::new(0), effective("etl", Some(WorkloadType::Batch)));
        let mut inside: Vec<_> = (0..LEVEL_IN_FLIGHT_MAX)
            .map(|_| admission.check(&batch, since(0), 0, false).ok().unwrap())
            .collect();
        assert_eq!(admission.check(&batch, since(0), 0, false).err(), Some(Refused::Hold));
        let hold = || Box::pin(admission.hold(&batch, since(0)));
        let mut first = hold();
        let mut gone = hold();
        let mut last = hold();
        assert!(!poll(&mut first) && !poll(&mut gone) && !poll(&mut last));
        inside.pop();
        assert!(!poll(&mut last), "it is not its turn");
        drop(gone);
        assert!(poll(&mut first));
        drop(first);
        assert!(poll(&mut last), "the admitted request of the first one has ended");
        drop(last);
        assert_eq!((admission.held_count.get(), admission.gone_count.get()), (0, 0));
    });
}

/// Counts the wake-ups of a task.
#[derive(Default)]
struct Wakes(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn held_requests_that_are_checked_in_vain_keep_their_order() {
    on_core(async || {
        let (admission, level) = (Admission::new(0), limited(Some(WorkloadType::Batch)));
        let now_ns = lanes::time::monotonic_ns();
        let mut inside: Vec<_> =
            (0..2).map(|_| admission.check(&level, since(now_ns), now_ns, false).ok().unwrap()).collect();
        let hold = || Box::pin(admission.hold(&level, since(now_ns)));
        let mut held = [hold(), hold(), hold()];
        assert!(held.iter_mut().all(|one| !poll(one)));
        // Two are woken before the first of them is checked.
        (0..2).for_each(|_| admission.wake_next(level.level.id()));
        assert!(held[..2].iter_mut().all(|one| !poll(one)));
        let [mut first, mut second, mut third] = held;
        inside.pop();
        assert!(!poll(&mut second) && !poll(&mut third) && poll(&mut first), "the first is the next");
        drop(first);
        assert!(poll(&mut second) && poll(&mut third));
    });
}

#[test]
fn ended_request_wakes_only_those_that_wait_for_what_it_leaves() {
    on_core(async || {
        let admission = Admission::new(0);
        let [own, other] = [(); 2].map(|()| limited(Some(WorkloadType::Batch)));
        let now_ns = lanes::time::monotonic_ns();
        let admit = |level| admission.check(level, since(now_ns), now_ns, false).ok().unwrap();
        let [mut of_own, mut of_other] = [&own, &other].map(|level| vec![admit(level), admit(level)]);
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut held = Box::pin(admission.hold(&other, since(now_ns)));
        let mut check = || held.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_ready();
        let woken = || wakes.0.load(std::sync::atomic::Ordering::Relaxed);
        assert!(!check());
        of_own.pop();
        assert_eq!((woken(), check()), (0, false), "its own level is full");
        // At the bound of the core it takes the place of any level.
        admission.in_flight.set(admission.in_flight.get() + CORE_IN_FLIGHT_MAX);
        let mut also = Box::pin(admission.hold(&own, since(now_ns)));
        assert!(!poll(&mut also));
        of_own.pop();
        assert_eq!(woken(), 1);
        assert!(!check());
        admission.in_flight.set(admission.in_flight.get() - CORE_IN_FLIGHT_MAX);
        of_other.pop();
        assert_eq!((woken(), check()), (2, true));
        drop((held, also, of_own, of_other));
    });
}

/// Sessions that leave while others are held must not accumulate.
#[test]
fn held_requests_of_closed_sessions_are_removed() {
    on_core(async || {
        let (admission, batch) = (Admission::new(0), effective("etl", Some(WorkloadType::Batch)));
        let _inside: Vec<_> = (0..LEVEL_IN_FLIGHT_MAX)
            .map(|_| admission.check(&batch, since(0), 0, false).ok().unwrap())
            .collect();
        let mut first = Box::pin(admission.hold(&batch, since(0)));
        assert!(!poll(&mut first));
        for _ in 0..1000 {
            let mut other = Box::pin(admission.hold(&batch, since(0)));
            assert!(!poll(&mut other));
        }
        assert!(admission.held_count.get() <= 2 * GONE_MIN, "{}", admission.held_count.get());
        drop(first);
    });
}

/// A level with a limit of two statements of 1 ms of work, and a target of 8 ms.
fn limited(workload_type: Option<WorkloadType>) -> Rc<Effective> {
    let level = effective("auto", workload_type);
    let mut limited = Effective::clone(&level);
    limited.spec.slots.is_auto = true;
    limited.level.set_limit(&limited.spec, crate::DefaultLimit::Off);
    let limit = sched::control::ConcurrencyLimit {
        statements: 2,
        target_ns: 8_000_000,
        work_ns: 1_000_000,
        device_ns: 0,
        refusal_ppm: 0,
        drain_ns: 1_000_000,
        busiest_ppm: 1_000_000,
        elsewhere: 0,
        has_target: false,
        time_limit_ns: 10_000_000_000,
    };
    limited.level.limit(0).set(&limit);
    Rc::new(limited)
}

#[test]
fn limiter_holds_young_and_refuses_late_interactive_statements() {
    on_core(async || {
        const MS: u64 = 1_000_000;
        let (admission, level) = (Admission::new(0), limited(Some(WorkloadType::Interactive)));
        let now_ns = 1_000 * MS;
        let admit = |age_ns: u64, now_ns: u64| admission.check(&level, since(now_ns - age_ns), now_ns, false);
        let first = admit(0, now_ns).ok().unwrap();
        // Ready before the first one was checked: it waited in a queue.
        let second = admit(51 * MS, now_ns + 50 * MS).ok().unwrap();
        assert_eq!(admit(0, now_ns + 50 * MS).err(), Some(Refused::Hold));
        assert_eq!(admit(17 * MS, now_ns + 51 * MS).err(), Some(Refused::Hold), "not for 100 ms yet");
        let Some(Refused::Overloaded(late)) = admit(107 * MS, now_ns + 157 * MS).err() else {
            panic!("it is late while the queue stands")
        };
        assert!(late.text.contains("wait 107.0 ms, at most 16.0 ms are useful"), "{}", late.text);
        assert!(late.text.contains("Try again in ") && late.pause_ns > MS, "{late:?}");
        let Some(Refused::Overloaded(expired)) = admit(10_000 * MS, 20_000 * MS).err() else {
            panic!("it cannot end in time")
        };
        assert!(expired.text.contains("cannot end within its time limit of 10000.0 ms"), "{expired:?}");
        drop((first, second));
        assert!(admit(0, 30_000 * MS).is_ok());
    });
}

#[test]
fn arriving_statement_does_not_overtake_held_ones() {
    on_core(async || {
        let (admission, level) = (Admission::new(0), limited(Some(WorkloadType::Batch)));
        let now_ns = lanes::time::monotonic_ns();
        let admit = || admission.check(&level, since(now_ns), now_ns, false);
        let mut inside = [admit().ok(), admit().ok()];
        let hold = || Box::pin(admission.hold(&level, since(now_ns)));
        let (mut first, mut second) = (hold(), hold());
        assert!(!poll(&mut first) && !poll(&mut second));
        inside[0] = None;
        assert_eq!(admit().err(), Some(Refused::Hold), "the free place is for a held one");
        assert!(poll(&mut first), "it has ended as well");
        assert!(poll(&mut second));
        assert!(admit().is_ok());
    });
}

#[test]
fn longest_time_limit_of_arriving_statements_is_noted() {
    on_core(async || {
        let (admission, level) = (Admission::new(0), limited(None));
        for time_limit_ns in [3, 7, 5] {
            let arrived = Arrived { time_limit_ns: time_limit_ns * 1_000_000_000, ..since(0) };
            drop(admission.check(&level, arrived, 0, false).expect("it is alone"));
        }
        let taken = [level.level.take_time_limit_ns(), level.level.take_time_limit_ns()];
        assert_eq!(taken, [7_000_000_000, 0]);
    });
}

#[test]
fn limiter_holds_statements_that_cost_no_more_than_a_refusal() {
    on_core(async || {
        const MS: u64 = 1_000_000;
        let (admission, level) = (Admission::new(0), limited(Some(WorkloadType::Interactive)));
        let limit = level.level.limit(0).get().expect("it was set");
        let work_ns = 9_999; // below the least work of what is refused early
        level.level.limit(0).set(&sched::control::ConcurrencyLimit { work_ns, ..limit });
        let admit = |age_ns: u64, now_ns: u64| admission.check(&level, since(now_ns - age_ns), now_ns, false);
        let _inside = [admit(0, 1_000 * MS).ok(), admit(51 * MS, 1_050 * MS).ok()];
        assert_eq!(admit(107 * MS, 1_157 * MS).err(), Some(Refused::Hold));
    });
}

#[test]
fn moved_request_ends_for_its_level_and_is_in_flight_in_the_other() {
    on_core(async || {
        let admission = Admission::new(0);
        let old = limited(None);
        let new = effective("slow", None);
        let mut inside: Vec<_> =
            (0..2).map(|_| admission.check(&old, since(0), 0, false).ok().unwrap()).collect();
        let mut held = Box::pin(admission.hold(&old, since(lanes::time::monotonic_ns())));
        assert!(!poll(&mut held));
        let counts = |level: &Effective| (level.level.in_flight(0), level.level.ended(0));
        inside[0].move_to(&new);
        assert_eq!((counts(&old), counts(&new), admission.in_flight()), ((1, 1), (1, 0), 2));
        assert!(poll(&mut held), "it took the permit of the one that moved");
        drop((inside, held));
        assert_eq!((counts(&old), counts(&new), admission.in_flight()), ((0, 3), (0, 1), 0));
    });
}

#[test]
fn limiter_never_refuses_batch_and_others_after_queue_timeout() {
    on_core(async || {
        const S: u64 = 1_000_000_000;
        let (admission, batch) = (Admission::new(0), limited(Some(WorkloadType::Batch)));
        let _inside = [
            admission.check(&batch, since(0), 0, false).ok(),
            admission.check(&batch, since(0), 0, false).ok(),
        ];
        assert_eq!(admission.check(&batch, since(S), 2 * S, false).err(), Some(Refused::Hold));
        assert!(!admission.admit_always(&batch).effective.level.name().is_empty());
        let mut other = Effective::clone(&limited(None));
        other.spec.slots.queue_timeout = Some(Duration::from_secs(2));
        let other = Rc::new(other);
        let _inside = [
            admission.check(&other, since(0), 0, false).ok(),
            admission.check(&other, since(0), 0, false).ok(),
        ];
        assert_eq!(admission.check(&other, since(S), 2 * S, false).err(), Some(Refused::Hold));
        assert!(matches!(admission.check(&other, since(S), 3 * S, false), Err(Refused::Overloaded(_))));
    });
}
