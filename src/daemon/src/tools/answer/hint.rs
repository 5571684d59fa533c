//! What a model should know when its program failed because of the sandbox: a sentence beside the output,
//! never in it.
//!
//! It must never say anything but what the last lines of standard error prove.

/// Bytes at the end of standard error that a hint is derived from: the last lines of a traceback.
pub(in crate::tools) const HINT_READS: usize = 4 * 1024;

/// Characters of the longest module name that a hint repeats.
const NAME: usize = 60;

/// The words before the name of a module that was not found: Python's, and Node's two.
const MISSING: [&str; 3] = ["No module named '", "Cannot find module '", "Cannot find package '"];

/// What libraries and programs print when a name cannot be resolved, or no server answers.
const UNREACHABLE: [&str; 15] = [
    "Temporary failure in name resolution",
    "Name or service not known",
    "No address associated with hostname",
    "NameResolutionError",
    "getaddrinfo ENOTFOUND",
    "getaddrinfo EAI_AGAIN",
    "Could not resolve host",
    "unable to resolve host address",
    "Temporary failure resolving",
    "Network is unreachable",
    "ENETUNREACH",
    "No route to host",
    "Connection refused",
    "ECONNREFUSED",
    "Could not find a version that satisfies the requirement",
];

/// What network a program had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tools) enum ProgramNetwork {
    /// None, since this daemon gives none.
    Never,
    /// None, since its call did not ask for one.
    NotAsked,
    /// As much as its call asked for.
    Granted,
}

/// The hint for a program whose standard error ends like this. `packages`: its call could have asked for
/// some.
pub(in crate::tools) fn hint(
    stderr: &str,
    failed: bool,
    network: ProgramNetwork,
    packages: bool,
) -> Option<String> {
    if let Some(module) = missing_module(stderr).filter(|_| failed) {
        let why = match network {
            _ if packages => "so name its package, in one version, in `packages`",
            ProgramNetwork::Never => "and cannot be installed: programs have no network",
            ProgramNetwork::NotAsked => "and cannot be installed without a network",
            ProgramNetwork::Granted => "so install it into /data first",
        };
        return Some(format!(
            "The module {module} is neither installed nor in /data, {why}. list_runners names the libraries \
             that are installed."
        ));
    }
    let hint = match network {
        ProgramNetwork::Never => {
            "Programs have no network here: they reach nothing but servers that they start themselves."
        }
        ProgramNetwork::NotAsked => {
            "Programs have no network unless their call asks for one, with `network` (run_code, run_python) \
             or `sandbox_config.network` (execute_code)."
        }
        // What was blocked is said destination by destination.
        ProgramNetwork::Granted => return None,
    };
    let unreachable = UNREACHABLE.iter().any(|words| stderr.contains(words));
    unreachable.then(|| hint.to_owned())
}

/// The module that the last import error names; a path names one of the program's own files.
pub(super) fn missing_module(stderr: &str) -> Option<&str> {
    let (_, found) =
        MISSING.iter().filter_map(|words| stderr.rsplit_once(words)).min_by_key(|(_, rest)| rest.len())?;
    let (name, _) = found.split_once('\'')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-./@".contains(c);
    let is_a_path = name.starts_with(['.', '/']);
    (!name.is_empty() && name.len() <= NAME && !is_a_path && name.chars().all(is_name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::ProgramNetwork;
    use super::ProgramNetwork::{Granted, Never, NotAsked};

    fn hint(stderr: &str, failed: bool, network: ProgramNetwork) -> Option<String> {
        super::hint(stderr, failed, network, false)
    }

    #[test]
    fn where_packages_can_be_asked_for_they_are_the_way() {
        let missing = "ModuleNotFoundError: No module named 'sklearn'";
        for network in [Never, NotAsked, Granted] {
            assert!(super::hint(missing, true, network, true).unwrap().contains("in `packages`"));
        }
    }

    #[test]
    fn a_missing_module_is_named_with_where_to_look() {
        let python = "Traceback (most recent call last):\n  File \"/tmp/run.7/main.py\", line 1\n\
                      ModuleNotFoundError: No module named 'sklearn.cluster'\n";
        let node = "Error: Cannot find module 'lodash'\nRequire stack:\n- /data/main.ts\n";
        let esm =
            "Error [ERR_MODULE_NOT_FOUND]: Cannot find package '@scope/name' imported from /data/main.ts";
        for (stderr, module) in [(python, "sklearn.cluster"), (node, "lodash"), (esm, "@scope/name")] {
            let hint = hint(stderr, true, Never).unwrap();
            assert!(
                hint.contains(&format!("The module {module} is")) && hint.contains("list_runners"),
                "{hint}"
            );
        }
        // The last one is what the program failed of.
        let two = "No module named 'first'\nDuring handling of the above\nNo module named 'second'\n";
        assert!(hint(two, true, Never).unwrap().contains("second"));
    }

    #[test]
    fn a_program_that_goes_on_without_a_module_and_a_file_of_its_own_are_no_reason() {
        assert_eq!(hint("no lxml: No module named 'lxml'\n", false, Never), None);
        for stderr in
            ["Cannot find module './helper'", "Cannot find module '/data/x.js'", "No module named 'a b'", ""]
        {
            assert_eq!(hint(stderr, true, Never), None, "{stderr}");
        }
        let long = format!("No module named '{}'", "x".repeat(61));
        assert_eq!(hint(&long, true, Never), None);
    }

    #[test]
    fn a_program_that_looks_for_a_network_is_told_that_there_is_none() {
        for stderr in [
            "socket.gaierror: [Errno -3] Temporary failure in name resolution",
            "urllib3.exceptions.NameResolutionError: <urllib3.connection.HTTPSConnection object>: Failed",
            "requests.exceptions.ConnectionError: [Errno 111] Connection refused",
            "Error: getaddrinfo EAI_AGAIN example.com",
            "curl: (6) Could not resolve host: example.com",
            "ERROR: Could not find a version that satisfies the requirement scikit-learn",
            "OSError: [Errno 101] Network is unreachable",
        ] {
            assert!(hint(stderr, true, Never).unwrap().contains("no network"), "{stderr}");
            assert_eq!(hint(stderr, false, Never), hint(stderr, true, Never), "said of what was caught, too");
        }
        assert_eq!(hint("ZeroDivisionError: division by zero", true, Never), None);
    }

    #[test]
    fn a_network_that_could_have_been_asked_for_is_named() {
        let refused = "OSError: [Errno 101] Network is unreachable";
        assert!(hint(refused, true, NotAsked).unwrap().contains("asks for one"));
        assert_eq!(hint(refused, true, Granted), None, "what was blocked is said in the answer");
        let missing = "ModuleNotFoundError: No module named 'sklearn'";
        assert!(hint(missing, true, NotAsked).unwrap().contains("without a network"));
        assert!(hint(missing, true, Granted).unwrap().contains("install it into /data"));
    }
}
