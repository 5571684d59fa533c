//! System, images, volumes and the life of a container, on the real engine.

use paddock::engine::{
    ApiVersion, ContainerId, ContainerSpec, ContainerStatus, Engine, EngineLimits, Mount, MountType, Signal,
    VolumeName, VolumeOptions,
};

use crate::scene::{Scene, eventually, host};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_engine_reports_its_version_and_platform() {
    let engine = Engine::connect(&host(), EngineLimits::default()).await.expect("an engine");
    engine.ping().await.expect("ping");
    let version = engine.version().await.expect("version");
    assert!(engine.api_version() >= ApiVersion::OLDEST && engine.api_version() <= version.api_version);
    let info = engine.info().await.expect("info");
    assert_eq!((info.os_type.as_str(), info.server_version), ("linux", version.version));
    assert!(info.ncpu > 0 && info.mem_total > 0 && info.runtimes.contains_key(&info.default_runtime));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn images_are_found_by_name_id_and_list() {
    let scene = Scene::set().await;
    let image =
        scene.engine.image_inspect(&scene.image.parse().expect("a reference")).await.expect("inspect");
    let by_id = scene.engine.image_inspect(&image.id).await.expect("inspect by id");
    assert_eq!(by_id, image);
    let all = scene.engine.image_list(&[]).await.expect("list");
    let listed = all.iter().find(|listed| listed.id == image.id).expect("it is listed");
    assert_eq!(listed.repo_tags, image.repo_tags);
    let none =
        scene.engine.image_list(&[format!("no-image-has={}", scene.tag)]).await.expect("list by label");
    assert_eq!(none, vec![]);
    let missing =
        scene.engine.image_inspect(&format!("{}:gone", scene.tag).parse().expect("a reference")).await;
    assert!(missing.expect_err("no such image").is_not_found());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_volume_is_made_and_removed() {
    let scene = Scene::set().await;
    let mut spec = scene.volume();
    spec.driver_opts = [("type", "tmpfs"), ("device", "tmpfs"), ("o", "size=65536,nr_inodes=16,uid=1234")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
    let made = scene.engine.volume_create(&spec).await.expect("create");
    assert_eq!((&made.name, &made.labels, &made.options), (&spec.name, &spec.labels, &spec.driver_opts));
    assert_eq!(scene.engine.volume_inspect(&spec.name).await.expect("inspect"), made);
    assert_eq!(scene.engine.volume_list(&scene.labels()).await.expect("list"), vec![made.clone()]);

    let mut other = spec.clone();
    other.driver_opts.clear();
    let again = scene.engine.volume_create(&other).await.expect("create again");
    assert_eq!(again.options, spec.driver_opts, "the engine gives the volume there is");

    scene.engine.volume_remove(&spec.name).await.expect("remove");
    assert!(scene.engine.volume_inspect(&spec.name).await.expect_err("gone").is_not_found());
    assert!(scene.engine.volume_remove(&spec.name).await.expect_err("gone").is_not_found());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_container_is_made_started_and_removed() {
    let scene = Scene::set().await;
    let engine = &scene.engine;
    let made = engine.container_create(Some(&scene.tag), &scene.idle_spec()).await.expect("create");
    let id = made.id;
    let status = async || engine.container_inspect(&id).await.expect("inspect").state.status;
    assert_eq!(status().await, ContainerStatus::Created);

    engine.container_start(&id).await.expect("start");
    engine.container_start(&id).await.expect("starting what runs is no error");
    let running = engine.container_inspect(&id).await.expect("inspect");
    assert_eq!(running.id, id);
    assert_eq!(running.name, format!("/{}", scene.tag));
    assert_eq!(running.state.status, ContainerStatus::Running);
    assert!(running.state.pid > 0 && running.labels.get("scene") == Some(&scene.tag));

    engine.container_pause(&id).await.expect("pause");
    assert_eq!(status().await, ContainerStatus::Paused);
    assert!(engine.container_pause(&id).await.expect_err("paused already").is_conflict());
    engine.container_unpause(&id).await.expect("unpause");
    // containerd's event of the pause may reach the engine after the answer to the unpause, and until
    // the event of the unpause follows, the engine reports the container as paused once more.
    let runs = async || (status().await == ContainerStatus::Running).then_some(());
    eventually("that it runs again", runs).await;

    let processors = || {
        let mut docker = std::process::Command::new("docker");
        let format = "{{.HostConfig.CpuShares}} {{.HostConfig.CpusetCpus}}";
        let asked = docker.args(["inspect", "--format", format, id.as_str()]).output();
        String::from_utf8(asked.expect("docker").stdout).expect("text").trim().to_owned()
    };
    assert_eq!(processors(), "0", "the engine's default");
    engine.container_processors(&id, Some(256), None).await.expect("another weight");
    assert_eq!(processors(), "256");
    engine.container_processors(&id, None, Some("0")).await.expect("one processor");
    assert_eq!(processors(), "256 0");
    engine
        .container_processors(&id, Some(512), Some("4096"))
        .await
        .expect_err("there is none of this number");
    assert_eq!(processors(), "256 0", "all or nothing");

    engine.container_kill(&id, Signal::Kill).await.expect("kill");
    let ended = eventually("its end", async || {
        let found = engine.container_inspect(&id).await.expect("inspect").state;
        (found.status == ContainerStatus::Exited).then_some(found)
    });
    let ended = ended.await;
    assert_eq!((ended.exit_code, ended.oom_killed, ended.pid), (137, false, 0));
    assert!(engine.container_kill(&id, Signal::Term).await.expect_err("it has ended").is_conflict());

    let listed = engine.container_list(&scene.labels()).await.expect("list");
    assert_eq!(listed.len(), 1, "a stopped one is listed");
    assert_eq!((&listed[0].id, listed[0].state), (&id, ContainerStatus::Exited));

    engine.container_remove(&id).await.expect("remove");
    for error in [
        engine.container_inspect(&id).await.expect_err("gone"),
        engine.container_start(&id).await.expect_err("gone"),
        engine.container_processors(&id, Some(256), None).await.expect_err("gone"),
        engine.container_remove(&id).await.expect_err("gone"),
    ] {
        assert!(error.is_not_found(), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_running_container_is_removed_without_its_volume() {
    let scene = Scene::set().await;
    let volume = scene.volume();
    scene.engine.volume_create(&volume).await.expect("volume");
    let mut spec = scene.idle_spec();
    spec.host_config.mounts.push(Mount {
        kind: MountType::Volume,
        source: volume.name.to_string(),
        target: "/mnt".to_owned(),
        read_only: false,
        volume_options: Some(VolumeOptions { no_copy: true, ..VolumeOptions::default() }),
        bind_options: None,
    });
    let id = scene.create(&spec).await;
    scene.engine.container_start(&id).await.expect("start");
    assert!(scene.engine.volume_remove(&volume.name).await.expect_err("in use").is_conflict());
    scene.engine.container_remove(&id).await.expect("remove");
    scene.engine.volume_inspect(&volume.name).await.expect("the volume is still there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_refusal_keeps_the_engines_words() {
    let scene = Scene::set().await;
    let engine = &scene.engine;
    let no_image = ContainerSpec { image: format!("{}:gone", scene.tag), ..scene.idle_spec() };
    let error = engine.container_create(None, &no_image).await.expect_err("no such image");
    assert!(error.is_not_found() && error.to_string().contains("No such image"), "{error}");

    engine.container_create(Some(&scene.tag), &scene.idle_spec()).await.expect("create");
    let error =
        engine.container_create(Some(&scene.tag), &scene.idle_spec()).await.expect_err("the name is taken");
    assert!(error.is_conflict() && error.to_string().contains("already in use"), "{error}");

    let mut no_program = scene.idle_spec();
    no_program.entrypoint = Some(vec!["/no/such/program".to_owned()]);
    let id = scene.create(&no_program).await;
    let error = engine.container_start(&id).await.expect_err("no such program");
    assert!(error.to_string().contains("no such file"), "{error}");
    let state = engine.container_inspect(&id).await.expect("inspect").state;
    assert_eq!(state.status, ContainerStatus::Created);

    let nobody: ContainerId = "0".repeat(64).parse().expect("an id");
    let error = engine.container_inspect(&nobody).await.expect_err("no such container");
    assert!(error.to_string().contains("No such container"), "{error}");
    let nothing: VolumeName = format!("{}-gone", scene.tag).parse().expect("a name");
    assert!(engine.volume_inspect(&nothing).await.expect_err("no such volume").is_not_found());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn many_calls_at_once_share_the_connections() {
    let scene = Scene::set().await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let engine = scene.engine.clone();
        calls.spawn(async move { engine.ping().await });
    }
    while let Some(pinged) = calls.join_next().await {
        pinged.expect("no panic").expect("ping");
    }
}
