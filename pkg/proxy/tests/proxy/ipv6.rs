//! Services over IPv6, by ip6tables.

use crate::host::Host;
use crate::rules::with_both;
use crate::service;
use client::Key;
use proxy::iptables::Iptables;
use proxy::rules::Settings;
use proxy::syncer::Syncer;
use std::io::{ErrorKind, Write};
use std::net::TcpListener;

#[test]
fn services_have_ipv6_addresses_too() {
    with_both(|program| {
        let (host, outside) = (Host::new(), Host::new());
        let _cable = Host::connect(&[&host, &outside]);
        for (host, address) in [(&host, "fd00:77::1"), (&outside, "fd00:77::2")] {
            host.sh(&format!("ip address add {address}/64 dev eth0 nodad"));
        }
        outside.run(|| {
            let listener = TcpListener::bind("[::]:8080").expect("a free port");
            std::thread::spawn(move || {
                for mut stream in listener.incoming().take(1).flatten() {
                    let _ = stream.write_all(b"six");
                }
            });
        });
        let program = program.replacen("iptables", "ip6tables", 1);
        let name = program.clone();
        host.block_on(move || async move {
            let range = "fd00:96::/112".parse().expect("a range");
            let source = "fd00:77::1".parse().expect("an address");
            network::claims::claim_range(range, source).await.expect("the services' route");
            let settings = Settings {
                pods: Some("fd00:244::/56".parse().expect("a range")),
                service_ranges: vec![range],
                ..Settings::new(true)
            };
            let mut syncer = Syncer::new(Iptables::find(&name).await.expect("ip6tables"), settings);
            let web = service("web", "fd00:96::5", &["[fd00:77::2]:8080".parse().expect("an address")]);
            let nobody = service("nobody", "fd00:96::6", &[]);
            let all = [("web", web), ("nobody", nobody)];
            let all = all.map(|(name, port)| (Key::new("default", name), vec![port]));
            syncer.sync(all).await.expect("sync");
        });
        assert_eq!(host.ask("[fd00:96::5]:80").expect("an answer"), "six", "{program}");
        for address in ["[fd00:96::6]:80", "[fd00:96::77]:80"] {
            let refused = host.ask(address).expect_err(address).kind();
            assert_eq!(refused, ErrorKind::ConnectionRefused, "{program} {address}");
        }
        let name = program.clone();
        host.block_on(move || async move {
            Iptables::find(&name).await.expect("ip6tables").cleanup().await.expect("clean up");
        });
        assert!(!host.sh(&format!("{program}-save")).contains("KUBE-"), "{program}");
    });
}
