//! An engine that reports another version of runc: the proxy changes the answer to `GET /version`, and
//! nothing else.

use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::task::AbortOnDropHandle;

use super::look::Look;
use crate::support::engine_host;

/// Listens at `socket` and reports `runc`; a connection that asks for the version is answered and closed.
fn proxy(socket: &Path, runc: &str) -> AbortOnDropHandle<()> {
    let listener = UnixListener::bind(socket).expect("a socket");
    let components = match runc {
        "" => "[]".to_owned(),
        runc => format!(r#"[{{"Name":"runc","Version":"{runc}"}}]"#),
    };
    let version = format!(
        r#"{{"Version":"x","ApiVersion":"1.41","MinAPIVersion":"1.12","Os":"linux","Arch":"amd64","Components":{components}}}"#
    );
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n\
         {version}",
        version.len()
    );
    AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, answer.clone()));
        }
    }))
}

/// Only the first request of a connection is inspected. Clients keep connections, so the proxy closes those
/// that would carry more.
async fn serve(mut client: UnixStream, answer: String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match client.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let asks = head.windows(9).any(|part| part == b"/version ");
    if asks {
        let _ = client.write_all(answer.as_bytes()).await;
        return;
    }
    let host = engine_host();
    let mut engine = UnixStream::connect(host.unix_path().expect("a socket")).await.expect("the engine");
    engine.write_all(&head).await.expect("written");
    let _ = copy_bidirectional(&mut client, &mut engine).await;
}

#[tokio::test]
async fn an_old_runc_is_reported_with_the_version_that_fixes_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("proxy.sock");
    let look = Look::at(dir.path()).engine(&format!("unix://{}", socket.display()));
    let with = async |runc: &str| {
        let _ = std::fs::remove_file(&socket);
        let _serving = proxy(&socket, runc);
        look.run().await
    };
    let base = with("1.2.8").await;
    assert_eq!(base.found("engine/runc"), "runc 1.2.8");
    for (runc, mended) in [("1.1.5+ds1", "1.2.8"), ("1.3.2", "1.3.3"), ("1.4.0-rc.2", "1.4.0-rc.3")] {
        let report = with(runc).await;
        report.expect(&base, &[("engine/runc", "warn")]);
        assert!(report.found("engine/runc").contains("CVE-2025-31133"), "{}", report.text);
        assert!(report.advice("engine/runc").contains(&format!("to {mended} or newer")), "{}", report.text);
    }
    with("").await.expect(&base, &[("engine/runc", "warn")]);
    with("1.3.3").await.expect(&base, &[]);
}
