//! What runs pods elsewhere than on this machine, each behind [`crate::provider::PodProvider`].
//!
//! ```text
//! PodProvider ─┬─ crate::local   this machine
//!              └─ slurm          a batch system, here or behind SSH
//! ```

pub mod slurm;
