//! Signed links: each gives access to one file, and nothing else does.

use std::time::{Duration, Instant};

use crate::support::{Daemon, Ran};

#[tokio::test]
async fn a_link_gives_access_to_its_file_and_no_other() {
    let d = Daemon::with().env("FILE_SECRET", "topsecret").start().await;
    let s = d.session("abc123");
    s.upload("result.csv", b"0123456789").await.expect_success();
    s.upload("dir/other.txt", b"other").await.expect_success();
    let ran = s.upload("page.html", b"<script>alert(1)</script>").await.expect_success();
    let page = ran.document["file"]["url"].as_str().expect("a link").to_owned();
    // printf '%s' abc123/result.csv | openssl dgst -sha256 -hmac topsecret
    let sig = "929cf9ef5cc40365d2d584e00e2fbab8773310d7738e2a50d1ccdfd6d39cffe0";
    let good = format!("{}/files/abc123/result.csv?sig={sig}", d.url);

    let answer = d.fetch(&good).await.expect(200);
    assert_eq!((answer.text().as_str(), answer.header("content-length").as_str()), ("0123456789", "10"));
    assert_eq!(answer.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    let etag = answer.header("etag");
    let head = d.link("HEAD", &good).send().await.expect(200);
    assert_eq!((head.body.len(), head.header("content-length").as_str()), (0, "10"));
    d.link("GET", &good).header("if-none-match", &etag).send().await.expect(304);
    for (range, status, body, content_range) in [
        ("bytes=0-0", 206, "0", "bytes 0-0/10"),
        ("bytes=2-4", 206, "234", "bytes 2-4/10"),
        ("bytes=8-", 206, "89", "bytes 8-9/10"),
        ("bytes=-3", 206, "789", "bytes 7-9/10"),
        ("bytes=0-18446744073709551615", 206, "0123456789", "bytes 0-9/10"),
        ("bytes=0-0,1-1", 200, "0123456789", ""),
        ("lines=0-0", 200, "0123456789", ""),
    ] {
        let answer = d.link("GET", &good).header("range", range).send().await.expect(status);
        assert_eq!(answer.text(), body, "{range}");
        if !content_range.is_empty() {
            assert_eq!(answer.header("content-range"), content_range);
        }
    }
    for range in ["bytes=10-", "bytes=5-2", "bytes=-0"] {
        let none = d.link("GET", &good).header("range", range).send().await.expect(416);
        assert_eq!(none.header("content-range"), "bytes */10");
    }

    let flipped = sig.replace("929c", "929d");
    let path = |path: &str, query: &str| format!("{}/files/{path}{query}", d.url);
    let right = format!("?sig={sig}");
    let forbidden = [
        path("abc123/result.csv", ""),
        path("abc123/result.csv", "?sig="),
        path("abc123/result.csv", "?sig=9"),
        path("abc123/result.csv", &format!("?sig={flipped}")),
        path("abc123/result.csv", &format!("?sig={}", sig.to_uppercase())),
        path("abc123/result.csv", &format!("?sig={sig}0")),
        path("abc123/result.csv", &format!("?sig={sig}&sig={sig}")),
        path("abc123/result.csv", &format!("?sig={sig}&sig={flipped}")),
        path("abc123/result.csv", &format!("?SIG={sig}")),
        path("abc123/dir/other.txt", &right),
        path("abc123/none.csv", &right),
        path("abc124/result.csv", &right),
        path("abc123/result.csv/", &right),
        path("abc123//result.csv", &right),
        path("abc123/./result.csv", &right),
        path("abc123/dir/../result.csv", &right),
        path("abc123/%2e%2e/result.csv", &right),
        path("abc123%2Fresult.csv", &right),
        path("abc123/result.csv%00", &right),
        path("abc123/result+csv", &right),
        path("abc123", &right),
        path("abc123/", &right),
        path("", &right),
        path("../files.secret", &right),
        format!("{}/logs/abc123/result.csv?sig={sig}", d.url),
    ];
    let first = d.fetch(&forbidden[0]).await.expect(403).body;
    for link in &forbidden {
        let answer = d.fetch(link).await;
        assert_eq!((answer.status, &answer.body), (403, &first), "{link}");
        // A token changes nothing.
        assert_eq!(
            d.request("GET", link.strip_prefix(&d.url).expect("ours")).send().await.status,
            403,
            "{link}"
        );
    }
    // The same file by another encoding of its name.
    assert_eq!(d.fetch(&path("abc123/%72esult.csv", &right)).await.expect(200).text(), "0123456789");

    let answer = d.fetch(&page).await.expect(200);
    assert!(answer.header("content-disposition").starts_with("attachment;"));
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert!(answer.header("content-security-policy").contains("sandbox"));
    for method in ["POST", "PUT", "DELETE"] {
        d.link(method, &good).send().await.expect(405);
    }

    // A file that was removed, or replaced by a directory, is not found.
    let ran = s.python("import os\nos.remove('result.csv')\nos.mkdir('result.csv')").await.expect_success();
    assert_eq!(ran.files(), ["dir/other.txt", "page.html"]);
    d.fetch(&good).await.expect(404);
    d.stop().await;
}

#[tokio::test]
async fn links_outlive_the_daemon_and_the_container() {
    let d = Daemon::start().await;
    let ran =
        d.session("s").python("open('a', 'w').write('kept')\nprint('x' * 200000)").await.expect_success();
    let path = |link: &str| link.strip_prefix(&d.url).expect("ours").to_owned();
    let (file, log) = (path(&ran.link("a")), path(ran.text("log_url")));
    let store = d.store.clone();
    d.stop().await;
    let d = Daemon::with().store(&store).start().await;
    assert_eq!(d.fetch(&format!("{}{file}", d.url)).await.expect(200).text(), "kept");
    assert_eq!(d.fetch(&format!("{}{log}", d.url)).await.expect(200).body.len(), 200_001);
    let answer = d.fetch(&format!("{}{log}0", d.url)).await.expect(403);
    assert!(answer.text().contains("not valid"), "{}", answer.text());
    d.session("s").python("print(open('a').read())").await.expect_stdout("kept\n");
    d.stop().await;
}

/// Otherwise it would be valid for ever, whatever the operator configures later.
#[tokio::test]
async fn a_link_without_a_time_is_invalid_once_links_expire() {
    let d = Daemon::start().await;
    let link = |ran: &Ran| ran.document["file"]["url"].as_str().expect("a link").to_owned();
    let before = link(&d.session("s").upload("a", b"1").await.expect_success());
    assert_eq!(d.fetch(&before).await.expect(200).text(), "1");
    let before = before.strip_prefix(&d.url).expect("a path").to_owned();
    let store = d.store.clone();
    d.stop().await;
    let d = Daemon::with().store(&store).set("files.url_ttl", "1h").start().await;
    d.fetch(&format!("{}{before}", d.url)).await.expect(403);
    let after = link(&d.session("s").upload("a", b"2").await.expect_success());
    assert_eq!(d.fetch(&after).await.expect(200).text(), "2");
    d.stop().await;
}

#[tokio::test]
async fn a_link_expires_at_its_time() {
    let d = Daemon::with().set("files.url_ttl", "10s").start().await;
    let ran = d.session("s").upload("a", b"1").await.expect_success();
    let link = ran.document["file"]["url"].as_str().expect("a link").to_owned();
    let begun = Instant::now();
    assert_eq!(d.fetch(&link).await.expect(200).text(), "1");
    let (path, query) = link.split_once('?').expect("a query");
    let expires = query.split('&').find_map(|pair| pair.strip_prefix("expires=")).expect("a time");
    let sig = query.split('&').find_map(|pair| pair.strip_prefix("sig=")).expect("a signature");
    let later = expires.parse::<u64>().expect("a number") + 3600;
    for wrong in [
        format!("sig={sig}"),
        format!("expires={later}&sig={sig}"),
        format!("expires=&sig={sig}"),
        format!("expires={expires}"),
        format!("expires={expires}&expires={later}&sig={sig}"),
        format!("expires={later}&expires={expires}&sig={sig}"),
    ] {
        d.fetch(&format!("{path}?{wrong}")).await.expect(403);
    }
    let refused = d.fetch(&format!("{path}?sig={sig}")).await.expect(403).body;
    loop {
        let answer = d.fetch(&link).await;
        if answer.status == 403 {
            assert_eq!(answer.body, refused);
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it never ends");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(begun.elapsed() > Duration::from_secs(8), "it ended early");
    d.stop().await;
}

#[tokio::test]
async fn links_of_a_previous_key_are_valid_while_it_is_configured() {
    let path = |d: &Daemon, link: &str| link.strip_prefix(&d.url).expect("ours").to_owned();
    let d = Daemon::with().env("FILE_SECRET", "the previous key, long").start().await;
    let ran = d.session("s").upload("a", b"1").await.expect_success();
    let old = path(&d, ran.document["file"]["url"].as_str().expect("a link"));
    let store = d.store.clone();
    d.stop().await;
    let new = || Daemon::with().store(&store).env("FILE_SECRET", "the key of today, long");
    let d = new().set("files.previous_secrets", vec!["the previous key, long"]).start().await;
    d.fetch(&format!("{}{old}", d.url)).await.expect(200);
    let ran = d.session("s").upload("b", b"2").await.expect_success();
    let fresh = path(&d, ran.document["file"]["url"].as_str().expect("a link"));
    d.stop().await;
    let d = new().start().await;
    d.fetch(&format!("{}{old}", d.url)).await.expect(403);
    d.fetch(&format!("{}{fresh}", d.url)).await.expect(200);
    d.stop().await;
}

#[tokio::test]
async fn a_hashed_link_gives_access_to_its_session_and_no_other() {
    let hashed =
        || Daemon::with().set("files.url_style", "hashed").env("FILE_SECRET", "a secret that is long");
    let signed = Daemon::with().env("FILE_SECRET", "a secret that is long").start().await;
    let store = signed.store.clone();
    let url = |ran: &crate::support::Ran| ran.document["file"]["url"].as_str().expect("a link").to_owned();
    let of_old = url(&signed.session("mine").upload("dir/a", b"1").await.expect_success());
    let of_old = of_old.strip_prefix(&signed.url).expect("ours").to_owned();
    signed.stop().await;

    let d = hashed().store(&store).start().await;
    d.fetch(&format!("{}{of_old}", d.url)).await.expect(200);
    let mine = url(&d.session("mine").upload("b", b"2").await.expect_success());
    let theirs = url(&d.session("theirs").upload("dir/a", b"3").await.expect_success());
    let name = |link: &str| link.split('/').nth(4).expect("a name").to_owned();
    assert!(!mine.contains('?') && name(&mine).len() == 64 && name(&mine) != name(&theirs), "{mine}");
    let on_disk: Vec<_> = std::fs::read_dir(store.path())
        .expect("a store")
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .collect();
    assert!(!on_disk.contains(&name(&mine)), "the directory's own name is in the link");
    assert_eq!(d.fetch(&mine).await.expect(200).text(), "2");
    assert_eq!(d.fetch(&mine.replace("/b", "/dir/a")).await.expect(200).text(), "1");
    d.fetch(&mine.replace("/b", "/none")).await.expect(404);
    let first = d.fetch(&format!("{}/files/mine/b", d.url)).await.expect(403).body;
    let wrong = name(&mine);
    let (head, last) = wrong.split_at(63);
    let flipped = format!("{head}{}", if last == "0" { '1' } else { '0' });
    for path in [
        format!("{flipped}/b"),
        format!("{head}/b"),
        format!("{}/b", wrong.to_uppercase()),
        format!("{wrong}0/b"),
        format!("{wrong}/../{}/dir/a", name(&theirs)),
        format!("{}/b", on_disk.iter().find(|name| name.len() == 64).expect("a directory")),
        format!("mine/b?sig={wrong}"),
        format!("{wrong}/b?sig="),
    ] {
        let answer = d.fetch(&format!("{}/files/{path}", d.url)).await;
        assert_eq!((answer.status, &answer.body), (403, &first), "{path}");
    }
    d.fetch(&format!("{}/logs/{wrong}/b", d.url)).await.expect(403);
    let path = mine.strip_prefix(&d.url).expect("ours").to_owned();
    d.stop().await;
    // The name survives a restart, disappears with the files, and means nothing in the other style.
    let d = hashed().store(&store).start().await;
    assert_eq!(d.fetch(&format!("{}{path}", d.url)).await.expect(200).text(), "2");
    d.session("mine").tool("close_session").with("delete_files", true).await.expect_success();
    d.fetch(&format!("{}{path}", d.url)).await.expect(404);
    d.stop().await;
    let d = Daemon::with().store(&store).env("FILE_SECRET", "a secret that is long").start().await;
    d.fetch(&format!("{}{path}", d.url)).await.expect(403);
    d.stop().await;
}
