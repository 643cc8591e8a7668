//! Which capabilities a container has.

use super::super::{Error, Security};
use oci_spec::runtime::{Capabilities, Capability, LinuxCapabilities, LinuxCapabilitiesBuilder};

/// All that there are, by the kernel's numbers.
#[rustfmt::skip]
const BY_NUMBER: [&str; 41] = [
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
];

/// What a container has that says nothing.
#[rustfmt::skip]
const DEFAULT: [&str; 14] = [
    "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
    "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
];

/// The capabilities that a container of this node can have at most: those that its kernel knows and we may give.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Available(u64);

impl Available {
    /// Those of this process.
    pub(crate) fn of_this_process() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
        Available(line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(u64::MAX))
    }

    fn has(self, name: &str) -> bool {
        BY_NUMBER.iter().position(|known| *known == name).is_some_and(|number| self.0 >> number & 1 == 1)
    }

    fn all(self) -> impl Iterator<Item = &'static str> {
        BY_NUMBER.into_iter().filter(move |name| self.has(name))
    }

    /// Whether processes may be made less likely to be killed when memory runs out.
    pub(crate) fn lowers_oom_score(self) -> bool {
        self.has("SYS_RESOURCE")
    }
}

/// The names of a container's capabilities, without `CAP_`.
pub(crate) fn names(security: &Security, available: Available) -> Result<Vec<String>, Error> {
    if security.privileged {
        return Ok(available.all().map(str::to_owned).collect());
    }
    let plain = |name: &String| name.trim_start_matches("CAP_").to_ascii_uppercase();
    let add: Vec<String> = security.add_capabilities.iter().map(plain).collect();
    let drop: Vec<String> = security.drop_capabilities.iter().map(plain).collect();
    let is_all = |names: &[String]| names.iter().any(|name| name == "ALL");
    if let Some(unknown) =
        add.iter().chain(&drop).find(|name| *name != "ALL" && !BY_NUMBER.contains(&name.as_str()))
    {
        return Err(Error::Container(format!("unknown capability {:?}", format!("CAP_{unknown}"))));
    }
    let mut names: Vec<String> = match (is_all(&add), is_all(&drop)) {
        (true, _) => available.all().map(str::to_owned).collect(),
        (false, true) => Vec::new(),
        (false, false) => DEFAULT.map(str::to_owned).into(),
    };
    names.retain(|name| !drop.contains(name));
    names.extend(add.into_iter().filter(|name| name != "ALL"));
    names.retain(|name| available.has(name));
    names.sort();
    names.dedup();
    Ok(names)
}

/// As the runtime wants them: never inherited, so that a process that becomes another user has none.
pub(crate) fn sets(names: &[String]) -> LinuxCapabilities {
    let set: Capabilities = names.iter().filter_map(|name| name.parse::<Capability>().ok()).collect();
    LinuxCapabilitiesBuilder::default()
        .bounding(set.clone())
        .effective(set.clone())
        .permitted(set)
        .inheritable(Capabilities::new())
        .ambient(Capabilities::new())
        .build()
        .expect("all fields have defaults")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(add: &[&str], drop: &[&str], expected: &[&str]) {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let security =
            Security { add_capabilities: list(add), drop_capabilities: list(drop), ..Security::default() };
        assert_eq!(names(&security, Available(u64::MAX)).expect("known"), list(expected) as Vec<String>);
    }

    #[test]
    fn adding_comes_after_dropping() {
        check(&["NET_ADMIN"], &["ALL"], &["NET_ADMIN"]);
        check(&["CAP_NET_ADMIN"], &["ALL"], &["NET_ADMIN"]);
        check(&[], &["ALL"], &[]);
        let mut all = BY_NUMBER.to_vec();
        all.sort_unstable();
        check(&["ALL"], &[], &all);
        all.retain(|name| *name != "SYS_ADMIN");
        check(&["ALL"], &["SYS_ADMIN"], &all);
        let mut default = DEFAULT.to_vec();
        default.sort_unstable();
        check(&["KILL"], &[], &default);
        default.retain(|name| *name != "NET_RAW");
        check(&[], &["net_raw"], &default);
    }

    #[test]
    fn nobody_gets_what_this_node_cannot_give() {
        let all_but_resource = Available(!(1 << 24));
        let security = Security { privileged: true, ..Security::default() };
        let names = names(&security, all_but_resource).expect("known");
        assert!(!names.iter().any(|name| name == "SYS_RESOURCE"));
        assert_eq!(names.len(), 40);
        assert!(!all_but_resource.lowers_oom_score());
    }

    #[test]
    fn unknown_capabilities_are_refused_by_name() {
        let security = Security { add_capabilities: vec!["FLY".into()], ..Security::default() };
        let error = names(&security, Available(u64::MAX)).expect_err("nobody can");
        assert_eq!(error.to_string(), "unknown capability \"CAP_FLY\"");
    }

    #[test]
    fn every_capability_has_a_place_in_the_runtime_specification() {
        let names: Vec<String> = BY_NUMBER.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(sets(&names).bounding().as_ref().map(|set| set.len()), Some(BY_NUMBER.len()));
    }
}
