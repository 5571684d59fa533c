//! The fuzz target of a diff that is read: no text breaks the reader, and what it finds lies in the text.

use paddock_fuzz::{Target, fuzz};

use super::parse;

const WORDS: [&[u8]; 12] = [
    b"diff --git a/x b/x\n",
    b"diff --git \"a/x\\033\\n\" \"b/x\\033\\n\"\n",
    b"new file mode 100644\n",
    b"deleted file mode 120000\n",
    b"old mode 100644\nnew mode 100755\n",
    b"index 0000..1111 100644\n",
    b"--- a/x\n+++ b/x\n",
    b"@@ -1,2 +1 @@\n",
    b" same\n-old\n+new\n",
    b"\\ No newline at end of file\n",
    b"Binary files a/x and b/x differ\n",
    b"18446744073709551615",
];

#[test]
fn fuzz_diff() {
    let target = Target {
        name: "diff",
        package: env!("CARGO_MANIFEST_DIR"),
        seeds: vec![[WORDS[0], WORDS[5], WORDS[6], WORDS[7], WORDS[8]].concat(), WORDS[1].to_vec()],
        words: &WORDS,
        longest: 4096,
        memory: |length| 64 * length + 256 * 1024,
    };
    fuzz(&target, |input| {
        let mut end = 0;
        for change in parse(input).into_iter().flatten() {
            assert!(change.range.start == end && change.range.end <= input.len());
            assert!(change.name.len() <= change.range.len());
            end = change.range.end;
        }
    });
}
