//! An engine that is reached by TCP with certificates on both sides: all traffic is TLS, and no other
//! certificate is accepted.
//!
//! It needs root, for an engine of its own, and `openssl`, which every system with certificates has.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::doctor::Look;
use crate::support::{Daemon, PrivateEngine, Setup};

/// A certificate authority, and a folder for each certificate.
pub(crate) struct Authority(TempDir);

impl Authority {
    pub(crate) fn new() -> Authority {
        let authority = Authority(TempDir::new().expect("a folder"));
        authority.openssl(&format!(
            "req -x509 {KEY} -keyout authority.key -out ca.pem -days 2 -subj /CN=authority \
             -addext keyUsage=critical,keyCertSign"
        ));
        authority
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn openssl(&self, words: &str) {
        let done = Command::new("openssl").args(words.split(' ')).current_dir(self.0.path()).output();
        let done = done.expect("openssl");
        assert!(done.status.success(), "{words}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// The folder of a certificate with its key, and of this authority's certificate.
    pub(crate) fn folder(&self, name: &str, extensions: &str) -> PathBuf {
        let folder = self.0.path().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("extensions"), extensions).expect("a file");
        self.openssl(&format!("req -new {KEY} -keyout {name}/key.pem -out {name}/asked -subj /CN={name}"));
        self.openssl(&format!(
            "x509 -req -in {name}/asked -CA ca.pem -CAkey authority.key -CAcreateserial -days 2 \
             -extfile {name}/extensions -out {name}/cert.pem"
        ));
        std::fs::copy(self.0.path().join("ca.pem"), folder.join("ca.pem")).expect("a copy");
        folder
    }

    fn client(&self) -> PathBuf {
        self.folder("client", "extendedKeyUsage = clientAuth\n")
    }
}

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

/// A daemon of that engine with these certificates, which does not bypass the engine even where it could.
fn daemon(host: &str, certificates: &Path) -> Setup {
    let folder = certificates.to_str().expect("UTF-8");
    Daemon::with()
        .env("DOCKER_HOST", host)
        .env("DOCKER_TLS_VERIFY", "1")
        .env("DOCKER_CERT_PATH", folder)
        .without_tracing()
}

/// An engine that speaks TLS on both sides, and its address. It has the runner `sh`.
async fn engine() -> (Authority, String, PrivateEngine) {
    let authority = Authority::new();
    let server = authority.folder("server", "subjectAltName = IP:127.0.0.1\nextendedKeyUsage = serverAuth\n");
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        free.local_addr().expect("an address").port()
    };
    let host = format!("tcp://127.0.0.1:{port}");
    let file = |name: &str| server.join(name).display().to_string();
    let (ca, cert, key) = (file("ca.pem"), file("cert.pem"), file("key.pem"));
    let flags = ["-H", &host, "--tlsverify", "--tlscacert", &ca, "--tlscert", &cert, "--tlskey", &key];
    let engine = PrivateEngine::with_flags(&flags.map(str::to_owned), &[]).await;
    engine.load("paddock-example-sh");
    (authority, host, engine)
}

#[tokio::test]
async fn the_engine_is_reached_by_tls_and_verified() {
    let (authority, host, engine) = engine().await;
    let client = authority.client();

    let d = daemon(&host, &client).start().await;
    let s = d.session("s");
    s.upload("in", &vec![b'x'; 3_000_000]).await.expect_success();
    let ran = s.sh("cat in in > out; head -c 50000 in; echo err >&2").await.expect_success();
    assert_eq!((ran.stdout().len(), ran.text("stderr")), (50_000, "err\n"));
    assert_eq!(d.fetch(&ran.link("out")).await.expect(200).body.len(), 6_000_000);
    d.stop_on(&engine.host()).await;

    // A certificate of another authority is refused on either side; and there is no fallback to plain TCP.
    let other = Authority::new();
    let stranger = daemon(&host, &other.client()).refusal().await;
    assert!(
        stranger.said.contains("invalid peer certificate") && stranger.said.contains("DOCKER_CERT_PATH"),
        "{}",
        stranger.said
    );
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(other.0.path().join("client").join(name), client.join(name)).expect("a copy");
    }
    let unknown = daemon(&host, &client).refusal().await;
    assert!(unknown.said.contains("alert") && unknown.said.contains("DOCKER_CERT_PATH"), "{}", unknown.said);
    std::fs::write(client.join("ca.pem"), "no certificate").expect("a file");
    let unusable = daemon(&host, &client).refusal().await;
    assert!(unusable.said.contains("ca.pem"), "{}", unusable.said);
    let plain = Daemon::with().env("DOCKER_HOST", &host).refusal().await;
    assert_eq!(plain.code, Some(1), "{}", plain.said);

    // `doctor` reports that in other words than a missing engine.
    let dir = tempfile::tempdir().expect("a folder");
    let folder = other.0.path().join("client").display().to_string();
    let look = Look::at(dir.path()).engine(&host).env("DOCKER_CERT_PATH", &folder).run().await;
    look.expect_failure("engine/reachable", "invalid peer certificate", "engine.certificates");
}

/// A server on this machine that answers each request with one line.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\nserved\n");
        }
    });
    port
}

fn table<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> toml::Table {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
}

/// The engine counts as one of another machine: its folders are mounted, those of the daemon are copied, and
/// programs reach what the daemon reaches.
#[tokio::test]
async fn mounts_drop_folders_and_services_work_with_an_engine_on_another_machine() {
    let (authority, host, engine) = engine().await;
    let client = authority.client();
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("it exists");
    let (docs, drops) = (root.join("docs"), root.join("drops"));
    let files = drops.join("s/files");
    std::fs::create_dir_all(&files).expect("a folder");
    std::fs::create_dir(&docs).expect("a folder");
    std::fs::write(docs.join("a.txt"), "mounted\n").expect("a file");
    std::fs::write(files.join("in.txt"), "dropped\n").expect("a file");
    for path in [&root, &docs] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    }
    let mounts =
        |path: &str| vec![toml::Value::Table(table([("name", "docs"), ("path", path), ("about", "text")]))];

    let missing = daemon(&host, &client).set("mounts", mounts("/nowhere/on/the/engine")).refusal().await;
    assert_eq!(missing.code, Some(1), "{}", missing.said);
    assert!(missing.said.contains("/nowhere/on/the/engine"), "{}", missing.said);

    let mut service = table([("name", "answers"), ("url", &format!("http://127.0.0.1:{}/", server()))]);
    service.insert("tenants".into(), vec!["default"].into());
    let d = daemon(&host, &client)
        .set("mounts", mounts(&docs.display().to_string()))
        .set("drops", vec![toml::Value::Table(table([("path", drops.to_str().expect("UTF-8"))]))])
        .set("egress.services", vec![toml::Value::Table(service)])
        .start()
        .await;
    let s = d.session("s");
    s.sh("cat /mnt/docs/a.txt in.txt; echo made > out.txt").await.expect_stdout("mounted\ndropped\n");
    assert_eq!(std::fs::read_to_string(files.join("out.txt")).expect("a file"), "made\n");
    let asks = "exec 3<>/dev/tcp/answers.paddock/80; \
                printf 'GET / HTTP/1.1\\r\\nHost: answers.paddock\\r\\nConnection: close\\r\\n\\r\\n' >&3; \
                tail -n 1 <&3";
    let ran = s.sh(asks).with("network", serde_json::json!({ "services": ["answers"] })).await;
    ran.expect_stdout("served\n");
    d.stop_on(&engine.host()).await;
}
