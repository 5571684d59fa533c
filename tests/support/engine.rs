//! The engine behind a daemon: the objects of one owner on it, and the events of the owner's containers.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use paddock::engine::{
    ContainerAction, ContainerId, ContainerStatus, ContainerSummary, Engine, EngineHost, EngineLimits,
    EventFilter, EventStream, EventStreamItem, ExecSpec, Occurrence, Signal, Volume,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{PATIENCE, within};

/// The engine that the tests use.
pub(crate) fn host() -> EngineHost {
    let host = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
    host.parse().expect("DOCKER_HOST")
}

/// What an engine has of one owner.
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

    /// The one container of this language that has not ended.
    pub(crate) async fn running(&self, language: &str) -> ContainerId {
        let mut found = self.containers_for(language).await;
        found.retain(|container| container.state == ContainerStatus::Running);
        assert_eq!(found.len(), 1, "containers for {language}: {found:?}");
        found.remove(0).id
    }

    /// The volumes with a name: each container's `/data`.
    pub(crate) async fn volumes(&self) -> Vec<Volume> {
        let mut found = self.all_volumes().await;
        found.retain(|volume| volume.labels.get("paddock.name").is_none_or(|of| *of == volume.name.as_str()));
        found
    }

    /// All volumes, with the unnamed ones of containers.
    async fn all_volumes(&self) -> Vec<Volume> {
        self.engine.volume_list(&self.labels).await.expect("volumes")
    }

    /// Fails the test if anything of this owner remains.
    pub(crate) async fn expect_empty(&self) {
        let names: Vec<_> = self.containers().await.into_iter().flat_map(|c| c.names).collect();
        assert_eq!(names, Vec::<String>::new(), "containers are left");
        let names: Vec<_> = self.all_volumes().await.into_iter().map(|v| v.name.to_string()).collect();
        assert_eq!(names, Vec::<String>::new(), "volumes are left");
    }

    /// Fails the test if anything of this owner remains but the workspaces that its lease notes name as kept.
    pub(crate) async fn expect_empty_but_kept(&self, leases: &Path) {
        let names: Vec<_> = self.containers().await.into_iter().flat_map(|c| c.names).collect();
        assert_eq!(names, Vec::<String>::new(), "containers are left");
        let (_, kept) = leased_and_kept(leases);
        let homes = kept.iter().map(|name| format!("{name}-home"));
        let expected: BTreeSet<_> = kept.iter().cloned().chain(homes).collect();
        assert_eq!(self.volume_names().await, expected, "the volumes that are left");
    }

    /// The names of the volumes of its daemons' snapshots.
    pub(crate) async fn snapshots(&self) -> BTreeSet<String> {
        let owner = self.labels.iter().find_map(|label| label.strip_prefix("paddock.owner="));
        let wanted =
            ["app=paddock-snapshot".to_owned(), format!("paddock.made-by={}", owner.unwrap_or_default())];
        let volumes = self.engine.volume_list(&wanted).await.expect("a list");
        volumes.into_iter().map(|volume| volume.name.to_string()).collect()
    }

    /// The names of all volumes.
    pub(crate) async fn volume_names(&self) -> BTreeSet<String> {
        self.all_volumes().await.into_iter().map(|volume| volume.name.to_string()).collect()
    }

    /// Why something of this owner exists without a purpose, judged by the lease notes of its daemon: every
    /// container runs and is leased, or is one of `idle`; every volume belongs to a container.
    pub(crate) async fn purposeless(&self, leases: &Path, idle: usize) -> Option<String> {
        let containers = self.containers().await;
        let (leased, kept) = leased_and_kept(leases);
        let mut volumes: BTreeSet<_> = self.volumes().await.into_iter().map(|v| v.name.to_string()).collect();
        volumes.retain(|name| !kept.contains(name));
        let mut names = BTreeSet::new();
        for container in &containers {
            if container.state != ContainerStatus::Running {
                return Some(format!("{:?} is {:?}", container.names, container.state));
            }
            let name = container.names.first().map(|name| name.trim_start_matches('/').to_owned());
            names.insert(name.unwrap_or_default());
        }
        let idling: Vec<_> = names.difference(&leased).collect();
        if idling.len() > idle {
            return Some(format!("{idling:?} are not leased, and no more than {idle} are idle"));
        }
        if !leased.is_subset(&names) {
            return Some(format!("leased is {leased:?}, there is {names:?}"));
        }
        (volumes != names).then(|| format!("the volumes are {volumes:?}, the containers {names:?}"))
    }

    pub(crate) async fn kill(&self, id: &ContainerId) {
        self.engine.container_kill(id, Signal::Kill).await.expect("kill");
    }

    /// The output of a program that the test runs inside a container.
    pub(crate) async fn exec(&self, id: &ContainerId, cmd: &[&str]) -> String {
        let cmd = cmd.iter().map(|word| (*word).to_owned()).collect();
        let spec = ExecSpec { cmd, ..ExecSpec::default() };
        let exec = self.engine.exec_create(id, &spec).await.expect("an exec");
        let mut stream = self.engine.exec_start(&exec).await.expect("a stream");
        let mut said = Vec::new();
        while let Some(chunk) = stream.chunk().await.expect("a whole stream") {
            said.extend(chunk.bytes);
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Waits until a program in this container has made `/tmp/begun`.
    pub(crate) async fn begun(&self, id: &ContainerId) {
        let look = "until [ -e /tmp/begun ]; do sleep 0.02; done; echo seen";
        let seen = within(PATIENCE, "a program that has begun", self.exec(id, &["sh", "-c", look])).await;
        assert_eq!(seen, "seen\n");
    }

    /// Everything that the engine reports about a container, as text.
    pub(crate) async fn inspect(&self, id: &ContainerId) -> String {
        self.ask(&format!("GET /containers/{id}/json"), "").await
    }

    /// A raw request, for what the daemon's client cannot do.
    pub(crate) async fn ask(&self, what: &str, body: &str) -> String {
        let host = self.engine.host().to_string();
        let path = host.strip_prefix("unix://").expect("these tests need the engine at a Unix socket");
        let mut socket = UnixStream::connect(path).await.expect("the engine's socket");
        let length = body.len();
        let text = format!(
            "{what} HTTP/1.0\r\nHost: docker\r\nContent-Type: application/json\r\nContent-Length: \
             {length}\r\n\r\n{body}"
        );
        socket.write_all(text.as_bytes()).await.expect("written");
        let mut answer = Vec::new();
        within(super::PATIENCE, what, socket.read_to_end(&mut answer)).await.expect("an answer");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Follows the events of this owner's containers from now on.
    pub(crate) async fn follow(&self) -> Happenings {
        let filter = EventFilter { labels: self.labels.clone(), ..EventFilter::default() };
        let mut events = self.engine.events(filter);
        let first = within(Duration::from_secs(20), "the engine's events", events.next()).await;
        assert!(matches!(first, EventStreamItem::Connected), "{first:?}");
        Happenings { events }
    }

    pub(crate) async fn remove_all(&self) {
        self.remove(&self.labels).await;
        // What its daemons have for packages, and their snapshots, which outlive them.
        let owner = self.labels.iter().find_map(|label| label.strip_prefix("paddock.owner="));
        if let Some(owner) = owner {
            for app in ["app=paddock-packages", "app=paddock-snapshot"] {
                self.remove(&[app.to_owned(), format!("paddock.made-by={owner}")]).await;
            }
        }
    }

    async fn remove(&self, labels: &[String]) {
        for container in self.engine.container_list(labels).await.unwrap_or_default() {
            let _ = self.engine.container_remove(&container.id).await;
        }
        for volume in self.engine.volume_list(labels).await.unwrap_or_default() {
            let _ = self.engine.volume_remove(&volume.name).await;
        }
    }
}

/// The containers that lease notes name, and those of which only the workspace is kept.
pub(crate) fn leased_and_kept(leases: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let notes = std::fs::read_dir(leases).into_iter().flatten().map(|entry| entry.expect("a lease"));
    let named = notes.map(|entry| {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        (entry.file_name().to_string_lossy().into_owned(), text.contains("\"kept_since_ms\":"))
    });
    let (kept, leased): (Vec<_>, Vec<_>) = named.partition(|(_, is_kept)| *is_kept);
    let names = |all: Vec<(String, bool)>| all.into_iter().map(|(name, _)| name).collect();
    (names(leased), names(kept))
}

/// The events of the containers of one owner.
pub(crate) struct Happenings {
    events: EventStream,
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

    /// Waits until all of these containers are removed, in any order.
    pub(crate) async fn removal_of_all(&mut self, ids: &[ContainerId], patience: Duration) {
        let mut left = ids.to_vec();
        let wait = async {
            while !left.is_empty() {
                if let EventStreamItem::Event(event) = self.events.next().await
                    && let Occurrence::Container { id: of, action: ContainerAction::Destroy, .. } = event.what
                {
                    left.retain(|id| *id != of);
                }
            }
        };
        within(patience, "the removal of containers", wait).await;
    }

    /// Waits until no more than `count` containers of this view are left. An evicted one is removed while
    /// the container that comes in its place already runs.
    pub(crate) async fn at_most(&mut self, count: usize, view: &View) {
        let wait = async {
            while view.containers().await.len() > count {
                self.events.next().await;
            }
        };
        within(super::PATIENCE, &format!("at most {count} containers"), wait).await;
    }

    /// How many execs were made in this container by the time that it is removed.
    pub(crate) async fn execs_until_removal_of(&mut self, id: &ContainerId) -> usize {
        let mut execs = 0;
        let wait = async {
            loop {
                if let EventStreamItem::Event(event) = self.events.next().await
                    && let Occurrence::Container { id: of, action, .. } = event.what
                    && of == *id
                {
                    if matches!(action, ContainerAction::Destroy) {
                        return;
                    }
                    execs += usize::from(matches!(action, ContainerAction::ExecCreate { .. }));
                }
            }
        };
        within(super::PATIENCE, "the removal of a container", wait).await;
        execs
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
                if let EventStreamItem::Event(event) = self.events.next().await
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
