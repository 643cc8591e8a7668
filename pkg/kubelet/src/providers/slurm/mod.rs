//! Pods as jobs of a SLURM site, which appears as one node: here, or behind SSH. The site needs nothing installed.
//!
//! ```text
//! Pod ── refusal, options, contents ──> script ──> commands::submit ──> sbatch
//!                                          job's journal, queue ──> status ──> changes ──> apiserver
//! node.rs     PodProvider: which pods there are, and what is to be done for them
//! submit.rs   intent on disk, sbatch, number on disk          follow.rs   one squeue for all jobs, journals as they grow
//! ```
//!
//! One pod is one job. What a job does is believed from its own journal first, then from accounting, then from the
//! queue; what a pod asks for and a job cannot be is refused by name (`refusal`).

mod commands;
mod contents;
mod door;
mod end;
mod exec;
mod follow;
mod journal;
mod logs;
mod node;
mod objects;
mod options;
mod queue;
mod records;
mod refusal;
mod script;
mod site;
mod ssh;
mod states;
mod status;
mod submit;
mod tail;

pub use commands::SlurmSite;
pub use contents::PodData;
pub use node::{NodeParts, PodObjects, SlurmNode, taints};
pub use objects::ApiObjects;
pub use queue::JobId;
pub use site::{ContainerRuntime, Identity, SiteConfig, SiteError, SshConfig};
pub use states::{JobState, STATES, Stage};
