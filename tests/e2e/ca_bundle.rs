//! A company's certificates (`egress.ca_bundle`): programs and the daemon trust them where they are
//! configured, and nowhere else.
//!
//! The server is on this host's loopback, with a certificate by an authority that only this test knows.

use serde_json::json;

use crate::services::stub::Stub;
use crate::support::{Daemon, Setup};
use crate::tls::Authority;

/// The server, its authority, and a daemon that knows where it is.
struct Company {
    authority: Authority,
    server: Stub,
}

impl Company {
    async fn new() -> Company {
        let authority = Authority::new();
        let identity = "subjectKeyIdentifier = hash\nauthorityKeyIdentifier = keyid\n";
        let extensions = format!("subjectAltName = DNS:inside.example\n{identity}");
        let server = Stub::encrypted(&authority.folder("server", &extensions)).await;
        Company { authority, server }
    }

    fn url(&self, path: &str) -> String {
        format!("https://inside.example:{}/v1/{path}", self.server.port)
    }

    fn daemon(&self) -> Setup {
        let mut service = toml::toml! {
            name = "inside"
            tenants = ["default"]
        };
        service.insert("url".to_owned(), self.url("").into());
        Daemon::with()
            .set("egress.mode", "open")
            .set("egress.hosts", toml::toml! { "inside.example" = "127.0.0.1" })
            .set("egress.private", vec![format!("127.0.0.1:{}", self.server.port)])
            .set("egress.services", vec![service])
    }

    fn bundle(&self) -> String {
        self.authority.path("ca.pem").display().to_string()
    }
}

/// Each way by which a Python program speaks TLS, and the service.
const PYTHON: &str = "
import os, ssl, sys, urllib.request, requests
url = sys.stdin.read()
def show(what, get):
    try: print(what, get())
    except OSError as e: print(what, 'failed', e)
show('urllib', lambda: urllib.request.urlopen(url + 'urllib').read().decode())
show('requests', lambda: requests.get(url + 'requests').text)
for name in ('http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY'): del os.environ[name]
show('raw', lambda: urllib.request.urlopen(url + 'raw').read().decode())
show('service', lambda: requests.get('http://inside.paddock/service').text)
show('file', lambda: len(ssl.create_default_context(cafile='/.paddock/ca.pem').get_ca_certs()) > 20)
";

const NODE: &str = "
let url = '';
for await (const part of process.stdin) url += part;
try { console.log('fetch', await (await fetch(url + 'fetch')).text()); }
catch (e) { console.log('fetch failed', e.cause?.code); }
";

#[tokio::test]
async fn programs_and_the_daemon_trust_the_bundle_beside_the_public_certificates() {
    let company = Company::new().await;
    let d = company.daemon().set("egress.ca_bundle", company.bundle()).start().await;
    let network = json!({ "allowed_domains": ["inside.example"], "services": ["inside"] });
    let s = d.session("s");
    let ran = s.python(PYTHON).stdin(&company.url("")).with("network", network.clone()).await;
    ran.expect_stdout(
        "urllib GET /v1/urllib 0\nrequests GET /v1/requests 0\nraw GET /v1/raw 0\nservice GET /v1/service \
         0\nfile True\n",
    );
    let ran = s.typescript(NODE).stdin(&company.url("")).with("network", network.clone()).await;
    ran.expect_stdout("fetch GET /v1/fetch 0\n");

    // A command, whose own variable stays; and a run without a network, which is told of nothing.
    let tell = "echo $(env | grep -c =/.paddock/ca.pem) $PIP_CERT";
    let (config, own) = (json!({ "network": network }), json!({ "PIP_CERT": "/data/own.pem" }));
    let command = s.tool("execute_code").with("command", tell);
    let ran = command.with("sandbox_config", config).with("environment", own).await;
    assert!(ran.said.contains("7 /data/own.pem"), "{}", ran.said);
    let ran = s.tool("execute_code").with("command", "env | grep paddock; echo none").await;
    assert!(ran.said.contains("none") && !ran.said.contains("ca.pem"), "{}", ran.said);
    // No program can change what others trust.
    let change = "try: open('/.paddock/ca.pem', 'a')\nexcept OSError: print('refused')";
    s.python(change).await.expect_stdout("refused\n");
    d.stop().await;
}

#[tokio::test]
async fn without_the_bundle_nobody_trusts_the_company() {
    let company = Company::new().await;
    let d = company.daemon().start().await;
    let network = json!({ "allowed_domains": ["inside.example"], "services": ["inside"] });
    let s = d.session("s");
    let ran =
        s.python(PYTHON).stdin(&company.url("")).with("network", network.clone()).await.expect_success();
    let lines: Vec<&str> = ran.stdout().lines().collect();
    for (line, what) in lines.iter().zip(["urllib", "requests", "raw"]) {
        assert!(line.starts_with(&format!("{what} failed")), "{lines:?}");
        assert!(line.contains("CERTIFICATE_VERIFY_FAILED"), "{lines:?}");
    }
    assert!(lines[3].starts_with("service ") && lines[3].contains("service_unreachable"), "{lines:?}");
    assert!(lines[4].starts_with("file failed"), "{lines:?}");
    let ran = s.typescript(NODE).stdin(&company.url("")).with("network", network).await;
    ran.expect_stdout("fetch failed UNABLE_TO_VERIFY_LEAF_SIGNATURE\n");
    assert_eq!(company.server.seen().len(), 0);
    d.stop().await;
}

#[tokio::test]
async fn a_bundle_that_is_none_stops_the_start_with_its_reason() {
    let authority = Authority::new();
    for (file, reason) in [
        ("authority.key", "has a private key"),
        ("none.pem", "cannot be read: entity not found"),
        ("empty.pem", "is empty"),
    ] {
        std::fs::write(authority.path("empty.pem"), "").expect("a file");
        let path = authority.path(file).display().to_string();
        let refused = Daemon::with().set("egress.ca_bundle", &*path).refusal().await;
        let said = format!("names {path}, which {reason}");
        assert!(refused.said.contains("egress.ca_bundle (") && refused.said.contains(&said), "{refused:?}");
    }
}
