//! How many connections the kernel tracks, and for how long: services' packets find their way back by that.

use crate::sysctl;
use std::time::Duration;

/// What is asked of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracking {
    /// So many connections for each processor at least; 0 leaves the kernel's own limit.
    pub most_per_core: u64,
    /// And so many in all at least.
    pub most_at_least: u64,
    /// How long a connection is remembered on which nothing is said; zero leaves it to the kernel.
    pub established: Duration,
    /// How long one is that only one side has closed; zero leaves it to the kernel.
    pub close_wait: Duration,
}

impl Tracking {
    /// Sets what can be set, once connections are tracked: before, the kernel has no such settings. A limit that is
    /// higher already is left alone.
    pub fn apply(&self) {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        if let Some(most) =
            self.most(cores).filter(|most| sysctl::number(MOST).is_some_and(|set| set < *most))
        {
            sysctl::set(MOST, &most.to_string());
        }
        for (name, time) in [(ESTABLISHED, self.established), (CLOSE_WAIT, self.close_wait)] {
            if !time.is_zero() {
                sysctl::set_if_present(name, &time.as_secs().to_string());
            }
        }
    }

    fn most(&self, cores: u64) -> Option<u64> {
        (self.most_per_core > 0).then(|| (self.most_per_core * cores).max(self.most_at_least))
    }
}

const MOST: &str = "netfilter/nf_conntrack_max";
const ESTABLISHED: &str = "netfilter/nf_conntrack_tcp_timeout_established";
const CLOSE_WAIT: &str = "netfilter/nf_conntrack_tcp_timeout_close_wait";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_grows_with_the_machine() {
        let most = |per_core: u64, at_least: u64, cores: u64| {
            let (established, close_wait) = (Duration::ZERO, Duration::ZERO);
            Tracking { most_per_core: per_core, most_at_least: at_least, established, close_wait }.most(cores)
        };
        assert_eq!(most(32_768, 131_072, 2), Some(131_072));
        assert_eq!(most(32_768, 131_072, 16), Some(524_288));
        assert_eq!(most(0, 131_072, 16), None);
    }
}
