//! What programs trust besides the public certificates: a file in the agent's volume, which is there only
//! where the operator gave certificates (`egress.ca_bundle`).
//!
//! The file has the public certificates too, since most programs take one file in place of their own. It must
//! never be named to a run without a network, nor in place of what a run names itself.

use std::path::Path;

/// Environment variables that name a file of certificates, each with the programs that read it.
const VARIABLES: [&str; 8] = [
    "SSL_CERT_FILE",       // OpenSSL, Python's ssl, Go, rustls
    "REQUESTS_CA_BUNDLE",  // requests
    "CURL_CA_BUNDLE",      // curl
    "GIT_SSL_CAINFO",      // git
    "NODE_EXTRA_CA_CERTS", // Node, npm; beside its own
    "PIP_CERT",            // pip
    "CARGO_HTTP_CAINFO",   // cargo
    "AWS_CA_BUNDLE",       // the AWS clients
];

/// The variables for a run, as `NAME=file`, if the file exists. It leaves out variables that the run sets.
pub(super) fn variables(file: &str, env: &[String]) -> Vec<String> {
    if !Path::new(file).is_file() {
        return Vec::new();
    }
    let is_set = |name: &str| env.iter().any(|one| one.split('=').next() == Some(name));
    let unset = VARIABLES.into_iter().filter(|name| !is_set(name));
    unset.map(|name| format!("{name}={file}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_is_named_unless_the_run_names_another() {
        let file = "/proc/self/status";
        let own = ["CURL_CA_BUNDLE=/data/own.pem".to_owned(), "SSL_CERT_FILE_TOO=1".to_owned()];
        let told = variables(file, &own);
        assert_eq!(told.len(), VARIABLES.len() - 1);
        assert!(told.contains(&format!("SSL_CERT_FILE={file}")), "{told:?}");
        assert!(!told.iter().any(|one| one.starts_with("CURL_CA_BUNDLE=")), "{told:?}");
        assert_eq!(variables("/.paddock/none.pem", &[]), Vec::<String>::new());
    }
}
