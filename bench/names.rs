//! Titles of blocks and names of rows that more than one file needs: the verdicts find their figures by them.
//!
//! A changed name must never leave a verdict without its figure: it would be printed as not measured.

pub(crate) const PYTHON_TITLE: &str = "Python, print('hi')";
pub(crate) const TYPESCRIPT_TITLE: &str = "TypeScript, console.log('hi')";
pub(crate) const PANDAS_TITLE: &str = "Python, import pandas and a DataFrame";
pub(crate) const PEERS_TITLE: &str = "Peers, print('hi')";
pub(crate) const WARM: &str = "paddock warm";
pub(crate) const BACK_TO_BACK: &str = "paddock warm, back to back";
pub(crate) const NEW: &str = "paddock new session";
pub(crate) const EMPTY: &str = "paddock new session, empty pool";
pub(crate) const FLOOR: &str = "the floor";
pub(crate) const BARE: &str = "the bare floor";
pub(crate) const EXEC: &str = "engine exec";
pub(crate) const DOCKER_RUN: &str = "docker run";
pub(crate) const LLM_SANDBOX: &str = "llm-sandbox, from its pool";
pub(crate) const SANDBOX_RUNTIME: &str = "sandbox-runtime's server";
