//! Answers of models as providers send them, whole and in pieces, and the fuzz target of the meter.

use paddock_fuzz::{Target, fuzz};
use proptest::prelude::*;

use super::*;

const MESSAGE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x",
"content":[{"type":"text","text":"Say \"usage\": {\"output_tokens\": 9}"}],"stop_reason":"end_turn",
"usage":{"input_tokens":12,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,"output_tokens":34,"service_tier":"standard"}}"#;

const MESSAGE_STREAM: &str = "event: message_start\n\
data: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-x\",\"usage\":{\"input_tokens\":12,\
\"cache_creation_input_tokens\":100,\"cache_read_input_tokens\":2000,\"output_tokens\":1}}}\n\n\
event: ping\ndata: {\"type\": \"ping\"}\n\n\
event: content_block_delta\n\
data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"0123456789\"}}\n\n\
event: content_block_delta\n\
data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"0123456789\"}}\n\n\
event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":34}}\n\n\
event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

const CHAT_STREAM: &str = "data: {\"model\":\"gpt-x\",\
\"choices\":[{\"delta\":{\"content\":\"0123456789\"}}],\"usage\":null}\r\n\r\n\
data: {\"model\":\"gpt-x\",\"choices\":[],\"usage\":{\"prompt_tokens\":50,\"completion_tokens\":7,\
\"prompt_tokens_details\":{\"cached_tokens\":40}}}\r\n\r\ndata: [DONE]\r\n\r\n";

const RESPONSE_STREAM: &str = "event: response.created\n\
data: {\"type\":\"response.created\",\"response\":{\"model\":\"gpt-x\",\
\"usage\":null}}\n\nevent: response.output_text.delta\ndata: {\"delta\":\"0123456789\"}\n\n\
event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"model\":\"gpt-x\",\
\"usage\":{\"input_tokens\":50,\"input_tokens_details\":{\"cached_tokens\":40},\"output_tokens\":7}}}\n\n";

const STREAMS: [(Form, &str); 3] =
    [(Form::Messages, MESSAGE_STREAM), (Form::Completions, CHAT_STREAM), (Form::Responses, RESPONSE_STREAM)];

fn metered(form: Form, is_stream: bool, text: &[u8]) -> Meter {
    let mut meter = Meter::new(form, is_stream, 1000);
    meter.push(text);
    meter
}

const ANTHROPIC: Tokens = Tokens { input: 12, output: 34, cache_read: 2000, cache_write: 100 };
const OPENAI: Tokens = Tokens { input: 10, output: 7, cache_read: 40, cache_write: 0 };

#[test]
fn whole_answers_say_their_tokens_in_every_form() {
    let chat = r#"{"model":"gpt-x","choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":50,
        "completion_tokens":7,"total_tokens":57,"prompt_tokens_details":{"cached_tokens":40}}}"#;
    let response = r#"{"model":"gpt-x","output":[{"usage":{"input_tokens":999}}],"usage":{"input_tokens":50,
        "input_tokens_details":{"cached_tokens":40},"output_tokens":7}}"#;
    for (form, is_stream, text, tokens, model) in [
        (Form::Messages, false, MESSAGE, ANTHROPIC, "claude-x"),
        (Form::Messages, true, MESSAGE_STREAM, ANTHROPIC, "claude-x"),
        (Form::Completions, false, chat, OPENAI, "gpt-x"),
        (Form::Completions, true, CHAT_STREAM, OPENAI, "gpt-x"),
        (Form::Responses, false, response, OPENAI, "gpt-x"),
        (Form::Responses, true, RESPONSE_STREAM, OPENAI, "gpt-x"),
    ] {
        let meter = metered(form, is_stream, text.as_bytes());
        assert_eq!((meter.tokens(), meter.is_whole(), meter.model()), (tokens, true, Some(model)), "{text}");
    }
    let embeddings =
        br#"{"data":[{"embedding":[0.1,0.2]}],"model":"e","usage":{"prompt_tokens":8,"total_tokens":8}}"#;
    let meter = metered(Form::Completions, false, embeddings);
    assert_eq!((meter.tokens(), meter.is_whole()), (Tokens { input: 8, ..Tokens::default() }, true));
}

#[test]
fn a_stream_that_breaks_off_counts_what_was_seen_of_it() {
    let cut =
        |text: &str, after: &str| text.find(after).map(|at| text[..at + after.len()].to_owned()).unwrap();
    // Two deltas of ten bytes each are ten tokens.
    let meter = metered(Form::Messages, true, cut(MESSAGE_STREAM, "event: message_delta").as_bytes());
    assert_eq!((meter.tokens(), meter.is_whole()), (Tokens { output: 10, ..ANTHROPIC }, false));
    let meter = metered(Form::Messages, true, cut(MESSAGE_STREAM, "ping").as_bytes());
    assert_eq!(meter.tokens(), Tokens { output: 1, ..ANTHROPIC });
    // Nobody has said how long the request of 1,000 bytes is.
    for (form, text) in [(Form::Completions, CHAT_STREAM), (Form::Responses, RESPONSE_STREAM)] {
        let meter = metered(form, true, cut(text, "0123456789\"").as_bytes());
        let expected = Tokens { input: 500, output: 5, ..Tokens::default() };
        assert_eq!((meter.tokens(), meter.is_whole()), (expected, false), "{text}");
    }
}

#[test]
fn an_answer_without_a_usage_that_can_be_read_is_estimated() {
    let estimate = Tokens { input: 500, ..Tokens::default() };
    for text in [
        "",
        "<html>",
        "{\"usage\":null}",
        "{\"usage\":{}}",
        "{\"usage\":{\"input_tokens\":-1}}",
        "{\"usage\":{",
    ] {
        for is_stream in [false, true] {
            let meter = metered(Form::Messages, is_stream, text.as_bytes());
            assert_eq!((meter.tokens(), meter.is_whole()), (estimate, false), "{text}");
        }
    }
    let much = br#"{"usage":{"input_tokens":18446744073709551615,"output_tokens":1}}"#;
    assert_eq!(metered(Form::Messages, false, much).tokens().input, MOST);
    // More is cached than there was.
    let odd = br#"{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":9}}}"#;
    let tokens = metered(Form::Completions, false, odd).tokens();
    assert_eq!((tokens.input, tokens.cache_read), (0, 5));
}

proptest! {
    #[test]
    fn pieces_say_what_the_whole_says(cuts in prop::collection::vec(1_usize..40, 0..60)) {
        for (form, text) in STREAMS {
            let mut meter = Meter::new(form, true, 1000);
            let (mut rest, mut cuts) = (text.as_bytes(), cuts.iter());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(cuts.next().copied().unwrap_or(500).min(rest.len()));
                meter.push(piece);
                rest = after;
            }
            prop_assert_eq!(meter.tokens(), metered(form, true, text.as_bytes()).tokens());
            prop_assert!(meter.is_whole());
        }
    }
}

#[test]
fn fuzz_model_answer() {
    let words: [&[u8]; 14] = [
        b"data: ",
        b"\n\n",
        b"\r\n",
        b"{\"usage\":",
        b"\"message\":{",
        b"\"response\":{",
        b"\"input_tokens\":1",
        b"\"model\":\"m\"",
        b"\\\"",
        b"}}",
        b"[[",
        b"\"text\":\"",
        b"null",
        b"18446744073709551616",
    ];
    let seeds = [MESSAGE, MESSAGE_STREAM, CHAT_STREAM, RESPONSE_STREAM];
    let target = Target {
        name: "model_answer",
        package: env!("CARGO_MANIFEST_DIR"),
        seeds: seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect(),
        words: &words,
        longest: 8192,
        memory: |length| 16 * length + 64 * 1024,
    };
    fuzz(&target, |input| {
        for form in [Form::Messages, Form::Completions, Form::Responses] {
            for is_stream in [false, true] {
                let whole = metered(form, is_stream, input);
                let mut pieces = Meter::new(form, is_stream, 1000);
                input.chunks(7).for_each(|piece| pieces.push(piece));
                assert_eq!(pieces.tokens(), whole.tokens());
                assert_eq!((pieces.is_whole(), pieces.model()), (whole.is_whole(), whole.model()));
                let Tokens { input, output, cache_read, cache_write } = whole.tokens();
                assert!([input, output, cache_read, cache_write].iter().all(|count| *count <= MOST));
            }
        }
    });
}
