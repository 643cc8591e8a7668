//! Who answers at a service's address: what rules are for, and the same for every program that makes them.
//!
//! All services and pods are this host: whoever has no rule is refused at once, and every pod answers with its address.

use crate::{ENDPOINTS, PODS, PORT, SERVICES, TARGET_PORT, cluster_ip};
use anyhow::{Result, bail};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// The host's own address.
pub const NODE: &str = "192.168.77.1";
/// Longer than anybody takes who is worth waiting for.
const PATIENCE: Duration = Duration::from_secs(900);
/// Looking must not take the time of those who are looked at.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// Makes this host all services and all pods. Its threads end with the process.
pub fn serve() -> Result<()> {
    let script = format!(
        "ip link add eth0 type bridge && ip address add {NODE}/24 dev eth0 && ip link set eth0 up && \
         ip route add local {SERVICES} dev lo src {NODE} && ip route add local {PODS} dev lo src {NODE}"
    );
    if !Command::new("sh").args(["-c", &script]).status()?.success() {
        bail!("addresses cannot be made: {script}");
    }
    let listener = TcpListener::bind(("0.0.0.0", TARGET_PORT))?;
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if let Ok(IpAddr::V4(address)) = stream.local_addr().map(|address| address.ip()) {
                let _ = stream.write_all(&address.octets());
            }
        }
    });
    Ok(())
}

/// Waits until all services answer.
pub fn wait_for_all(services: usize) -> Result<Instant> {
    let last = cluster_ip(services - 1);
    let found = look_until(|| ask(cluster_ip(0)).and(ask(last)).is_some())?;
    // Whoever leads packets to some of them leads them to all.
    if let Some(missing) = (0..services).map(cluster_ip).find(|address| ask(*address).is_none()) {
        bail!("{missing} does not answer, though others do");
    }
    Ok(found)
}

/// Waits until this endpoint of the service answers, in its turn.
pub fn wait_for(service: Ipv4Addr, endpoint: Ipv4Addr) -> Result<Instant> {
    look_until(|| (0..2 * ENDPOINTS).any(|_| ask(service) == Some(endpoint)))
}

fn look_until(mut found: impl FnMut() -> bool) -> Result<Instant> {
    let began = Instant::now();
    while !found() {
        if began.elapsed() > PATIENCE {
            bail!("not served after {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Ok(Instant::now())
}

/// Which endpoint answers at a service's address.
fn ask(service: Ipv4Addr) -> Option<Ipv4Addr> {
    let mut stream = TcpStream::connect_timeout(&(service, PORT).into(), Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    let mut octets = [0; 4];
    stream.read_exact(&mut octets).ok()?;
    Some(octets.into())
}
