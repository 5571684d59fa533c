//! The gate on a real store, with paused time: what the driver does of what the core says.

use std::pin::pin;

use futures_util::FutureExt;
use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::session::lease::notes::LeaseNotes;
use crate::session::port::fake::FakePool;
use crate::session::run::report::{Recovered, RunEnd};
use crate::store::{Amount, Batch, Options, Quota};

const SECOND: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_secs(90);

/// A gate with one permit, and its store.
struct House {
    gate: Gate,
    store: Arc<Store>,
    metrics: Metrics,
    _root: TempDir,
}

impl House {
    fn new() -> Self {
        Self::with_retention(None)
    }

    fn with_retention(retention: Option<Duration>) -> Self {
        Self::with(retention, true)
    }

    fn with(retention: Option<Duration>, evicts: bool) -> Self {
        let root = TempDir::new().unwrap();
        let quota = Quota { bytes: 1 << 28, entries: 1000, file: 1 << 28 };
        let total = Amount { bytes: 1 << 40, entries: 1 << 40 };
        let store = Arc::new(Store::open(root.path(), Options { quota, total }).unwrap());
        let terms = GateBounds {
            wait: WAIT,
            queue: 8,
            permits: 1,
            permit_queue: 8,
            evicts,
            ttl: Duration::from_secs(30 * 60),
            sweep: Duration::from_secs(5 * 60),
            expires: retention.is_some(),
        };
        let metrics = Metrics::default();
        let notes = LeaseNotes::new(store.folder("leases").unwrap());
        let lists = store.folder("workspaces").unwrap();
        let workspaces =
            Workspaces::new(None, Arc::new(FakePool::default()), (notes, lists), metrics.clone());
        Self {
            gate: Gate::new(store.clone(), (terms, Arc::default()), retention, workspaces, metrics.clone()),
            store,
            metrics,
            _root: root,
        }
    }

    async fn enter(&self, id: &str, kind: TurnKind) -> Turn {
        self.gate.enter(&key(id), kind).await.unwrap()
    }

    /// A turn in a session that has its permit.
    async fn work(&self, id: &str) -> Turn {
        let turn = self.enter(id, code()).await;
        let permit = self.gate.permit(&turn).await.unwrap();
        turn.work().await.permit = Some(permit);
        turn
    }

    fn released(&self, reason: &str) -> bool {
        let count = format!("paddock_sessions_released_total{{reason=\"{reason}\"}} 1");
        self.metrics.text(&crate::metrics::DaemonState::default()).contains(&count)
    }
}

fn key(id: &str) -> SessionKey {
    SessionKey::new("owner", &id.parse().unwrap())
}

fn code() -> TurnKind {
    TurnKind::Code("sh".to_owned())
}

async fn save(session: &Session, at: &str) {
    let path = RelPath::new(at).unwrap();
    let mut batch = Batch::new(session.space.clone());
    batch.file(Entry { path, kind: EntryKind::File(1), mode: 0o644, mtime_ns: 0 });
    batch.write(b"x").await.unwrap();
    batch.keep();
    batch.commit().await.unwrap();
}

fn files(session: &Session) -> usize {
    session.space.manifest().files().count()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_need_not_wait_has_its_turn_without_waiting_once() {
    let house = House::new();
    drop(house.enter("a", code()).await);
    let turn = house.gate.enter(&key("a"), code()).now_or_never().expect("at once").unwrap();
    assert_eq!(turn.session().id.as_str(), "a");
    assert!(house.gate.permit(&turn).now_or_never().expect("at once").is_ok());
    drop(turn);
    drop(house.gate.try_enter(&key("a"), TurnKind::Whole).now_or_never().expect("at once").unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_comes_in_when_the_turn_before_it_is_dropped() {
    let house = House::new();
    let first = house.enter("a", code()).await;
    let key = key("a");
    let mut second = pin!(house.gate.enter(&key, code()));
    assert!(second.as_mut().now_or_never().is_none());
    assert!(matches!(house.gate.try_enter(&key, code()).await, Err(SessionError::Busy)));
    assert_eq!(house.gate.known(), (1, 1));
    drop(first);
    assert!(second.now_or_never().expect("it is in").is_ok());
    assert_eq!(house.gate.known(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_program_that_gets_no_place_is_refused_without_a_look_at_the_store() {
    let house = House::with(None, false);
    let _works = house.work("a").await;
    let broken = house.store.session_dir_for_tests("owner", "b").join("session.json");
    std::fs::create_dir_all(&broken).unwrap();
    for _ in 0..2 {
        assert!(matches!(house.gate.admits(&key("b")), Err(SessionError::NoEviction(1))));
    }
    assert_eq!(house.gate.known(), (1, 0));
    assert!(house.gate.admits(&key("a")).is_ok(), "it has its place");
    let whole = house.gate.enter(&key("b"), TurnKind::Whole).await;
    assert!(matches!(whole, Err(SessionError::Store(_))), "a change of its files needs no place");
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_gives_its_place_up_and_a_turn_that_was_on_its_way_to_it() {
    let house = House::new();
    let (first, key) = (house.enter("a", code()).await, key("a"));
    let mut gone = Box::pin(house.gate.enter(&key, code()));
    let mut late = Box::pin(house.gate.enter(&key, code()));
    let mut last = Box::pin(house.gate.enter(&key, code()));
    for waiting in [&mut gone, &mut late, &mut last] {
        assert!(waiting.as_mut().now_or_never().is_none());
    }
    drop(gone);
    assert_eq!(house.gate.known().1, 2);
    drop(first);
    drop(late); // it has been answered, and has not heard of it
    assert!(last.as_mut().now_or_never().expect("the others are gone").is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_nobody_takes_any_more_is_given_up() {
    let house = House::new();
    let turn = house.enter("a", code()).await;
    let (reply, _) = oneshot::channel();
    let answer = order::GateAnswer::Turn { turn, note: false };
    house.gate.driver.carry_out(vec![order::Order::Answer(reply, answer)]);
    assert!(house.gate.try_enter(&key("a"), code()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_timer_ends_a_wait_at_its_deadline_also_if_that_comes_before_the_next_sweep() {
    let house = House::new();
    house.gate.start_sweeping();
    let turn = house.enter("a", code()).await;
    tokio::time::sleep(WAIT * 2).await; // past every deadline: the timer sleeps until the next sweep now
    let begun = tokio::time::Instant::now();
    let late = house.gate.enter(&key("a"), code()).await;
    assert!(matches!(late, Err(SessionError::TurnTooLate(WAIT))));
    assert_eq!(begun.elapsed().as_secs(), WAIT.as_secs());
    assert!(begun.elapsed() < WAIT + SECOND);
    drop(turn);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_rests_gives_its_permit_to_a_call_that_waits() {
    let house = House::new();
    let first = house.work("a").await;
    let session = first.session().clone();
    let second = house.enter("b", code()).await;
    let mut permit = pin!(house.gate.permit(&second));
    assert!(permit.as_mut().now_or_never().is_none());
    assert_eq!((house.gate.live(), house.gate.known().1), (1, 1));
    drop(first);
    let permit = permit.now_or_never().expect("it has been evicted").unwrap();
    assert!(session.work().await.permit.is_none() && house.released("evicted"));
    drop(permit);
    assert_eq!(house.gate.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_was_on_its_way_to_a_call_that_went_away_goes_to_the_next() {
    let house = House::new();
    let first = house.work("a").await;
    let [gone, next] = [house.enter("b", code()).await, house.enter("c", code()).await];
    let mut wanted = Box::pin(house.gate.permit(&gone));
    let mut waiting = Box::pin(house.gate.permit(&next));
    assert!(wanted.as_mut().now_or_never().is_none() && waiting.as_mut().now_or_never().is_none());
    drop(first);
    drop(wanted);
    assert!(waiting.now_or_never().expect("the permit came back").is_ok());
    let late = house.gate.permit(&gone).await;
    assert!(late.is_ok(), "it has returned again");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_permit_ends_with_the_calls_own_deadline() {
    let house = House::new();
    let _works = house.work("a").await;
    let turn = house.enter("b", code()).await;
    tokio::time::sleep(WAIT - SECOND).await;
    let begun = tokio::time::Instant::now();
    let refused = house.gate.permit(&turn).await;
    assert!(matches!(refused, Err(SessionError::MaxSessions { max: 1, wait: WAIT })));
    assert!(begun.elapsed() <= SECOND * 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_container_that_the_pool_has_no_slot_for_evicts_a_session_and_an_adopted_one_does_not() {
    let house = House::new();
    drop(house.work("a").await);
    let adopted = house.gate.open(&key("b")).await.unwrap();
    assert!(matches!(house.gate.free_permit(&adopted).await, Err(SessionError::MaxSessions { .. })));
    assert_eq!(house.gate.live(), 1, "nothing is evicted for nothing");
    let works = house.enter("b", code()).await;
    let rests = house.gate.rests();
    assert!(house.gate.evict_for_pool() && !house.gate.evict_for_pool(), "only one rests");
    assert_eq!(house.gate.live(), 0);
    drop(works);
    assert!(!rests.has_changed().unwrap(), "nobody who can be evicted came to rest");
    assert!(house.gate.free_permit(&adopted).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn closing_cancels_what_runs_and_is_kept_until_the_next_use() {
    let house = House::new();
    let key = key("a");
    let turn = house.work("a").await;
    save(turn.session(), "kept").await;
    let session = turn.session().clone();
    let mut closing = Box::pin(house.gate.close(&key, false));
    assert!(closing.as_mut().now_or_never().is_none());
    let cancel = CancellationToken::new();
    let ended = tokio::time::timeout(WAIT, turn.unless_closed(&cancel, cancel.cancelled())).await;
    assert!(matches!(ended, Ok(((), true))), "what runs is cancelled");
    assert!(matches!(house.gate.try_enter(&key, code()).await, Err(SessionError::Busy)));
    drop(turn);
    assert!(closing.await.unwrap());
    assert!(session.space.is_closed() && house.released("closed") && house.gate.live() == 0);
    assert!(!house.gate.close(&key, false).await.unwrap(), "it is closed already");
    let again = house.enter("a", code()).await;
    assert!(!again.session().space.is_closed() && files(again.session()) == 1);
    let ((), was_closed) = again.unless_closed(&cancel, async {}).await;
    assert!(!was_closed, "it is open again");
}

#[tokio::test(start_paused = true)]
async fn a_program_that_waits_is_told_that_its_session_was_closed() {
    let house = House::new();
    let key = key("a");
    let turn = house.enter("a", TurnKind::Whole).await;
    let mut waits = pin!(house.gate.enter(&key, code()));
    assert!(waits.as_mut().now_or_never().is_none());
    let mut closing = pin!(house.gate.close(&key, false));
    assert!(closing.as_mut().now_or_never().is_none());
    assert!(matches!(waits.now_or_never(), Some(Err(SessionError::Closed))));
    drop(turn);
    assert!(closing.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_in_a_session_that_is_deleted_comes_into_a_new_and_empty_one() {
    let house = House::new();
    let key = key("a");
    let turn = house.enter("a", TurnKind::Whole).await;
    save(turn.session(), "gone").await;
    let old = turn.session().clone();
    let mut closing = Box::pin(house.gate.close(&key, true));
    let mut waits = Box::pin(house.gate.enter(&key, TurnKind::Whole));
    assert!(closing.as_mut().now_or_never().is_none() && waits.as_mut().now_or_never().is_none());
    drop(turn);
    assert!(closing.await.unwrap());
    let new = waits.await.unwrap();
    assert!(!Arc::ptr_eq(new.session(), &old) && old.space.is_gone() && files(new.session()) == 0);
    save(new.session(), "new").await;
    let found = house.gate.find(&key).await.unwrap().expect("the new one");
    assert!(Arc::ptr_eq(new.session(), &found));
    assert!(house.gate.find(&super::tests::key("b")).await.unwrap().is_none());
    assert_eq!(house.gate.known().0, 1, "a search for an unknown session makes none");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_told_to_every_call_and_spoils_nothing() {
    let house = House::new();
    let key = key("a");
    let broken = house.store.session_dir_for_tests("owner", "a").join("session.json");
    std::fs::create_dir_all(&broken).unwrap();
    let both = tokio::join!(house.gate.enter(&key, code()), house.gate.open(&key));
    assert!(matches!(both, (Err(SessionError::Store(StoreError::Io { .. })), Err(StoreError::Io { .. }))));
    assert_eq!(house.gate.known(), (0, 0));
    std::fs::remove_dir_all(house.store.session_dir_for_tests("owner", "a")).unwrap();
    let turn = house.enter("a", code()).await;
    save(turn.session(), "kept").await;
    drop(turn);
    house.store.close().await; // it takes no deletion any more
    assert!(house.gate.close(&key, true).await.is_err());
    assert_eq!(files(house.enter("a", code()).await.session()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_rests_loses_its_containers_after_the_ttl_and_is_forgotten_when_nothing_needs_it() {
    let house = House::new();
    house.gate.start_sweeping();
    drop(house.work("a").await);
    let [held, news] =
        [house.gate.open(&key("held")).await.unwrap(), house.gate.open(&key("news")).await.unwrap()];
    news.report(Recovered {
        run_id: "run".into(),
        end: RunEnd::Lost(String::new()),
        logged: false,
        changed: Vec::new(),
        not_saved: Vec::new(),
        unsaved: None,
    });
    drop(news);
    tokio::time::sleep(Duration::from_secs(29 * 60)).await;
    assert_eq!((house.gate.live(), house.gate.known().0), (1, 3));
    tokio::time::sleep(Duration::from_secs(6 * 60)).await;
    assert_eq!((house.gate.live(), house.gate.known().0), (0, 1), "one is held");
    assert!(house.released("idle"));
    let forgotten = Arc::downgrade(&held);
    drop(held);
    tokio::time::sleep(Duration::from_secs(6 * 60)).await;
    assert_eq!(house.gate.known().0, 0);
    assert!(forgotten.upgrade().is_none(), "it is out of memory");
}

#[tokio::test(start_paused = true)]
async fn a_lost_container_goes_once_its_session_rests() {
    let house = House::new();
    let turn = house.work("a").await;
    let (loses, lost) = oneshot::channel::<()>();
    house.gate.watch(turn.session(), lost);
    drop(loses);
    tokio::time::sleep(SECOND).await;
    assert_eq!(house.gate.live(), 1, "a call is in");
    drop(turn);
    assert_eq!(house.gate.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn files_that_nobody_uses_for_the_retention_are_deleted() {
    let house = House::with_retention(Some(Duration::ZERO));
    for id in ["rests", "works"] {
        let turn = house.enter(id, code()).await;
        save(turn.session(), "file").await;
    }
    let works = house.work("works").await;
    tokio::time::sleep(SECOND).await;
    house.gate.start_sweeping();
    while house.store.find("owner", "rests").await.unwrap().is_some() {
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(files(works.session()), 1);
    assert_eq!(files(house.enter("rests", code()).await.session()), 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_waiting_for_a_note_of_use_does_not_undo_a_later_close() {
    let house = House::new();
    let key = key("a");
    let session = house.enter("a", code()).await.session().clone();
    save(&session, "file").await;
    for _ in 0..20 {
        assert!(house.gate.close(&key, false).await.unwrap());
        // Polled until it writes the note, and then dropped.
        drop(house.gate.enter(&key, code()).now_or_never());
        assert!(house.gate.close(&key, false).await.unwrap());
        assert!(session.space.is_closed());
        drop(house.enter("a", code()).await);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_takes_every_container_back_once_its_calls_are_over() {
    let house = House::new();
    let works = house.work("a").await;
    let key = key("a");
    let mut waits = pin!(house.gate.enter(&key, code()));
    assert!(waits.as_mut().now_or_never().is_none());
    let mut ending = pin!(house.gate.close_all());
    assert!(ending.as_mut().now_or_never().is_none());
    let shutting = |error| matches!(error, SessionError::NoContainer(LeaseRefusal::ShuttingDown));
    assert!(shutting(waits.now_or_never().expect("it is told").err().unwrap()));
    assert!(shutting(house.gate.enter(&key, code()).await.err().unwrap()));
    drop(works);
    ending.now_or_never().expect("nothing is left");
    assert_eq!(house.gate.live(), 0);
}
