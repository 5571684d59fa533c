//! `list_runners`: the languages that can run here, and the images that run them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::config::ToolSet;
use crate::tools::fault::Failure;
use crate::tools::registry::{Effect, Offer, Tool};
use crate::tools::{Caller, Outcome, Tools, mounts};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct ListRunners {}

impl Tool for ListRunners {
    const NAME: &'static str = "list_runners";
    const SET: ToolSet = ToolSet::Code;
    const TITLE: &'static str = "List languages";
    const SUMMARY: &'static str = "lists the languages, their images and their libraries";
    const EFFECT: Effect = Effect::ReadOnly;

    fn description(_: &Offer<'_>) -> String {
        "List the languages that can run here, with their images and libraries.".to_owned()
    }

    async fn call(self, tools: &Arc<Tools>, _: &Caller, _: CancellationToken) -> Result<Outcome, Failure> {
        let runners = tools.services.pool.languages();
        let languages: Vec<Value> = runners
            .values()
            .map(|(_, runner)| {
                let libraries: Vec<&str> = runner
                    .libraries
                    .split(',')
                    .map(str::trim)
                    .filter(|library| !library.is_empty())
                    .collect();
                let mut listed =
                    json!({ "language": runner.language, "image": runner.image, "libraries": libraries });
                if let Some(mounts) = mounts::document(runner) {
                    listed["mounts"] = mounts;
                }
                listed
            })
            .collect();
        let mut document = Map::new();
        document.insert("languages".into(), Value::Array(languages));
        Ok(Outcome { document, ..Outcome::default() })
    }
}
