//! The fuzz target of an agent's stream: nothing that a container writes breaks the reader, fills the memory,
//! or is read in another way when it comes in other pieces.

use paddock_fuzz::{Target, fuzz};
use paddock_proto::OutputStream;

use super::Transcript;

const WORDS: [&[u8]; 10] = [
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
        let (mut whole, mut pieces) = (Transcript::default(), Transcript::default());
        for line in input.split(|byte| *byte == b'\n') {
            let told = whole.take(OutputStream::Stdout, line, true);
            let (first, last) = line.split_at(line.len() / 2);
            pieces.take(OutputStream::Stdout, first, false);
            assert_eq!(pieces.take(OutputStream::Stdout, last, true), told);
        }
        assert_eq!((whole.denied(), whole.result()), (pieces.denied(), pieces.result()));
        assert_eq!(whole.words(), pieces.words());
    });
}
