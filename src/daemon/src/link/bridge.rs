//! The real carrier: an exec of the agent's bridge in a running container, hijacked.

use std::future::Future;
use std::pin::Pin;

use paddock_proto::limits::AGENT_PROGRAM;

use super::{Carrier, Dial};
use crate::engine::{ContainerId, Engine, ExecSpec};

/// Dials the agent of one container.
pub struct Bridge {
    /// The engine that runs it.
    pub engine: Engine,
    /// The container.
    pub container: ContainerId,
}

impl Dial for Bridge {
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, String>> + Send + '_>> {
        Box::pin(async {
            let cmd = vec![AGENT_PROGRAM.to_owned(), "bridge".to_owned()];
            let spec = ExecSpec { cmd, stdin: true, ..ExecSpec::default() };
            let exec = self.engine.exec_create(&self.container, &spec).await.map_err(|e| e.to_string())?;
            let hijacked = self.engine.exec_start(&exec).await.map_err(|e| e.to_string())?;
            let (from, to) = hijacked.into_split();
            let carrier: Carrier = (Box::new(from), Box::new(to));
            Ok(carrier)
        })
    }
}
