//! The page's tab for coding agents, in a real browser: the real Claude Code in a container does what the
//! scenario's own model says. And the lines that the page gives people to connect their clients, used as they
//! stand.

use crate::clients::{NEWEST, Script};
use crate::model::Model;
use crate::support::{Daemon, PATIENCE, within};
use crate::task_world::daemon;

async fn plays(scenario: &str) {
    let model = Model::start().await;
    let d = daemon(&model).start().await;
    let url = format!("http://{}", d.addr);
    let mut script = Script::start(NEWEST, &["page.mjs", scenario, &url], &d, 0).with_model(model);
    within(PATIENCE * 4, scenario, script.follow(d, &[])).await.stop().await;
}

#[tokio::test]
async fn a_task_is_given_followed_and_gone_on_with() {
    plays("task").await;
}

#[tokio::test]
async fn a_task_is_found_again_after_a_reload_and_cancelled() {
    plays("taskAgain").await;
}

#[tokio::test]
async fn what_agents_say_and_change_is_text_only() {
    plays("taskHostile").await;
}

#[tokio::test]
async fn a_task_is_accessible_in_every_state() {
    plays("taskDesk").await;
}

#[tokio::test]
async fn an_agent_without_a_model_says_what_to_configure() {
    let d = Daemon::with().with_tasks().start().await;
    crate::page::plays_on(d, "taskNone", "", &[]).await;
}

#[tokio::test]
async fn clients_connect_by_the_lines_of_the_page() {
    crate::page::plays_on(Daemon::start().await, "connect", "", &[]).await;
}

#[tokio::test]
async fn clients_connect_by_the_lines_of_a_page_without_a_token() {
    crate::page::plays_on(Daemon::with().without_token().start().await, "connectOpen", "", &[]).await;
}
