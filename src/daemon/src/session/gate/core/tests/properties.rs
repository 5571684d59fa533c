//! Whatever happens, in whatever order, the oracle finds nothing to object to, and in the end all is quiet.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::super::{Event, GateBounds, TurnKind};
use super::stand::{Stand, key};
use crate::tenants::TenantShare;

/// Few sessions and languages, so that calls meet.
const SESSIONS: u8 = 4;

/// One thing that happens. An [`Index`] picks among whatever fits at that moment; nothing happens when
/// nothing fits.
#[derive(Debug, Clone)]
enum Happening {
    Enter(u8, TurnKind, bool),
    Open(u8, bool),
    Close(u8, bool),
    Abandon(Index),
    Leave(Index),
    Share(Index, String),
    Want(Index),
    /// By a call that is in no session, as for a container of an earlier daemon.
    WantFree(u8),
    Return(u8),
    PoolFull,
    Lost(u8),
    /// The driver does something that it owes; the store works or fails.
    Finish(Index, bool),
    Store(u8),
    Hold(u8, bool),
    News(u8, bool),
    Holders,
    Unused(Vec<u8>),
    StartSweeping,
    /// An event that may fit nothing at all.
    Stray(fn(u8) -> Event, u8),
    Wait(Duration),
    Oversleep(Duration),
    Shutdown,
}

fn language() -> impl Strategy<Value = String> {
    select(vec!["sh".to_owned(), "python".to_owned()])
}

fn kind() -> impl Strategy<Value = TurnKind> {
    prop_oneof![
        2 => Just(TurnKind::Whole),
        3 => language().prop_map(TurnKind::Code),
        4 => language().prop_map(TurnKind::Command),
        2 => any::<bool>().prop_map(|is_command| TurnKind::Alone { is_command }),
        1 => (language(), any::<bool>(), any::<bool>()).prop_map(|(language, is_command, is_alone)| {
            TurnKind::Resumed { language, is_command, is_alone }
        }),
    ]
}

fn stray() -> impl Strategy<Value = fn(u8) -> Event> {
    let kinds: Vec<fn(u8) -> Event> = vec![
        |of| Event::Loaded { key: key(of), found: true, closed: false },
        |of| Event::LoadFailed { key: key(of) },
        |of| Event::Deleted { key: key(of), found: true },
        |of| Event::NotDeleted { key: key(of) },
        |of| Event::KeptClosed { key: key(of) },
        |of| Event::Leave { key: key(of), call: super::super::CallId(0) },
        |of| Event::Abandon { key: key(of), call: super::super::CallId(0) },
        |of| Event::Delay { key: key(of), call: super::super::CallId(0), by: Duration::from_secs(1) },
        |of| Event::Share { key: key(of), call: super::super::CallId(0), language: "sh".to_owned() },
    ];
    select(kinds)
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![(0..1_500_u64), (0..20_000_u64)].prop_map(Duration::from_millis)
}

fn happening() -> impl Strategy<Value = Happening> {
    let index = any::<Index>;
    let of = 0..SESSIONS;
    prop_oneof![
        14 => (of.clone(), kind(), prop::bool::weighted(0.85))
            .prop_map(|(s, kind, waits)| Happening::Enter(s, kind, waits)),
        2 => (of.clone(), any::<bool>()).prop_map(|(s, makes)| Happening::Open(s, makes)),
        3 => (of.clone(), any::<bool>()).prop_map(|(s, delete)| Happening::Close(s, delete)),
        2 => index().prop_map(Happening::Abandon),
        10 => index().prop_map(Happening::Leave),
        1 => (index(), language()).prop_map(|(i, language)| Happening::Share(i, language)),
        10 => index().prop_map(Happening::Want),
        1 => of.clone().prop_map(Happening::WantFree),
        1 => of.clone().prop_map(Happening::Return),
        1 => Just(Happening::PoolFull),
        1 => of.clone().prop_map(Happening::Lost),
        14 => (index(), prop::bool::weighted(0.85)).prop_map(|(i, works)| Happening::Finish(i, works)),
        1 => of.clone().prop_map(Happening::Store),
        1 => (of.clone(), any::<bool>()).prop_map(|(s, held)| Happening::Hold(s, held)),
        1 => (of.clone(), any::<bool>()).prop_map(|(s, news)| Happening::News(s, news)),
        2 => Just(Happening::Holders),
        2 => vec(of.clone(), 0..4).prop_map(Happening::Unused),
        1 => Just(Happening::StartSweeping),
        2 => (stray(), of).prop_map(|(kind, s)| Happening::Stray(kind, s)),
        4 => time().prop_map(Happening::Wait),
        1 => time().prop_map(Happening::Oversleep),
    ]
}

/// Mostly a gate that is open to the end; sometimes a gate that is shut down on the way.
fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    (vec(happening(), 0..150), prop::option::weighted(0.2, any::<Index>())).prop_map(|(mut all, shutdown)| {
        if let Some(at) = shutdown {
            all.insert(at.index(all.len() + 1), Happening::Shutdown);
        }
        all
    })
}

fn terms() -> impl Strategy<Value = GateBounds> {
    (1..20_000_u64, 0..4_usize, 1..4_usize, 0..4_usize, prop::bool::weighted(0.8), 1..30_u64, 1..30_u64)
        .prop_map(|(wait, queue, permits, permit_queue, evicts, ttl, sweep)| GateBounds {
            wait: Duration::from_millis(wait),
            queue,
            permits,
            permit_queue,
            evicts,
            ttl: Duration::from_secs(ttl),
            sweep: Duration::from_secs(sweep),
            expires: true,
        })
}

fn perform(stand: &mut Stand, happening: Happening) {
    match happening {
        Happening::Enter(of, kind, true) => drop(stand.ask(of, kind)),
        Happening::Enter(of, kind, false) => drop(stand.try_ask(of, kind)),
        Happening::Open(of, makes) => drop(stand.open(of, makes)),
        Happening::Close(of, delete) => drop(stand.close(of, delete)),
        Happening::Abandon(i) => {
            let waiting = stand.oracle.waiting();
            if !waiting.is_empty() {
                let (key, call) = i.get(&waiting).clone();
                stand.send(Event::Abandon { key, call });
            }
        }
        Happening::Leave(i) => {
            let inside = stand.oracle.inside();
            if !inside.is_empty() {
                let (key, inmate) = i.get(&inside).clone();
                stand.send(Event::Leave { key, call: inmate.call });
            }
        }
        Happening::Share(i, language) => {
            let inside = stand.oracle.inside();
            if !inside.is_empty() {
                let (key, inmate) = i.get(&inside).clone();
                stand.send(Event::Share { key, call: inmate.call, language });
            }
        }
        Happening::Want(i) => {
            let wants: Vec<_> = stand.oracle.wants.iter().map(|want| want.call).collect();
            let mut inside = stand.oracle.inside();
            inside.retain(|(_, inmate)| !wants.contains(&inmate.call));
            if !inside.is_empty() {
                let (key, inmate) = i.get(&inside).clone();
                stand.send(Event::Want {
                    key,
                    call: inmate.call,
                    waits: true,
                    tenant: TenantShare::default(),
                });
            }
        }
        Happening::WantFree(of) => {
            // Of a session that is open: the daemon holds on to it meanwhile.
            if stand.oracle.books.get(&key(of)).is_some_and(|book| book.owed.is_none()) {
                let call = stand.call();
                stand.send(Event::Want { key: key(of), call, waits: false, tenant: TenantShare::default() });
            }
        }
        Happening::Return(of) => {
            let is_at_work = stand.oracle.inside().iter().any(|(session, _)| *session == key(of));
            if is_at_work && stand.has_permit(of) {
                stand.send(Event::Return { key: key(of) });
            }
        }
        Happening::PoolFull => drop(stand.send(Event::PoolFull)),
        Happening::Lost(of) => drop(stand.send(Event::Lost { key: key(of) })),
        Happening::Finish(i, works) => {
            let owing = stand.oracle.owing();
            if !owing.is_empty() {
                stand.finish(i.get(&owing), works);
            }
        }
        Happening::Store(of) => {
            stand.stored.entry(key(of)).or_default();
        }
        Happening::Hold(of, true) => {
            stand.held.insert(key(of));
        }
        Happening::Hold(of, false) => {
            stand.held.remove(&key(of));
        }
        Happening::News(of, true) => {
            stand.untold.insert(key(of));
        }
        Happening::News(of, false) => {
            stand.untold.remove(&key(of));
        }
        Happening::Holders => drop(stand.say_holders()),
        Happening::Unused(of) => {
            let keys: std::collections::BTreeSet<_> = of.into_iter().map(key).collect();
            if stand.oracle.looking.is_some() {
                stand.send(Event::Unused { keys: keys.into_iter().collect() });
            }
        }
        Happening::StartSweeping => drop(stand.send(Event::StartSweeping)),
        Happening::Stray(kind, of) => {
            // What the driver owes is no stray.
            if !stand.oracle.owing().contains(&key(of)) {
                stand.send(kind(of));
            }
        }
        Happening::Wait(time) => drop(stand.wait(time)),
        Happening::Oversleep(time) => stand.oversleep(time),
        Happening::Shutdown => drop(stand.send(Event::Shutdown)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn no_rule_is_ever_broken_and_the_gate_comes_to_rest(terms in terms(), happenings in happenings()) {
        let wait = terms.wait;
        let mut stand = Stand::new(terms);
        for happening in happenings {
            perform(&mut stand, happening);
        }
        // From here on nothing fails and no new call arrives: every waiting call gets its answer in time.
        for _ in 0..SESSIONS * 2 {
            stand.finish_all();
            for (key, inmate) in stand.oracle.inside() {
                stand.send(Event::Leave { key, call: inmate.call });
            }
        }
        stand.finish_all();
        stand.wait(wait);
        stand.finish_all();
        for (key, inmate) in stand.oracle.inside() {
            stand.send(Event::Leave { key, call: inmate.call });
        }
        stand.finish_all();
        prop_assert_eq!(stand.oracle.waiting(), []);
        prop_assert_eq!((stand.counts().waiting, stand.counts().wanting), (0, 0));

        stand.send(Event::Shutdown);
        stand.finish_all();
        prop_assert!(stand.is_quiet());
        prop_assert_eq!(stand.counts().permits, 0);
        prop_assert!(!stand.has_deadline(), "a gate that is shut down wants nothing more");
    }
}
