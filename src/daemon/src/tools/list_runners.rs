//! `list_runners`: which languages there are, and the images that run them.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::fault::Failure;
use super::{Outcome, Tools, arguments};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {}

pub(super) fn call(tools: &Tools, given: Map<String, Value>) -> Result<Outcome, Failure> {
    let Arguments {} = arguments::read("list_runners", given)?;
    let runners = tools.pool.runners();
    let languages: Vec<Value> = runners
        .values()
        .map(|(_, runner)| {
            let libraries: Vec<&str> =
                runner.libraries.split(',').map(str::trim).filter(|library| !library.is_empty()).collect();
            json!({ "language": runner.language, "image": runner.image, "libraries": libraries })
        })
        .collect();
    let mut document = Map::new();
    document.insert("languages".into(), Value::Array(languages));
    Ok(Outcome { document, ..Outcome::default() })
}
