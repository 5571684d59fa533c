//! The fuzz target of the agents' streams: nothing that a container writes breaks a reader, fills the memory,
//! or is read in another way when it comes in other pieces.

use paddock_fuzz::{Target, fuzz};
use paddock_proto::OutputStream;

use super::{CLAUDE_CODE, OPENCODE, Transcript};

const WORDS: [&[u8]; 16] = [
    b"{\"type\":\"assistant\",\"message\":{\"content\":[",
    b"{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"Bash\",\"input\":{\"command\":\"ls\"}}",
    b"]}}",
    b"{\"type\":\"text\",\"text\":\"hi\"}",
    b"{\"type\":\"system\",\"subtype\":\"permission_denied\",\"tool_use_id\":\"t\"}",
    b"{\"type\":\"result\",\"subtype\":\"success\",\"result\":\"ok\",\"num_turns\":1}",
    b"\n",
    b"\\u0000",
    b"null",
    b"1e999",
    b"{\"type\":\"tool_use\",\"sessionID\":\"ses_a\",\"part\":{\"tool\":\"bash\",\"state\":{\"status\":\"error\",\"error\":",
    b"\"Model tried to call unavailable tool\"}}}",
    b"{\"type\":\"step_finish\",\"part\":{\"reason\":\"stop\",\"cost\":1,\"tokens\":{\"input\":1}}}",
    b"{\"type\":\"error\",\"error\":{\"name\":\"x\"}}",
    b"{\"type\":\"denied\",\"tool\":\"t\",\"what\":\"w\"}",
    b"{\"type\":\"result\",\"success\":true,\"tokens\":{\"output\":18446744073709551615}}",
];

#[test]
fn fuzz_agent_stream() {
    let seeds = [WORDS[0], WORDS[1], WORDS[2], WORDS[6], WORDS[5], WORDS[6]].concat();
    let target = Target {
        name: "agent_stream",
        package: env!("CARGO_MANIFEST_DIR"),
        seeds: vec![seeds, WORDS[4].to_vec()],
        words: &WORDS,
        longest: 4096,
        memory: |length| 256 * length + 512 * 1024,
    };
    fuzz(&target, |input| {
        for agent in [CLAUDE_CODE, OPENCODE, "another"] {
            let (mut whole, mut pieces) = (Transcript::of(agent), Transcript::of(agent));
            for line in input.split(|byte| *byte == b'\n') {
                let told = whole.take(OutputStream::Stdout, line, true);
                let (first, last) = line.split_at(line.len() / 2);
                pieces.take(OutputStream::Stdout, first, false);
                assert_eq!(pieces.take(OutputStream::Stdout, last, true), told);
            }
            assert_eq!((whole.denied(), whole.result()), (pieces.denied(), pieces.result()));
            assert_eq!((whole.words(), whole.conversation()), (pieces.words(), pieces.conversation()));
        }
    });
}
