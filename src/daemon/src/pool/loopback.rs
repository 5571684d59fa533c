//! The network of a container: a loopback, and nothing else. Two can make it.
//!
//! * The engine, if it is asked for the network `none`. It keeps an account of that network, and before
//!   version 28 the runtime calls the engine's program once more in each start. The engine also writes the
//!   files of names.
//! * The runtime, if the engine is told that the container has no network (`NetworkDisabled`): a network
//!   namespace of its own whose loopback is up. With version 20.10 a start takes 0.08 s in place of 0.18.
//!   Nobody writes the files of names: they lie in the agent's volume, and each is mounted at its place.
//!
//! A mount of one file needs the path of that file on the engine's host, so the runtime makes the loopback
//! only where the engine says where its volumes are and finds the files there, and where the proof sees a
//! loopback and the right files. Elsewhere, and under a runtime with a kernel of its own, the engine makes
//! it.
//!
//! One thing differs. The runtime's loopback has an IPv6 address, as an engine's has from version 26 on and
//! not before. A server and a client in one container may choose differently then, so `localhost` is
//! 127.0.0.1 alone in the files here.
//!
//! It must never keep a daemon from serving that could serve with the engine's network, and must never give a
//! program anything of the host's files.

use http::StatusCode;
use paddock_proto::message::Inside;
use tracing::info;

use super::agent::{self, AgentError};
use super::container::gone;
use super::runtimes::Runtimes;
use super::spec::Blueprint;
use crate::engine::{ContainerSpec, Engine, EngineError, ImageRef, Mount, MountType, Volume};

/// Where the agent answers names, see its `network`. Every user may bind port 53 there.
pub(super) const RESOLVER: &str = "127.0.0.1";
/// A name is looked up as it is, also one without a dot (a service's); and a resolver that is this near
/// answers sooner than any waiting helps.
pub(super) const RESOLVER_OPTIONS: [&str; 3] = ["ndots:0", "timeout:5", "attempts:2"];
/// What tells an engine that names are looked up in no domain. It copies from the host what it is not told.
pub(super) const NO_DOMAIN: &str = ".";

/// A file of names.
pub(super) struct NameFile {
    /// Its name in the agent's volume.
    pub(super) name: &'static str,
    /// Where programs look for it.
    path: &'static str,
    /// What is in it.
    pub(super) content: &'static str,
}

/// What an engine writes itself for the network `none`, but for the IPv6 address of `localhost`.
pub(super) const FILES: [NameFile; 2] = [
    NameFile {
        name: "hosts",
        path: "/etc/hosts",
        content: "127.0.0.1\tlocalhost\n\
                  ::1\tip6-localhost ip6-loopback\n\
                  fe00::0\tip6-localnet\n\
                  ff00::0\tip6-mcastprefix\n\
                  ff02::1\tip6-allnodes\n\
                  ff02::2\tip6-allrouters\n",
    },
    NameFile {
        name: "resolv.conf",
        path: "/etc/resolv.conf",
        content: "nameserver 127.0.0.1\noptions ndots:0 timeout:5 attempts:2\n",
    },
];

/// Who makes the loopback of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Loopback {
    /// The engine.
    #[default]
    Engine,
    /// The runtime.
    Runtime {
        /// The folder of the engine's host in which [`FILES`] lie.
        folder: String,
    },
}

impl Loopback {
    pub(super) fn is_of_runtime(&self) -> bool {
        *self != Self::Engine
    }

    /// The files that the container needs.
    pub(super) fn mounts(&self) -> Vec<Mount> {
        let Self::Runtime { folder } = self else { return Vec::new() };
        let mount = |file: &NameFile| Mount {
            kind: MountType::Bind,
            source: format!("{folder}/{}", file.name),
            target: file.path.to_owned(),
            read_only: true,
            volume_options: None,
            bind_options: None,
        };
        FILES.iter().map(mount).collect()
    }
}

/// Settles who makes the loopback of containers of this runtime, unless that is settled. The agent's volume
/// must be whole. `image` is any image of the engine: a container of it is made, never started, and removed.
///
/// # Errors
/// The engine's, if it cannot be reached: whatever it answers settles the matter.
pub(super) async fn settle(
    engine: &Engine,
    image: &ImageRef,
    blueprint: &Blueprint,
    runtime: &str,
) -> Result<(), AgentError> {
    let runtimes = &blueprint.runtimes;
    if !runtimes.is_of_host(runtime) || runtimes.loopback(runtime).is_some() {
        return Ok(());
    }
    let settled = match look(engine, image, blueprint, runtime).await {
        Ok(settled) => settled,
        Err(error) if error.status().is_some() => {
            info!(%error, "the engine makes the network of containers: it mounts no file of a volume");
            Loopback::Engine
        }
        Err(error) => return Err(error.into()),
    };
    runtimes.has_loopback(runtime, settled);
    Ok(())
}

async fn look(
    engine: &Engine,
    image: &ImageRef,
    blueprint: &Blueprint,
    runtime: &str,
) -> Result<Loopback, EngineError> {
    let (volume, _) = blueprint.agent_for(runtime);
    let folder = engine.volume_inspect(volume).await?.mountpoint;
    if folder.is_empty() {
        return Ok(Loopback::Engine);
    }
    let of_runtime = Loopback::Runtime { folder };
    let spec = agent::helper(image, of_runtime.mounts(), &blueprint.owned());
    let created = engine.container_create(None, &spec).await?;
    gone(engine.container_remove(&created.id).await)?;
    Ok(of_runtime)
}

/// Looks again where the files of all runtimes are: an engine that was restarted may keep its volumes
/// somewhere else. What cannot be seen stays as it was.
pub(super) async fn follow(engine: &Engine, blueprint: &Blueprint) {
    for runtime in blueprint.runtimes.with_loopback() {
        let (volume, _) = blueprint.agent_for(&runtime);
        if let Ok(Volume { mountpoint, .. }) = engine.volume_inspect(volume).await
            && !mountpoint.is_empty()
        {
            blueprint.runtimes.has_loopback(&runtime, Loopback::Runtime { folder: mountpoint });
        }
    }
}

/// Whether the engine refused to make this container as it does if a file to mount is missing.
pub(super) fn may_lack_a_file(spec: &ContainerSpec, error: &EngineError) -> bool {
    spec.network_disabled && error.status() == Some(StatusCode::BAD_REQUEST)
}

/// From now on the engine makes the loopback of containers of this runtime. Whether the runtime made it until
/// now.
pub(super) fn leave_to_engine(runtimes: &Runtimes, runtime: &str) -> bool {
    let before = runtimes.loopback(runtime).unwrap_or_default();
    runtimes.has_loopback(runtime, Loopback::Engine);
    before.is_of_runtime()
}

/// What is wrong with the network inside of a container, one sentence each.
pub(super) fn faults(inside: &Inside) -> Vec<String> {
    let Inside { loopback_errno, localhost, name_servers } = inside;
    let has = |addresses: &[String]| addresses.iter().any(|address| address == RESOLVER);
    [
        (*loopback_errno != 0).then(|| {
            format!("a program cannot connect to a port of its own on 127.0.0.1 (errno {loopback_errno})")
        }),
        (!has(localhost)).then(|| format!("/etc/hosts gives localhost the addresses {localhost:?}")),
        (*name_servers != [RESOLVER])
            .then(|| format!("/etc/resolv.conf names the servers {name_servers:?}, not {RESOLVER}")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::agent::tests::{Fake, done, json, refused};

    #[test]
    fn the_files_are_what_an_engine_writes_that_is_told_the_same() {
        let [hosts, resolv] = &FILES;
        assert!(hosts.content.starts_with("127.0.0.1\tlocalhost\n"));
        let told = format!("nameserver {RESOLVER}\noptions {}\n", RESOLVER_OPTIONS.join(" "));
        assert_eq!(resolv.content, told);
    }

    #[test]
    fn each_file_is_mounted_where_programs_look_for_it_and_none_can_be_written() {
        assert_eq!(Loopback::Engine.mounts(), []);
        let mounts = Loopback::Runtime { folder: "/var/volumes/a/_data".into() }.mounts();
        let paths: Vec<_> =
            mounts.iter().map(|mount| (mount.source.as_str(), mount.target.as_str())).collect();
        let wanted = [
            ("/var/volumes/a/_data/hosts", "/etc/hosts"),
            ("/var/volumes/a/_data/resolv.conf", "/etc/resolv.conf"),
        ];
        assert_eq!(paths, wanted);
        assert!(mounts.iter().all(|mount| mount.read_only && mount.kind == MountType::Bind));
    }

    #[test]
    fn each_fault_is_named() {
        let one = |address: &str| vec![address.to_owned()];
        let good = Inside { loopback_errno: 0, localhost: one("127.0.0.1"), name_servers: one("127.0.0.1") };
        assert_eq!(faults(&good), Vec::<String>::new());
        for (bad, word) in [
            (Inside { loopback_errno: 101, ..good.clone() }, "errno 101"),
            (Inside { localhost: one("::1"), ..good.clone() }, "[\"::1\"]"),
            (Inside { name_servers: vec![], ..good.clone() }, "servers []"),
            (Inside { name_servers: one("10.0.0.2"), ..good.clone() }, "10.0.0.2"),
        ] {
            let found = faults(&bad);
            assert!(found.len() == 1 && found[0].contains(word), "{found:?}");
        }
    }

    /// An engine that says this of the volume, and answers with this when it is asked for a container.
    async fn engine(mountpoint: &'static str, create: StatusCode) -> Fake {
        Fake::new(move |what, _| match what {
            "POST /containers/create" if create.is_success() => {
                json(create, serde_json::json!({ "Id": "b".repeat(64), "Warnings": [] }).to_string())
            }
            "POST /containers/create" => refused(create),
            _ if what.starts_with("GET /volumes/") => {
                let volume =
                    serde_json::json!({ "Name": "paddock-any", "Driver": "local", "Mountpoint": mountpoint });
                json(StatusCode::OK, volume.to_string())
            }
            _ => done(),
        })
        .await
    }

    #[tokio::test]
    async fn the_runtime_makes_it_only_where_the_engine_finds_the_files_and_that_is_asked_once() {
        let image = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
        let settled = async |fake: &Fake, runtime: &str| {
            let blueprint = Blueprint::example();
            for _ in 0..2 {
                settle(&fake.engine, &image, &blueprint, runtime).await?;
            }
            Ok::<_, AgentError>(blueprint.runtimes.loopback(runtime))
        };
        let folder = "/volumes/a/_data";
        let good = engine(folder, StatusCode::CREATED).await;
        let of_runtime = Loopback::Runtime { folder: folder.to_owned() };
        assert_eq!(settled(&good, "").await.unwrap(), Some(of_runtime));
        let removed = format!("DELETE /containers/{}", "b".repeat(64));
        assert!(good.asked().len() == 3 && good.asked()[2] == removed, "{:?}", good.asked());
        let refusing = engine(folder, StatusCode::BAD_REQUEST).await;
        assert_eq!(settled(&refusing, "runc").await.unwrap(), Some(Loopback::Engine));
        let silent = engine("", StatusCode::CREATED).await;
        assert_eq!(settled(&silent, "").await.unwrap(), Some(Loopback::Engine));
        assert_eq!(silent.asked().len(), 1, "nothing is made");
        assert_eq!(settled(&good, "runsc").await.unwrap(), None, "it has a network of its own");
        for failure in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::NOT_FOUND, StatusCode::FORBIDDEN] {
            let broken = engine(folder, failure).await;
            assert_eq!(settled(&broken, "").await.unwrap(), Some(Loopback::Engine), "it serves: {failure}");
        }
    }

    #[tokio::test]
    async fn an_engine_that_keeps_its_volumes_somewhere_else_is_followed() {
        let (blueprint, moved) = (Blueprint::example(), engine("/new/a/_data", StatusCode::CREATED).await);
        let runtimes = &blueprint.runtimes;
        runtimes.has_loopback("", Loopback::Runtime { folder: "/old/a/_data".to_owned() });
        runtimes.has_loopback("crun", Loopback::Engine);
        follow(&moved.engine, &blueprint).await;
        let of_runtime = Loopback::Runtime { folder: "/new/a/_data".to_owned() };
        assert_eq!(
            (runtimes.loopback(""), runtimes.loopback("crun")),
            (Some(of_runtime.clone()), Some(Loopback::Engine))
        );
        follow(&engine("", StatusCode::CREATED).await.engine, &blueprint).await;
        assert_eq!(runtimes.loopback(""), Some(of_runtime), "it does not say");
    }

    #[test]
    fn only_a_container_with_files_of_its_own_can_lack_one() {
        let error = |status| EngineError::Api {
            op: crate::engine::EngineOp::ContainerCreate,
            status,
            message: "no".into(),
        };
        let spec = |network_disabled| ContainerSpec { network_disabled, ..ContainerSpec::default() };
        let bad = error(StatusCode::BAD_REQUEST);
        assert!(may_lack_a_file(&spec(true), &bad) && !may_lack_a_file(&spec(false), &bad));
        assert!(!may_lack_a_file(&spec(true), &error(StatusCode::CONFLICT)));
    }
}
