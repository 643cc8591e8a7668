//! Whatever a Service says, iptables is told what is meant and nothing else.
#![no_main]

#[path = "../../pkg/proxy/tests/said/iptables.rs"]
mod iptables;

use libfuzzer_sys::fuzz_target;
use proxy::record::{Service, Slice};
use proxy::rules::{self, Settings};
use proxy::services::{Here, ports_of};
use serde_json::{from_value, json};

fuzz_target!(|data: ([String; 4], u16, u16, bool, bool)| {
    let ([namespace, name, port_name, address], port, target, ipv6, local) = data;
    let policy = if local { "Local" } else { "Cluster" };
    let service = json!({"metadata": {"namespace": namespace, "name": name},
        "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
        "spec": {"type": "LoadBalancer", "clusterIP": address, "externalIPs": [address], "externalTrafficPolicy": policy,
            "loadBalancerSourceRanges": [address], "ports": [{"name": port_name, "port": port, "nodePort": target}]}});
    let slice = json!({"metadata": {}, "addressType": "IPv4", "ports": [{"name": port_name, "port": target}],
        "endpoints": [{"addresses": [address]}, {"addresses": ["10.244.1.7"]}, {"addresses": ["fd00::7"]}]});
    let (Ok(service), Ok(slice)) = (from_value::<Service>(service), from_value::<Slice>(slice)) else { return };
    let ports = ports_of(&service, [slice].iter(), &Here::default());
    let settings = Settings::new(ipv6);
    let rules = rules::render(&ports, &settings);
    if let Err(error) = iptables::says_the_same(&ports, &settings, &rules) {
        panic!("{error}\n{rules:#?}");
    }
});
