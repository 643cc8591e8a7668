//! Capabilities by name and number.

use crate::oci::Capabilities;

#[rustfmt::skip]
const BY_NUMBER: [&str; 41] = [
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
];
/// The highest number that a kernel could have: what it does not have it refuses, which is no harm.
pub(crate) const LAST: u64 = 63;

/// The number of one, such as `CAP_KILL`.
pub(crate) fn number(name: &str) -> Option<u32> {
    let plain = name.strip_prefix("CAP_").unwrap_or(name);
    BY_NUMBER.iter().position(|known| *known == plain).map(|place| place as u32)
}

/// Sets of capabilities, as the kernel has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sets {
    pub(crate) bounding: u64,
    pub(crate) effective: u64,
    pub(crate) permitted: u64,
    pub(crate) inheritable: u64,
    pub(crate) ambient: u64,
}

/// Those of a process; one that says nothing has none.
pub(crate) fn sets(capabilities: Option<&Capabilities>) -> Sets {
    let set = |names: &[String]| {
        names.iter().filter_map(|name| number(name)).fold(0, |set, number| set | 1 << number)
    };
    capabilities.map_or(Sets::default(), |names| Sets {
        bounding: set(&names.bounding),
        effective: set(&names.effective),
        permitted: set(&names.permitted),
        inheritable: set(&names.inheritable),
        ambient: set(&names.ambient),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_kernels_numbers() {
        for (name, expected) in
            [("CAP_CHOWN", Some(0)), ("CAP_SYS_ADMIN", Some(21)), ("BPF", Some(39)), ("CAP_FLY", None)]
        {
            assert_eq!(number(name), expected, "{name}");
        }
        assert_eq!(sets(None), Sets::default());
    }
}
