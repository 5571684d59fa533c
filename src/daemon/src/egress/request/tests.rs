use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::*;

fn read(value: Value) -> Result<NetworkArgument, String> {
    serde_path_to_error::deserialize(value).map_err(|error| error.to_string())
}

#[test]
fn both_forms_are_read_and_an_empty_one_is_no_network() {
    let lists = |allowed: &[&str], denied: &[&str], services: &[&str]| {
        let owned = |list: &[&str]| list.iter().copied().map(str::to_owned).collect::<Vec<_>>();
        Some(NetworkRequest {
            allowed_domains: owned(allowed),
            denied_domains: owned(denied),
            services: owned(services),
            ..NetworkRequest::default()
        })
    };
    for (value, request) in [
        (json!(true), Some(NetworkRequest::open())),
        (json!(false), None),
        (json!({}), None),
        (json!({ "allowed_domains": [] }), None),
        (json!({ "allowed_domains": null, "services": null }), None),
        (json!({ "denied_domains": ["a.com"] }), None),
        (json!({ "allowed_domains": ["a.com"] }), lists(&["a.com"], &[], &[])),
        (json!({ "allowedDomains": ["a.com"], "deniedDomains": ["b"] }), lists(&["a.com"], &["b"], &[])),
        (json!({ "services": ["git"] }), lists(&[], &[], &["git"])),
        (
            json!({ "services": ["m"], "maxCostUsd": 0.5 }),
            lists(&[], &[], &["m"])
                .map(|lists| NetworkRequest { max_cost_usd: Dollars::of(0.5).ok(), ..lists }),
        ),
        // Whether an entry is a pattern is not looked at here: "" must not turn into no network.
        (json!({ "allowed_domains": [""] }), lists(&[""], &[], &[])),
    ] {
        assert_eq!(read(value.clone()).map(NetworkArgument::into_request), Ok(request), "{value}");
    }
}

#[test]
fn an_error_names_the_key_or_the_entry() {
    for (value, parts) in [
        (json!("true"), ["string \"true\"", "expected true, false, or an object with allowed_domains"]),
        (json!(1), ["integer `1`", "expected true, false, or an object"]),
        (json!(["a.com"]), ["sequence", "expected true, false, or an object"]),
        (json!({ "allow": ["a.com"] }), ["unknown field `allow`", "`allowed_domains`"]),
        (json!({ "everything": true }), ["unknown field `everything`", "`services`"]),
        (json!({ "allowed_domains": "a.com" }), ["allowed_domains", "expected a sequence"]),
        (json!({ "allowed_domains": ["a", 1] }), ["allowed_domains[1]", "expected a string"]),
        (json!({ "allowed_domains": [], "allowedDomains": [] }), ["duplicate field", "allowed_domains"]),
    ] {
        let error = read(value.clone()).expect_err("refused");
        assert!(parts.iter().all(|part| error.contains(part)), "{value}: {error}");
    }
}

#[test]
fn the_schema_has_both_forms() {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<NetworkArgument>();
    let forms = schema.as_value()["anyOf"].as_array().expect("forms").clone();
    assert_eq!(forms.len(), 2, "{schema:?}");
    assert_eq!(forms[0]["type"], "boolean");
    assert_eq!((&forms[1]["type"], &forms[1]["additionalProperties"]), (&json!("object"), &json!(false)));
    assert_eq!(forms[1].get("required"), None);
    for list in ["allowed_domains", "denied_domains"] {
        let property = &forms[1]["properties"][list];
        assert_eq!((&property["type"], &property["items"]["type"]), (&json!("array"), &json!("string")));
        assert!(property["description"].as_str().is_some_and(|text| !text.is_empty()), "{property}");
    }
}

#[test]
fn a_request_is_the_same_after_it_was_stored() {
    let request = NetworkRequest { allowed_domains: vec!["a".to_owned()], ..NetworkRequest::open() };
    let text = serde_json::to_string(&request).unwrap();
    assert_eq!(serde_json::from_str::<NetworkRequest>(&text).unwrap(), request);
    assert_eq!(serde_json::from_str::<NetworkRequest>("{}").unwrap(), NetworkRequest::default());
}
