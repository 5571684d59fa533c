//! The fuzz target of paths: whatever is sent stays below the URL, in every reading of it.

use paddock_fuzz::{Target, fuzz};
use percent_encoding::percent_decode;

use super::settings::BaseUrl;
use super::target::below;

const WORDS: [&[u8]; 16] = [
    b"../",
    b"..;",
    b"%2e",
    b"%2E%2e",
    b"%252e",
    b"%2f",
    b"%5c",
    b"\\",
    b"//",
    b"%c0%ae",
    b"%u002e",
    b"%00",
    b";",
    b"%25",
    b"..%20",
    b"%E2%80%A5",
];

/// Whether a path, read by somebody who decodes it so many times, leaves the folder.
fn leaves(path: &[u8], times: usize) -> bool {
    let mut path = path.to_vec();
    for _ in 0..times {
        path = percent_decode(&path).collect();
    }
    let mut depth = 0_i32;
    let segments = path.split(|b| matches!(b, b'/' | b'\\'));
    segments.into_iter().any(|segment| {
        let name: Vec<u8> = segment.split(|b| *b == b';').next().unwrap_or_default().trim_ascii().to_vec();
        match name.as_slice() {
            b".." => depth -= 1,
            b"" | b"." => {}
            _ => depth += 1,
        }
        depth < 0
    })
}

#[test]
fn fuzz_service_path() {
    let base = BaseUrl::parse("https://api.example/base/v1").expect("a URL");
    let seeds = ["/items/1", "/a%2Fb/c", "/../admin", "/%252e%252e/x", "/a;b=1/100%25"];
    let target = Target {
        name: "service_path",
        package: env!("CARGO_MANIFEST_DIR"),
        seeds: seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect(),
        words: &WORDS,
        longest: 2048,
        memory: |length| 64 * length + 512 * 1024,
    };
    fuzz(&target, |input| {
        let Ok(path) = std::str::from_utf8(input) else { return };
        let Ok(sent) = below(&base, path) else { return };
        let rest = sent.strip_prefix("/base/v1").expect("below the URL");
        assert!(rest.is_empty() || rest.starts_with('/'), "{sent}");
        for times in 0..8 {
            assert!(
                !leaves(rest.as_bytes(), times),
                "{path} leaves the URL when it is decoded {times} times"
            );
        }
    });
}
