//! Pods as jobs of a real SLURM: an apiserver, the controllers and the scheduler in this process, the kubelet and kubectl as
//! programs.
//!
//! ```text
//! kubectl ──> apiserver <── kubelet --provider slurm ──> sbatch, squeue, … [through ssh] ──> Slurm (munge, slurmctld, slurmd)
//! ```

mod docs;
mod faults;
mod figures;
mod pods;
mod seed;
mod support;
