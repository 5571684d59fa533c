//! What the specification of a container says, for runners of several kinds.

use super::*;
use crate::pool::Bounds;

fn made(maps_users: bool) -> HostConfig {
    made_for("", maps_users)
}

fn made_for(runtime: &str, maps_users: bool) -> HostConfig {
    let bounds = Bounds { runtime: runtime.to_owned(), ..Bounds::example() };
    blueprint(maps_users).plan(&runner(bounds), Uid(20_000)).expect("a plan").container.host_config
}

fn runner(bounds: Bounds) -> Runner {
    Runner {
        language: "sh".into(),
        image: "x".into(),
        image_id: format!("sha256:{}", "a".repeat(64)).parse().expect("an image"),
        argv: vec![],
        env: vec![],
        libraries: String::new(),
        stdin: false,
        typecheck: false,
        warm: vec![],
        snapshot_labels: None,
        snapshot: crate::pool::SnapshotMount::None,
        volumes: vec![],
        packages: None,
        fetches: false,
        coding_agent: false,
        agent_labels: crate::pool::AgentLabels::default(),
        mounts: Vec::new(),
        bounds,
        idle: 2,
    }
}

fn blueprint(maps_users: bool) -> Blueprint {
    Blueprint { maps_users, ..Blueprint::example() }
}

#[test]
fn a_container_has_the_bounds_of_its_runner_and_they_are_in_its_hash() {
    let usual = runner(Bounds::example());
    let bounds = Bounds { memory: 1 << 30, pids: 77, tmp: 1 << 30, data: 1 << 29, ..Bounds::example() };
    let other = runner(bounds.clone());
    let plan = blueprint(false).plan(&other, Uid(20_000)).expect("a plan");
    let host = &plan.container.host_config;
    let memory = i64::try_from(bounds.total_memory()).expect("it fits");
    assert_eq!((host.memory, host.pids_limit), (Some(memory), Some(77)));
    assert_eq!(other.container_memory(), bounds.total_memory());
    assert!(host.tmpfs["/tmp"].contains("size=1073741824,nr_inodes=262144"), "{:?}", host.tmpfs);
    assert!(plan.volume.driver_opts["o"].starts_with("size=536870912,"), "{:?}", plan.volume);
    let smallest = runner(Bounds { tmp: 1 << 20, ..Bounds::example() });
    let smallest = blueprint(false).plan(&smallest, Uid(20_000)).expect("a plan").container;
    assert!(smallest.host_config.tmpfs["/tmp"].contains("nr_inodes=16384"));
    assert_ne!(blueprint(false).hash(&other), blueprint(false).hash(&usual));
    let more_idle = Runner { idle: 5, ..usual.clone() };
    assert_eq!(blueprint(false).hash(&more_idle), blueprint(false).hash(&usual), "it is no container's");
}

#[test]
fn a_runtime_with_a_kernel_of_its_own_gets_threads_for_it_and_a_program_that_it_can_read() {
    use crate::pool::runtimes::RuntimeFacts;
    let made = |shares_kernel: bool| {
        let blueprint = blueprint(false);
        blueprint
            .runtimes
            .proved("runsc", RuntimeFacts { separates: false, shares_kernel, has_errnos: true });
        if !shares_kernel {
            blueprint.runtimes.reads("runsc");
        }
        let bounds = Bounds { runtime: "runsc".to_owned(), pids: 100, ..Bounds::example() };
        let plan = blueprint.plan(&runner(bounds), Uid(20_000)).expect("a plan");
        let agent = plan.container.host_config.mounts[0].source.clone();
        (
            plan.container.host_config.pids_limit,
            agent == blueprint.readable.as_str(),
            blueprint.agents().len(),
        )
    };
    assert_eq!(made(true), (Some(100), false, 1));
    assert_eq!(made(false), (Some(656), true, 2));
}

#[test]
fn the_kernel_hands_no_crash_to_a_program_of_the_host() {
    let core = made(false).ulimits.into_iter().find(|limit| limit.name == "core").expect("a limit");
    assert_eq!((core.soft, core.hard), (1, 1), "0 would not stop it, see core(5)");
}

#[test]
fn nothing_of_the_hosts_resolver_is_copied() {
    let host = made(false);
    assert_eq!(host.network_mode.as_deref(), Some("none"));
    assert_eq!(host.dns, ["127.0.0.1"]);
    assert_eq!(host.dns_search, ["."]);
    assert!(!host.dns_options.is_empty());
}

#[test]
fn the_runtime_makes_the_network_where_that_is_settled_and_a_container_with_it_differs_from_one_without() {
    let blueprint = blueprint(false);
    let made = |runtime: &str| {
        let runner = runner(Bounds { runtime: runtime.to_owned(), ..Bounds::example() });
        let container = blueprint.plan(&runner, Uid(20_000)).unwrap().container;
        let names = container.host_config.mounts.iter().filter(|mount| mount.target.starts_with("/etc/"));
        (container.network_disabled, names.count(), blueprint.hash(&runner))
    };
    let before = made("");
    assert!(!before.0 && before.1 == 0, "nothing is settled");
    blueprint.runtimes.has_loopback("", Loopback::Runtime { folder: "/volumes/a/_data".into() });
    let after = made("");
    assert!(after.0 && after.1 == 2 && after.2 != before.2, "an earlier daemon's container is another one");
    assert_eq!(made("runsc").1, 0);
    assert!(loopback::leave_to_engine(&blueprint.runtimes, "runc"), "the engine's default");
    assert_eq!(made(""), before);
    assert!(!loopback::leave_to_engine(&blueprint.runtimes, ""));
}

#[test]
fn terminals_are_a_containers_own_where_the_kernel_is_the_hosts() {
    let mount =
        |runtime| made_for(runtime, false).mounts.into_iter().find(|mount| mount.target == "/dev/pts");
    for runtime in ["", "runc", "crun"] {
        let options = mount(runtime).and_then(|mount| mount.volume_options).expect("a volume");
        let driver = options.driver_config.expect("a driver");
        assert_eq!(driver.options.get("type").map(String::as_str), Some("devpts"));
        assert!(driver.options.get("o").is_some_and(|o| o.contains("max=64")), "{driver:?}");
        assert_eq!(options.labels.get(OWNER).map(String::as_str), Some("o"), "it can be found");
    }
    assert_eq!(mount("runsc"), None);
}

#[test]
fn what_runs_leave_of_system_v_ipc_is_bounded_unless_the_engine_maps_users() {
    let sysctls = made(false).sysctls;
    assert_eq!(sysctls.get("kernel.shm_rmid_forced").map(String::as_str), Some("1"));
    assert_eq!(sysctls.get("kernel.msgmni").map(String::as_str), Some("32"));
    assert!(sysctls.contains_key("kernel.sem"));
    assert!(made(true).sysctls.is_empty(), "no container would start");
}

#[test]
fn only_containers_that_can_have_packages_have_their_volume_and_none_can_write_it() {
    use crate::pool::{PackageLabels, Registry};
    let with = Blueprint { layers: super::layers::volume_name("0123456789abcdef01"), ..blueprint(false) };
    let labels = PackageLabels { registry: Registry::PyPi, fetch: vec!["/fetch".to_owned()] };
    let python = Runner { packages: Some(labels), ..runner(Bounds::example()) };
    let mounted = |blueprint: &Blueprint, runner: &Runner| {
        let plan = blueprint.plan(runner, Uid(20_000)).unwrap();
        let mounts = plan.container.host_config.mounts.into_iter();
        mounts
            .filter(|mount| mount.target == "/opt/packages")
            .map(|mount| mount.read_only)
            .collect::<Vec<_>>()
    };
    assert_eq!(mounted(&with, &python), [true]);
    assert_eq!(mounted(&with, &runner(Bounds::example())), [] as [bool; 0]);
    // What fetches writes to a disk of its own.
    assert_eq!(mounted(&with, &Runner { fetches: true, ..python.clone() }), [] as [bool; 0]);
    assert_eq!(mounted(&blueprint(false), &python), [] as [bool; 0]);
    assert_ne!(with.hash(&python), blueprint(false).hash(&python), "an earlier daemon's is not taken over");
}
