//! UDP, and addresses of both families, over several machines.

use crate::support::{Cluster, Node, Pod, traces};
use testing::Switch;

/// Asks over UDP and prints who answered: once, or, with a port of its own, again and again until `/run/enough` is there.
const ASK: &str = r#"
    my ($host, $port, $own) = @ARGV;
    my $six = $host =~ /:/;
    my $to = $six ? pack_sockaddr_in6($port, inet_pton(AF_INET6, $host)) : pack_sockaddr_in($port, inet_aton($host));
    socket(S, $six ? PF_INET6 : PF_INET, SOCK_DGRAM, 0) or die $!;
    if ($own) { bind(S, $six ? pack_sockaddr_in6($own, Socket::IN6ADDR_ANY()) : pack_sockaddr_in($own, INADDR_ANY)) or die $! }
    do {
        send(S, "who", 0, $to);
        my $ready = ""; vec($ready, fileno(S), 1) = 1;
        if (select($ready, undef, undef, $own ? 0.2 : 3) && defined recv(S, my $name, 1500, 0)) { syswrite(STDOUT, "$name\n") }
        select(undef, undef, undef, 0.05) if $own;
    } while ($own && !-e "/run/enough");
"#;

fn perl<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&["-MSocket=:DEFAULT,inet_pton", "-e", ASK], words].concat()
}

/// Who answers a machine.
fn ask(node: &Node, host: &str, port: &str) -> String {
    String::from_utf8_lossy(&node.machine.output("perl", &perl(&[host, port])).stdout).trim().to_owned()
}

/// Who answers a pod of udp.yaml.
fn ask_from(pod: &Pod<'_>, host: &str, port: &str) -> String {
    pod.run(&[&["chroot", "/machine", "perl"], perl(&[host, port]).as_slice()].concat()).trim().to_owned()
}

#[test]
fn datagrams_and_both_families_reach_everything() {
    let switch = Switch::new();
    let nodes = Node::boot_all(&switch, 3);
    let before = traces(&nodes[2]);
    let ranges = [
        "--pod-network-cidr",
        "10.244.0.0/16,fd00:10:244::/56",
        "--service-cidr",
        "10.96.0.0/12,fd00:10:96::/112",
    ];
    let cluster = Cluster::of(nodes, &ranges);
    let first = cluster.first();
    for file in [
        include_str!("../../../../testcases/network/web.yaml"),
        include_str!("../../../../testcases/network/udp.yaml"),
        include_str!("../../../../testcases/network/dual.yaml"),
    ] {
        first.apply(file);
    }
    first.rolled_out("daemonset/web");
    first.rolled_out("daemonset/udp");
    first.rolled_out("deployment/one");
    everything_has_two_addresses(&cluster);
    pages_are_fetched_over_both(&cluster);
    names_have_both(&cluster);
    datagrams_are_answered(&cluster);
    datagrams_follow_the_pod(&cluster);
    let third = &cluster.nodes[2];
    third.run(&["kubeadm", "reset", "--force"]);
    third.leaves_only(&before);
}

fn addresses_of(cluster: &Cluster, service: &str) -> Vec<String> {
    let text = cluster.first().get(&format!("service {service}"), "{.spec.clusterIPs[*]}");
    text.split_whitespace().map(str::to_owned).collect()
}

fn everything_has_two_addresses(cluster: &Cluster) {
    let is_dual =
        |addresses: &[String]| matches!(addresses, [four, six] if !four.contains(':') && six.contains(':'));
    let first = cluster.first();
    for node in &cluster.nodes {
        let name = node.machine.name();
        let ranges = first.get(&format!("node {name}"), "{.spec.podCIDRs[*]}");
        assert!(ranges.starts_with("10.244.") && ranges.contains(" fd00:10:244:"), "{name}: {ranges}");
        let path = "{.status.addresses[?(@.type==\"InternalIP\")].address}";
        let own = format!("{} {}", node.machine.address(), node.machine.address_v6());
        assert_eq!(first.get(&format!("node {name}"), path), own);
    }
    for app in ["web", "udp", "db", "outer"] {
        let has_both = |pods: &[Pod<'_>]| pods.iter().all(|pod| is_dual(&pod.addresses));
        first.eventually(&format!("{app} has two addresses"), |_| {
            let pods = cluster.pods(&format!("app={app}"));
            !pods.is_empty() && has_both(&pods)
        });
    }
    for service in ["both", "udp", "one"] {
        assert!(is_dual(&addresses_of(cluster, service)), "{service}");
    }
    assert_eq!(first.get("service web", "{.spec.ipFamilyPolicy} {.spec.ipFamilies[*]}"), "SingleStack IPv4");
    assert!(matches!(addresses_of(cluster, "six").as_slice(), [six] if six.starts_with("fd00:10:96::")));
}

fn pages_are_fetched_over_both(cluster: &Cluster) {
    let url = |address: &str, port: u16| match address.contains(':') {
        true => format!("http://[{address}]:{port}/"),
        false => format!("http://{address}:{port}/"),
    };
    let web = |page: &str| page.starts_with("web-");
    for service in ["both", "six"] {
        for address in addresses_of(cluster, service) {
            cluster.everybody_gets("app=web", &url(&address, 80), web);
        }
    }
    for pod in cluster.pods("app=web") {
        for address in &pod.addresses {
            cluster.everybody_gets("app=web", &url(address, 80), |page| page.trim() == pod.name);
        }
        let machine = &pod.node.machine;
        for address in [machine.address().to_string(), machine.address_v6().to_string()] {
            cluster.everybody_gets("app=web", &url(&address, 30090), web);
        }
    }
    // In turns over the pods of all machines, as with the other family.
    let address = url(&addresses_of(cluster, "both")[1], 80);
    for node in &cluster.nodes {
        node.eventually("each has its turn", |node| {
            let mut pages: Vec<String> = (0..cluster.nodes.len()).map(|_| node.fetch(&address)).collect();
            pages.sort();
            pages.dedup();
            pages.len() == cluster.nodes.len() && pages.iter().all(|page| web(page))
        });
    }
}

fn names_have_both(cluster: &Cluster) {
    let both = addresses_of(cluster, "both");
    let named = cluster.pods("app=db");
    for pod in cluster.pods("app=web") {
        let says = |kind: &str, name: &str, expected: &str| {
            pod.node.eventually(&format!("{name} {kind} is {expected} in {}", pod.name), |_| {
                pod.look_up(kind, name).contains(expected)
            });
        };
        says("a", "both.default.svc.cluster.local", &both[0]);
        says("aaaa", "both.default.svc.cluster.local", &both[1]);
        named.iter().for_each(|pod| says("aaaa", "named.default.svc.cluster.local", &pod.addresses[1]));
        pod.node.eventually("a page by the name of six", |_| pod.fetch("http://six/").starts_with("web-"));
    }
}

/// From every machine and every pod: the service, and every machine's node port.
fn datagrams_are_answered(cluster: &Cluster) {
    let mut targets: Vec<(String, &str)> =
        addresses_of(cluster, "udp").into_iter().map(|address| (address, "53")).collect();
    for node in &cluster.nodes {
        targets.push((node.machine.address().to_string(), "30053"));
        targets.push((node.machine.address_v6().to_string(), "30053"));
    }
    for (host, port) in &targets {
        for node in &cluster.nodes {
            node.eventually(&format!("{host}:{port} answers {}", node.machine.name()), |node| {
                ask(node, host, port).starts_with("udp-")
            });
        }
        for pod in cluster.pods("app=udp") {
            pod.node.eventually(&format!("{host}:{port} answers {}", pod.name), |_| {
                ask_from(&pod, host, port).starts_with("udp-")
            });
        }
    }
    // A pod is told at once that nobody is there; a machine that asks itself would wait.
    let refused = "socket(S, PF_INET, SOCK_DGRAM, 0); connect(S, pack_sockaddr_in(53, inet_aton($ARGV[0]))); send(S, 1, 0); \
                   alarm(10); recv(S, $_, 9, 0); print $!";
    for pod in cluster.pods("app=udp") {
        let nobody = cluster.address_of("nobody");
        pod.node.eventually("it is refused", |_| {
            let told = pod.run(&["chroot", "/machine", "perl", "-MSocket", "-e", refused, &nobody]);
            told == "Connection refused"
        });
    }
}

/// Those who go on asking from the same port reach the pod that took the place of the one that answered them.
fn datagrams_follow_the_pod(cluster: &Cluster) {
    let [four, six] = addresses_of(cluster, "one").try_into().expect("two addresses");
    let places = [(four, "53", "7001"), (six, "53", "7002"), ("10.89.0.3".to_owned(), "30054", "7003")];
    let file = |node: &Node, own: &str| node.machine.path(&format!("/opt/answers-{own}"));
    let mut asking = Vec::new();
    for node in &cluster.nodes[..2] {
        for (host, port, own) in &places {
            let mut command = node.machine.command("perl");
            command.args(perl(&[host, port, own]));
            command.stdout(std::fs::File::create(file(node, own)).expect("a file"));
            asking.push(command.spawn().expect("perl runs"));
        }
    }
    let answered_last_by = |name: &str| {
        for node in &cluster.nodes[..2] {
            for (host, port, own) in &places {
                node.eventually(&format!("{name} answers {host}:{port}"), |node| {
                    let text = std::fs::read_to_string(file(node, own)).unwrap_or_default();
                    text.lines().last() == Some(name)
                });
            }
        }
    };
    let first = cluster.first();
    let pod =
        || first.get("pods -l app=one --field-selector status.phase=Running", "{.items[*].metadata.name}");
    let before = pod();
    answered_last_by(&before);
    first.kubectl(&["delete", "pod", &before]);
    first.rolled_out("deployment/one");
    let after = pod();
    assert_ne!(before, after);
    answered_last_by(&after);
    cluster.nodes[..2].iter().for_each(|node| drop(node.machine.run("touch", &["/run/enough"])));
    asking.iter_mut().for_each(|child| assert!(child.wait().expect("a child").success()));
}
