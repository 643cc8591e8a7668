//! Whether this machine can do what is asked, found out before anything is changed. Pure: facts become problems, and
//! each says what mends it.

use crate::facts::Facts;
use std::fmt;

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Its name, for `--ignore-preflight-errors`.
    pub name: &'static str,
    /// What is wrong, and what mends it.
    pub text: String,
    /// It can be lived with.
    pub is_warning: bool,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.name, self.text)
    }
}

/// What is wrong.
pub fn check(facts: &Facts) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut error = |name, text: String| problems.push(Problem { name, text, is_warning: false });
    if !facts.is_root {
        error("IsPrivilegedUser", "not root: run it with sudo".to_owned());
    }
    for (program, package) in &facts.missing_programs {
        error("FileExisting", format!("{program} is missing: apt-get install {package}"));
    }
    if !facts.containerd_answers {
        let socket = facts.containerd_socket.display();
        let text = format!(
            "containerd does not answer at {socket}: start it (systemctl start containerd, or containerd &), or install it \
             (apt-get install containerd)"
        );
        error("CRI", text);
    }
    let see_who = |port: &u16| format!("see who has it with ss -ltnp 'sport = :{port}'");
    for port in &facts.taken_ports {
        let text = format!("port {port} is in use: {}", see_who(port));
        error("Port", text);
    }
    for feature in &facts.missing_kernel_features {
        error("KernelFeature", format!("the kernel has no {feature}"));
    }
    for file in &facts.leftovers {
        let text = format!(
            "{} is there already: kubeadm reset takes away what is left of a cluster",
            file.display()
        );
        error("FileAvailable", text);
    }
    for store in &facts.other_stores {
        let text = format!(
            "{} holds a cluster's objects, which this cluster would not see: choose it (--datastore), or take it away \
             with kubeadm reset",
            store.display()
        );
        error("Datastore", text);
    }
    if !facts.program_is_whole {
        let text =
            "this kubeadm is not part of the one program that holds them all: call it as bin/kubeadm after \
                    make build, or give --program"
                .to_owned();
        error("Program", text);
    }
    for (program, package, what) in &facts.wished_programs {
        let text = format!("{program} is missing, which {what} need: apt-get install {package}");
        problems.push(Problem { name: "FileExisting", text, is_warning: true });
    }
    for port in &facts.taken_wished_ports {
        let text = format!(
            "port {port} is in use, so hosts of DNS objects and ingresses are not served there until it is free: {} (if it \
             is Debian's own nginx: systemctl disable --now nginx)",
            see_who(port)
        );
        problems.push(Problem { name: "Port", text, is_warning: true });
    }
    if facts.has_swap {
        let text = "swap is on: pods' memory limits are less exact (swapoff -a turns it off)".to_owned();
        problems.push(Problem { name: "Swap", text, is_warning: true });
    }
    problems
}

/// The problems that stand in the way, after those that the caller chose to ignore have become warnings.
pub fn sort(problems: Vec<Problem>, ignored: &[String]) -> (Vec<Problem>, Vec<Problem>) {
    let is_ignored = |name: &str| {
        ignored.iter().any(|one| one.eq_ignore_ascii_case(name) || one.eq_ignore_ascii_case("all"))
    };
    problems.into_iter().partition(|problem| !problem.is_warning && !is_ignored(problem.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts { is_root: true, containerd_answers: true, program_is_whole: true, ..Facts::default() }
    }

    #[test]
    fn a_good_machine_has_no_problem() {
        assert_eq!(check(&good()), []);
    }

    #[test]
    fn every_problem_says_what_mends_it() {
        let facts = Facts {
            missing_programs: vec![("iptables".into(), "iptables".into())],
            wished_programs: vec![("nginx", "nginx-light", "DNS objects")],
            containerd_socket: "/run/containerd/containerd.sock".into(),
            taken_ports: vec![6443],
            taken_wished_ports: vec![80],
            leftovers: vec!["/etc/kubernetes/kubelet.conf".into()],
            other_stores: vec!["/var/lib/minik8s/etcd".into()],
            has_swap: true,
            ..Facts::default()
        };
        let texts: Vec<String> = check(&facts).iter().map(ToString::to_string).collect();
        for expected in [
            "sudo",
            "apt-get install iptables",
            "apt-get install nginx-light",
            "systemctl start containerd",
            "6443",
            "systemctl disable --now nginx",
            "kubeadm reset",
            "--datastore",
            "swapoff",
        ] {
            assert!(texts.iter().any(|text| text.contains(expected)), "nothing says {expected}: {texts:#?}");
        }
    }

    #[test]
    fn ignored_errors_are_warnings() {
        let facts = Facts { taken_ports: vec![6443], has_swap: true, ..good() };
        let (errors, warnings) = sort(check(&facts), &[]);
        assert_eq!((errors.len(), warnings.len()), (1, 1));
        let (errors, warnings) = sort(check(&facts), &["port".to_owned()]);
        assert_eq!((errors.len(), warnings.len()), (0, 2));
    }
}
