//! The kubeconfigs by which the parts of a control plane, and its admin, reach it: made by whoever sets it up, kept
//! fresh by whoever has the authority's key.

use crate::authority::Authority;
use crate::certificate::Facts;
use crate::ensure::RENEW_BEFORE_SECONDS;
use crate::file::{self, Mode};
use crate::kubeconfig::{Kubeconfig, kubeconfig};
use crate::{Error, PrivateKey};
use jiff::Timestamp;
use std::path::Path;

/// A file, and who its reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Component {
    /// The file's name.
    pub file: &'static str,
    /// The user's name.
    pub user: &'static str,
    /// The user's groups.
    pub groups: &'static [&'static str],
}

/// The group of a cluster's administrators. A binding makes it that, so that it can be taken back, unlike `system:masters`.
pub const CLUSTER_ADMINS: &str = "kubeadm:cluster-admins";

/// The parts that a control plane has, under the names that upstream's kubeadm gives their files.
pub const COMPONENTS: [Component; 5] = [
    Component { file: "admin.conf", user: "kubernetes-admin", groups: &[CLUSTER_ADMINS] },
    // For whoever has to repair the bindings by which everybody else may do anything.
    Component { file: "super-admin.conf", user: "kubernetes-super-admin", groups: &["system:masters"] },
    Component { file: "controller-manager.conf", user: "system:kube-controller-manager", groups: &[] },
    Component { file: "scheduler.conf", user: "system:kube-scheduler", groups: &[] },
    Component { file: "knative.conf", user: "system:knative", groups: &[] },
];

/// Makes the component's kubeconfig in a directory, unless a good one for that server stands there. Whether it did.
pub fn ensure_component(
    dir: &Path,
    component: &Component,
    server: &str,
    authority: &Authority,
    now: Timestamp,
) -> Result<bool, Error> {
    let path = dir.join(component.file);
    if let Some(text) = file::read(&path)?
        && let Ok(config) = Kubeconfig::parse(&text)
        && config.server == server
        && config.ca_pem.trim() == authority.pem().trim()
        && let Some(facts) = own_facts(&config, authority)
        && facts.not_after - now.as_second() > RENEW_BEFORE_SECONDS
        && facts.common_name == component.user
        && facts.organizations == component.groups
    {
        return Ok(false);
    }
    let identity = authority.client(component.user, component.groups, now)?;
    let text = kubeconfig(server, authority.pem(), component.user, &identity.certificate, &identity.key);
    file::write(&path, text.as_bytes(), Mode::Secret)?;
    Ok(true)
}

/// Gives the components' kubeconfigs in a directory certificates that last, where theirs soon do not. Those that are
/// not there, or that somebody else's authority has signed, are left alone. The names of those renewed.
pub fn renew_components(
    dir: &Path,
    authority: &Authority,
    now: Timestamp,
    within_seconds: i64,
) -> Result<Vec<&'static str>, Error> {
    let mut renewed = Vec::new();
    for component in &COMPONENTS {
        if renew_component(dir, component, authority, now, within_seconds)? {
            renewed.push(component.file);
        }
    }
    Ok(renewed)
}

/// As [`renew_components`], one of them. Whether it was renewed.
pub fn renew_component(
    dir: &Path,
    component: &Component,
    authority: &Authority,
    now: Timestamp,
    within_seconds: i64,
) -> Result<bool, Error> {
    let path = dir.join(component.file);
    let Some(text) = file::read(&path)? else { return Ok(false) };
    let config = Kubeconfig::parse(&text)
        .map_err(|source| Error::File { path: path.clone(), source: Box::new(source) })?;
    let Some(facts) = own_facts(&config, authority) else { return Ok(false) };
    if facts.not_after - now.as_second() > within_seconds {
        return Ok(false);
    }
    // Who it was made for, as it was made: nobody may have bound yet what it would be made for today.
    let groups: Vec<&str> = facts.organizations.iter().map(String::as_str).collect();
    let identity = authority.client(&facts.common_name, &groups, now)?;
    let text =
        kubeconfig(&config.server, &config.ca_pem, &facts.common_name, &identity.certificate, &identity.key);
    file::write(&path, text.as_bytes(), Mode::Secret)?;
    Ok(true)
}

/// What the client certificate says; `None` if there is none, or it is not of this authority.
fn own_facts(config: &Kubeconfig, authority: &Authority) -> Option<Facts> {
    let (certificate, key) = (config.client_cert_pem.as_ref()?, config.client_key_pem.as_ref()?);
    PrivateKey::from_pem(key).ok()?;
    let facts = Facts::from_pem(certificate).ok()?;
    authority.issued(certificate, key).then_some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::ToSpan;

    #[test]
    fn what_is_good_stays_and_what_ends_soon_is_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let authority = Authority::create("kubernetes", now).unwrap();
        let server = "https://192.0.2.1:6443";
        for component in &COMPONENTS {
            assert!(ensure_component(dir.path(), component, server, &authority, now).unwrap());
            assert!(!ensure_component(dir.path(), component, server, &authority, now).unwrap());
        }
        let renew = |now| renew_components(dir.path(), &authority, now, RENEW_BEFORE_SECONDS).unwrap();
        assert!(renew(now).is_empty());
        let later = now + (300 * 24).hours();
        assert_eq!(
            renew(later),
            ["admin.conf", "super-admin.conf", "controller-manager.conf", "scheduler.conf", "knative.conf"]
        );
        assert!(renew(later).is_empty());
        let text = file::read(&dir.path().join("scheduler.conf")).unwrap().unwrap();
        let config = Kubeconfig::parse(&text).unwrap();
        assert_eq!(config.server, server);
        let facts = Facts::from_pem(&config.client_cert_pem.unwrap()).unwrap();
        assert_eq!(facts.common_name, "system:kube-scheduler");
        assert!(facts.not_after > later.as_second() + RENEW_BEFORE_SECONDS);
    }

    #[test]
    fn an_administrator_of_before_is_renewed_as_they_were_until_the_cluster_is_set_up_again() {
        let dir = tempfile::tempdir().unwrap();
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let authority = Authority::create("kubernetes", now).unwrap();
        let old = Component { groups: &["system:masters"], ..COMPONENTS[0] };
        let groups = || {
            let text = file::read(&dir.path().join("admin.conf")).unwrap().unwrap();
            let config = Kubeconfig::parse(&text).unwrap();
            Facts::from_pem(&config.client_cert_pem.unwrap()).unwrap().organizations
        };
        assert!(ensure_component(dir.path(), &old, "https://a", &authority, now).unwrap());
        assert_eq!(renew_components(dir.path(), &authority, now, i64::MAX).unwrap(), ["admin.conf"]);
        assert_eq!(groups(), ["system:masters"]);
        assert!(ensure_component(dir.path(), &COMPONENTS[0], "https://a", &authority, now).unwrap());
        assert_eq!(groups(), [CLUSTER_ADMINS]);
    }

    #[test]
    fn another_servers_kubeconfig_is_replaced_and_a_strangers_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let (ours, other) =
            (Authority::create("kubernetes", now).unwrap(), Authority::create("other", now).unwrap());
        let component = &COMPONENTS[0];
        assert!(ensure_component(dir.path(), component, "https://a", &ours, now).unwrap());
        assert!(ensure_component(dir.path(), component, "https://b", &ours, now).unwrap());
        assert!(renew_components(dir.path(), &other, now, i64::MAX).unwrap().is_empty());
        assert!(ensure_component(dir.path(), component, "https://b", &other, now).unwrap());
    }
}
