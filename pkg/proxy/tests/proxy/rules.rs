//! Services over TCP.

use crate::host::Host;
use crate::{NODE, Node, PROGRAMS, endpoint, key, new_syncer, service};
use client::Key;
use proxy::record::More;
use proxy::services::ServicePort;
use proxy::syncer::Synced;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::Mutex;

const VIP: &str = "10.96.0.5:80";

/// Both backends of iptables, at the same time.
pub fn with_both(test: fn(&str)) {
    std::thread::scope(|scope| {
        let running: Vec<_> = PROGRAMS.map(|program| scope.spawn(move || test(program))).into();
        for thread in running {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

fn cabled() -> (Host, Host, Host) {
    let (host, outside) = (Host::new(), Host::new());
    let cable = Host::connect(&[&host, &outside]);
    (host, outside, cable)
}

#[test]
fn three_endpoints_take_turns_exactly_from_everywhere() {
    with_both(|program| {
        let (host, outside, _cable) = cabled();
        let node = Node::new(host, program);
        let pods: Vec<_> = ["a", "b", "c"].iter().map(|name| node.pod(name)).collect();
        let (_, client) = node.pod("client");
        let _servers: Vec<_> =
            pods.iter().zip(["a", "b", "c"]).map(|((_, pod), name)| pod.serve(8080, name)).collect();
        let endpoints: Vec<SocketAddr> = pods.iter().map(|(address, _)| (*address, 8080).into()).collect();
        let web = ServicePort { node_port: Some(30080), ..service("web", "10.96.0.5", &endpoints) };
        node.sync(&[web]);

        let mut counts: HashMap<String, u32> = HashMap::new();
        for _ in 0..300 {
            *counts.entry(client.ask(VIP).expect("an answer")).or_default() += 1;
        }
        assert!(["a", "b", "c"].iter().all(|name| counts.get(*name) == Some(&100)), "{program}: {counts:?}");

        assert!(node.host.ask(VIP).is_ok(), "{program}: the node itself");
        assert!(outside.ask(&format!("{NODE}:30080")).is_ok(), "{program}: a node port from outside");
        assert!(node.host.ask(&format!("{NODE}:30080")).is_ok(), "{program}: a node port from the node");
        // A pod reaches itself through its service, when it is its turn.
        let own: Vec<String> = (0..3).map(|_| pods[0].1.ask(VIP).expect("an answer")).collect();
        assert!(own.contains(&"a".to_owned()), "{program}: {own:?}");
    });
}

#[test]
fn what_nobody_serves_is_refused_at_once() {
    with_both(|program| {
        let (host, outside, _cable) = cabled();
        let node = Node::new(host, program);
        let (address, pod) = node.pod("a");
        let empty = ServicePort { node_port: Some(30080), ..service("empty", "10.96.0.6", &[]) };
        node.sync(&[service("web", "10.96.0.5", &[(address, 8080).into()]), empty]);
        for address in ["10.96.0.6:80", "10.96.0.5:81", "10.103.7.7:80"] {
            for from in [&pod, &node.host] {
                let refused = from.ask(address).expect_err(address).kind();
                assert_eq!(refused, ErrorKind::ConnectionRefused, "{program} {address}");
            }
        }
        let refused = outside.ask(&format!("{NODE}:30080")).expect_err("nobody").kind();
        assert_eq!(refused, ErrorKind::ConnectionRefused, "{program}");
        // Nothing of it was seen outside.
        assert_eq!(outside.sh("ip neigh show | grep 10.96 || true"), "");
    });
}

#[test]
fn a_restart_leaves_traffic_alone_and_removes_what_is_stale() {
    with_both(|program| {
        let (host, _outside, _cable) = cabled();
        let mut node = Node::new(host, program);
        let others = "-A POSTROUTING -s 1.2.3.4/32 -j ACCEPT";
        node.host.sh(&format!(
            "{program} -t nat {others}; {program} -t nat -N MINE; {program} -t nat -A MINE -j RETURN"
        ));
        let before = node.host.sh(&format!("{program}-save | grep -v '^#'"));
        let (address, pod) = node.pod("a");
        let (_, client) = node.pod("client");
        let _server = pod.serve(8080, "a");
        let web = service("web", "10.96.0.5", &[(address, 8080).into()]);
        let old = service("old", "10.96.0.7", &[(address, 8080).into()]);
        node.sync(&[web.clone(), old]);
        assert_eq!(client.ask("10.96.0.7:80").unwrap(), "a");

        // Another process, which does not know of `old`; meanwhile a client goes on asking.
        node.syncer = Arc::new(Mutex::new(new_syncer(&node.host, program)));
        let synced = std::thread::scope(|scope| {
            let asking = scope.spawn(|| (0..50).all(|_| client.ask(VIP).is_ok()));
            let synced = node.sync(std::slice::from_ref(&web));
            assert!(asking.join().expect("the client"), "{program}: a request failed");
            synced
        });
        assert_eq!(synced.removed, 2, "{program}: the chains of a service and its endpoint");
        assert_eq!(client.ask("10.96.0.7:80").unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(client.ask(VIP).unwrap(), "a");

        // Nothing changed: nothing is written. One endpoint: only what is about it.
        assert_eq!(node.sync(std::slice::from_ref(&web)).chains, 0, "{program}");
        let more = ServicePort {
            endpoints: vec![endpoint((address, 8080).into()), endpoint((address, 8081).into())],
            ..web
        };
        assert_eq!(node.sync(&[more]).chains, 2, "{program}: the service's chain and the new endpoint's");
        let gone = node.change(vec![(Key::new("default", "web"), vec![])]);
        assert_eq!(gone.removed, 3, "{program}");
        let syncer = node.syncer.clone();
        node.host.block_on(move || async move { syncer.lock().await.tidy().await.expect("tidy") });
        let left = node.host.sh(&format!("{program}-save -t nat"));
        assert!(!left.contains("KUBE-SEP-") && !left.contains("KUBE-SVC-"), "{program}: {left}");

        // Somebody flushes everything: it is noticed, and all is written again.
        let syncer = node.syncer.clone();
        node.host.sh(&format!("{program} -t nat -F; {program} -t nat -X"));
        let intact = node.host.block_on(move || async move { syncer.lock().await.look().await.unwrap() });
        assert!(!intact, "{program}");
        let web = service("web", "10.96.0.5", &[(address, 8080).into()]);
        node.sync(&[web]);
        assert_eq!(client.ask(VIP).unwrap(), "a");

        node.host.sh(&format!(
            "{program} -t nat {others}; {program} -t nat -N MINE; {program} -t nat -A MINE -j RETURN"
        ));
        let name = program.to_owned();
        node.host.block_on(move || async move {
            proxy::iptables::Iptables::find(&name).await.unwrap().cleanup().await.unwrap();
        });
        let after = node.host.sh(&format!("{program}-save | grep -v '^#'"));
        assert!(!after.contains("KUBE-"), "{program}: {after}");
        let ours = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.contains("1.2.3.4") || line.contains("MINE"));
            lines.map(|line| line.split(" [").next().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(ours(&before), ours(&after), "{program}: what is others' is untouched");
    });
}

#[test]
fn many_services_are_written_in_chunks() {
    with_both(|program| {
        let (host, _outside, _cable) = cabled();
        let node = Node::new(host, program);
        let (address, pod) = node.pod("a");
        let (_, client) = node.pod("client");
        let _server = pod.serve(8080, "a");
        let many: Vec<ServicePort> = (0..120)
            .map(|n| service(&format!("s{n}"), &format!("10.96.1.{n}"), &[(address, 8080).into()]))
            .collect();
        node.sync(&many);
        for n in [0, 49, 50, 119] {
            assert_eq!(client.ask(&format!("10.96.1.{n}:80")).unwrap(), "a", "{program}");
        }
    });
}

#[test]
fn a_client_stays_with_its_endpoint() {
    with_both(|program| {
        let (host, _outside, _cable) = cabled();
        let node = Node::new(host, program);
        let pods: Vec<_> = ["a", "b", "c"].iter().map(|name| node.pod(name)).collect();
        let (_, client) = node.pod("client");
        let _servers: Vec<_> =
            pods.iter().zip(["a", "b", "c"]).map(|((_, pod), name)| pod.serve(8080, name)).collect();
        let endpoints: Vec<SocketAddr> = pods.iter().map(|(address, _)| (*address, 8080).into()).collect();
        let more = More { affinity_seconds: Some(600), ..More::default() };
        node.sync(&[ServicePort { more, ..service("web", "10.96.0.5", &endpoints) }]);
        let first = client.ask(VIP).unwrap();
        for _ in 0..10 {
            assert_eq!(client.ask(VIP).unwrap(), first, "{program}");
        }
    });
}

#[test]
fn a_service_that_iptables_does_not_take_keeps_back_nobody() {
    with_both(|program| {
        let (host, _outside, _cable) = cabled();
        let mut node = Node::new(host, program);
        // Some kernels know nothing of what a client's choice is remembered by.
        let missing = "Extension recent revision 0 not supported, missing kernel module?";
        let refuse = format!("case \"$text\" in *'-m recent'*) echo '{missing}' >&2; exit 2;; esac");
        node.write_by(program, &refuse);
        let (address, pod) = node.pod("a");
        let (_, client) = node.pod("client");
        let _server = pod.serve(8080, "a");
        let plain =
            |n: u32| service(&format!("web-{n:03}"), &format!("10.96.1.{n}"), &[(address, 8080).into()]);
        let odd = |n: u32| ServicePort {
            more: More { affinity_seconds: Some(600), ..More::default() },
            ..plain(n)
        };
        let services = |odd_ones: &[u32]| -> Vec<ServicePort> {
            (0..60).map(|n| if odd_ones.contains(&n) { odd(n) } else { plain(n) }).collect()
        };
        let check = |odd_ones: &[u32]| {
            for n in [0, 1, 6, 7, 8, 58, 59] {
                let answers = client.ask(&format!("10.96.1.{n}:80")).is_ok();
                assert_eq!(answers, !odd_ones.contains(&n), "{program}: {n} {odd_ones:?}");
            }
        };
        let refused = |synced: Synced| -> Vec<String> {
            let told = |(key, said): (Key, String)| {
                assert!(said.contains(missing), "{program}: {said}");
                key.name
            };
            synced.refused.into_iter().map(told).collect()
        };
        assert_eq!(refused(node.sync(&services(&[7, 59]))), ["web-007", "web-059"], "{program}");
        check(&[7, 59]);
        // It changes, and is still not taken, which was said; others go on.
        assert!(refused(node.sync(&[odd(7), plain(8)])).is_empty(), "{program}");
        check(&[7, 59]);
        node.sync(&[plain(7)]);
        check(&[59]);
        // One that was served: all is written once more, and it alone is left out.
        let changed = node.try_change(vec![(key(&odd(6)), vec![odd(6)])]);
        changed.expect_err("it is found out by writing all");
        assert_eq!(refused(node.sync(&services(&[6, 59]))), ["web-006", "web-059"], "{program}");
        check(&[6, 59]);
    });
}
