//! Tool sets: a client that wants to see fewer tools asks for some of them.
//!
//! It must never accept the name of a set that does not exist.

use crate::config::ToolSet;

/// Every set.
const ALL: [ToolSet; 3] = [ToolSet::Code, ToolSet::Exec, ToolSet::Task];

/// The name by which a client asks for it.
fn name(set: ToolSet) -> &'static str {
    match set {
        ToolSet::Code => "code",
        ToolSet::Exec => "exec",
        ToolSet::Task => "task",
    }
}

/// Some tool sets; all by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolSets([bool; ALL.len()]);

impl Default for ToolSets {
    fn default() -> Self {
        Self([true; ALL.len()])
    }
}

impl ToolSets {
    /// The sets that a daemon is configured to serve; an empty list means all.
    pub fn configured(named: &[ToolSet]) -> Self {
        if named.is_empty() { Self::default() } else { Self(ALL.map(|set| named.contains(&set))) }
    }

    /// Reads a list such as `code,exec`, whose sets must be among these.
    ///
    /// # Errors
    /// A sentence: a name is not one of these sets, or the list is empty.
    pub fn choose(self, text: &str) -> Result<Self, String> {
        let known = || {
            let served = ALL.into_iter().filter(|set| self.contains(*set));
            served.map(name).collect::<Vec<_>>().join(", ")
        };
        let mut sets = [false; ALL.len()];
        for asked in text.split(',').map(str::trim).filter(|asked| !asked.is_empty()) {
            let at = ALL.iter().position(|set| name(*set) == asked && self.contains(*set));
            let at = at.ok_or_else(|| {
                let shown: String = asked.chars().take(40).collect();
                format!("there is no tool set {shown:?}; there are: {}", known())
            })?;
            sets[at] = true;
        }
        if sets.contains(&true) {
            Ok(Self(sets))
        } else {
            Err(format!("no tool set is named; there are: {}", known()))
        }
    }

    /// Whether a set is one of these.
    pub fn contains(self, set: ToolSet) -> bool {
        ALL.iter().zip(self.0).any(|(one, has)| has && *one == set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_named_or_refused() {
        let all = ToolSets::configured(&[]);
        for text in ["code", " code ,", "code,code"] {
            let chosen = all.choose(text).unwrap();
            assert!(chosen.contains(ToolSet::Code) && !chosen.contains(ToolSet::Exec), "{text:?}");
        }
        assert_eq!(all.choose("exec,task,code"), Ok(all));
        for text in ["", ",", "Code", "code,files", "code exec"] {
            assert!(all.choose(text).unwrap_err().contains("there are: code, exec, task"), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_served_cannot_be_chosen() {
        assert_eq!(
            ToolSets::configured(&[ToolSet::Code]).choose("code"),
            Ok(ToolSets::configured(&[ToolSet::Code]))
        );
        let only_code = ToolSets::configured(&[ToolSet::Code]);
        assert!(only_code.choose("exec").unwrap_err().contains("there are: code"));
        assert!(only_code.choose("code,exec").is_err() && !only_code.contains(ToolSet::Exec));
        let nothing = ToolSets([false; ALL.len()]);
        assert!(nothing.choose("code").is_err() && !nothing.contains(ToolSet::Code));
    }

    #[test]
    fn every_set_is_written_in_the_configuration_as_in_the_url() {
        for set in ALL {
            let read = toml::Value::from(name(set)).try_into::<ToolSet>();
            assert_eq!(read.ok(), Some(set), "{}", name(set));
        }
    }
}
