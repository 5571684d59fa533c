//! A tool's answer as MCP has it: text, data, images and links, in the form that its audience reads.

use std::time::Duration;

use rmcp::model::{CallToolResult, ContentBlock, Resource};
use serde_json::{Map, Value, json};

use super::audience::Audience;
use crate::tools::{Outcome, Timing};

/// In a result's `_meta`: where the time of a run went, see [`Timing`].
const TIMING: &str = "paddock/timing";

/// Files of one answer that are linked as resources too; the document has all of them.
const LINKS: usize = 20;

/// Milliseconds, with three decimals.
fn timing(timing: &Timing) -> Value {
    let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    json!({
        "queued_ms": ms(timing.queued),
        "files_in_ms": ms(timing.files_in),
        "program_ms": ms(timing.program),
        "files_out_ms": ms(timing.files_out),
        "total_ms": ms(timing.total),
    })
}

/// One answer, as text and as data for its audience, with its images and, if `linked`, its files as
/// resources. A model reads `shown` bytes of output.
pub(super) fn result(outcome: Outcome, audience: Audience, linked: bool, shown: usize) -> CallToolResult {
    let links = if linked { links(&outcome.document) } else { Vec::new() };
    let text = match audience {
        Audience::Program => serde_json::to_string(&*outcome.compact()).unwrap_or_default(),
        Audience::Model | Audience::ModelOfDocuments => outcome.text(shown),
    };
    let document = match audience {
        Audience::ModelOfDocuments => outcome.for_a_model(shown),
        Audience::Model | Audience::Program => outcome.document,
    };
    let document = Value::Object(document);
    let mut content = vec![ContentBlock::text(text)];
    content.extend(outcome.images.into_iter().map(|image| ContentBlock::image(image.data, image.mime_type)));
    content.extend(links);
    let mut result =
        if outcome.failed { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(document);
    result.meta = outcome.timing.map(|spent| Map::from_iter([(TIMING.to_owned(), timing(&spent))]).into());
    result
}

/// The files that a run made, as links to resources.
fn links(document: &Map<String, Value>) -> Vec<ContentBlock> {
    let artifacts = document.get("artifacts").and_then(Value::as_array);
    let link = |artifact: &Value| {
        let text = |key: &str| artifact[key].as_str().map(str::to_owned);
        let mut resource = Resource::new(text("download_url")?, text("filename")?);
        resource.mime_type = text("mime_type");
        resource.size = artifact["size_bytes"].as_u64();
        Some(ContentBlock::resource_link(resource))
    };
    artifacts.into_iter().flatten().filter_map(link).take(LINKS).collect()
}
