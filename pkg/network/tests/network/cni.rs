//! CNI plugins, Debian's.

use crate::host::Host;
use crate::{Node, host_port, pod};

const BRIDGE: &str = r#"{"cniVersion": "0.4.0", "name": "test", "plugins": [
    {"type": "bridge", "bridge": "cnitest0", "isGateway": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "subnet": "10.99.0.0/24", "dataDir": "DIR/ipam",
              "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;

#[test]
fn a_configuration_is_used_instead_and_its_pods_are_removed_by_it() {
    let outside = Host::new();
    let host = Host::new();
    let _cable = Host::connect(&[&host, &outside]);
    let node = Node::on(host, "10.244.1.0/24");
    let before = node.attach(&pod("before"), &[]);
    let cni = node.dir.path().join("cni");
    std::fs::create_dir_all(&cni).unwrap();
    let conflist = cni.join("10-test.conflist");
    std::fs::write(&conflist, BRIDGE.replace("DIR", &node.dir.path().display().to_string())).unwrap();

    let web = node.attach(&pod("web"), &[host_port(8080, 80)]);
    assert_eq!(web.addresses, ["10.99.0.2".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(node.attach(&pod("web"), &[host_port(8080, 80)]), web, "attaching again changes nothing");
    assert_eq!(node.attach(&pod("before"), &[]), before, "who had an address keeps it");
    let network = node.network.clone();
    node.attach(&pod("plain"), &[]);
    // Debian's portmap cannot check host ports where there is no IPv6, so this is of a pod without.
    node.host.block_on(move || async move { network.check(&pod("plain")).await.expect("CHECK") });
    let inside = node.pod(&web);
    let _server = inside.serve(80, "web");
    assert_eq!(outside.ask("192.168.77.1:8080").unwrap(), "web");
    drop((_server, inside));

    // The file goes; the pod is still removed by the plugins that made it.
    std::fs::remove_file(&conflist).unwrap();
    node.detach(&pod("web"));
    let leased = node.host.sh(&format!("ls {}/ipam/test", node.dir.path().display()));
    assert!(!leased.contains("10.99.0.2"), "{leased}");
    assert_eq!(node.attach(&pod("after"), &[]).addresses[0].to_string(), "10.244.1.3");
}

#[test]
fn a_plugin_that_fails_says_why_and_leaves_nothing() {
    let node = Node::new("10.244.1.0/24");
    let cni = node.dir.path().join("cni");
    std::fs::create_dir_all(&cni).unwrap();
    let config = BRIDGE.replace("DIR", &node.dir.path().display().to_string());
    std::fs::write(cni.join("10-test.conflist"), config.replace("\"portmap\"", "\"no-such-plugin\""))
        .unwrap();
    let error = node.try_attach(&pod("web"), &[]).unwrap_err().to_string();
    assert!(error.contains("failed to find plugin \"no-such-plugin\" in path"), "{error}");
    std::fs::write(cni.join("10-test.conflist"), "{").unwrap();
    let why = node.network.status().unwrap_err().to_string();
    assert!(why.contains("10-test.conflist"), "{why}");
    std::fs::write(cni.join("10-test.conflist"), config).unwrap();
    // The list that failed is still in the record until the pod is detached; the plugin is still missing then.
    let network = node.network.clone();
    let failed = node.host.block_on(move || async move { network.detach(&pod("web")).await });
    assert!(failed.is_err());
    node.cleanup();
    assert_eq!(node.network.list().map(|left| left.len()).unwrap_or(0), 0);
}
