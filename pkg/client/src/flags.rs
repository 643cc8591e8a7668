//! Flags that every program with a leader has, under upstream's names.

use crate::LeaderConfig;
use clap::{ArgAction, Args};
use std::time::Duration;

/// Of several replicas one leads: how that is decided.
#[derive(Debug, Clone, Args)]
pub struct LeaderFlags {
    /// Work only while this is the one replica that holds the lease.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub leader_elect: bool,
    /// Who does not renew for so long has lost the lease.
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,
    /// Who cannot renew for so long stops.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    /// How often the lease is tried.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub leader_elect_retry_period: Duration,
    /// Where the lease is.
    #[arg(long, default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
    /// What the lease is called; as upstream's program, where it is not given.
    #[arg(long)]
    pub leader_elect_resource_name: Option<String>,
}

impl LeaderFlags {
    /// What they mean for a program whose lease is called so by default.
    pub fn config(self, name: &str) -> LeaderConfig {
        LeaderConfig {
            elects: self.leader_elect,
            namespace: self.leader_elect_resource_namespace,
            name: self.leader_elect_resource_name.unwrap_or_else(|| name.to_owned()),
            lease_duration: self.leader_elect_lease_duration,
            renew_deadline: self.leader_elect_renew_deadline,
            retry_period: self.leader_elect_retry_period,
        }
    }
}

/// A duration as upstream's flags take it: `15s`, `1h30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wanted = || format!("{text:?} is not a duration: write 15s, 5m or 1h30m");
    let span: jiff::SignedDuration = text.parse().map_err(|_| wanted())?;
    Duration::try_from(span).map_err(|_| wanted())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert!(duration("soon").is_err() && duration("-5s").is_err());
    }
}
