//! A container with the daemon's own settings that the engine alone makes, executes in and removes. No daemon
//! talks to its PID 1, which starts nothing.
//!
//! It must never live for ten minutes: a PID 1 without a daemon then ends itself.

use paddock::engine::{ContainerId, Engine, ExecSpec, Hijacked, VolumeName};
use paddock::pool::Plan;

use crate::Result;

pub(crate) struct EngineContainer {
    engine: Engine,
    name: VolumeName,
    id: ContainerId,
}

impl EngineContainer {
    /// Starts a container by this plan, under another name.
    pub(crate) async fn start(engine: &Engine, plan: &Plan) -> Result<Self> {
        let Plan { name: old, mut volume, mut container, .. } = plan.clone();
        let name: VolumeName = format!("{old}-{}", paddock::id::random_hex::<4>()).parse()?;
        volume.name = name.clone();
        for mount in &mut container.host_config.mounts {
            if mount.source == old.as_str() {
                mount.source = name.to_string();
            }
        }
        engine.volume_create(&volume).await?;
        let id = engine.container_create(Some(name.as_str()), &container).await?.id;
        engine.container_start(&id).await?;
        Ok(Self { engine: engine.clone(), name, id })
    }

    pub(crate) async fn exec(&self, spec: &ExecSpec) -> Result<Hijacked> {
        let exec = self.engine.exec_create(&self.id, spec).await?;
        Ok(self.engine.exec_start(&exec).await?)
    }

    pub(crate) async fn remove(self) -> Result<()> {
        self.engine.container_remove(&self.id).await?;
        Ok(self.engine.volume_remove(&self.name).await?)
    }
}
