//! The expressions of the dashboard's file, with its variables filled in as Grafana does it.

use serde_json::Value;

use super::prometheus::{encoded, read};

/// The job name of the example scrape configuration.
const JOB: &str = "paddock";

/// The dashboard, as people import it.
pub(super) struct Dashboard(String, Value);

impl Dashboard {
    pub(super) fn read() -> Dashboard {
        let text = read("deploy/grafana/dashboards/paddock.json");
        let document = serde_json::from_str(&text).expect("JSON");
        Dashboard(text, document)
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// A variable.
    pub(super) fn variable(&self, name: &str) -> &Value {
        let mut list = self.1["templating"]["list"].as_array().expect("variables").iter();
        list.find(|variable| variable["name"] == name).unwrap_or_else(|| panic!("no variable {name}"))
    }

    /// All panels, with rows.
    pub(super) fn panels(&self) -> &[Value] {
        self.1["panels"].as_array().expect("panels")
    }

    /// Each expression with the name of its panel.
    pub(super) fn expressions(&self, instance: &str) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for panel in self.panels().iter().filter(|panel| panel["type"] != "row") {
            let title = format!("the panel {}", panel["title"]);
            let targets = panel["targets"].as_array().filter(|targets| !targets.is_empty());
            for target in targets.unwrap_or_else(|| panic!("{title} asks for nothing")) {
                let expr = target["expr"].as_str().unwrap_or_else(|| panic!("{title}: no expr"));
                all.push((title.clone(), self.filled(expr, instance)));
            }
        }
        all
    }

    /// The name of each variable with a query, and the API path that answers it.
    pub(super) fn variables(&self, instance: &str) -> Vec<(String, String)> {
        let list = self.1["templating"]["list"].as_array().expect("variables");
        let asked = list.iter().filter(|variable| variable["type"] == "query");
        let asked = asked.map(|variable| {
            let query = variable["query"]["query"].as_str().expect("a query");
            let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (expr, label) = inner.and_then(|inner| inner.rsplit_once(", ")).expect("label_values(…, …)");
            let path = format!("label/{label}/values?match[]={}", encoded(&self.filled(expr, instance)));
            (variable["name"].to_string(), path)
        });
        asked.collect()
    }

    /// Fills in the variables: this instance, and All for the others. For All, Grafana uses a variable's
    /// allValue, or else every value that it found.
    fn filled(&self, expr: &str, instance: &str) -> String {
        let mut filled = expr.replace("$__rate_interval", "1m").replace("$instance", instance);
        for variable in self.1["templating"]["list"].as_array().expect("variables") {
            let name = variable["name"].as_str().expect("a name");
            filled = filled.replace(&format!("${name}"), variable["allValue"].as_str().unwrap_or(JOB));
        }
        assert!(!filled.contains('$'), "a variable that there is none of: {filled}");
        filled
    }
}

/// The words of an expression that can be names.
pub(super) fn words(expr: &str) -> impl Iterator<Item = &str> {
    expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':')
        .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()))
}
