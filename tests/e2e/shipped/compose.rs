//! `deploy/up` with every compose file of `deploy`: paddock behind the socket proxy, a real Prometheus
//! that scrapes it by the names of the network, Grafana's provisioning, and n8n's workflows.

use std::fs;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use tempfile::TempDir;

use super::{DaemonImage, docker, download, free_address, repo, run, run_python, socket, tried, until};
use crate::support::Request;

/// The label of the images that stand in for others.
const LABEL: &str = "paddock.stand-in";

/// A local image under the name of one that cannot be pulled; removed when this is dropped. If there is
/// an image of that name, that one is used, and stays.
struct StandIn(Option<String>);

impl StandIn {
    /// It is built by a Dockerfile of `tests/clients/stand-ins`; `files` are those of its context: a name
    /// there, and where the file comes from.
    fn of(what: &str, files: &[(&str, &Path)]) -> StandIn {
        let name = &image_of(what);
        let (code, label) = tried(
            Command::new("docker")
                .args(["image", "inspect", "--format"])
                .args([&format!("{{{{index .Config.Labels \"{LABEL}\"}}}}"), name]),
        );
        if code == Some(0) && label.trim().is_empty() {
            return StandIn(None);
        }
        let context = TempDir::new().expect("a folder");
        let dockerfile = repo("tests/clients/stand-ins").join(format!("{what}.Dockerfile"));
        fs::copy(dockerfile, context.path().join("Dockerfile")).expect("a file");
        for (to, from) in files {
            fs::copy(from, context.path().join(to))
                .unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        }
        run(Command::new("docker")
            .env("DOCKER_BUILDKIT", "0")
            .args(["build", "-q", "--force-rm", "-t", name, "--label", &format!("{LABEL}=yes")])
            .arg(context.path()));
        StandIn(Some(name.to_owned()))
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            let _ = Command::new("docker").args(["rmi", name]).output();
        }
    }
}

/// The image that has this word in its name, as a compose file names it.
fn image_of(what: &str) -> String {
    let all = ["compose.yml", "compose.n8n.yml", "compose.socket-proxy.yml"];
    let all: String = all.map(|file| fs::read_to_string(repo("deploy").join(file)).expect("a file")).concat();
    let mut images = all.lines().filter_map(|line| line.trim().strip_prefix("image: \"")?.strip_suffix('"'));
    let named = |image: &&str| image.split([':', '/']).any(|part| part == what);
    images.find(named).unwrap_or_else(|| panic!("no image of {what}")).to_owned()
}

fn stand_ins() -> Vec<StandIn> {
    let clients = repo("tests/clients");
    let node = clients.join("venv/bin/node");
    let of_prometheus = |name: &str| clients.join("prometheus/usr/bin").join(name);
    assert!(node.exists() && of_prometheus("prometheus").exists(), "tests/clients/install installs them");
    let node = node.canonicalize().expect("node");
    let script = |name: &str| clients.join("stand-ins").join(name);
    vec![
        StandIn::of(
            "prometheus",
            &[("prometheus", &of_prometheus("prometheus")), ("promtool", &of_prometheus("promtool"))],
        ),
        StandIn::of("grafana", &[("node", &node), ("grafana.mjs", &script("grafana.mjs"))]),
        StandIn::of(
            "n8n",
            &[
                ("node", &node),
                ("workflow.mjs", &clients.join("workflow.mjs")),
                ("n8n.mjs", &script("n8n.mjs")),
            ],
        ),
        StandIn::of("haproxy", &[]),
    ]
}

/// Everything that one `deploy/up` started; removed with its volumes when this is dropped.
struct Up {
    home: TempDir,
    env: Vec<(&'static str, String)>,
}

impl Up {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(repo("deploy/up"));
        command.args(words).envs(self.env.clone()).env("PADDOCK_ENV", self.file());
        for name in ["MCP_API_TOKEN", "DOCKER_GID", "GRAFANA_PASSWORD"] {
            command.env_remove(name);
        }
        command
    }

    fn file(&self) -> std::path::PathBuf {
        self.home.path().join("env")
    }

    /// A secret that `deploy/up` made.
    fn secret(&self, name: &str) -> String {
        let text = fs::read_to_string(self.file()).expect("deploy/up wrote it");
        let found = text.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        found.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
    }

    fn project(&self) -> &str {
        &self.env.iter().find(|(name, _)| *name == "COMPOSE_PROJECT_NAME").expect("a name").1
    }

    fn container(&self, service: &str) -> String {
        let project = format!("label=com.docker.compose.project={}", self.project());
        let service = format!("label=com.docker.compose.service={service}");
        docker(&["ps", "-aq", "--filter", &project, "--filter", &service]).trim().to_owned()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logs = "for id in $(docker ps -aq --filter label=com.docker.compose.project=$0); do \
                        docker inspect --format '--- {{.Name}}' $id; docker logs --tail 15 $id 2>&1; done";
            eprintln!("{}", tried(Command::new("bash").args(["-c", logs, self.project()])).1);
        }
        let _ = self.command(&["--down"]).output();
        let volumes = "docker volume rm $(docker volume ls -q --filter label=com.docker.compose.project=$0)";
        let _ = Command::new("bash").args(["-c", volumes, self.project()]).output();
    }
}

#[tokio::test]
async fn one_command_leads_to_a_page_with_metrics_dashboard_workflows_and_a_socket_proxy() {
    let image = DaemonImage::build();
    let _stand_ins = stand_ins();
    let [page, prometheus, grafana, n8n] = [free_address(), free_address(), free_address(), free_address()];
    let up = Up {
        home: TempDir::new().expect("a folder"),
        env: vec![
            ("COMPOSE_PROJECT_NAME", format!("paddock-test-{}", paddock::id::random_hex::<6>())),
            ("DOCKER_HOST", format!("unix://{}", socket().0)),
            ("PADDOCK_IMAGE", image.0.clone()),
            ("PADDOCK_RUNNERS", "no".to_owned()),
            ("PADDOCK_ADDR", page.to_string()),
            ("PUBLIC_BASE_URL", format!("http://{page}")),
            ("PROMETHEUS_ADDR", prometheus.to_string()),
            ("GRAFANA_ADDR", grafana.to_string()),
            ("N8N_ADDR", n8n.to_string()),
        ],
    };
    let said = run(&mut up.command(&["n8n", "socket-proxy"]));
    let token = up.secret("MCP_API_TOKEN");
    assert!(said.contains(&format!("http://{page}/   with the token {token}")), "{said}");
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(up.file()).expect("a file"));
    assert_eq!(mode & 0o777, 0o600, "secrets are for their owner");

    // The page, and a run with the token that was printed.
    Request::new(page, "GET", "/").send().await.expect(200);
    Request::new(page, "POST", "/mcp").body("{}").send().await.expect(401);
    let ran = run_python(page, &token, "open('/data/a.txt', 'w').write('a')\nprint(1)").await;
    assert_eq!(download(page, &ran["artifacts"][0]["download_url"]).await.text(), "a");

    // The engine is reached by the proxy alone, which refuses what paddock does not need.
    let mounts = docker(&["inspect", "--format", "{{json .Mounts}}", &up.container("paddock")]);
    assert!(!mounts.contains("docker.sock\",\"Destination\":\"/run"), "{mounts}");
    let through = |method: &str, path: &str| {
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let ask = "$s = IO::Socket::UNIX->new(Peer => '/run/engine/docker.sock') or die $!; \
                   print $s $ARGV[0]; print scalar <$s>";
        let proxy = up.container("socket-proxy");
        let run =
            ["run", "--rm", "--network", "none", "--volumes-from", &proxy, "paddock-base:trixie", "perl"];
        docker(&[&run[..], &["-MIO::Socket::UNIX", "-e", ask, &request]].concat())
    };
    assert!(through("GET", "/v1.41/version").contains(" 200 "));
    for (method, path) in [
        ("GET", "/v1.41/networks"),
        ("POST", "/v1.41/build"),
        ("POST", "/v1.41/images/create"),
        ("GET", "/v1.41/containers/x/logs"),
        ("GET", "/v1.41/images/../containers/x/json"),
    ] {
        let said = through(method, path);
        assert!(said.contains(" 403 "), "{method} {path}: {said}");
    }

    // Prometheus has the rules, and a value that paddock's listener gave.
    until("the first scrape", async || {
        let answer =
            Request::new(prometheus, "GET", "/api/v1/query?query=up%7Bjob%3D%22paddock%22%7D").send().await;
        answer.json()["data"]["result"][0]["value"][1] == "1"
    })
    .await;
    let rules = Request::new(prometheus, "GET", "/api/v1/rules").send().await.expect(200).json();
    assert!(rules["data"]["groups"].as_array().is_some_and(|groups| !groups.is_empty()), "{rules}");

    // Grafana has the dashboard, and reaches Prometheus by the provisioned data source.
    let admin = BASE64_STANDARD.encode(format!("admin:{}", up.secret("GRAFANA_PASSWORD")));
    let of_grafana = |path: &'static str| {
        Request::new(grafana, "GET", path).header("authorization", &format!("Basic {admin}")).send()
    };
    Request::new(grafana, "GET", "/api/search").send().await.expect(401);
    let found: Value = of_grafana("/api/search").await.expect(200).json();
    assert!(found.to_string().contains("paddock-overview"), "{found}");
    let build =
        of_grafana("/api/datasources/proxy/1/api/v1/query?query=paddock_build_info").await.expect(200);
    assert_eq!(build.json()["data"]["result"][0]["value"][1], "1", "{}", build.text());

    // n8n has the workflows, whose requests and downloads reach paddock by its name.
    until("n8n's start", async || Request::new(n8n, "GET", "/").try_send().await.is_some()).await;
    for id in ["paddockHttpToken", "paddockUpldToken"] {
        let ran = Request::new(n8n, "POST", &format!("/run/{id}")).send().await;
        assert_eq!(ran.status, 200, "{id}: {}", ran.text());
        assert!(ran.text().contains("Download the file"), "{}", ran.text());
    }

    // Once more changes nothing; down removes all but the volumes.
    let before = up.container("paddock");
    run(&mut up.command(&["n8n", "socket-proxy"]));
    assert_eq!((up.container("paddock"), up.secret("MCP_API_TOKEN")), (before, token));
    run(&mut up.command(&["--down"]));
    assert_eq!(up.container("paddock"), "");
    let project = format!("label=com.docker.compose.project={}", up.project());
    let volumes = docker(&["volume", "ls", "-q", "--filter", &project]);
    assert!(volumes.contains("_store"), "{volumes}");
}

#[test]
fn deploy_up_refuses_what_it_does_not_know() {
    for (words, wanted) in [(["n9n"], "n9n is unknown"), (["--down"], "nothing of deploy/up runs")] {
        let (code, said) =
            tried(Command::new(repo("deploy/up")).args(words).env("PADDOCK_ENV", "/nonexistent/env"));
        assert_eq!(code, Some(1));
        assert!(said.contains(wanted), "{said}");
    }
}
