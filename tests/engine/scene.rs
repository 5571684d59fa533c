//! A separate part of the real engine for one test: a label for everything that the test makes, and a cleanup
//! at the end.
//!
//! The cleanup blocks the test's thread, so the tests run on a runtime with one more: a task closes the
//! connection of a dropped answer, and while the engine packs an archive it blocks every other use of that
//! container.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use paddock::engine::{
    ContainerId, ContainerSpec, CreatedExec, Engine, EngineError, EngineHost, EngineLimits, ExecSpec,
    Healthcheck, HostConfig, LogConfig, VolumeName, VolumeSpec,
};

/// A PID 1 that does nothing and ends at SIGTERM.
const IDLE: &str = "trap 'exit 0' TERM; while :; do sleep 1; done";

pub(crate) struct Scene {
    pub(crate) engine: Engine,
    /// Unique to this scene.
    pub(crate) tag: String,
    pub(crate) image: String,
}

pub(crate) fn host() -> EngineHost {
    let host = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
    host.parse().expect("DOCKER_HOST")
}

impl Scene {
    pub(crate) async fn set() -> Scene {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let engine = Engine::connect(&host(), EngineLimits::default()).await;
        let engine = engine.expect("these tests need a Docker engine: set DOCKER_HOST");
        let image = std::env::var("PADDOCK_TEST_IMAGE").unwrap_or_else(|_| "paddock-example-sh".to_owned());
        let found = engine.image_inspect(&image.parse().expect("PADDOCK_TEST_IMAGE")).await;
        found.unwrap_or_else(|error| {
            panic!("these tests need the image `{image}`: set PADDOCK_TEST_IMAGE: {error}")
        });
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_nanos();
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let tag = format!("paddock-test-{:x}-{now:x}-{count}", std::process::id());
        Scene { engine, tag, image }
    }

    /// The filter for everything of this scene.
    pub(crate) fn labels(&self) -> Vec<String> {
        vec!["app=paddock-test".to_owned(), format!("scene={}", self.tag)]
    }

    pub(crate) fn label_map(&self) -> BTreeMap<String, String> {
        [("app", "paddock-test"), ("scene", &self.tag)].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    }

    /// The spec of a container that runs `script`.
    pub(crate) fn spec(&self, script: &str) -> ContainerSpec {
        ContainerSpec {
            image: self.image.clone(),
            entrypoint: Some(["/bin/sh", "-c", script].map(str::to_owned).to_vec()),
            cmd: Some(vec![]),
            labels: self.label_map(),
            healthcheck: Some(Healthcheck::DISABLED),
            host_config: HostConfig {
                network_mode: Some("none".to_owned()),
                log_config: Some(LogConfig::none()),
                memory: Some(64 << 20),
                ..HostConfig::default()
            },
            ..ContainerSpec::default()
        }
    }

    pub(crate) fn idle_spec(&self) -> ContainerSpec {
        self.spec(IDLE)
    }

    pub(crate) async fn create(&self, spec: &ContainerSpec) -> ContainerId {
        self.engine.container_create(None, spec).await.expect("create").id
    }

    /// A running container that does nothing.
    pub(crate) async fn idle(&self) -> ContainerId {
        let id = self.create(&self.idle_spec()).await;
        self.engine.container_start(&id).await.expect("start");
        id
    }

    pub(crate) async fn exec(&self, id: &ContainerId, script: &str) -> CreatedExec {
        let cmd = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let spec = ExecSpec { cmd, stdin: true, ..ExecSpec::default() };
        self.engine.exec_create(id, &spec).await.expect("exec create")
    }

    pub(crate) fn volume(&self) -> VolumeSpec {
        let name: VolumeName = self.tag.parse().expect("a tag is a volume name");
        VolumeSpec { labels: self.label_map(), ..VolumeSpec::local(name) }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let labels = self.labels();
        let cleared = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), clear(&labels)).await })
        });
        let left = cleared.join().expect("clearing does not panic");
        // A second panic would hide the first and abort.
        if !std::thread::panicking() {
            assert_eq!(
                left.expect("clearing took over a minute").expect("the engine lists what is left"),
                Vec::<String>::new(),
                "left on the engine"
            );
        }
    }
}

/// Removes everything with these labels, retrying for a limited time; returns what could not be removed, and
/// why.
///
async fn clear(labels: &[String]) -> Result<Vec<String>, EngineError> {
    let engine = Engine::connect(&host(), EngineLimits::default()).await?;
    let mut left = vec![];
    for _ in 0..100 {
        left.clear();
        for container in engine.container_list(labels).await? {
            if let Err(error) = engine.container_remove(&container.id).await {
                left.push(error.to_string());
            }
        }
        for volume in engine.volume_list(labels).await? {
            if let Err(error) = engine.volume_remove(&volume.name).await {
                left.push(error.to_string());
            }
        }
        if left.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    left.extend(engine.container_list(labels).await?.into_iter().map(|container| container.id.to_string()));
    left.extend(engine.volume_list(labels).await?.into_iter().map(|volume| volume.name.to_string()));
    Ok(left)
}

/// Asks until there is an answer: for states that the engine reaches a moment after its answer.
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asked = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asked).await.unwrap_or_else(|_| panic!("{what} never came"))
}
