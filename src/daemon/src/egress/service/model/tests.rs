//! Which requests are sent to a model, and what their answers are charged.

use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};

use super::*;

fn dollars(amount: f64) -> Dollars {
    Dollars::of(amount).expect("an amount")
}

fn model(provider: Provider, tenant_per_day: Option<f64>) -> Model {
    bounded(provider, tenant_per_day, None)
}

fn bounded(provider: Provider, dollars_per_day: Option<f64>, tenant_tokens_per_day: Option<u64>) -> Model {
    let price = Price {
        input: dollars(1.0),
        output: dollars(10.0),
        cache_read: dollars(0.1),
        cache_write: dollars(2.0),
    };
    let prices = Prices::new([("priced-*".to_owned(), price)]).expect("a name");
    let tenant_per_day = dollars_per_day.map(dollars);
    Model::new("m", &ModelSettings { provider, prices, tenant_per_day, tenant_tokens_per_day })
}

/// A run, and what it shares with others.
struct World {
    models: Models,
    account: Arc<ModelAccount>,
    tenant: Arc<str>,
    metrics: Metrics,
    budget: Option<Dollars>,
    requests: Option<u64>,
}

impl World {
    fn new(budget: Option<f64>) -> Self {
        Self {
            models: Models::default(),
            account: Arc::default(),
            tenant: "ann".into(),
            metrics: Metrics::default(),
            budget: budget.map(dollars),
            requests: None,
        }
    }

    async fn ask(&self, model: &Model, path: &str, body: &str) -> Result<Option<Bill>, ModelRefusal> {
        let request = Request::post(path).body(()).expect("a request").into_parts().0;
        let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
        let asking = Asking {
            account: &self.account,
            tenant: &self.tenant,
            budget: self.budget,
            tenant_budget: None,
            requests: self.requests,
            part: None,
            metrics: &self.metrics,
        };
        match model.admit(&self.models, &request, body, &asking).await? {
            Admitted::Free(_) => Ok(None),
            Admitted::Metered(held, bill) => {
                assert!(held.len() > 0);
                Ok(Some(bill))
            }
        }
    }

    /// The code and the message of a refusal.
    async fn refused(&self, model: &Model, path: &str, body: &str) -> (u16, &'static str, String) {
        let refusal = self.ask(model, path, body).await.err().expect("a refusal");
        (refusal.status.as_u16(), refusal.code, refusal.message)
    }
}

/// Passes an answer through its meter.
async fn answer(bill: Bill, status: u16, body: &str) {
    let answer = Response::builder().status(status).header("content-type", "application/json");
    let (parts, body) = answer.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap().into_parts();
    let metered = MeteredBody::new(body, bill.answered(&parts));
    let passed: Result<_, Infallible> = metered.collect().await;
    passed.expect("a body");
}

const PRICED: &str = r#"{"model":"priced-1","max_tokens":100}"#;
/// A million tokens of input: one dollar.
const MILLION: &str = r#"{"model":"priced-1","usage":{"input_tokens":1000000,"output_tokens":0}}"#;

#[tokio::test]
async fn the_budget_of_a_run_ends_its_requests_and_says_so() {
    let (world, model) = (World::new(Some(1.5)), model(Provider::Anthropic, None));
    for _ in 0..2 {
        let bill = world.ask(&model, "/v1/messages", PRICED).await.expect("within the budget");
        answer(bill.expect("metered"), 200, MILLION).await;
    }
    let expected = "the budget of this run for models, 1.5 dollars, is used up: it has spent 2 dollars";
    let refused = world.refused(&model, "/v1/messages", PRICED).await;
    assert_eq!(refused, (402, "budget_used_up", expected.to_owned()));
    assert!(world.ask(&model, "/v1/messages/count_tokens", "{}").await.is_ok(), "it is free");
    let used = world.account.used();
    assert_eq!((used.requests, used.input_tokens, used.cost_usd), (2, 2_000_000, dollars(2.0)));
}

#[tokio::test]
async fn a_run_sends_as_many_requests_as_it_may_and_errors_count() {
    let mut world = World::new(None);
    world.requests = Some(2);
    let model = model(Provider::OpenAi, None);
    for status in [500, 200] {
        let bill = world.ask(&model, "/v1/chat/completions", PRICED).await.expect("one of its requests");
        answer(bill.expect("metered"), status, MILLION).await;
    }
    let (status, code, message) = world.refused(&model, "/v1/chat/completions", PRICED).await;
    assert_eq!((status, code), (403, "turns_used_up"));
    assert!(message.contains("the turns of this task, 2, are used up"), "{message}");
}

#[tokio::test]
async fn the_budget_of_a_tenant_is_of_all_its_runs_and_of_no_other_tenant() {
    let (world, model) = (World::new(None), model(Provider::Anthropic, Some(1.0)));
    let bill = world.ask(&model, "/v1/messages", PRICED).await.expect("within the budget");
    answer(bill.expect("metered"), 200, MILLION).await;
    let next = World { account: Arc::default(), ..world };
    let (status, code, message) = next.refused(&model, "/v1/messages", PRICED).await;
    assert_eq!((status, code), (402, "budget_used_up"));
    assert!(message.contains("1 dollars a day, is used up: 1 dollars were spent"), "{message}");
    let other = World { tenant: "bob".into(), ..next };
    assert!(other.ask(&model, "/v1/messages", PRICED).await.is_ok());
}

#[tokio::test]
async fn tokens_of_a_tenant_are_bounded_without_a_price_too() {
    let (world, model) = (World::new(None), bounded(Provider::OpenAi, None, Some(1000)));
    let unpriced = r#"{"model":"other"}"#;
    let used = r#"{"model":"other","usage":{"prompt_tokens":900,"completion_tokens":100,
        "prompt_tokens_details":{"cached_tokens":800}}}"#;
    let bill = world.ask(&model, "/v1/chat/completions", unpriced).await.expect("within the budget");
    answer(bill.expect("metered"), 200, used).await;
    let (status, code, message) = world.refused(&model, "/v1/chat/completions", unpriced).await;
    assert_eq!((status, code), (402, "budget_used_up"));
    assert!(message.contains("1000 tokens a day, is used up: 1000 tokens were spent"), "{message}");
    let other = World { tenant: "bob".into(), ..world };
    assert!(other.ask(&model, "/v1/chat/completions", unpriced).await.is_ok());
}

#[tokio::test]
async fn a_model_without_a_price_is_refused_within_a_budget_only() {
    let unpriced = r#"{"model":"other"}"#;
    for (budget, per_day) in [(Some(1.0), None), (None, Some(1.0))] {
        let (world, model) = (World::new(budget), model(Provider::Anthropic, per_day));
        for body in [unpriced, "{}", r#"{"model":null}"#] {
            let (status, code, message) = world.refused(&model, "/v1/messages", body).await;
            assert_eq!((status, code), (400, "unpriced_model"), "{body}");
            assert!(message.ends_with("models with a price: priced-*"), "{message}");
        }
    }
    let (world, model) = (World::new(None), model(Provider::Anthropic, None));
    let bill = world.ask(&model, "/v1/messages", unpriced).await.expect("there is no budget");
    answer(bill.expect("metered"), 200, r#"{"model":"other","usage":{"input_tokens":5}}"#).await;
    let used = world.account.used();
    assert_eq!((used.input_tokens, used.cost_usd, used.unpriced_requests), (5, Dollars::ZERO, 1));
}

#[tokio::test]
async fn a_request_that_two_readers_could_understand_differently_is_refused() {
    let (world, model) = (World::new(None), model(Provider::OpenAi, None));
    for (body, code, wanted) in [
        ("", "bad_request", "the body is not a request"),
        ("[]]", "bad_request", "the body is not a request"),
        (r#"{"model":"priced-1","model":"dear"}"#, "bad_request", "duplicate field `model`"),
        (r#"{"model":"priced-1","\u006dodel":"dear"}"#, "bad_request", "duplicate field `model`"),
        (r#"{"model":7}"#, "bad_request", "invalid type"),
        (r#"{"model":"priced-1"} {"model":"dear"}"#, "bad_request", "trailing characters"),
        (r#"{"model":"priced-1","background":true}"#, "not_metered", "nobody would count"),
    ] {
        let refused = world.refused(&model, "/v1/responses", body).await;
        assert_eq!((refused.0, refused.1), (400, code), "{body}");
        assert!(refused.2.contains(wanted), "{}", refused.2);
    }
    let refused = world.refused(&model, "/v1/batches", PRICED).await;
    assert_eq!((refused.0, refused.1), (404, "not_metered"));
    assert!(refused.2.contains("passes only POST /v1/chat/completions"), "{}", refused.2);
    assert_eq!(world.account.used(), ModelUsage::default());
}

#[tokio::test]
async fn an_error_costs_nothing_and_what_is_given_up_or_unclear_costs_its_estimate() {
    let (world, model) = (World::new(None), model(Provider::Anthropic, None));
    let bill = async || world.ask(&model, "/v1/messages", PRICED).await.expect("admitted").expect("metered");
    answer(bill().await, 429, MILLION).await;
    bill().await.failed();
    assert_eq!((world.account.used().requests, world.account.used().cost_usd), (2, Dollars::ZERO));
    drop(bill().await);
    let used = world.account.used();
    let input = u64::try_from(PRICED.len().div_ceil(2)).unwrap();
    assert_eq!((used.input_tokens, used.output_tokens), (input, 100), "a request that was given up");
    answer(bill().await, 200, "<html>").await;
    assert_eq!(world.account.used().input_tokens, 2 * input);
    let text = world.metrics.text(&crate::metrics::DaemonState::default());
    for (outcome, count) in [("error", 1), ("failed", 1), ("estimated", 2)] {
        let line = format!("paddock_model_requests_total{{model=\"m\",outcome=\"{outcome}\"}} {count}");
        assert!(text.contains(&line), "{line}: {text}");
    }
}
