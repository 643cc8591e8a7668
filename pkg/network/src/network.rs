//! The door: which of the two networks a pod gets, and the order in which records and the kernel change.

use crate::bridge::Removals;
use crate::records::{By, Record, Records, addresses};
use crate::{Attachment, Config, HostPort, PodId, Result, bridge, cni, overlay};
use ipnet::IpNet;
use parking::Ranges;
use std::path::PathBuf;
use tokio::sync::RwLock;

/// Why pods cannot be attached yet; the text is what the node's Ready condition says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:{message}"
)]
pub struct NotReady {
    /// What the plugin, or its absence, says.
    pub message: String,
}

/// The network of this node.
///
/// All methods may run at the same time, but for two that concern the same pod.
pub struct Network {
    config: Config,
    records: Records,
    ranges: Ranges,
    removals: Removals,
    /// Many may detach at once, but not while rules are put back.
    detaching: RwLock<()>,
}

impl Network {
    /// Opens the state. Without a range ([`Network::set_ranges`]) and without a CNI configuration, nothing can be
    /// attached yet; everything can be detached.
    pub fn new(config: Config) -> Result<Network> {
        let records = Records::open(&config.state_dir)?;
        Ok(Network {
            config,
            records,
            ranges: Ranges::default(),
            removals: Removals::default(),
            detaching: RwLock::default(),
        })
    }

    /// The node's pod ranges (`spec.podCIDRs`), one per family of addresses. Prepares the bridge, unless CNI plugins
    /// do the work. May be called again, with the same ranges or with others.
    pub async fn set_ranges(&self, ranges: &[IpNet]) -> Result<()> {
        let ranges: Vec<IpNet> = ranges.iter().map(IpNet::trunc).collect();
        if cni::load(&self.config.cni_conf_dir)?.is_none() {
            self.prepare_bridge(&ranges).await?;
        }
        self.ranges.set(ranges);
        Ok(())
    }

    /// Puts back the rules that somebody else has removed. Says whether there were any.
    pub async fn heal(&self) -> Result<bool> {
        let ranges = self.ranges.get();
        if cni::load(&self.config.cni_conf_dir)?.is_some() || bridge::is_intact(&self.config, &ranges).await?
        {
            return Ok(false);
        }
        self.prepare_bridge(&ranges).await?;
        Ok(true)
    }

    /// Whether pods can be attached, and if not, why.
    pub fn status(&self) -> Result<(), NotReady> {
        match cni::load(&self.config.cni_conf_dir) {
            Ok(Some(_)) => Ok(()),
            Ok(None) if !self.ranges.get().is_empty() => Ok(()),
            Ok(None) => {
                let message = "Network plugin returns error: cni plugin not initialized".to_owned();
                Err(NotReady { message })
            }
            Err(error) => Err(NotReady { message: format!("Network plugin returns error: {error}") }),
        }
    }

    /// Gives the pod a namespace, an address and its host ports. A pod that has them keeps them.
    pub async fn attach(&self, pod: &PodId, host_ports: &[HostPort]) -> Result<Attachment> {
        self.status()?;
        let record = self.reserve(pod, host_ports)?;
        match &record.by {
            By::Bridge { .. } => {
                bridge::attach(&self.config, &self.ranges.get(), &record).await?;
                Ok(attachment(&record))
            }
            By::Cni { result: Some(_), .. } if crate::namespace::is_namespace(&record.netns) => {
                Ok(attachment(&record))
            }
            By::Cni { list, .. } => {
                let result = cni::attach(&self.config, &record).await?;
                let by = By::Cni { list: list.clone(), result: Some(result) };
                let record = Record { by, ..record.clone() };
                self.records.lock()?.put(&record)?;
                Ok(attachment(&record))
            }
        }
    }

    /// Takes everything from the pod. A pod that has nothing is fine.
    pub async fn detach(&self, pod: &PodId) -> Result<()> {
        let _with_others = self.detaching.read().await;
        let Some(record) = self.records.get(&pod.uid)? else { return Ok(()) };
        match record.by {
            By::Bridge { .. } => bridge::detach(&self.config, &record, &self.removals).await?,
            By::Cni { .. } => cni::detach(&self.config, &record).await?,
        }
        self.records.lock()?.remove(&pod.uid)
    }

    /// Whether what a pod has is still as it was made, as far as the plugins can tell.
    pub async fn check(&self, pod: &PodId) -> Result<()> {
        match self.records.get(&pod.uid)? {
            Some(record) => cni::check(&self.config, &record).await,
            None => Ok(()),
        }
    }

    /// Everything that has been attached and not yet detached, finished or not.
    pub fn list(&self) -> Result<Vec<Attachment>> {
        Ok(self.records.all()?.iter().map(attachment).collect())
    }

    /// Removes every trace from this node: all pods' attachments, the bridge, the overlay, the rules, the records.
    pub async fn cleanup(&self) -> Result<()> {
        for record in self.records.all()? {
            if let Err(error) = self.detach(&record.pod).await {
                // A plugin that is gone cannot be asked; what it made in the namespace goes with the namespace.
                tracing::warn!(%error, pod = %record.pod.name, "could not be detached in order");
                crate::namespace::remove(&record.netns)?;
                self.records.lock()?.remove(&record.pod.uid)?;
            }
        }
        bridge::cleanup(&self.config).await?;
        overlay::remove().await?;
        match std::fs::remove_dir_all(&self.config.state_dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let what = format!("remove {}", self.config.state_dir.display());
                Err(crate::Error::io(what)(error))
            }
            _ => Ok(()),
        }
    }

    async fn prepare_bridge(&self, ranges: &[IpNet]) -> Result<()> {
        // Nobody is detached meanwhile, whose ports would be opened again.
        let _alone = self.detaching.write().await;
        let records = self.records.all()?;
        let kept: Vec<_> = records.iter().flat_map(addresses).collect();
        bridge::prepare(&self.config, ranges, &kept).await?;
        // Rules do not survive a reboot, or a firewall that was started anew.
        for record in records.iter().filter(|record| !record.host_ports.is_empty()) {
            if crate::namespace::is_namespace(&record.netns) {
                bridge::open_ports(&self.config, record).await?;
            }
        }
        Ok(())
    }

    /// The pod's record, new if it has none. From here on its addresses are its own.
    fn reserve(&self, pod: &PodId, host_ports: &[HostPort]) -> Result<Record> {
        let locked = self.records.lock()?;
        if let Some(record) = self.records.get(&pod.uid)? {
            return Ok(record);
        }
        let by = match cni::load(&self.config.cni_conf_dir)? {
            Some(list) => By::Cni { list, result: None },
            None => By::Bridge {
                veth: bridge::veth_name(&pod.uid),
                addresses: locked.free_addresses(&self.ranges.get())?,
            },
        };
        let record =
            Record { pod: pod.clone(), netns: self.netns_of(&pod.uid), host_ports: host_ports.to_vec(), by };
        locked.put(&record)?;
        Ok(record)
    }

    fn netns_of(&self, uid: &str) -> PathBuf {
        let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
        self.config.netns_dir.join(format!("minik8s-{}", uid.chars().map(safe).collect::<String>()))
    }
}

fn attachment(record: &Record) -> Attachment {
    Attachment { pod: record.pod.clone(), netns: record.netns.clone(), addresses: addresses(record) }
}

/// The ranges, which come later than the rest.
mod parking {
    use ipnet::IpNet;
    use std::sync::{PoisonError, RwLock};

    #[derive(Default)]
    pub struct Ranges(RwLock<Vec<IpNet>>);

    impl Ranges {
        pub fn get(&self) -> Vec<IpNet> {
            self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
        }

        pub fn set(&self, ranges: Vec<IpNet>) {
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = ranges;
        }
    }
}
