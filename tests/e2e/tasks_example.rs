//! Tasks of a stranger's agent, by the documented contract: `runner-images/example-agent`, with a model that
//! answers by a script. Nothing is sent to another machine.

use serde_json::{Value, json};

use crate::model::Model;
use crate::support::{Daemon, Image, Setup};
use crate::task_world::{KEY, denied, events, expect_status, models, task};

/// The image of the example. Its base is that of the agents' images, which has Python; without the label
/// that makes it a runner, other tests do not see it.
fn image() -> Image {
    let dockerfile = include_str!("../../runner-images/example-agent/Dockerfile")
        .replace("python:3-slim", "paddock-agents-base")
        .replace("sandbox.runner=true ", "");
    Image::build(&dockerfile, &[("agent.py", include_str!("../../runner-images/example-agent/agent.py"))])
}

fn daemon(image: &Image, model: &Model) -> Setup {
    models(Daemon::with(), model).set("runners.example", image.name())
}

fn tool(name: &str, input: Value) -> Value {
    json!({ "tools": [{ "name": name, "input": input }] })
}

#[tokio::test]
async fn an_agent_of_a_stranger_does_a_task_at_a_level_and_goes_on_with_the_next() {
    let (image, mut model) = (image(), Model::start().await);
    let d = daemon(&image, &model).start().await;
    let write = tool("write_file", json!({ "path": "sum.sh", "content": "echo $((1 + 2)) > sum.txt\n" }));
    let run = || tool("run_command", json!({ "command": "sh sum.sh; env" }));
    let turns = json!([write, run(), { "text": "The sum is in sum.txt." }]);
    model.says(turns.clone()).await;
    let of_example = |level: u64| json!({ "agent": "example", "yolo_level": level });
    let ran = task(&d, "s", of_example(3)).await;
    expect_status(&ran, "completed");
    let document = &ran.document;
    assert_eq!(document["output"], "The sum is in sum.txt.");
    assert_eq!(document["files_created"], json!(["sum.sh", "sum.txt"]), "{document}");
    assert_eq!((denied(&ran), &document["turns"]), (vec![], &json!(3)));
    assert_eq!(document["agent"], "example");
    assert_eq!((&document["tokens"]["input"], &document["cost_usd"]), (&json!(30), &json!(0.03)));
    let events = events(&d, document["execution_id"].as_str().expect("an id")).await;
    let told = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((told("message"), told("tool"), told("result")), (1, 2, 1), "{events:?}");

    // The key is with the model and nowhere else.
    let seen = model.seen().await;
    assert!(seen.iter().all(|request| request["headers"]["x-api-key"] == KEY), "{seen:?}");
    let bodies: Vec<_> = seen.iter().map(|request| &request["body"]).collect();
    assert!(json!(bodies).to_string().contains("ANTHROPIC_API_KEY=held-by-the-daemon"));
    for text in [json!(bodies).to_string(), json!(events).to_string(), document.to_string()] {
        assert!(!text.contains(KEY), "{text}");
    }

    // Below level 3 it runs nothing, and says so. It goes on with what it kept.
    model.says(json!([run(), { "text": "no" }])).await;
    let ran = task(&d, "s", of_example(1)).await;
    expect_status(&ran, "completed");
    assert_eq!(denied(&ran), ["run_command: runs sh sum.sh; env"]);
    let body = model.seen().await.last().expect("a request")["body"].to_string();
    assert!(body.contains("The sum is in sum.txt.") && body.contains("does not have this tool"), "{body}");

    // Its turns are counted outside of it.
    model.says(turns).await;
    let ran = task(&d, "t", json!({ "agent": "example", "max_turns": 1 })).await;
    expect_status(&ran, "failed");
    assert!(ran.text("error").contains("the turns of this task, 1, are used up"), "{}", ran.document);
    assert_eq!(ran.document["files_created"], json!(["sum.sh"]), "{}", ran.document);

    // It is an agent and no language, and is named where there is none of a name.
    let listed = d.tool("list_runners", json!({})).await.document;
    let languages = listed["languages"].as_array().expect("languages").iter();
    let languages: Vec<_> = languages.filter_map(|one| one["language"].as_str()).collect();
    assert!(!languages.contains(&"example") && languages.contains(&"python"), "{listed}");
    let refused = task(&d, "s", json!({ "agent": "aider" })).await.expect_error("invalid_argument");
    assert!(refused.text("message").contains("there are: claude-code, example"), "{}", refused.document);
    d.stop().await;

    // Without a model it says itself what it lacks.
    let d = Daemon::with().with_tasks().set("runners.example", image.name()).start().await;
    let ran = task(&d, "s", of_example(3)).await;
    expect_status(&ran, "failed");
    assert!(ran.text("error").contains("there is none"), "{}", ran.document);
    d.stop().await;
}
