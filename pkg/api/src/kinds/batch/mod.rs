//! batch/v1: pods that run to an end, once or by the clock.

pub mod cron_job;
pub mod job;
mod job_spec;
mod job_status;
pub mod schedule;
pub mod times;
