//! Models: which keys and addresses they get without being told, and what is refused.

use super::{config, error, warnings};
use crate::egress::{Dollars, HeaderSource, Provider, SecretText, ServiceSettings};

const ANTHROPIC: (&str, &str) = ("ANTHROPIC_API_KEY", "sk-ant-0123456789");

fn models(text: &str, env: &[(&str, &str)]) -> Vec<ServiceSettings> {
    config(text, env).egress.services
}

/// The headers of a service: each name, and what stands before its value.
fn headers(service: &ServiceSettings) -> Vec<(&str, &str)> {
    service.headers.iter().map(|header| (header.name.as_str(), header.before.as_str())).collect()
}

#[test]
fn the_variable_alone_gives_anthropics_models_to_the_default_caller() {
    let all = models("", &[ANTHROPIC]);
    assert_eq!(
        (all.len(), all[0].name.as_str(), all[0].tenants.as_slice()),
        (1, "anthropic", &["default".to_owned()][..])
    );
    assert_eq!((all[0].url.authority(), headers(&all[0])), ("api.anthropic.com", vec![("x-api-key", "")]));
    let key = SecretText::new(ANTHROPIC.1).expect("a key");
    assert_eq!(all[0].headers[0].source, HeaderSource::Variable(key));
    assert!(models("", &[]).is_empty() && models("", &[("ANTHROPIC_API_KEY", " ")]).is_empty());
    // Nobody asked for a model: a bad value is no reason not to start.
    let told = warnings("", &[("ANTHROPIC_API_KEY", "tiny-1")]);
    assert!(
        told.iter().any(|warning| warning.contains("gives no model") && !warning.contains("tiny-1")),
        "{told:?}"
    );
    // The file names it: nothing is added, and it keeps its key.
    let all =
        models("models.anthropic.provider = 'anthropic'\nmodels.anthropic.tenants = ['*']", &[ANTHROPIC]);
    assert_eq!((all.len(), all[0].tenants.as_slice()), (1, &["*".to_owned()][..]));
    assert_eq!(headers(&all[0]), [("x-api-key", "")]);
}

#[test]
fn a_model_has_the_key_of_its_provider_and_one_of_another_url_has_none() {
    let env = [ANTHROPIC, ("OPENAI_API_KEY", "sk-0123456789"), ("OAUTH", "sk-ant-oat01-0123456789")];
    let text = "
        [models.gpt]
        provider = 'openai'
        [models.local]
        provider = 'openai'
        url = 'http://127.0.0.1:11434'
        [models.anthropic]
        provider = 'anthropic'
        headers = { Authorization = 'Bearer env:OAUTH' }
        tenant_usd_per_day = 2.5
        tenant_tokens_per_day = 1000
        prices = { 'claude-*' = { input = 3, output = 15 } }";
    let all = models(text, &env);
    let shown: Vec<_> =
        all.iter().map(|one| (one.name.as_str(), one.url.authority(), headers(one))).collect();
    let expected = [
        ("anthropic", "api.anthropic.com", vec![("authorization", "Bearer ")]),
        ("gpt", "api.openai.com", vec![("authorization", "Bearer ")]),
        ("local", "127.0.0.1:11434", vec![]),
    ];
    assert_eq!(shown, expected);
    let model = all[0].model.as_ref().expect("a model");
    assert_eq!((model.provider, model.tenant_per_day), (Provider::Anthropic, Dollars::of(2.5).ok()));
    assert_eq!(model.tenant_tokens_per_day, Some(1000));
    let local = all[2].model.as_ref().expect("a model");
    assert_eq!((local.tenant_per_day, local.tenant_tokens_per_day), (None, None));
}

#[test]
fn what_cannot_be_a_model_is_refused_with_its_key() {
    for (text, wanted) in [
        ("models.a.provider = 'google'", "models.a.provider"),
        ("models.a.url = 'https://a.example'", "models.a: missing field"),
        ("models.A.provider = 'openai'", "models.A: is \"A\", takes a label"),
        ("models.a.provider = 'openai'", "models.a.key: takes the value of the variable \"OPENAI_API_KEY\""),
        (
            "models.a = { provider = 'openai', key = 'sk-in-the-file-1' }",
            "models.a.key: has a text as its value",
        ),
        ("models.a = { provider = 'openai', url = 'ftp://a' }", "models.a.url: is \"ftp://a\""),
        ("models.a = { provider = 'openai', url = 'http://a', tenants = ['bob'] }", "models.a.tenants[0]"),
        (
            "models.a = { provider = 'openai', url = 'http://a', tenant_usd_per_day = -1 }",
            "models.a.tenant_usd_per_day: is -1, takes a number of dollars from 0",
        ),
        (
            "models.a = { provider = 'openai', url = 'http://a', \
             prices = { 'a*b' = { input = 1, output = 1 } } }",
            "models.a.prices: has \"a*b\"",
        ),
        (
            "models.a = { provider = 'openai', url = 'http://a', \
             prices = { b = { input = inf, output = 1 } } }",
            "models.a.prices.b.input: is inf",
        ),
        (
            "models.a = { provider = 'openai', url = 'http://a' }\n\
             [[egress.services]]\nname = 'a'\nurl = 'http://b'",
            "models.a: has the name of one of egress.services",
        ),
        (
            "models.a = { provider = 'anthropic', key = 'env:ANTHROPIC_API_KEY', \
             headers = { x-api-key = 'env:ANTHROPIC_API_KEY' } }",
            "models.a.key: is also set by headers.x-api-key",
        ),
    ] {
        let told = error(text, &[ANTHROPIC]).replace(" (/etc/paddock.toml)", "");
        assert!(told.contains(wanted) && !told.contains("sk-"), "{text}: {told}");
    }
}
