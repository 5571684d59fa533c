//! Which agent a call means, and the models that it reaches.
//!
//! An agent is one that has an image on the engine. It must never reach a model that its caller may not use.

use crate::agents::{
    Agent, CLAUDE_CODE, ModelService, OPENCODE, OtherAgent, TaskRequest, WireFormat, choose_model_of_opencode,
};
use crate::pool::{Runner, Runners};
use crate::tools::{Code, Fault};

/// The model that Claude Code reaches.
const MODEL_OF_CLAUDE: &str = "anthropic";

/// The names of the agents that have an image, in alphabetical order.
pub(in crate::tools) fn agents_of(runners: &Runners) -> Vec<&str> {
    let agents = runners.iter().filter(|(_, (_, runner))| runner.coding_agent);
    agents.map(|(name, _)| name.as_str()).collect()
}

/// The agent of a call that names none: the operator's choice, or else the first that there is.
pub(super) fn usual_agent<'a>(chosen: &'a str, there: &[&'a str]) -> &'a str {
    if there.contains(&chosen) { chosen } else { there.first().copied().unwrap_or(chosen) }
}

/// The agent that an image is.
fn agent_of(runner: &Runner) -> Agent {
    match runner.language.as_str() {
        CLAUDE_CODE => Agent::ClaudeCode,
        OPENCODE => Agent::Opencode,
        name => Agent::Other(OtherAgent {
            name: name.to_owned(),
            argv: runner.argv.clone(),
            programs: runner.agent_labels.programs.clone(),
            models: runner.agent_labels.models.clone(),
        }),
    }
}

/// The agent of this name, or the usual one.
pub(super) fn agent(asked: Option<&str>, chosen: &str, runners: &Runners) -> Result<Agent, Fault> {
    let there = agents_of(runners);
    let name = asked.unwrap_or_else(|| usual_agent(chosen, &there));
    if let Some((_, runner)) = runners.get(name).filter(|(_, runner)| runner.coding_agent) {
        return Ok(agent_of(runner));
    }
    if [CLAUDE_CODE, OPENCODE].contains(&name) {
        let message = format!(
            "this server has no image of the agent {name}; its operator builds one with `deploy/images \
             agents`, or names one as runners.{name}"
        );
        return Err(Fault::new(Code::UnknownLanguage, message));
    }
    let shown: String = name.chars().take(40).collect();
    Err(Fault::new(Code::InvalidArgument, format!("`agent` is {shown:?}; there are: {}", there.join(", "))))
}

/// Chooses what the task reaches of these models, and the model's name there.
pub(super) fn give_models(task: &mut TaskRequest, all: Vec<ModelService>) -> Result<(), Fault> {
    task.models = match &task.agent {
        Agent::ClaudeCode => {
            vec![ModelService { name: MODEL_OF_CLAUDE.to_owned(), format: WireFormat::Anthropic }]
        }
        Agent::Opencode if all.is_empty() => return Err(no_model(OPENCODE, MODEL_OF_CLAUDE)),
        Agent::Opencode => {
            let (service, model) = choose_model_of_opencode(task.model.as_deref(), &all)
                .map_err(|problem| Fault::new(Code::InvalidArgument, problem))?;
            task.model = model;
            vec![service]
        }
        Agent::Other(other) if other.models.iter().any(|name| name == "*") => all,
        Agent::Other(other) => {
            let named = |name: &String| {
                let found = all.iter().find(|model| model.name == *name).cloned();
                found.ok_or_else(|| no_model(&other.name, name))
            };
            other.models.iter().map(named).collect::<Result<_, _>>()?
        }
    };
    Ok(())
}

/// The agent lacks a model that this server does not have for its caller.
pub(super) fn no_model(agent: &str, service: &str) -> Fault {
    let message = format!(
        "the agent {agent} has no model: this server has no service {service} for this caller; its operator \
         configures one (models.{service})"
    );
    Fault::new(Code::NetworkUnavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::Level;

    #[test]
    fn an_agent_is_one_that_has_an_image() {
        let runners = crate::tools::registry::tests::runners_with_agents(&["claude-code", "example"]);
        let named = |name| agent(name, CLAUDE_CODE, &runners).map(|agent| agent.name().to_owned());
        assert_eq!(named(None), Ok("claude-code".to_owned()));
        assert_eq!(named(Some("example")), Ok("example".to_owned()));
        assert_eq!(agent(None, "example", &runners).unwrap().name(), "example");
        assert!(named(Some("opencode")).is_err_and(|fault| fault.message.contains("runners.opencode")));
        for name in ["aider", "python"] {
            let refused = named(Some(name)).unwrap_err().message;
            assert!(refused.ends_with("there are: claude-code, example"), "{refused}");
        }
        let runners = crate::tools::registry::tests::runners_with_agents(&["example"]);
        assert_eq!(agent(None, CLAUDE_CODE, &runners).unwrap().name(), "example");
        assert!(
            agent(None, CLAUDE_CODE, &Runners::new())
                .is_err_and(|fault| fault.message.contains("claude-code"))
        );
    }

    #[test]
    fn an_agent_gets_the_models_that_it_needs_and_no_others() {
        let service = |name: &str, format| ModelService { name: name.to_owned(), format };
        let anthropic = || service("anthropic", WireFormat::Anthropic);
        let local = || service("local", WireFormat::OpenAi);
        let other = |models: &[&str]| {
            Agent::Other(OtherAgent {
                name: "example".to_owned(),
                argv: vec!["/agent".to_owned()],
                programs: Vec::new(),
                models: models.iter().map(|name| (*name).to_owned()).collect(),
            })
        };
        let given = |agent: Agent, model: Option<&str>, all: &[ModelService]| {
            let mut task = TaskRequest {
                agent,
                description: "x".to_owned(),
                level: Level::Files,
                model: model.map(str::to_owned),
                max_turns: None,
                max_budget_usd: None,
                resume: None,
                directory: "/workspace".to_owned(),
                models: Vec::new(),
                nonce: String::new(),
            };
            give_models(&mut task, all.to_vec()).map_err(|fault| (fault.code, fault.message))?;
            Ok((task.models, task.model))
        };
        let both = [anthropic(), local()];
        assert_eq!(given(Agent::ClaudeCode, Some("m"), &both), Ok((vec![anthropic()], Some("m".into()))));
        assert_eq!(given(Agent::Opencode, Some("local/m"), &both), Ok((vec![local()], Some("m".into()))));
        assert_eq!(given(other(&["*"]), None, &both), Ok((both.to_vec(), None)));
        assert_eq!(given(other(&["local"]), None, &both), Ok((vec![local()], None)));
        assert_eq!(given(other(&[]), None, &both), Ok((Vec::new(), None)));
        for (agent, all, code, said) in [
            (Agent::Opencode, &[][..], Code::NetworkUnavailable, "models.anthropic"),
            (Agent::Opencode, &both[1..], Code::InvalidArgument, "local/MODEL"),
            (other(&["anthropic"]), &both[1..], Code::NetworkUnavailable, "models.anthropic"),
        ] {
            let (refused, message) = given(agent, None, all).unwrap_err();
            assert!(refused == code && message.contains(said), "{message}");
        }
    }
}
