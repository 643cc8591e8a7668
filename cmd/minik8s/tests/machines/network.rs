//! Services, names, hosts and paths over several machines: from every machine and every pod, while nodes come, go and
//! are cut off, while pods are replaced, and while there is no control plane.

use crate::support::{Cluster, Node, Pod, traces, unique};
use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use testing::Switch;

/// The code and the page.
fn curl(node: &Node, arguments: &[&str]) -> String {
    let fixed = ["-s", "-m", "5", "-w", " %{http_code}"];
    String::from_utf8_lossy(&node.machine.output("curl", &[&fixed[..], arguments].concat()).stdout)
        .replace('\n', "")
}

/// Somebody who asks again and again, one request after the other.
struct Client<'a> {
    node: &'a Node,
    stop: String,
    child: Child,
}

impl<'a> Client<'a> {
    fn start(node: &'a Node, url: &str) -> Client<'a> {
        let stop = format!("/run/{}", unique("stop"));
        let script = "good=0; bad=0; while [ ! -e $1 ] || [ $((good+bad)) -lt 20 ]; do \
            if timeout 10 busybox wget -qO /dev/null $2 2>/run/why; then good=$((good+1)); \
            else bad=$((bad+1)); cat /run/why; fi; done; echo $good $bad";
        let mut command = node.machine.command("sh");
        command.args(["-c", script, "sh", &stop, url]).stdout(Stdio::piped());
        Client { node, stop, child: command.spawn().expect("nsenter runs") }
    }

    /// Ends it; every request of many must have been answered.
    fn all_were_answered(self, what: &str) {
        self.node.machine.run("touch", &[&self.stop]);
        let output = self.child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let last = text.lines().last().unwrap_or_default();
        let (good, bad) = last.split_once(' ').unwrap_or_default();
        assert_eq!(bad, "0", "{what}: {text}");
        assert!(good.parse::<u32>().is_ok_and(|good| good > 10), "{what}: {text}");
    }
}

#[test]
fn three_machines_reach_everything_whatever_happens() {
    let switch = Switch::new();
    let cluster = Cluster::new(&switch, 3, &[]);
    notice_lost_nodes_soon(cluster.first());
    cluster.first().apply(include_str!("../../../../testcases/network/web.yaml"));
    services_are_reached_from_everywhere(&cluster);
    turns_are_exact(&cluster);
    policies_hold(&cluster);
    names_are_answered(&cluster, "10.96.0.10");
    the_seeds_examples_work(&cluster);
    ingresses_work(&cluster);
    certificates_are_followed(&cluster);
    pods_are_replaced_under_load(&cluster);
    a_dead_control_plane_is_not_noticed(&cluster);
    a_node_is_cut_off_and_comes_back(&cluster);
    a_node_leaves(&cluster);
}

#[test]
fn the_original_range_of_services_works_too() {
    let switch = Switch::new();
    let cluster = Cluster::new(&switch, 2, &["--service-cidr", "222.222.0.0/16"]);
    cluster.first().apply(include_str!("../../../../testcases/network/web.yaml"));
    assert!(cluster.address_of("web").starts_with("222.222."));
    services_are_reached_from_everywhere(&cluster);
    names_are_answered(&cluster, "222.222.0.10");
    the_seeds_examples_work(&cluster);
    a_dead_control_plane_is_not_noticed(&cluster);
}

/// A node that is silent is believed to be gone after seconds instead of most of a minute.
fn notice_lost_nodes_soon(node: &Node) {
    let path = node.machine.path("/etc/kubernetes/manifests/kube-controller-manager.yaml");
    let text = std::fs::read_to_string(&path).expect("the manifest");
    let line = text.lines().find(|line| line.trim_start().starts_with("- --")).expect("a flag");
    let indent = &line[..line.find('-').expect("found above")];
    let more =
        format!("{indent}- --node-monitor-grace-period=25s\n{indent}- --node-monitor-period=1s\n{line}\n");
    std::fs::write(&path, text.replacen(&format!("{line}\n"), &more, 1)).expect("written");
}

fn services_are_reached_from_everywhere(cluster: &Cluster) {
    let count = cluster.nodes.len();
    cluster.first().eventually("a web server on every machine", |_| cluster.pods("app=web").len() == count);
    let service = format!("http://{}/", cluster.address_of("web"));
    let web = |page: &str| page.starts_with("web-");
    cluster.everybody_gets("app=web", &service, web);
    cluster.everybody_gets("app=web", "http://10.89.0.1:30080/", web);
    for pod in cluster.pods("app=web") {
        cluster
            .everybody_gets("app=web", &format!("http://{}/", pod.address), |page| page.trim() == pod.name);
        let node_port = format!("http://{}:30080/", pod.node.machine.address());
        cluster.everybody_gets("app=web", &node_port, web);
    }
    for pod in cluster.pods("app=web") {
        // When it is its own turn, too.
        pod.node.eventually(&format!("{} reaches all, and itself", pod.name), |_| {
            let turns = (0..count).map(|_| pod.fetch(&service)).collect::<Vec<_>>();
            turns.iter().all(|page| web(page)) && turns.iter().any(|page| page.trim() == pod.name)
        });
    }
    cluster.everybody_gets("app=web", &format!("http://{}/", cluster.address_of("outer")), |page| {
        !page.is_empty()
    });
    // What nobody serves is refused at once.
    let nobody = cluster.address_of("nobody");
    let unknown = nobody.rsplit_once('.').map(|(net, _)| format!("{net}.254")).expect("an address");
    for address in [&nobody, &unknown] {
        for node in &cluster.nodes {
            node.eventually("it is refused", |node| {
                let output = node.machine.output("curl", &["-sS", "-m", "5", &format!("http://{address}/")]);
                // 7: could not connect; 28 would be a timeout.
                output.status.code() == Some(7)
            });
        }
    }
}

fn turns_are_exact(cluster: &Cluster) {
    let script = "i=0; while [ $i -lt 300 ]; do busybox wget -qO- $1; i=$((i+1)); done";
    let service = format!("http://{}/", cluster.address_of("web"));
    for node in &cluster.nodes {
        let text = node.machine.run("sh", &["-c", script, "sh", &service]);
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        text.lines().for_each(|line| *counts.entry(line).or_default() += 1);
        assert_eq!(counts.values().copied().collect::<Vec<_>>(), [100, 100, 100], "{counts:?}");
    }
}

fn policies_hold(cluster: &Cluster) {
    // As whoever looks after load balancers would.
    let given = r#"{"status": {"loadBalancer": {"ingress": [{"ip": "10.89.0.100"}]}}}"#;
    cluster.first().kubectl(&[
        "patch",
        "service",
        "near",
        "--subresource=status",
        "--type=merge",
        "-p",
        given,
    ]);
    let near = format!("http://{}/", cluster.address_of("near"));
    for pod in cluster.pods("app=web") {
        // Inside: this machine's own pod only. Outside, at a node port, an external address and the health check.
        let own = |page: String| page.trim() == pod.name;
        pod.node.eventually(&format!("{near} is {}", pod.name), |node| {
            (0..4).all(|_| own(node.fetch(&near)) && own(pod.fetch(&near)))
        });
        let other = cluster.nodes.iter().find(|node| node.machine.name() != pod.node.machine.name());
        let other = other.expect("another machine");
        let machine = pod.node.machine.address();
        other.eventually(&format!("{machine}:30081 is {}", pod.name), |other| {
            (0..4).all(|_| own(other.fetch(&format!("http://{machine}:30081/"))))
        });
        other.eventually(&format!("{machine} says that it has one"), |other| {
            let check = curl(other, &[&format!("http://{machine}:31000/")]);
            check.contains("\"localEndpoints\": 1") && check.ends_with(" 200")
        });
        pod.node
            .eventually("an external address", |node| node.fetch("http://10.89.0.100/").starts_with("web-"));
    }
    let sticky = format!("http://{}/", cluster.address_of("sticky"));
    cluster.first().eventually("always the same", |node| {
        let pages: Vec<String> = (0..6).map(|_| node.fetch(&sticky)).collect();
        pages.iter().all(|page| *page == pages[0] && !page.is_empty())
    });
}

fn names_are_answered(cluster: &Cluster, server: &str) {
    let web = cluster.address_of("web");
    let reversed = |address: &str| address.split('.').rev().collect::<Vec<_>>().join(".") + ".in-addr.arpa";
    cluster.first().eventually("pods with names", |_| cluster.pods("app=db").len() == 2);
    let db: Vec<String> = cluster.pods("app=db").iter().map(|pod| pod.address.clone()).collect();
    for pod in cluster.pods("app=web") {
        let says = |kind: &str, name: &str, expected: &str| {
            pod.node.eventually(&format!("{name} {kind} is {expected} in {}", pod.name), |_| {
                let answer = pod.look_up(kind, name);
                answer.contains(&format!("Server:\t\t{server}")) && answer.contains(expected)
            });
        };
        says("a", "web.default.svc.cluster.local", &web);
        says("a", "db-0.db.default.svc.cluster.local", "Address: ");
        db.iter().for_each(|address| says("a", "db.default.svc.cluster.local", address));
        says("srv", "_http._tcp.web.default.svc.cluster.local", "80 web.default.svc.cluster.local");
        says("srv", "_sql._tcp.db.default.svc.cluster.local", "5432 db-1.db.default.svc.cluster.local");
        says("ptr", &reversed(&web), "web.default.svc.cluster.local");
        says("ptr", &reversed(&db[0]), ".db.default.svc.cluster.local");
        says("a", "alias.default.svc.cluster.local", &web);
        says("a", "kube-dns.kube-system.svc.cluster.local", server);
        let gets = |url: &str, expected: &str| {
            pod.node
                .eventually(&format!("{} gets {url}", pod.name), |_| pod.fetch(url).starts_with(expected));
        };
        gets("http://web/", "web-");
        gets("http://db-1.db:5432/", "db-1");
        says("a", "nosuch.default.svc.cluster.local", "NXDOMAIN");
    }
}

fn the_seeds_examples_work(cluster: &Cluster) {
    let first = cluster.first();
    first.apply(include_str!("../../../../testcases/network/seed-pod.yaml"));
    let file = first.machine.path("/etc/seed.yaml");
    std::fs::write(&file, include_str!("../../../../testcases/network/seed.yaml")).expect("written");
    // As the document has it: the file as an argument.
    first.kubectl(&["apply", "/etc/seed.yaml"]);
    let pod = |page: &str| page.trim() == "pod-aff-test";
    cluster.everybody_gets("app=web", "http://minik8s.io/test1", pod);
    cluster.everybody_gets("app=web", "http://minik8s.io:80/test2", pod);
    assert!(first.kubectl(&["get", "service"]).contains("8080/TCP,80/TCP"));
    first.eventually("the status of the DNS object", |node| {
        let table = node.kubectl(&["get", "dns"]);
        ["test-dns", "minik8s.io", "/test1,/test2", "80,8080", "Ready"]
            .iter()
            .all(|word| table.contains(word))
    });
    // Without its service it says so, and heals.
    first.kubectl(&["delete", "service", "servicePodTest"]);
    first.eventually("503", |node| curl(node, &["http://minik8s.io/test1"]).ends_with(" 503"));
    first.eventually("the status says why", |node| {
        node.kubectl(&["get", "dns", "-o", "yaml"]).contains("not found")
    });
    first.kubectl(&["apply", "/etc/seed.yaml"]);
    cluster.everybody_gets("app=web", "http://minik8s.io/test1", pod);
    std::fs::remove_file(file).expect("removed");
}

fn ingresses_work(cluster: &Cluster) {
    let first = cluster.first();
    first.apply(include_str!("../../../../testcases/network/ingress.yaml"));
    let host = "http://shop.example.com";
    cluster.everybody_gets("app=web", &format!("{host}/exact"), |page| page == "exact\n");
    cluster.everybody_gets("app=web", &format!("{host}/below/deep/page"), |page| page == "deep\n");
    let gets = |path: &str, expected: &str| {
        first.eventually(&format!("{path}: {expected}"), |node| {
            curl(node, &[&format!("{host}{path}")]).contains(expected)
        });
    };
    gets("/below/", "below 200");
    // Neither fits: the default backend answers, which knows no such page.
    gets("/belowground", "404");
    gets("/exact/more", "404");
    gets("/", "web-");
    gets("/later", " 503");
    first.eventually("the default backend, by address", |node| {
        curl(node, &["http://10.89.0.1/"]).starts_with("web-")
    });
    first.apply(
        "apiVersion: v1\nkind: Service\nmetadata: {name: later}\nspec:\n  selector: {app: web}\n  ports: [{port: 80}]\n",
    );
    first.eventually("the service that was missing", |node| {
        curl(node, &[&format!("{host}/later")]).ends_with(" 404")
    });
    first.eventually("it says where it is reached", |node| {
        let table = node.kubectl(&["get", "ingress", "shop"]);
        table.contains("minik8s") && table.contains("10.89.0.1,10.89.0.2,10.89.0.3")
    });
    // All names below one, wherever they are asked for.
    first.apply(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: below}\nspec:\n  rules: [{host: '*.apps.example.com', \
         http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]\n",
    );
    for pod in cluster.pods("app=web") {
        pod.node
            .eventually("a name below", |_| pod.fetch("http://any.apps.example.com/").starts_with("web-"));
    }
}

fn certificates_are_followed(cluster: &Cluster) {
    let make = |name: &str| {
        let made = pki::Authority::create(name, jiff::Timestamp::now()).expect("a certificate");
        let indented = |text: &str| text.lines().map(|line| format!("    {line}\n")).collect::<String>();
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: shop}}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
            indented(made.pem()),
            indented(made.key_pem())
        )
    };
    for name in ["one", "two"] {
        cluster.first().apply(&make(name));
        for node in &cluster.nodes {
            node.eventually(&format!("the certificate {name}"), |node| {
                let shown = node
                    .machine
                    .output("curl", &["-skv", "-m", "5", "https://shop.example.com/below/deep/page"]);
                String::from_utf8_lossy(&shown.stderr).contains(&format!("CN={name}"))
                    && shown.stdout == b"deep\n"
            });
        }
    }
}

fn pods_are_replaced_under_load(cluster: &Cluster) {
    let first = cluster.first();
    first.apply(include_str!("../../../../testcases/network/rolling.yaml"));
    first.rolled_out("deployment/rolling");
    let url = format!("http://{}/", cluster.address_of("rolling"));
    cluster.everybody_gets("app=web", &url, |page| page.starts_with("rolling-"));
    let clients: Vec<Client<'_>> = cluster.nodes.iter().map(|node| Client::start(node, &url)).collect();
    let patch = r#"{"spec":{"template":{"metadata":{"annotations":{"version":"2"}}}}}"#;
    first.kubectl(&["patch", "deployment", "rolling", "-p", patch]);
    first.rolled_out("deployment/rolling");
    first.eventually("the old pods are gone", |node| {
        let names = node.kubectl(&["get", "pods", "-l", "app=rolling", "-o", "name"]);
        names.lines().count() == 3
    });
    clients.into_iter().for_each(|client| client.all_were_answered("while pods are replaced"));
}

fn a_dead_control_plane_is_not_noticed(cluster: &Cluster) {
    let (first, second) = (cluster.first(), &cluster.nodes[1]);
    let service = format!("http://{}/", cluster.address_of("web"));
    let web = cluster.pods("app=web");
    let on_second = web.iter().find(|pod| pod.node.machine.name() == second.machine.name()).expect("a pod");
    let clients = [
        Client::start(first, &service),
        Client::start(second, &service),
        Client::start(first, "http://minik8s.io/test1"),
    ];
    // What a kube-proxy without an apiserver starts from is written a moment after it is known.
    let behind = cluster.address_of("servicePodTest");
    second.eventually("it has written down what it knows", |node| {
        let copy = std::fs::read_to_string(node.machine.path("/var/lib/minik8s/proxy/objects.json"));
        copy.is_ok_and(|copy| copy.contains("minik8s.io") && copy.contains(&behind))
    });
    first.machine.run("mv", &["/etc/kubernetes/manifests", "/etc/kubernetes/kept"]);
    first.machine.output("pkill", &["-KILL", "-f", "^/(apiserver|scheduler|controller-manager) "]);
    first.eventually("there is no control plane", |node| {
        !node.machine.output("pgrep", &["-f", "^/(apiserver|scheduler|controller-manager) "]).status.success()
    });
    // A kube-proxy that starts now has nobody to ask, only its own copy. Its rules, and nginx, are gone, too.
    let lookup = |pod: &Pod<'_>| pod.look_up("a", "web.default.svc.cluster.local").contains("Name:");
    second.eventually("names are answered", |_| lookup(on_second));
    clients.into_iter().for_each(|client| client.all_were_answered("without a control plane"));
    let clients = [Client::start(first, &service), Client::start(first, "http://minik8s.io/test1")];
    second.machine.run("iptables", &["-t", "nat", "-F", "KUBE-SERVICES"]);
    second.machine.run("pkill", &["-KILL", "nginx"]);
    second.machine.run("pkill", &["-KILL", "-f", "minik8s kubeproxy "]);
    second.eventually("its services are back", |node| node.fetch(&service).starts_with("web-"));
    second.eventually("names are answered again", |_| lookup(on_second));
    second.eventually("hosts and paths are back", |node| {
        node.fetch("http://minik8s.io/test1").starts_with("pod-aff-test")
            && on_second.fetch("http://minik8s.io/test2").starts_with("pod-aff-test")
    });
    clients.into_iter().for_each(|client| client.all_were_answered("while another node's proxy starts anew"));
    first.machine.run("mv", &["/etc/kubernetes/kept", "/etc/kubernetes/manifests"]);
    first.eventually("the control plane is back", |node| node.try_kubectl(&["get", "nodes"]).contains("m2"));
    cluster.everybody_gets("app=web", &service, |page| page.starts_with("web-"));
}

fn a_node_is_cut_off_and_comes_back(cluster: &Cluster) {
    let (first, third) = (cluster.first(), &cluster.nodes[2]);
    let pods = cluster.pods("app=web");
    let lost = pods.iter().find(|pod| pod.node.machine.name() == "m3").expect("a pod on the third machine");
    let chain = format!("--to-destination {}:80", lost.address);
    let leads = |node: &Node| node.machine.run("iptables-save", &["-t", "nat"]).contains(&chain);
    let near = format!("http://{}/", cluster.address_of("near"));
    third.machine.connect(false);
    first.eventually("nobody is led to the lost node", |node| !leads(node));
    let client = Client::start(first, &format!("http://{}/", cluster.address_of("web")));
    // What it has itself it goes on serving.
    third.eventually("its own service", |node| node.fetch(&near).trim() == lost.name);
    first.eventually("hosts and paths", |node| {
        (0..20).all(|_| node.fetch("http://shop.example.com/").starts_with("web-"))
    });
    client.all_were_answered("without the lost node");
    third.machine.connect(true);
    first.eventually("it is led to again", leads);
    services_are_reached_from_everywhere(cluster);
}

fn a_node_leaves(cluster: &Cluster) {
    let (first, third) = (cluster.first(), &cluster.nodes[2]);
    let address = third.machine.address().to_string();
    let routes = |node: &Node| node.machine.run("sh", &["-c", "bridge fdb show dev flannel.1; ip route"]);
    assert!(routes(first).contains(&address));
    third.run(&["kubeadm", "reset", "--force"]);
    first.kubectl(&["delete", "node", "m3"]);
    let is_ours =
        |line: &String| ["KUBE-", "flannel", "minik8s", "10.96."].iter().any(|word| line.contains(word));
    // nginx ends in its own time.
    third.eventually("nothing of ours is left", |node| !traces(node).iter().any(is_ours));
    assert!(!third.machine.run("cat", &["/etc/hosts"]).contains("shop.example.com"));
    for node in &cluster.nodes[..2] {
        node.eventually("no way leads there any more", |node| {
            let found = routes(node);
            !found.contains(&address) && found.matches("flannel.1").count() > 0
        });
    }
    let web = format!("http://{}/", cluster.address_of("web"));
    first.eventually("two web servers are left", |_| cluster.pods("app=web").len() == 2);
    first.eventually("and are reached", |node| (0..6).all(|_| node.fetch(&web).starts_with("web-")));
}
