//! Models: services of egress whose answers are metered. Their keys are read as those of other services, and
//! no message must ever have a part of one.

use std::collections::BTreeMap;

use super::Checker;
use super::services::SERVICES;
use crate::config::error::ConfigError;
use crate::config::raw::{ModelTable, PriceTable};
use crate::config::types::AuthSettings;
use crate::egress::{
    BaseUrl, Dollars, ModelSettings, Price, Prices, Provider, ServiceHeader, ServiceSettings,
};
use crate::sign::DEFAULT_OWNER;

/// Prices of one model.
const PRICES: usize = 256;

/// The name of the model that a variable alone configures.
const BY_VARIABLE: &str = "anthropic";

impl Checker<'_> {
    /// Adds the models to the services.
    pub(super) fn models(
        &mut self,
        tables: BTreeMap<String, ModelTable>,
        auth: &AuthSettings,
        services: &mut Vec<ServiceSettings>,
    ) -> Result<(), ConfigError> {
        let is_named = |name: &str| tables.contains_key(name) || services.iter().any(|one| one.name == name);
        let by_variable = if is_named(BY_VARIABLE) { None } else { self.model_by_variable() };
        if services.len() + tables.len() > SERVICES {
            let problem = format!("and egress.services have more than {SERVICES} entries together");
            return Err(self.fail("models", problem));
        }
        for (name, table) in tables {
            let path = format!("models.{name}");
            self.service_name(&path, &name)?;
            if services.iter().any(|other| other.name == name) {
                return Err(self.fail(&path, "has the name of one of egress.services: choose another"));
            }
            services.push(self.model(&path, name, table, auth)?);
        }
        services.extend(by_variable);
        Ok(())
    }

    fn model(
        &mut self,
        path: &str,
        name: String,
        table: ModelTable,
        auth: &AuthSettings,
    ) -> Result<ServiceSettings, ConfigError> {
        let ModelTable { provider, url, key, headers, tenants, .. } = table;
        let is_provider_s_own = url.is_none();
        let url = BaseUrl::parse(url.as_deref().unwrap_or(provider.url()))
            .map_err(|problem| self.fail(&format!("{path}.url"), problem))?;
        let mut headers = self.headers(path, &headers)?;
        let usual = format!("env:{}", provider.variable());
        let key = match &key {
            Some(key) => Some(key.expose()).filter(|key| !key.is_empty()),
            None => (is_provider_s_own && headers.is_empty()).then_some(usual.as_str()),
        };
        if let Some(key) = key {
            let (name, before) = provider.key_header();
            if headers.iter().any(|header| header.name == name) {
                return Err(self.fail(&format!("{path}.key"), format!("is also set by headers.{name}")));
            }
            headers.push(self.header(&format!("{path}.key"), name, &format!("{before}{key}"))?);
        }
        self.warn_if_plain(path, &url, &headers);
        let tenants = tenants.unwrap_or_else(|| vec![DEFAULT_OWNER.to_owned()]);
        self.tenants(path, &tenants, auth)?;
        let per_day = self.dollars(&format!("{path}.tenant_usd_per_day"), table.tenant_usd_per_day)?;
        let model = ModelSettings {
            provider,
            prices: self.prices(path, table.prices)?,
            tenant_per_day: Some(per_day).filter(|dollars| *dollars > Dollars::ZERO),
            tenant_tokens_per_day: Some(table.tenant_tokens_per_day).filter(|tokens| *tokens > 0),
        };
        Ok(ServiceSettings { name, url, headers, tenants, model: Some(model) })
    }

    fn prices(&self, path: &str, tables: BTreeMap<String, PriceTable>) -> Result<Prices, ConfigError> {
        let key = format!("{path}.prices");
        if tables.len() > PRICES {
            let problem = format!("has {} entries, must have at most {PRICES}", tables.len());
            return Err(self.fail(&key, problem));
        }
        let price = |(name, table): (String, PriceTable)| {
            let PriceTable { input, output, cache_read, cache_write } = table;
            let of = |part: &str, dollars| self.dollars(&format!("{key}.{name}.{part}"), dollars);
            let price = Price {
                input: of("input", input)?,
                output: of("output", output)?,
                cache_read: of("cache_read", cache_read.unwrap_or(input))?,
                cache_write: of("cache_write", cache_write.unwrap_or(2.0 * input))?,
            };
            Ok((name, price))
        };
        let prices: Result<Vec<_>, ConfigError> = tables.into_iter().map(price).collect();
        Prices::new(prices?).map_err(|name| {
            self.fail(
                &key,
                format!("has {name:?}, takes the name of a model, or its beginning and a final *"),
            )
        })
    }

    fn dollars(&self, key: &str, amount: f64) -> Result<Dollars, ConfigError> {
        Dollars::of(amount).map_err(|problem| self.fail(key, problem))
    }

    /// Anthropic's models, if the environment has its key: the file need not name them. A value that cannot
    /// be a key is no reason not to start, since nobody has asked for a model.
    fn model_by_variable(&mut self) -> Option<ServiceSettings> {
        let provider = Provider::Anthropic;
        let variable = provider.variable();
        self.env.get(variable).filter(|key| !key.trim().is_empty())?;
        let header = |checker: &Self| -> Result<ServiceHeader, ConfigError> {
            let (name, before) = provider.key_header();
            checker.header("models.anthropic.key", name, &format!("{before}env:{variable}"))
        };
        let made = header(self).map_err(|error| error.to_string());
        let made = made.and_then(|header| Ok((header, BaseUrl::parse(provider.url())?)));
        match made {
            Ok((header, url)) => Some(ServiceSettings {
                name: BY_VARIABLE.to_owned(),
                url,
                headers: vec![header],
                tenants: vec![DEFAULT_OWNER.to_owned()],
                model: Some(ModelSettings {
                    provider,
                    prices: Prices::default(),
                    tenant_per_day: None,
                    tenant_tokens_per_day: None,
                }),
            }),
            Err(problem) => {
                self.warn(format!("{variable} is set, but gives no model: {problem}"));
                None
            }
        }
    }
}
