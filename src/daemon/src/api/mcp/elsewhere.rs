//! A call within an MCP session, or from `paddock stdio`, about a session that another node has.
//!
//! The MCP session stays here, with its stream, its resumption and its cancellation. The call goes to the
//! owner as one of its own, a bare call in the newest revision that names the original client, so the owner
//! words the answer for that client. Its progress is passed on as it comes.
//!
//! The owner does not ask the client anything on the way of such a call (`egress.ask`): what is not allowed
//! is refused there. It must never be sent twice.

use bytes::{Buf, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use http::{Request, request};
use http_body_util::{BodyExt, Full};
use rmcp::model::{
    CallToolResponse, CallToolResult, ErrorCode, ErrorData, ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::call_context::CallContext;
use super::handler::Handler;
use crate::api::server::Way;
use crate::cluster::concern::Concern;
use crate::cluster::hop::{Entry, Hop, Sender};
use crate::cluster::owners::SessionKey;
use crate::cluster::wire::PassedBody;
use crate::cluster::{Came, Cluster, ClusterFault, Location, Target};

/// The revision of such calls: each stands alone, and ends with its connection.
const REVISION: &str = "2026-07-28";
/// Bytes of one message of the owner: an answer has texts, images and a document within the limits of tools.
const MESSAGE: usize = 256 << 20;

impl Handler {
    /// The node that has the session of a call, if it is not this one. Where the call names none, its own
    /// session is named in `arguments` then.
    pub(super) async fn elsewhere(
        &self,
        cluster: &Cluster,
        name: &str,
        arguments: &mut Map<String, Value>,
        call_context: Option<&CallContext>,
    ) -> Result<Option<Target>, ClusterFault> {
        // A bare call was passed on before it came here.
        if call_context.is_some_and(|context| context.resumable.is_none()) {
            return Ok(None);
        }
        if let Some(call_context) = call_context {
            call_context.long_texts.put_back(arguments);
        }
        let owner = self.owner();
        let at = match Concern::of_arguments(name, arguments) {
            Concern::Nothing => Location::Here,
            Concern::Session(session, access) => {
                cluster.locate(&SessionKey::new(owner, session), access, Came::Directly).await?
            }
            Concern::Execution(_, id) if self.has_execution(&id) => Location::Here,
            Concern::Execution(tag, _) => cluster.locate_tag(tag)?,
            Concern::Unnamed(access) => {
                let Some(own) = self.own_session(call_context) else { return Ok(None) };
                let key = SessionKey::new(owner, own);
                let at = cluster.locate(&key, access, Came::ToStay).await?;
                if at != Location::Here {
                    arguments.insert("session_id".to_owned(), Value::from(key.session.as_str()));
                }
                at
            }
        };
        Ok(match at {
            Location::Here => None,
            Location::At(node) => Some(node),
        })
    }

    /// Has the owner do a call, until it is answered, or has to end here.
    pub(super) async fn call_at(
        &self,
        (cluster, node): (&Cluster, &Target),
        (name, arguments): (&str, Map<String, Value>),
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let parts = context.extensions.get::<request::Parts>();
        let sender = match parts.and_then(|parts| parts.extensions.get::<Way>()) {
            Some(Way::Address(peer)) => Sender::Client(*peer),
            Some(Way::Socket) | None => Sender::LocalUser,
        };
        let hop = Hop { from: cluster.name().to_owned(), sender, entry: Entry::Http, own_session: None };
        let request = message((name, arguments), parts, context, Self::reports(context).0.is_some())?;
        let asked = async {
            let answer = cluster.pass(node, &hop, request, [(); 2].map(|()| CancellationToken::new())).await;
            follow(answer.map_err(|fault| not_now(&fault))?.into_body(), context).await
        };
        tokio::select! {
            answered = asked => answered,
            // Dropping the request ends the call at the owner, which saves its files.
            () = self.ended(Self::call_context(context)) => Err(ended()),
            () = context.ct.cancelled() => Err(ended()),
        }
    }
}

/// The request to the owner: what the client asked, in its name.
fn message(
    (name, arguments): (&str, Map<String, Value>),
    parts: Option<&request::Parts>,
    context: &RequestContext<RoleServer>,
    is_followed: bool,
) -> Result<Request<PassedBody>, ErrorData> {
    let mut meta = match serde_json::to_value(&context.meta) {
        Ok(Value::Object(meta)) => meta,
        Ok(_) | Err(_) => Map::new(),
    };
    if !is_followed {
        meta.remove("progressToken");
    }
    let client = context.client_info();
    let client = client.as_ref().map_or("paddock", |client| client.name.as_str());
    meta.insert("io.modelcontextprotocol/protocolVersion".to_owned(), Value::from(REVISION));
    meta.insert("io.modelcontextprotocol/clientInfo".to_owned(), json!({ "name": client, "version": "0" }));
    meta.insert("io.modelcontextprotocol/clientCapabilities".to_owned(), json!({}));
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": name, "arguments": arguments, "_meta": meta } });
    // A client of an older revision gets what a bare call gets: see `audience`.
    let is_new = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2025_06_18);
    let accepts = if is_new { "application/json, text/event-stream" } else { "application/json" };
    let body = Full::new(message.to_string().into()).map_err(|never| match never {}).boxed_unsync();
    let request = Request::post("/mcp")
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, accepts)
        .header("mcp-protocol-version", REVISION)
        .header("mcp-method", "tools/call")
        .header("mcp-name", name)
        .body(body);
    let mut request = request.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let headers = parts.map(|parts| &parts.headers);
    for header in [AUTHORIZATION, http::HeaderName::from_static("traceparent")] {
        if let Some(value) = headers.and_then(|headers| headers.get(&header)) {
            request.headers_mut().insert(header, value.clone());
        }
    }
    // The first node has checked that of the client.
    request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    Ok(request)
}

/// Reads the owner's messages, and passes progress on, until the answer.
async fn follow(
    mut body: PassedBody,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let broke =
        |what: String| ErrorData::internal_error(format!("the node that has the session {what}"), None);
    let mut read = BytesMut::new();
    let mut ended = false;
    loop {
        while let Some(event) = next_event(&mut read, ended) {
            let Ok(mut message) = serde_json::from_slice::<Map<String, Value>>(&event) else { continue };
            if message.get("method").is_some_and(|method| method == "notifications/progress") {
                let params = message.remove("params").unwrap_or_default();
                if let Ok(word) = serde_json::from_value::<ProgressNotificationParam>(params) {
                    let _ = context.peer.notify_progress(word).await; // it may be gone
                }
                continue;
            }
            if message.contains_key("result") || message.contains_key("error") {
                return answered(message);
            }
        }
        if ended {
            return Err(broke("ended without an answer".to_owned()));
        }
        match body.frame().await {
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                if read.len() + data.len() > MESSAGE {
                    return Err(broke("gave too long an answer".to_owned()));
                }
                read.extend_from_slice(&data);
            }
            Some(Err(error)) => return Err(broke(format!("broke off: {error}"))),
            None => ended = true,
        }
    }
}

/// The next message of a body that is a stream of events or, as a whole, one message.
fn next_event(read: &mut BytesMut, ended: bool) -> Option<Vec<u8>> {
    if read.first() == Some(&b'{') {
        return ended.then(|| std::mem::take(read).to_vec());
    }
    let end = memchr::memmem::find(read, b"\n\n")?;
    let event = read.split_to(end);
    read.advance(2);
    let lines = event[..].split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
    Some(lines.map(<[u8]>::trim_ascii_start).collect::<Vec<_>>().join(&b'\n'))
}

/// What an answer says.
fn answered(mut message: Map<String, Value>) -> Result<CallToolResponse, ErrorData> {
    if let Some(error) = message.remove("error") {
        return Err(match serde_json::from_value(error.clone()) {
            Ok(error) => error,
            // A refusal before JSON-RPC: its own words.
            Err(_) => {
                let text = message.remove("message").unwrap_or(error);
                ErrorData::internal_error(text.as_str().unwrap_or_default().to_owned(), None)
            }
        });
    }
    let result = message.remove("result").unwrap_or_default();
    let result = serde_json::from_value::<CallToolResult>(result);
    let result = result.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(CallToolResponse::Complete(result))
}

/// The answer to a call that no node does now.
pub(super) fn not_now(fault: &ClusterFault) -> ErrorData {
    ErrorData::new(ErrorCode(-32000), fault.to_string(), None)
}

fn ended() -> ErrorData {
    ErrorData::internal_error("the call was ended before the node that has the session answered", None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_whatever_their_pieces_are() {
        let text = ": hello\n\nevent: message\ndata: {\"a\":1}\nid: 7\n\ndata:{\"b\":\ndata: 2}\n\ndata: {";
        for piece in 1..text.len() {
            let (mut read, mut events) = (BytesMut::new(), Vec::new());
            for chunk in text.as_bytes().chunks(piece) {
                read.extend_from_slice(chunk);
                while let Some(event) = next_event(&mut read, false) {
                    events.push(String::from_utf8(event).unwrap());
                }
            }
            assert_eq!(events, ["", "{\"a\":1}", "{\"b\":\n2}"], "{piece}");
        }
    }

    #[test]
    fn a_document_is_one_message_when_it_has_ended() {
        let mut read = BytesMut::from(&b"{\"a\":\"\n\n\"}"[..]);
        assert_eq!(next_event(&mut read, false), None);
        assert_eq!(next_event(&mut read, true).unwrap(), b"{\"a\":\"\n\n\"}");
        assert_eq!(next_event(&mut read, true), None);
    }

    #[test]
    fn a_refusal_keeps_its_words() {
        let read = |text| answered(serde_json::from_str(text).unwrap());
        let refused = |text| read(text).err().map(|error| (error.code.0, error.message.into_owned()));
        let of_rpc = r#"{"id":1,"error":{"code":-32602,"message":"no"}}"#;
        assert_eq!(refused(of_rpc), Some((-32602, "no".to_owned())));
        assert_eq!(
            refused(r#"{"error":"unauthorized","message":"why"}"#).map(|(_, text)| text),
            Some("why".into())
        );
        assert!(read(r#"{"id":1,"result":{"content":[],"isError":false}}"#).is_ok());
    }
}
