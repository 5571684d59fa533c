//! The followed event stream, on the real engine.

use std::time::Duration;

use paddock::engine::{
    ContainerAction, EventFilter, EventKind, EventStream, EventStreamItem, Occurrence, Signal, VolumeAction,
};

use crate::scene::Scene;

/// The next event, within the patience of a test.
async fn next(events: &mut EventStream) -> EventStreamItem {
    tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect("nothing came")
}

async fn next_occurrence(events: &mut EventStream) -> Occurrence {
    match next(events).await {
        EventStreamItem::Event(event) => event.what,
        other @ (EventStreamItem::Connected
        | EventStreamItem::Reconnected
        | EventStreamItem::Disconnected(_)) => {
            panic!("{other:?}")
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_events_of_a_container_come_in_order() {
    let scene = Scene::set().await;
    let filter = EventFilter { labels: scene.labels(), ..EventFilter::default() };
    let mut events = scene.engine.events(filter);
    assert!(matches!(next(&mut events).await, EventStreamItem::Connected));

    let id = scene.idle().await;
    let exec = scene.exec(&id, "exit 3").await;
    let mut stream = scene.engine.exec_start(&exec).await.expect("start");
    while stream.chunk().await.expect("a stream").is_some() {}
    let exec = Some(exec.id);
    for expected in [
        ContainerAction::Create,
        ContainerAction::Start,
        ContainerAction::ExecCreate { exec: exec.clone() },
        ContainerAction::ExecStart { exec: exec.clone() },
        ContainerAction::ExecDie { exec, exit_code: Some(3) },
    ] {
        let Occurrence::Container { id: of, action, attributes } = next_occurrence(&mut events).await else {
            panic!("not of a container");
        };
        assert_eq!((of, action), (id.clone(), expected));
        assert_eq!(attributes.get("scene"), Some(&scene.tag));
    }

    scene.engine.container_kill(&id, Signal::Kill).await.expect("kill");
    for expected in [ContainerAction::Kill, ContainerAction::Die { exit_code: Some(137) }] {
        let Occurrence::Container { action, .. } = next_occurrence(&mut events).await else {
            panic!("not of a container");
        };
        assert_eq!(action, expected);
    }
    scene.engine.container_remove(&id).await.expect("remove");
    let Occurrence::Container { action, .. } = next_occurrence(&mut events).await else {
        panic!("not of a container");
    };
    assert_eq!(action, ContainerAction::Destroy);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_out_of_memory_event_comes_although_the_state_does_not_show_it() {
    let scene = Scene::set().await;
    let filter =
        EventFilter { labels: scene.labels(), actions: vec!["oom".to_owned()], ..EventFilter::default() };
    let mut events = scene.engine.events(filter);
    assert!(matches!(next(&mut events).await, EventStreamItem::Connected));
    let mut spec = scene.idle_spec();
    spec.host_config.memory = Some(16 << 20);
    spec.host_config.memory_swap = Some(16 << 20);
    let id = scene.create(&spec).await;
    scene.engine.container_start(&id).await.expect("start");
    let exec = scene.exec(&id, "x=x; while :; do x=$x$x; done").await;
    let _stream = scene.engine.exec_start(&exec).await.expect("start");
    let occurrence = next_occurrence(&mut events).await;
    assert!(
        matches!(occurrence, Occurrence::Container { action: ContainerAction::Oom, .. }),
        "{occurrence:?}"
    );
    let state = scene.engine.container_inspect(&id).await.expect("inspect").state;
    assert!(!state.oom_killed, "PID 1 lives");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn events_of_volumes_contain_their_names() {
    let scene = Scene::set().await;
    let filter = EventFilter { kinds: vec![EventKind::Volume], ..EventFilter::default() };
    let mut events = scene.engine.events(filter);
    assert!(matches!(next(&mut events).await, EventStreamItem::Connected));
    let spec = scene.volume();
    scene.engine.volume_create(&spec).await.expect("create");
    scene.engine.volume_remove(&spec.name).await.expect("remove");
    for expected in [VolumeAction::Create, VolumeAction::Destroy] {
        // Events of other tests' volumes come too.
        loop {
            match next_occurrence(&mut events).await {
                Occurrence::Volume { name, action } if name == spec.name => {
                    assert_eq!(action, expected);
                    break;
                }
                Occurrence::Volume { .. } => {}
                other @ (Occurrence::Container { .. } | Occurrence::Image { .. }) => panic!("{other:?}"),
            }
        }
    }
}
