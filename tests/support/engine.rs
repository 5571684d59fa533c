//! The engine behind a daemon: what it holds of one owner, and what happens there.

use std::time::Duration;

use paddock::engine::{
    ContainerAction, ContainerId, ContainerSummary, Engine, EngineHost, EngineLimits, EventFilter, Events,
    Followed, Occurrence, Signal, Volume,
};

use super::within;

/// The engine that the tests use.
pub(crate) fn host() -> EngineHost {
    let host = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
    host.parse().expect("DOCKER_HOST")
}

/// What an engine holds of one owner.
pub(crate) struct View {
    pub(crate) engine: Engine,
    labels: Vec<String>,
}

impl View {
    pub(crate) async fn of(owner: &str) -> View {
        View::on(&host(), owner).await
    }

    pub(crate) async fn on(host: &EngineHost, owner: &str) -> View {
        let engine = Engine::connect(host, EngineLimits::default()).await;
        let engine = engine.expect("these tests need a Docker engine: set DOCKER_HOST");
        View { engine, labels: vec!["app=paddock".to_owned(), format!("paddock.owner={owner}")] }
    }

    /// The containers, in any state.
    pub(crate) async fn containers(&self) -> Vec<ContainerSummary> {
        self.engine.container_list(&self.labels).await.expect("containers")
    }

    /// The containers that run this language.
    pub(crate) async fn containers_for(&self, language: &str) -> Vec<ContainerSummary> {
        let mut found = self.containers().await;
        found.retain(|container| {
            container.labels.get("paddock.runner").is_some_and(|runner| runner == language)
        });
        found
    }

    /// The one container that runs this language.
    pub(crate) async fn the_container(&self, language: &str) -> ContainerId {
        let found = self.containers_for(language).await;
        assert_eq!(found.len(), 1, "containers for {language}: {found:?}");
        found.into_iter().next().expect("one").id
    }

    pub(crate) async fn volumes(&self) -> Vec<Volume> {
        self.engine.volume_list(&self.labels).await.expect("volumes")
    }

    /// Fails the test if anything of this owner is left.
    pub(crate) async fn expect_empty(&self) {
        let names: Vec<_> = self.containers().await.into_iter().flat_map(|c| c.names).collect();
        assert_eq!(names, Vec::<String>::new(), "containers are left");
        let names: Vec<_> = self.volumes().await.into_iter().map(|v| v.name.to_string()).collect();
        assert_eq!(names, Vec::<String>::new(), "volumes are left");
    }

    pub(crate) async fn kill(&self, id: &ContainerId) {
        self.engine.container_kill(id, Signal::Kill).await.expect("kill");
    }

    /// Follows what happens to this owner's containers from now on.
    pub(crate) async fn follow(&self) -> Happenings {
        let filter = EventFilter { labels: self.labels.clone(), ..EventFilter::default() };
        let mut events = self.engine.events(filter);
        let first = within(Duration::from_secs(20), "the engine's events", events.next()).await;
        assert!(matches!(first, Followed::Connected), "{first:?}");
        Happenings { events }
    }

    pub(crate) async fn remove_all(&self) {
        for container in self.engine.container_list(&self.labels).await.unwrap_or_default() {
            let _ = self.engine.container_remove(&container.id).await;
        }
        for volume in self.engine.volume_list(&self.labels).await.unwrap_or_default() {
            let _ = self.engine.volume_remove(&volume.name).await;
        }
    }
}

/// What happens to the containers of one owner.
pub(crate) struct Happenings {
    events: Events,
}

impl Happenings {
    /// Waits until this container's PID 1 has ended.
    pub(crate) async fn death_of(&mut self, id: &ContainerId, patience: Duration) {
        self.container(id, patience, "die", |action| matches!(action, ContainerAction::Die { .. })).await;
    }

    /// Waits until this container is removed.
    pub(crate) async fn removal_of(&mut self, id: &ContainerId, patience: Duration) {
        self.container(id, patience, "destroy", |action| matches!(action, ContainerAction::Destroy)).await;
    }

    async fn container(
        &mut self,
        id: &ContainerId,
        patience: Duration,
        what: &str,
        wanted: impl Fn(&ContainerAction) -> bool,
    ) {
        let wait = async {
            loop {
                if let Followed::Event(event) = self.events.next().await
                    && let Occurrence::Container { id: of, action, .. } = event.what
                    && of == *id
                    && wanted(&action)
                {
                    return;
                }
            }
        };
        within(patience, &format!("the event {what} of {id}"), wait).await;
    }
}
