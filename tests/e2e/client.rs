//! A real MCP client: the official SDK's, over HTTP.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};

use crate::support::{Daemon, PATIENCE, TOKEN, TOOLS, within};

#[tokio::test]
async fn a_real_client_lists_uploads_and_runs() {
    let d = Daemon::start().await;
    let config = StreamableHttpClientTransportConfig::with_uri(format!("{}/mcp", d.url)).auth_header(TOKEN);
    let client = ().serve(StreamableHttpClientTransport::from_config(config));
    let client = within(PATIENCE, "the handshake", client).await.expect("a handshake");
    assert_eq!(
        client.peer_info().expect("a server").server_info.as_ref().map(|server| server.name.as_str()),
        Some("paddock")
    );
    let tools = client.list_all_tools().await.expect("tools");
    assert_eq!(tools.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(), TOOLS);

    let call = async |name: &'static str, arguments: Value| {
        let Value::Object(arguments) = arguments else { panic!("no object") };
        let request = CallToolRequestParams::new(name).with_arguments(arguments);
        let done = within(PATIENCE, name, client.call_tool(request)).await.expect("a result");
        (done.structured_content.expect("a document"), done.is_error.unwrap_or(false))
    };
    let csv = BASE64_STANDARD.encode("a,b\n1,2\n3,4\n");
    let (uploaded, failed) = call("upload_file", json!({ "filename": "in.csv", "content": csv })).await;
    assert!(!failed && uploaded["success"] == true, "{uploaded}");
    let code = "import pandas\nf = pandas.read_csv('/data/in.csv')\nf.sum().to_csv('/data/out.csv')\n\
                print(f.b.sum())";
    let (ran, failed) = call("run_code", json!({ "language": "python", "code": code })).await;
    assert!(!failed, "{ran}");
    assert_eq!(ran["stdout"], "6\n");
    assert_eq!(ran["session_id"], uploaded["session_id"], "one MCP session, one conversation");
    let link = ran["artifacts"][0]["download_url"].as_str().expect("a link");
    assert_eq!(d.fetch(link).await.expect(200).text(), ",0\na,4\nb,6\n");
    let (ran, failed) =
        call("run_code", json!({ "language": "python", "code": "raise SystemExit(3)" })).await;
    assert!(failed && ran["exit_code"] == 3, "{ran}");
    let unknown = client.call_tool(CallToolRequestParams::new("none")).await.expect_err("no such tool");
    assert!(unknown.to_string().contains("none"), "{unknown}");
    client.cancel().await.expect("an end");
    d.stop().await;
}
