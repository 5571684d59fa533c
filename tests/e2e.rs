//! The whole daemon as clients see it: the real binary, over HTTP, with real containers.
//!
//! Needs a Docker engine at `DOCKER_HOST` (default `unix:///var/run/docker.sock`) with the runner images for
//! python and typescript and the plain example of a runner for sh. Without them the tests fail; none is
//! skipped. Each test starts its own daemons on its own stores, looks only at what has their label, and
//! leaves nothing.

#![expect(clippy::expect_used, clippy::print_stderr, reason = "a test fails by panicking, and says why")]

#[path = "e2e/agent_examples.rs"]
mod agent_examples;
#[path = "e2e/alike.rs"]
mod alike;
#[path = "e2e/answers.rs"]
mod answers;
#[path = "e2e/archives.rs"]
mod archives;
#[path = "e2e/ask.rs"]
mod ask;
#[path = "e2e/audit.rs"]
mod audit;
#[path = "e2e/backup.rs"]
mod backup;
#[path = "e2e/by_ssh.rs"]
mod by_ssh;
#[path = "e2e/ca_bundle.rs"]
mod ca_bundle;
#[path = "e2e/client.rs"]
mod client;
#[path = "e2e/clients.rs"]
mod clients;
#[path = "e2e/clock.rs"]
mod clock;
#[path = "e2e/cluster.rs"]
mod cluster;
#[path = "e2e/cluster_any.rs"]
mod cluster_any;
#[path = "e2e/cluster_limits.rs"]
mod cluster_limits;
#[path = "e2e/cluster_store.rs"]
mod cluster_store;
#[path = "e2e/cluster_stored.rs"]
mod cluster_stored;
#[path = "e2e/container.rs"]
mod container;
#[path = "e2e/crash.rs"]
mod crash;
#[path = "e2e/dashboard.rs"]
mod dashboard;
#[path = "e2e/data.rs"]
mod data;
#[path = "e2e/degraded.rs"]
mod degraded;
#[path = "e2e/demo.rs"]
mod demo;
#[path = "e2e/doctor.rs"]
mod doctor;
#[path = "e2e/documents.rs"]
mod documents;
#[path = "e2e/drops.rs"]
mod drops;
#[path = "e2e/egress.rs"]
mod egress;
#[path = "e2e/egress_bounds.rs"]
mod egress_bounds;
#[path = "e2e/egress_hostile.rs"]
mod egress_hostile;
#[path = "e2e/egress_names.rs"]
mod egress_names;
#[path = "e2e/egress_programs.rs"]
mod egress_programs;
#[path = "e2e/egress_without.rs"]
mod egress_without;
#[path = "e2e/ending.rs"]
mod ending;
#[path = "e2e/engine_gone.rs"]
mod engine_gone;
#[path = "e2e/exec.rs"]
mod exec;
#[path = "e2e/far.rs"]
mod far;
#[path = "e2e/faults.rs"]
mod faults;
#[path = "e2e/fence.rs"]
mod fence;
#[path = "e2e/flood.rs"]
mod flood;
#[path = "e2e/full.rs"]
mod full;
#[path = "e2e/guard.rs"]
mod guard;
#[path = "e2e/hostile.rs"]
mod hostile;
#[path = "e2e/https.rs"]
mod https;
#[path = "e2e/isolation.rs"]
mod isolation;
#[path = "e2e/links.rs"]
mod links;
#[path = "e2e/live.rs"]
mod live;
#[path = "e2e/local_daemon.rs"]
mod local_daemon;
#[path = "e2e/log.rs"]
mod log;
#[path = "e2e/machines.rs"]
mod machines;
#[path = "e2e/mcp.rs"]
mod mcp;
#[path = "e2e/metrics.rs"]
mod metrics;
#[path = "e2e/model.rs"]
mod model;
#[path = "e2e/models.rs"]
mod models;
#[path = "e2e/mounts.rs"]
mod mounts;
#[path = "e2e/n8n.rs"]
mod n8n;
#[path = "e2e/neighbours.rs"]
mod neighbours;
#[path = "e2e/packages.rs"]
mod packages;
#[path = "e2e/packages_hostile.rs"]
mod packages_hostile;
#[path = "e2e/page.rs"]
mod page;
#[path = "e2e/page_task.rs"]
mod page_task;
#[path = "e2e/policy.rs"]
mod policy;
#[path = "e2e/pool.rs"]
mod pool;
#[path = "e2e/ports.rs"]
mod ports;
#[path = "e2e/ports_hostile.rs"]
mod ports_hostile;
#[path = "e2e/programs.rs"]
mod programs;
#[path = "e2e/raw.rs"]
mod raw;
#[path = "e2e/registries.rs"]
mod registries;
#[path = "e2e/restart.rs"]
mod restart;
#[path = "e2e/run.rs"]
mod run;
#[path = "e2e/runner_bounds.rs"]
mod runner_bounds;
#[path = "e2e/runtimes.rs"]
mod runtimes;
#[path = "e2e/s1.rs"]
mod s1;
#[path = "e2e/salvage.rs"]
mod salvage;
#[path = "e2e/services.rs"]
mod services;
#[path = "e2e/sessions.rs"]
mod sessions;
#[path = "e2e/setup.rs"]
mod setup;
#[path = "e2e/shared_store.rs"]
mod shared_store;
#[path = "e2e/shipped.rs"]
mod shipped;
#[path = "e2e/snapshots.rs"]
mod snapshots;
#[path = "e2e/stdio.rs"]
mod stdio;
#[path = "e2e/supervisor.rs"]
mod supervisor;
#[path = "support/mod.rs"]
mod support;
#[path = "e2e/symlinks.rs"]
mod symlinks;
#[path = "e2e/task_acceptance.rs"]
mod task_acceptance;
#[path = "e2e/task_diff.rs"]
mod task_diff;
#[path = "e2e/task_kept.rs"]
mod task_kept;
#[path = "e2e/task_levels.rs"]
mod task_levels;
#[path = "e2e/task_terminal.rs"]
mod task_terminal;
#[path = "e2e/task_trouble.rs"]
mod task_trouble;
#[path = "e2e/task_workspace.rs"]
mod task_workspace;
#[path = "e2e/task_world.rs"]
mod task_world;
#[path = "e2e/tasks.rs"]
mod tasks;
#[path = "e2e/tasks_example.rs"]
mod tasks_example;
#[path = "e2e/tasks_opencode.rs"]
mod tasks_opencode;
#[path = "e2e/tenants.rs"]
mod tenants;
#[path = "e2e/terminal.rs"]
mod terminal;
#[path = "e2e/tls.rs"]
mod tls;
#[path = "e2e/tools.rs"]
mod tools;
#[path = "e2e/traces.rs"]
mod traces;
#[path = "e2e/transfer.rs"]
mod transfer;
#[path = "e2e/typecheck.rs"]
mod typecheck;
#[path = "e2e/upgrade.rs"]
mod upgrade;
#[path = "e2e/upload.rs"]
mod upload;
#[path = "e2e/upstream_proxy.rs"]
mod upstream_proxy;
#[path = "e2e/warm.rs"]
mod warm;
#[path = "e2e/warm_attacks.rs"]
mod warm_attacks;
#[path = "e2e/warm_node.rs"]
mod warm_node;
