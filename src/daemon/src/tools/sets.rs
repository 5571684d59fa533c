//! Sets of tools: a client that wants to see few asks for some.
//!
//! It must never take a name for a set that there is not.

/// Tools that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolSet {
    /// Code and files.
    Code,
}

impl ToolSet {
    /// Every set.
    pub const ALL: [Self; 1] = [Self::Code];

    /// As it is asked for.
    pub fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
        }
    }
}

/// Some sets; all by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolSets([bool; ToolSet::ALL.len()]);

impl Default for ToolSets {
    fn default() -> Self {
        Self([true; ToolSet::ALL.len()])
    }
}

impl ToolSets {
    /// Reads `code,exec`.
    ///
    /// # Errors
    /// A sentence: a name that is no set, or none at all.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = || ToolSet::ALL.map(ToolSet::name).join(", ");
        let mut sets = [false; ToolSet::ALL.len()];
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let at = ToolSet::ALL.iter().position(|set| set.name() == name);
            let at = at.ok_or_else(|| {
                let shown: String = name.chars().take(40).collect();
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

    /// Whether a set is among them.
    pub fn contains(self, set: ToolSet) -> bool {
        ToolSet::ALL.iter().zip(self.0).any(|(one, has)| has && *one == set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_named_or_refused() {
        for text in ["code", " code ,", "code,code"] {
            assert!(ToolSets::parse(text).unwrap().contains(ToolSet::Code), "{text:?}");
        }
        for text in ["", ",", "Code", "code,files", "code exec"] {
            assert!(ToolSets::parse(text).unwrap_err().contains("there are: code"), "{text:?}");
        }
    }
}
