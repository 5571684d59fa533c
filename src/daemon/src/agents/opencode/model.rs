//! Which of a caller's models opencode uses, and that model's entry in its configuration.
//!
//! opencode names a model `PROVIDER/MODEL`, and so does a call: `anthropic/claude-opus-5`. What stands before
//! the first `/` is the name of one of the operator's models, if there is one of that name. A name without it
//! is one of `anthropic`, or else of the first.

use serde_json::{Value, json};

use crate::agents::request::PLACEHOLDER;
use crate::agents::{ModelService, TaskRequest, WireFormat};

/// The operator's model that a call uses which names none.
const USUAL: &str = "anthropic";
/// opencode's name of a provider that is none of those which it knows.
const UNKNOWN_PROVIDER: &str = "paddock";

/// The service that a task uses, and the model there, if it names one.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn choose(
    asked: Option<&str>,
    models: &[ModelService],
) -> Result<(ModelService, Option<String>), String> {
    let named = |name: &str| models.iter().find(|model| model.name == name);
    let by_prefix = asked.and_then(|asked| {
        let (service, model) = asked.split_once('/')?;
        Some((named(service)?, Some(model)))
    });
    let usual = named(USUAL).or_else(|| models.first()).map(|service| (service, asked));
    let (service, model) = by_prefix.or(usual).ok_or("the agent opencode has no model here")?;
    let Some(model) = model else {
        if knows(service) {
            return Ok((service.clone(), None));
        }
        let name = &service.name;
        return Err(format!(
            "`model` is missing: the agent opencode does not know which models {name} has; name one as \
             {name}/MODEL"
        ));
    };
    if model.is_empty() {
        return Err(format!("`model` names none of {}", service.name));
    }
    Ok((service.clone(), Some(model.to_owned())))
}

/// Whether opencode has a list of the models of this service.
fn knows(service: &ModelService) -> bool {
    provider_id(service) != UNKNOWN_PROVIDER
}

/// opencode's name of the provider of a service.
fn provider_id(service: &ModelService) -> &'static str {
    match service.format {
        WireFormat::Anthropic => "anthropic",
        WireFormat::OpenAi if service.name == "openai" => "openai",
        WireFormat::OpenAi => UNKNOWN_PROVIDER,
    }
}

/// The model as opencode names it.
pub(super) fn named(task: &TaskRequest) -> Option<String> {
    let id = provider_id(task.models.first()?);
    task.model.as_ref().map(|model| format!("{id}/{model}"))
}

/// The provider, by its name, for opencode's configuration.
pub(super) fn provider(task: &TaskRequest) -> Option<(&'static str, Value)> {
    let service = task.models.first()?;
    let id = provider_id(service);
    let mut provider = json!({
        "options": { "baseURL": format!("{}/v1", service.url()), "apiKey": PLACEHOLDER },
    });
    if id == UNKNOWN_PROVIDER {
        provider["npm"] = json!("@ai-sdk/openai-compatible");
        provider["name"] = json!(service.name);
    }
    if let Some(model) = &task.model {
        // A model that its list does not have would be refused.
        provider["models"] = json!({ model: {} });
    }
    Some((id, provider))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, format: WireFormat) -> ModelService {
        ModelService { name: name.to_owned(), format }
    }

    #[test]
    fn the_model_decides_the_service() {
        let anthropic = service("anthropic", WireFormat::Anthropic);
        let (local, openai) = (service("local", WireFormat::OpenAi), service("openai", WireFormat::OpenAi));
        let all = [local.clone(), anthropic.clone(), openai.clone()];
        for (asked, models, expected) in [
            (None, &all[..], (&anthropic, None)),
            (Some("claude-x"), &all, (&anthropic, Some("claude-x"))),
            (Some("anthropic/claude-x"), &all, (&anthropic, Some("claude-x"))),
            (Some("openai/gpt-9"), &all, (&openai, Some("gpt-9"))),
            (Some("local/qwen/q:7b"), &all, (&local, Some("qwen/q:7b"))),
            (Some("qwen/q:7b"), &all[..1], (&local, Some("qwen/q:7b"))),
            (None, &all[2..], (&openai, None)),
        ] {
            let (service, model) = choose(asked, models).unwrap();
            assert_eq!((&service, model.as_deref()), expected, "{asked:?}");
        }
        for (asked, models, said) in [
            (None, &all[..1], "name one as local/MODEL"),
            (Some("local/"), &all, "names none of local"),
            (Some("x"), &[], "has no model"),
        ] {
            assert!(choose(asked, models).unwrap_err().contains(said), "{asked:?}");
        }
    }
}
