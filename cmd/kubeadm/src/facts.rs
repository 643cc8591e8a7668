//! What this machine is like, looked up once before anything is decided.

use nix::unistd::geteuid;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// What preflight checks look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Runs as root.
    pub is_root: bool,
    /// containerd's socket answers.
    pub containerd_answers: bool,
    /// containerd's socket.
    pub containerd_socket: PathBuf,
    /// Programs that are not on the PATH, with the Debian package that has them.
    pub missing_programs: Vec<(String, String)>,
    /// Programs that some features need and that are not there: the program, its package, what needs it.
    pub wished_programs: Vec<(&'static str, &'static str, &'static str)>,
    /// Ports that somebody listens on already.
    pub taken_ports: Vec<u16>,
    /// Ports that some features need, and that somebody listens on already.
    pub taken_wished_ports: Vec<u16>,
    /// Memory is swapped.
    pub has_swap: bool,
    /// File systems and devices that the kernel lacks.
    pub missing_kernel_features: Vec<String>,
    /// Files of a cluster that this machine was part of.
    pub leftovers: Vec<PathBuf>,
    /// Stores that hold a cluster's objects, and that this cluster would not use.
    pub other_stores: Vec<PathBuf>,
    /// The program that is to be installed acts by its name.
    pub program_is_whole: bool,
}

/// What must be known to look.
pub struct Wanted<'a> {
    /// Ports that must be free.
    pub ports: &'a [u16],
    /// Programs that must be there, with their packages.
    pub programs: &'a [(&'a str, &'a str)],
    /// containerd's socket.
    pub containerd_socket: &'a Path,
    /// Files that stand for a cluster.
    pub files: &'a [PathBuf],
    /// The program that is to be installed.
    pub program: &'a Path,
    /// Where objects of a cluster would be that keeps them elsewhere.
    pub other_stores: &'a [PathBuf],
}

/// What a node works without, but not in everything.
const WISHED: [(&str, &str, &str); 2] = [
    ("nginx", "nginx-light", "DNS objects and ingresses"),
    ("conntrack", "conntrack", "services over UDP whose pods change"),
];

/// Where hosts of DNS objects and ingresses are served.
const WISHED_PORTS: [u16; 2] = [80, 443];

/// Looks.
pub fn gather(wanted: &Wanted<'_>) -> Facts {
    let missing = |(program, package): &(&str, &str)| {
        find_program(program).is_none().then(|| ((*program).to_owned(), (*package).to_owned()))
    };
    Facts {
        is_root: geteuid().is_root(),
        containerd_answers: UnixStream::connect(wanted.containerd_socket).is_ok(),
        containerd_socket: wanted.containerd_socket.to_owned(),
        missing_programs: wanted.programs.iter().filter_map(missing).collect(),
        wished_programs: WISHED.into_iter().filter(|(program, ..)| find_program(program).is_none()).collect(),
        taken_ports: wanted.ports.iter().copied().filter(|&port| is_taken(port)).collect(),
        taken_wished_ports: WISHED_PORTS.into_iter().filter(|&port| is_taken(port)).collect(),
        has_swap: std::fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() > 1),
        missing_kernel_features: missing_kernel_features(),
        leftovers: wanted.files.iter().filter(|file| file.exists()).cloned().collect(),
        other_stores: wanted.other_stores.iter().filter(|store| store.exists()).cloned().collect(),
        program_is_whole: is_whole(wanted.program),
    }
}

/// Where a program is on the PATH (or where root's programs are).
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"])
        .map(|folder| Path::new(folder).join(name))
        .find(|file| file.is_file())
}

/// The address that others reach this machine at: where its way to them leaves from, or else the first address of a
/// device that is not the loopback. Nothing is sent.
pub fn address_towards(others: &str) -> Option<IpAddr> {
    let by_route = || {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect(others).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    by_route().or_else(|| {
        let addresses = nix::ifaddrs::getifaddrs().ok()?;
        let mut addresses = addresses.filter_map(|interface| {
            interface.address?.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()))
        });
        addresses.find(|address| !address.is_loopback())
    })
}

/// An address of this machine, and one of the other family that the same device has and that others may know.
pub fn with_other_family(address: Option<IpAddr>) -> Vec<IpAddr> {
    let Some(address) = address else { return Vec::new() };
    let of = |interface: &nix::ifaddrs::InterfaceAddress| -> Option<IpAddr> {
        let found = interface.address.as_ref()?;
        let v4 = found.as_sockaddr_in().map(|found| IpAddr::V4(found.ip()));
        v4.or_else(|| found.as_sockaddr_in6().map(|found| IpAddr::V6(found.ip())))
    };
    let all: Vec<(String, IpAddr)> = nix::ifaddrs::getifaddrs()
        .into_iter()
        .flatten()
        .filter_map(|interface| Some((interface.interface_name.clone(), of(&interface)?)))
        .collect();
    let device = all.iter().find(|(_, found)| *found == address).map(|(device, _)| device);
    let is_local = |found: &IpAddr| matches!(found, IpAddr::V6(found) if found.is_unicast_link_local());
    let other = all
        .iter()
        .find(|(on, found)| Some(on) == device && found.is_ipv6() != address.is_ipv6() && !is_local(found));
    [Some(address), other.map(|(_, found)| *found)].into_iter().flatten().collect()
}

/// As [`address_towards`], by the default route.
pub fn default_address() -> Option<IpAddr> {
    address_towards("192.0.2.1:9")
}

/// This machine's name, as a node's name must be.
pub fn host_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().to_lowercase();
    name.trim().to_owned()
}

fn is_taken(port: u16) -> bool {
    TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port))).is_err()
}

/// Features that show in /proc, or in a module that can still be loaded.
fn missing_kernel_features() -> Vec<String> {
    let systems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let mut missing = Vec::new();
    let has_module = |name: &str| {
        Path::new("/sys/module").join(name).exists()
            || std::process::Command::new("modprobe")
                .args(["-n", "-q", name])
                .status()
                .is_ok_and(|status| status.success())
    };
    if !systems.contains("overlay") && !has_module("overlay") {
        missing.push("overlay file systems".to_owned());
    }
    if !systems.contains("cgroup") {
        missing.push("control groups".to_owned());
    }
    missing
}

/// The one program of all programs knows the names it can be called by; a single one does not.
fn is_whole(program: &Path) -> bool {
    let output = std::process::Command::new(program).args(["kubelet", "--help"]).output();
    output.is_ok_and(|output| output.status.success())
}
