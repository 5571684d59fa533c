//! Checks where the daemon tells what it does: `[log]`, `[telemetry]` and `[audit]`.

use url::Url;

use super::{Checker, MIB, TIB};
use crate::config::error::ConfigError;
use crate::config::raw::{AuditTable, LogTable, TelemetryTable};
use crate::config::types::{AuditSettings, LogSettings, TelemetrySettings};
use crate::config::value::Size;

impl Checker<'_> {
    pub(super) fn log(&self, LogTable { level, format, file }: LogTable) -> Result<LogSettings, ConfigError> {
        let parsed = level.parse();
        let level = parsed.map_err(|()| {
            self.fail("log.level", format!("is {level:?}, takes error, warn, info, debug or trace"))
        })?;
        let file = if file.is_empty() { None } else { Some(self.absolute("log.file", &file)?) };
        Ok(LogSettings { level, format, file })
    }

    pub(super) fn telemetry(
        &self,
        TelemetryTable { otlp_endpoint }: TelemetryTable,
    ) -> Result<TelemetrySettings, ConfigError> {
        if otlp_endpoint.is_empty() {
            return Ok(TelemetrySettings::default());
        }
        let url = Url::parse(&otlp_endpoint).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.host_str().is_some_and(|host| !host.is_empty())
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
        });
        // A text with a user may have a password.
        let shown =
            if otlp_endpoint.contains('@') { String::new() } else { format!("is {otlp_endpoint:?}, ") };
        let wrong = || {
            let problem = "takes an http or https URL without a user, a query or a fragment, to which \
                           /v1/traces is added, such as \"http://127.0.0.1:4318\"";
            self.fail("telemetry.otlp_endpoint", format!("{shown}{problem}"))
        };
        Ok(TelemetrySettings { otlp_endpoint: Some(url.ok_or_else(wrong)?.to_string()) })
    }

    pub(super) fn audit(
        &self,
        AuditTable { file, required, rotate }: AuditTable,
    ) -> Result<AuditSettings, ConfigError> {
        if required && file.is_empty() {
            return Err(
                self.fail("audit.required", "is true, and there is no audit log: name its audit.file")
            );
        }
        let file = if file.is_empty() { None } else { Some(self.absolute("audit.file", &file)?) };
        let rotate = match rotate {
            Size(0) => None,
            some => Some(self.size("audit.rotate", some, MIB..=TIB)?),
        };
        Ok(AuditSettings { file, required, rotate })
    }
}
