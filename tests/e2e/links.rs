//! Signed links: whoever has one gets that one file, and nothing else opens anything.

use crate::support::Daemon;

#[tokio::test]
async fn a_link_opens_its_file_and_no_other() {
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
    // The same file by another spelling of its name.
    assert_eq!(d.fetch(&path("abc123/%72esult.csv", &right)).await.expect(200).text(), "0123456789");

    let answer = d.fetch(&page).await.expect(200);
    assert!(answer.header("content-disposition").starts_with("attachment;"));
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert!(answer.header("content-security-policy").contains("sandbox"));
    for method in ["POST", "PUT", "DELETE"] {
        d.link(method, &good).send().await.expect(405);
    }

    // What is gone, or became a directory, is not found.
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
