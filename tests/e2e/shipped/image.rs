//! The image of the daemon, run by one `docker run` as deploy/README.md has it.

use std::process::Command;

use super::{DaemonImage, docker, download, free_address, repo, run, run_python, socket, tried, until};
use crate::support::{Request, TOKEN};

/// The most bytes of the image.
const SIZE: u64 = 48 << 20;

/// A container and its volume, removed when this is dropped.
struct Container(String);

impl Drop for Container {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "{}",
                tried(Command::new("bash").args(["-c", &format!("docker logs {} 2>&1", self.0)])).1
            );
        }
        let _ = Command::new("docker").args(["stop", "-t", "60", &self.0]).output();
        let _ = Command::new("docker").args(["rm", "-f", &self.0]).output();
        let _ = Command::new("docker").args(["volume", "rm", &self.0]).output();
    }
}

#[tokio::test]
async fn the_image_is_small_runs_as_no_root_is_healthy_and_serves() {
    let image = DaemonImage::build();
    let size = docker(&["image", "inspect", "--format", "{{.Size}}", &image.0]);
    assert!(size.trim().parse::<u64>().expect("a number") < SIZE, "{size}");
    assert_eq!(docker(&["image", "inspect", "--format", "{{.Config.User}}", &image.0]).trim(), "65532:65532");

    let (addr, (socket, group)) = (free_address(), socket());
    let name = format!("paddock-test-{}", paddock::id::random_hex::<6>());
    let container = Container(name.clone());
    let publish = format!("{addr}:8080");
    let (mount, store) = (format!("{socket}:/var/run/docker.sock"), format!("{name}:/var/lib/paddock"));
    let (token, url) = (format!("MCP_API_TOKEN={TOKEN}"), format!("PUBLIC_BASE_URL=http://{addr}"));
    docker(&[
        "run",
        "-d",
        "--name",
        &name,
        "--health-interval",
        "1s",
        "--read-only",
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges",
        "--group-add",
        &group,
        "-v",
        &mount,
        "-v",
        &store,
        "-p",
        &publish,
        "-e",
        &token,
        "-e",
        &url,
        &image.0,
    ]);
    until("the container's health", async || {
        docker(&["inspect", "--format", "{{.State.Health.Status}}", &name]).trim() == "healthy"
    })
    .await;
    until("the pool", async || Request::new(addr, "GET", "/ready").send().await.status == 200).await;

    // The page, a run, and the link to its file: at the address that browsers use.
    let page = Request::new(addr, "GET", "/").send().await.expect(200);
    assert!(page.text().contains("<title>"), "{}", page.text());
    let code = "open('/data/made.txt', 'w').write('in a container')\nprint(6 * 7)";
    let ran = run_python(addr, TOKEN, code).await;
    assert_eq!(ran["stdout"], "42\n");
    let file = download(addr, &ran["artifacts"][0]["download_url"]).await;
    assert_eq!(file.text(), "in a container");

    // The commands find the daemon by its store.
    let said =
        docker(&["exec", &name, "/usr/local/bin/paddock", "run", "-l", "python", "-c", "print('by exec')"]);
    assert_eq!(said, "by exec\n");
    let (code, said) =
        tried(Command::new("docker").args(["exec", &name, "/usr/local/bin/paddock", "doctor"]));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("it is on this machine") && said.contains("paddock would serve"), "{said}");

    // Nothing else is in it: no shell, and what builds the runner images.
    let (code, _) = tried(Command::new("docker").args(["exec", &name, "sh", "-c", "true"]));
    assert_ne!(code, Some(0));
    let listed = run(Command::new("bash")
        .args(["-c", &format!("set -o pipefail; docker cp {name}:/usr/share/paddock - | tar -t")]));
    for file in ["paddock/deploy/images", "paddock/deploy/base", "paddock/runner-images/Dockerfile-python"] {
        assert!(listed.lines().any(|line| line == file), "{file} is not in {listed}");
    }

    docker(&["stop", "-t", "60", &name]);
    assert_eq!(docker(&["inspect", "--format", "{{.State.ExitCode}}", &name]).trim(), "0");
    // The files are in the volume, and the next container has them.
    docker(&["start", &name]);
    until("the second start", async || {
        Request::new(addr, "GET", "/ready").try_send().await.is_some_and(|answer| answer.status == 200)
    })
    .await;
    assert_eq!(download(addr, &ran["artifacts"][0]["download_url"]).await.text(), "in a container");
    drop(container);
}

#[test]
fn an_image_is_not_made_of_a_program_that_needs_a_c_library() {
    let (code, said) = tried(
        Command::new(repo("deploy/image"))
            .arg("paddock-test-never")
            .env("PADDOCK_PROGRAM", env!("CARGO_BIN_EXE_paddock")),
    );
    assert_eq!(code, Some(1));
    assert!(said.contains("is not static"), "{said}");
}

#[tokio::test]
async fn health_says_whether_a_daemon_of_the_store_answers() {
    let d = crate::support::Daemon::start().await;
    let ask = |args: &[&str]| {
        let store = d.store.path().to_str().expect("text").to_owned();
        tried(Command::new(crate::support::program()).arg("health").args(args).args(["--store", &store]))
    };
    assert_eq!(ask(&[]), (Some(0), "healthy\n".to_owned()));
    assert_eq!(ask(&["--ready"]), (Some(0), "ready\n".to_owned()));
    let store = d.store.clone();
    d.stop().await;
    let gone = store.path().to_str().expect("text");
    let (code, said) = tried(Command::new(crate::support::program()).args(["health", "--store", gone]));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no daemon of the store") && said.contains(gone), "{said}");
}
