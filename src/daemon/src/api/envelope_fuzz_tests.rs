//! A fuzz target: messages from outside, read by the envelope and, as a second reading, as a whole document.

use paddock_fuzz::{Target, fuzz};
use serde_json::Value;

use super::envelope::inspect;

#[test]
fn fuzz_envelopes() {
    let seeds = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"1"}}}"#,
        r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"x":[1,2.5,null,true]}}"#,
        r#"[{"jsonrpc":"2.0"}]"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"\u0061","params":{"a":"\ud800"}}"#,
    ];
    let words: [&[u8]; 14] = [
        b"\"jsonrpc\":\"2.0\"",
        b"\"id\":1",
        b"\"method\":",
        b"\"params\":",
        b"\"arguments\":",
        b"\"tools/call\"",
        b"\"name\":\"x\"",
        b"\"result\":{}",
        b"\\u",
        b"9223372036854775808",
        b"{",
        b"}",
        b"[",
        b",",
    ];
    let target = Target {
        name: "envelopes",
        package: env!("CARGO_MANIFEST_DIR"),
        seeds: seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect(),
        words: &words,
        longest: 4096,
        // The second reading takes most of it: a value for every few bytes.
        memory: |length| 256 * length + 64 * 1024,
    };
    fuzz(&target, |input| {
        let document = serde_json::from_slice::<Value>(input);
        let read = match inspect(input) {
            Ok(read) => read,
            Err(refusal) => {
                let answer = refusal.to_json();
                let code = answer["error"]["code"].as_i64();
                assert!(matches!(code, Some(-32700 | -32600 | -32602)), "{answer}");
                assert!(answer["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
                // JSON that is none is the only thing that may be called so.
                assert!(code != Some(-32700) || document.is_err(), "{answer}");
                return;
            }
        };
        // What the envelope does not look into may still be no text, or nested too deeply.
        let Ok(document) = document else { return };
        assert_eq!(document["jsonrpc"], "2.0");
        assert_eq!(read.method.is_some_and(|method| method.starts_with('"')), document["method"].is_string());
        if let Some(id) = &read.id {
            assert!(*id == document["id"] && (id.is_string() || id.is_i64()));
        }
        if let Some(place) = read.arguments {
            let arguments: Value = serde_json::from_slice(&input[place]).expect("it is a part of a document");
            assert!(arguments.is_object() && arguments == document["params"]["arguments"]);
        }
    });
}
