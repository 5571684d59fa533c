//! A daemon talks with agents of earlier builds that have its [`VERSION`](crate::message::VERSION). So a
//! changed message needs another one.

use crate::message::VERSION;

/// The version, and the fingerprint of the declarations of all that is sent. If the test below fails, raise
/// `VERSION` and put both here. If only the form of the code was changed, put the new fingerprint alone.
const SENT: (u32, u64) = (16, 0xa104_23e8_19a8_8fa2);

const DECLARATIONS: [&str; 10] = [
    include_str!("message.rs"),
    include_str!("message/egress.rs"),
    include_str!("message/run.rs"),
    include_str!("execute.rs"),
    include_str!("frame.rs"),
    include_str!("output_stream.rs"),
    include_str!("path.rs"),
    include_str!("policy.rs"),
    include_str!("probe.rs"),
    include_str!("target.rs"),
];

/// Of what stands in the braces of each type that is sent, without comments and white space (FNV-1a).
fn fingerprint() -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut types = 0;
    for text in DECLARATIONS {
        let mut is_sent = false;
        let mut is_inside = false;
        for line in text.lines().map(str::trim_end) {
            if line.trim_start().starts_with("//") {
                continue;
            }
            is_sent |= line.starts_with("#[derive(") && line.contains("Serialize");
            if is_sent && (line.starts_with("pub struct") || line.starts_with("pub enum")) {
                types += 1;
                is_inside = true;
            }
            if is_inside {
                let bytes = line.bytes().filter(|byte| !byte.is_ascii_whitespace());
                hash = bytes.fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
            }
            if is_inside && (line.starts_with('}') || line.ends_with(';') || line.ends_with("{}")) {
                (is_sent, is_inside) = (false, false);
            }
        }
    }
    assert!(types > 20, "{types} types were found");
    hash
}

#[test]
fn a_changed_message_has_another_version() {
    let found = fingerprint();
    assert_eq!((VERSION, found), SENT, "see what is said above SENT; the fingerprint is {found:#x}");
}
