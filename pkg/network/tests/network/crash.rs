//! kill -9 in the middle of everything: nothing is leaked, no address is given twice.

use crate::{Node, config, host_port, pod};
use network::Network;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const DIR: &str = "NETWORK_CHURN_DIR";
const PODS: usize = 4;
const KILLS: u64 = 24;

/// The victim: attaches and detaches without end. Runs only as a child of the test below.
#[test]
#[ignore = "started by kills_leave_nothing_behind"]
fn churn() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let network = Network::new(config(&PathBuf::from(dir))).unwrap();
        network.set_ranges(&["10.244.9.0/28".parse().unwrap()]).await.unwrap();
        loop {
            for n in 0..PODS {
                network.attach(&pod(&format!("p{n}")), &ports(n)).await.unwrap();
            }
            for n in 0..PODS {
                network.detach(&pod(&format!("p{n}"))).await.unwrap();
            }
        }
    });
}

fn ports(n: usize) -> Vec<network::HostPort> {
    // Half of them, so that both ways are taken.
    if n.is_multiple_of(2) { vec![host_port(8000 + n as u16, 80)] } else { vec![] }
}

#[test]
fn kills_leave_nothing_behind() {
    let node = Node::new("10.244.9.0/28");
    for round in 0..KILLS {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "crash::churn", "--ignored"]).env(DIR, node.dir.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut victim = node.host.spawn(command);
        // Not a wait for anything: each round is cut off somewhere else.
        std::thread::sleep(Duration::from_millis(30 + (round * 37) % 400));
        victim.kill().unwrap();
        victim.wait().unwrap();

        // No two pods have the same address, finished or not.
        let mut holders = BTreeMap::new();
        for attachment in node.network.list().unwrap() {
            for address in attachment.addresses {
                let other = holders.insert(address, attachment.pod.name.clone());
                assert_eq!(other, None, "{address} is also {}'s", attachment.pod.name);
            }
        }
        // Whoever comes next finishes what was begun: a pod works, whatever the victim was doing to it.
        if round % 4 == 0 {
            let attachment = node.attach(&pod("p0"), &ports(0));
            let inside = node.pod(&attachment);
            let _server = inside.serve(80, "p0");
            assert_eq!(node.host.ask(&format!("{}:80", attachment.addresses[0])).unwrap(), "p0");
        }
    }
    for attachment in node.network.list().unwrap() {
        node.detach(&attachment.pod);
    }
    let left = node.traces();
    let pods_left: Vec<&str> =
        left.lines().filter(|line| line.contains("veth") || line.contains("uid-of")).collect();
    assert!(pods_left.is_empty(), "{left}");
    // All thirteen addresses of the range are free again.
    for n in 0..13 {
        node.attach(&pod(&format!("new{n}")), &[]);
    }
    node.cleanup();
    assert_eq!(node.traces(), "");
}
