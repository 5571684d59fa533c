//! JSON Schemas of arguments, derived from the types that the arguments are read into.
//!
//! What `schemars` says beyond what a caller needs is taken out: names of Rust's types, formats such as
//! `uint64`, `null` for an argument that can be left out, and empty lists as defaults. A schema must never
//! refuse what the type takes, but for `null`.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

/// The schema of a tool's arguments.
pub(super) struct InputSchema(Map<String, Value>);

/// The schema of a type. A field's description is its doc comment.
pub(super) fn of<T: JsonSchema>() -> InputSchema {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let generator = settings.with_transform(RecursiveTransform(simplify)).into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    let mut schema = std::mem::take(schema.ensure_object());
    // The tool has a description of its own.
    schema.shift_remove("description");
    schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    InputSchema(schema)
}

impl InputSchema {
    /// Sets a keyword of one argument, such as `maximum`.
    pub(super) fn set(&mut self, argument: &str, keyword: &str, value: impl Into<Value>) {
        let property = self.properties().and_then(|all| all.get_mut(argument)).and_then(Value::as_object_mut);
        if let Some(property) = property {
            property.insert(keyword.to_owned(), value.into());
        }
    }

    /// Leaves an argument out that is taken for compatibility and of no use otherwise.
    pub(super) fn hide(&mut self, argument: &str) {
        if let Some(properties) = self.properties() {
            properties.shift_remove(argument);
        }
    }

    pub(super) fn finish(self) -> Map<String, Value> {
        self.0
    }

    fn properties(&mut self) -> Option<&mut Map<String, Value>> {
        self.0.get_mut("properties").and_then(Value::as_object_mut)
    }
}

/// Takes out of one schema what a caller does not need.
fn simplify(schema: &mut Schema) {
    let Some(schema) = schema.as_object_mut() else { return };
    for keyword in ["title", "format"] {
        schema.shift_remove(keyword);
    }
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    if schema.get("default").is_some_and(is_empty) {
        schema.shift_remove("default");
    }
    // An argument that can be left out, of a type that has several forms.
    if let Some(Value::Array(forms)) = schema.get_mut("anyOf") {
        forms.retain(|form| form.get("type").is_none_or(|kind| kind != "null"));
        if let [Value::Object(only)] = forms.as_mut_slice() {
            let only = std::mem::take(only);
            schema.shift_remove("anyOf");
            for (keyword, value) in only {
                schema.entry(keyword).or_insert(value);
            }
        }
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    // A doc comment is broken into lines where the source's width ends.
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Example {
        /// The name,
        /// in two lines.
        #[schemars(length(min = 1))]
        name: String,
        #[serde(default)]
        flag: bool,
        #[serde(default)]
        list: Vec<Inner>,
        count: Option<u64>,
        #[serde(alias = "deepPart")]
        deep: Option<Inner>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Inner {
        /// A property may have the name of a keyword.
        title: f64,
    }

    #[test]
    fn a_schema_says_what_the_type_says_and_nothing_of_rust() {
        let inner = json!({
            "type": "object", "additionalProperties": false, "required": ["title"],
            "properties": { "title": {
                "type": "number", "description": "A property may have the name of a keyword.",
            } },
        });
        let mut schema = of::<Example>();
        schema.set("count", "maximum", 5);
        schema.set("nothing", "maximum", 5);
        let want = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["name"],
            "properties": {
                "name": { "type": "string", "minLength": 1, "description": "The name, in two lines." },
                "flag": { "type": "boolean", "default": false },
                "list": { "type": "array", "items": inner },
                "count": { "type": "integer", "minimum": 0, "maximum": 5 },
                "deep": inner,
            },
        });
        assert_eq!(Value::Object(schema.finish()), want);
        let mut hidden = of::<Example>();
        hidden.hide("deep");
        assert!(!hidden.finish()["properties"].as_object().unwrap().contains_key("deep"));
    }
}
