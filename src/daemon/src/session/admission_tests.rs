//! The permits of sessions, with sessions that are nothing but their state: no engine, no files, paused time.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::task::JoinHandle;

use super::*;

/// A session as the admission sees it.
struct Fake {
    permit: Mutex<Option<Permit<Fake>>>,
    works: AtomicBool,
    has_waiting: AtomicBool,
    used: Mutex<std::time::Instant>,
}

impl Fake {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            permit: Mutex::default(),
            works: AtomicBool::new(true),
            has_waiting: AtomicBool::default(),
            used: Mutex::new(std::time::Instant::now()),
        })
    }

    fn has_permit(&self) -> bool {
        self.permit.lock().unwrap().is_some()
    }

    fn rest(&self, admission: &Admission<Self>) {
        *self.used.lock().unwrap() = std::time::Instant::now();
        self.works.store(false, Relaxed);
        admission.make_room();
    }
}

impl Evict for Fake {
    fn last_used(&self) -> std::time::Instant {
        *self.used.lock().unwrap()
    }

    fn has_waiting_calls(&self) -> bool {
        self.has_waiting.load(Relaxed)
    }

    fn evict(&self) -> bool {
        if self.works.load(Relaxed) {
            return false;
        }
        let permit = self.permit.lock().unwrap().take();
        permit.is_some()
    }
}

const WAIT: Duration = Duration::from_secs(90);

fn admission(max: usize, queue: usize) -> Arc<Admission<Fake>> {
    Admission::new(Terms { max, queue, evicts: true }, Metrics::default())
}

/// Admits a new session, in a task of its own; it has its permit once the task has ended.
fn come(admission: &Arc<Admission<Fake>>) -> (Arc<Fake>, JoinHandle<Result<(), Refused>>) {
    let (session, admission) = (Fake::new(), admission.clone());
    let task = tokio::spawn({
        let session = session.clone();
        async move {
            let permit = admission.admit(&session, Instant::now() + WAIT).await?;
            *session.permit.lock().unwrap() = Some(permit);
            Ok(())
        }
    });
    (session, task)
}

async fn admitted(admission: &Arc<Admission<Fake>>) -> Arc<Fake> {
    let (session, task) = come(admission);
    task.await.unwrap().unwrap();
    session
}

/// Lets every task run until it waits.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_admitted_in_their_order_one_for_each_session_that_comes_to_rest() {
    let admission = admission(2, 8);
    let (a, b) = (admitted(&admission).await, admitted(&admission).await);
    let (c, c_waits) = come(&admission);
    settle().await;
    let (d, d_waits) = come(&admission);
    settle().await;
    assert_eq!((admission.live(), admission.waiting()), (2, 2), "both are at work");
    b.rest(&admission);
    c_waits.await.unwrap().unwrap();
    assert!(c.has_permit() && a.has_permit() && !b.has_permit() && !d.has_permit());
    c.rest(&admission);
    d_waits.await.unwrap().unwrap();
    assert!(a.has_permit() && !c.has_permit(), "one session is evicted for one waiter");
    assert_eq!((admission.live(), admission.waiting()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_rests_stays_until_somebody_waits_and_the_least_recently_used_goes() {
    let admission = admission(3, 8);
    let sessions = [admitted(&admission).await, admitted(&admission).await, admitted(&admission).await];
    for session in [1, 0, 2] {
        sessions[session].rest(&admission);
    }
    assert_eq!(admission.live(), 3);
    admitted(&admission).await;
    assert_eq!(sessions.each_ref().map(|session| session.has_permit()), [true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_session_with_waiting_calls_goes_last_and_not_before_its_slice_is_over() {
    let admission = admission(2, 8);
    let (busy, idle) = (admitted(&admission).await, admitted(&admission).await);
    busy.has_waiting.store(true, Relaxed);
    busy.rest(&admission);
    idle.rest(&admission);
    let _at_work = admitted(&admission).await;
    assert!(busy.has_permit() && !idle.has_permit(), "used longer ago, and spared");
    let (_, waits) = come(&admission);
    settle().await;
    assert_eq!(admission.waiting(), 1);
    let begun = Instant::now();
    waits.await.unwrap().unwrap();
    assert!(!busy.has_permit(), "it has had its slice");
    assert!((SLICE / 2..SLICE * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_deadline_and_a_queue_at_its_bound() {
    let admission = admission(1, 1);
    let _at_work = admitted(&admission).await;
    let begun = Instant::now();
    let (_, first) = come(&admission);
    settle().await;
    let (_, second) = come(&admission);
    assert_eq!(second.await.unwrap(), Err(Refused::QueueFull(1)));
    assert_eq!(first.await.unwrap(), Err(Refused::TooLong));
    assert_eq!(begun.elapsed(), WAIT);
    assert_eq!(admission.live(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_goes_away_costs_no_session_its_container_and_keeps_no_permit() {
    let admission = admission(1, 8);
    let a = admitted(&admission).await;
    let (_, gone) = come(&admission);
    settle().await;
    gone.abort();
    let _ = gone.await;
    a.rest(&admission);
    assert!(a.has_permit(), "nobody waits");
    // Granted and not taken: the permit goes on to the next.
    let (b, b_waits) = come(&admission);
    let (c, c_waits) = come(&admission);
    settle().await;
    assert!(b.has_permit() && !c.has_permit());
    drop(b_waits);
    b.rest(&admission);
    c_waits.await.unwrap().unwrap();
    drop(c.permit.lock().unwrap().take());
    assert_eq!(admission.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_or_is_evicted_where_the_configuration_says_so() {
    let terms = Terms { max: 1, queue: 8, evicts: false };
    let admission = Admission::new(terms, Metrics::default());
    let a = admitted(&admission).await;
    a.rest(&admission);
    let (_, refused) = come(&admission);
    assert_eq!(refused.await.unwrap(), Err(Refused::Full));
    assert!(!admission.evict_one() && a.has_permit());
}
