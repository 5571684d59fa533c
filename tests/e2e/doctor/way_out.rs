//! What doctor says of the way out: names, the upstream proxy, certificates, the address of links to ports.
//!
//! The name servers are the test's own: doctor sees another `/etc/resolv.conf`, in a mount namespace of its
//! own.

use std::net::TcpListener;
use std::path::Path;

use tokio::net::UdpSocket;

use super::look::Look;

/// An address of loopback for the name server, whose port is always 53.
const SERVER: &str = "127.0.77.53";
/// One on which nobody listens.
const NOBODY: &str = "127.0.77.54";

/// A doctor that has no engine, so that it takes no time for containers.
fn look(store: &Path) -> Look {
    let look = Look::at(store).engine("unix:///nowhere/docker.sock");
    look.set("egress.mode", "'restricted'").set("egress.own_addresses", "['198.51.100.7']")
}

/// The same with this name server and no other.
fn asking(look: Look, server: &str, folder: &Path) -> Look {
    let file = folder.join(server);
    std::fs::write(&file, format!("nameserver {server}\n")).expect("a file");
    let script = format!("mount --bind {} /etc/resolv.conf && exec \"$@\"", file.display());
    look.under(&["unshare", "-m", "sh", "-c", &script, "sh"])
}

/// Answers every question for an IPv4 address with 192.0.2.7, and has no other answers.
async fn serve_names(socket: UdpSocket) {
    let mut question = [0; 512];
    while let Ok((length, asker)) = socket.recv_from(&mut question).await {
        let labels = &question[12..length];
        let end = 12 + labels.iter().position(|byte| *byte == 0).expect("the end of the name") + 5;
        let is_a = question[end - 4..end - 2] == [0, 1];
        let head = [0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0];
        let mut answer = [&question[..2], &head, &question[12..end]].concat();
        if is_a {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
        }
        socket.send_to(&answer, asker).await.expect("it is sent");
    }
}

#[tokio::test]
async fn a_name_that_nobody_knows_is_a_warning() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = UdpSocket::bind((SERVER, 53)).await.expect("these tests need root, for port 53");
    tokio::spawn(serve_names(socket));
    let look = look(dir.path()).set("egress.allow", "['*.example', 'packages.example:443']");
    let base = asking(look.clone(), SERVER, dir.path()).run().await;
    assert_eq!(base.found("way out/names"), "packages.example has an address");
    let mode = "egress.mode is restricted: a call reaches at most what egress.allow lists, 2 entries";
    assert_eq!(base.found("way out/mode"), mode);
    assert!(base.found("way out/own addresses").contains("are refused to programs"), "{}", base.text);
    let unknown = asking(look.clone(), NOBODY, dir.path()).run().await;
    unknown.expect(&base, &[("way out/names", "warn")]);
    assert!(unknown.advice("way out/names").contains("/etc/resolv.conf"), "{}", unknown.text);
    // Where the proxy resolves, or the operator has, nobody is asked.
    let told = look.clone().set("egress.hosts", "{ 'packages.example' = '192.0.2.7' }");
    asking(told, NOBODY, dir.path()).run().await.expect(&base, &[]);
}

#[tokio::test]
async fn the_proxy_the_certificates_and_the_address_of_links_are_tried() {
    let dir = tempfile::tempdir().expect("a folder");
    let look = look(dir.path()).set("egress.allow", "['packages.example']");
    let proxy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("'http://me:secret-of-proxy@{}'", proxy.local_addr().expect("an address"));
    let look = look.set("egress.upstream_proxy", &url).set("egress.upstream_resolves", "true");
    let base = look.run().await;
    assert!(base.found("way out/upstream proxy").ends_with("is there"), "{}", base.text);
    assert!(base.found("way out/names").contains("by the upstream proxy"), "{}", base.text);
    assert!(!base.text.contains("secret-of-proxy"), "{}", base.text);
    drop(proxy);
    let gone = look.run().await;
    gone.expect(&base, &[("way out/upstream proxy", "warn")]);
    assert!(gone.found("way out/upstream proxy").contains("connection refused"), "{}", gone.text);

    let look = self::look(dir.path()).set("egress.allow", "[]");
    let base = look.run().await;
    let bundle = concat!("'", env!("CARGO_MANIFEST_DIR"), "/src/egress/ca_bundle/test.pem'");
    let company = look.clone().set("egress.ca_bundle", bundle);
    let trusted = company.clone().run().await;
    trusted.expect(&base, &[]);
    assert!(trusted.found("way out/certificates").contains("trust 1 of egress.ca_bundle beside "));
    let alone = company.env("SSL_CERT_FILE", "/dev/null").run().await;
    alone.expect(&base, &[("way out/certificates", "warn")]);

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = taken.local_addr().expect("an address");
    let taken = look.set("ports.addr", &format!("'{addr}'")).run().await;
    taken.expect(&base, &[("way out/ports address", "fail")]);
    assert!(taken.advice("way out/ports address").contains("ports.addr"), "{}", taken.text);
}
