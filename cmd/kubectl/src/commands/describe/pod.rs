//! Pods, and templates of pods.

use super::page::{Page, items, shown, text, time};
use super::volume;
use serde_json::Value;

pub fn describe(pod: &Value, page: &mut Page) {
    let spec = &pod["spec"];
    page.name(pod);
    page.given("Priority", spec.get("priority"));
    page.given("Priority Class Name", spec.get("priorityClassName"));
    page.given("Runtime Class Name", spec.get("runtimeClassName"));
    page.given("Service Account", spec.get("serviceAccountName"));
    match text(pod, "/spec/nodeName") {
        "" => page.field("Node", "<none>"),
        node => page.field("Node", &format!("{node}/{}", text(pod, "/status/hostIP"))),
    }
    if !text(pod, "/status/startTime").is_empty() {
        page.field("Start Time", &time(text(pod, "/status/startTime")));
    }
    page.labels_and_annotations(pod);
    let has_ended = matches!(text(pod, "/status/phase"), "Failed" | "Succeeded");
    if pod["metadata"]["deletionTimestamp"].is_string() && !has_ended {
        page.field(
            "Status",
            &format!(
                "Terminating (lasts {})",
                api::printing::since(pod["metadata"]["deletionTimestamp"].as_str(), jiff::Timestamp::now())
            ),
        );
        page.field(
            "Termination Grace Period",
            &format!("{}s", shown(&pod["metadata"]["deletionGracePeriodSeconds"])),
        );
    } else {
        page.field("Status", text(pod, "/status/phase"));
    }
    page.given("Reason", pod["status"].get("reason"));
    page.given("Message", pod["status"].get("message"));
    let profile = &spec["securityContext"]["seccompProfile"];
    page.given("SeccompProfile", profile.get("type"));
    page.given("LocalhostProfile", profile.get("localhostProfile"));
    page.field("IP", text(pod, "/status/podIP"));
    let mut addresses = items(pod, "/status/podIPs").peekable();
    if addresses.peek().is_none() {
        page.field("IPs", "<none>");
    } else {
        page.line("IPs:");
        addresses.for_each(|address| page.line(&format!("  IP:\t{}", text(address, "/ip"))));
    }
    page.owner(pod);
    page.given("NominatedNodeName", pod["status"].get("nominatedNodeName"));
    if spec["resources"].is_object() {
        page.line("Resources:");
        resources(&spec["resources"], "  ", page);
    }
    for (title, list, statuses) in [
        ("Init Containers", "/spec/initContainers", "/status/initContainerStatuses"),
        ("Containers", "/spec/containers", "/status/containerStatuses"),
        ("Ephemeral Containers", "/spec/ephemeralContainers", "/status/ephemeralContainerStatuses"),
    ] {
        containers(title, "", items(pod, list), Some((pod, statuses)), page);
    }
    let gates: Vec<&str> = items(spec, "/readinessGates").map(|gate| text(gate, "/conditionType")).collect();
    if !gates.is_empty() {
        page.line("Readiness Gates:\n  Type\tStatus");
    }
    for gate in gates {
        let own = items(pod, "/status/conditions").find(|condition| condition["type"] == gate);
        page.line(&format!("  {gate} \t{} ", own.map_or("<none>", |own| text(own, "/status"))));
    }
    let mut conditions = items(pod, "/status/conditions").peekable();
    if conditions.peek().is_some() {
        page.line("Conditions:\n  Type\tStatus");
        for condition in conditions {
            page.line(&format!("  {} \t{} ", text(condition, "/type"), text(condition, "/status")));
            // Why it waits is what people look for here.
            if condition["status"] == "False"
                && condition["type"] == "PodScheduled"
                && condition["message"].is_string()
            {
                page.line(&format!("    {}: {}", text(condition, "/reason"), text(condition, "/message")));
            }
        }
    }
    volume::list(spec, "", page);
    page.given("QoS Class", pod["status"].get("qosClass"));
    placement(spec, "", page);
    spread(spec, "", page);
}

/// A workload's template.
pub fn template(template: &Value, page: &mut Page) {
    let spec = &template["spec"];
    page.line("Pod Template:");
    page.map("  Labels", &template["metadata"]["labels"], "=");
    if template["metadata"]["annotations"].is_object() {
        page.annotations("  Annotations", &template["metadata"]["annotations"]);
    }
    page.given("  Service Account", spec.get("serviceAccountName"));
    containers("Init Containers", "  ", items(spec, "/initContainers"), None, page);
    containers("Containers", "  ", items(spec, "/containers"), None, page);
    volume::list(spec, "  ", page);
    spread(spec, "  ", page);
    page.given("  Priority Class Name", spec.get("priorityClassName"));
    placement(spec, "  ", page);
}

/// Containers, below a title; their names stand a little further in where they are of a template.
fn containers<'a>(
    title: &str,
    indent: &str,
    list: impl Iterator<Item = &'a Value>,
    pod: Option<(&'a Value, &str)>,
    page: &mut Page,
) {
    let name_indent = if indent.is_empty() { "  " } else { "   " };
    for (index, container) in list.enumerate() {
        if index == 0 {
            page.line(&format!("{indent}{title}:"));
        }
        let status =
            pod.and_then(|(pod, path)| items(pod, path).find(|status| status["name"] == container["name"]));
        page.line(&format!("{name_indent}{}:", text(container, "/name")));
        self::container(container, status, pod.map(|(pod, _)| pod), page);
    }
}

fn container(container: &Value, status: Option<&Value>, pod: Option<&Value>, page: &mut Page) {
    let indent = "    ";
    let mut field = |title: &str, value: &str| page.line(&format!("{indent}{title}:\t{value}"));
    if let Some(status) = status {
        field("Container ID", text(status, "/containerID"));
    }
    field("Image", text(container, "/image"));
    if let Some(status) = status {
        field("Image ID", text(status, "/imageID"));
    }
    let ports = |of: &str| {
        let list: Vec<String> = items(container, "/ports")
            .map(|port| {
                let protocol = port["protocol"].as_str().unwrap_or("TCP");
                let name = port["name"].as_str().map(|name| format!(" ({name})")).unwrap_or_default();
                format!("{}/{protocol}{name}", port[of].as_i64().unwrap_or_default())
            })
            .collect();
        (
            if list.len() > 1 { "s" } else { "" },
            if list.is_empty() { "<none>".to_owned() } else { list.join(", ") },
        )
    };
    let ((many, inside), (_, outside)) = (ports("containerPort"), ports("hostPort"));
    field(&format!("Port{many}"), &inside);
    field(&format!("Host Port{many}"), &outside);
    let profile = &container["securityContext"]["seccompProfile"];
    if let Some(kind) = profile["type"].as_str() {
        field("SeccompProfile", kind);
    }
    if let Some(path) = profile["localhostProfile"].as_str() {
        field("  LocalhostProfile", path);
    }
    for (title, list) in [("Command", "/command"), ("Args", "/args")] {
        let mut words = items(container, list).peekable();
        if words.peek().is_some() {
            page.line(&format!("{indent}{title}:"));
            for word in words {
                shown(word).split('\n').for_each(|line| page.line(&format!("{indent}  {line}")));
            }
        }
    }
    if let Some(status) = status {
        state("State", &status["state"], indent, page);
        if status["lastState"]["terminated"].is_object() {
            state("Last State", &status["lastState"], indent, page);
        }
        let ready = if status["ready"] == true { "True" } else { "False" };
        page.line(&format!("{indent}Ready:\t{ready}"));
        page.line(&format!(
            "{indent}Restart Count:\t{}",
            status["restartCount"].as_i64().unwrap_or_default()
        ));
    }
    resources(&container["resources"], indent, page);
    for (title, probe) in
        [("Liveness", "livenessProbe"), ("Readiness", "readinessProbe"), ("Startup", "startupProbe")]
    {
        if container[probe].is_object() {
            page.line(&format!("{indent}{title}:\t{}", self::probe(&container[probe])));
        }
    }
    environment(container, pod, indent, page);
    let mut mounts: Vec<&Value> = items(container, "/volumeMounts").collect();
    mounts.sort_by_key(|mount| text(mount, "/mountPath"));
    if mounts.is_empty() {
        page.line(&format!("{indent}Mounts:\t<none>"));
    } else {
        page.line(&format!("{indent}Mounts:"));
        for mount in mounts {
            let how = if mount["readOnly"] == true { "ro" } else { "rw" };
            let path = mount["subPath"].as_str().map(|path| format!(",path=\"{path}\"")).unwrap_or_default();
            page.line(&format!(
                "{indent}  {} from {} ({how}{path})",
                text(mount, "/mountPath"),
                text(mount, "/name")
            ));
        }
    }
}

fn resources(resources: &Value, indent: &str, page: &mut Page) {
    for (title, list) in [("Limits", "limits"), ("Requests", "requests")] {
        let Some(quantities) = resources[list].as_object().filter(|map| !map.is_empty()) else { continue };
        page.line(&format!("{indent}{title}:"));
        quantities
            .iter()
            .for_each(|(name, value)| page.line(&format!("{indent}  {name}:\t{}", shown(value))));
    }
}

fn environment(container: &Value, pod: Option<&Value>, indent: &str, page: &mut Page) {
    for (index, source) in items(container, "/envFrom").enumerate() {
        if index == 0 {
            page.line(&format!("{indent}Environment Variables from:"));
        }
        let (kind, of) = if source["configMapRef"].is_object() {
            ("ConfigMap", "configMapRef")
        } else {
            ("Secret", "secretRef")
        };
        let prefix = source["prefix"].as_str().map(|prefix| format!(" with prefix '{prefix}'"));
        page.line(&format!(
            "{indent}  {}\t{kind}{}\tOptional: {}",
            text(&source[of], "/name"),
            prefix.unwrap_or_default(),
            source[of]["optional"] == true
        ));
    }
    let mut variables = items(container, "/env").peekable();
    page.line(&format!("{indent}Environment:{}", if variables.peek().is_none() { "\t<none>" } else { "" }));
    for variable in variables {
        let value = value_of(variable, container, pod);
        for (index, line) in value.split('\n').enumerate() {
            match index {
                0 => page.line(&format!("{indent}  {}:\t{line}", text(variable, "/name"))),
                _ => page.line(&format!("{indent}  \t{line}")),
            }
        }
    }
}

/// A variable's value, or where it comes from.
fn value_of(variable: &Value, container: &Value, pod: Option<&Value>) -> String {
    let from = &variable["valueFrom"];
    let key = |of: &str, kind: &str| {
        let of = &from[of];
        let optional = of["optional"] == true;
        format!(
            "<set to the key '{}' {kind} '{}'>\tOptional: {optional}",
            text(of, "/key"),
            text(of, "/name")
        )
    };
    if from["secretKeyRef"].is_object() {
        key("secretKeyRef", "in secret")
    } else if from["configMapKeyRef"].is_object() {
        key("configMapKeyRef", "of config map")
    } else if from["fieldRef"].is_object() {
        let path = text(from, "/fieldRef/fieldPath");
        let version = from["fieldRef"]["apiVersion"].as_str().unwrap_or("v1");
        format!("{} ({version}:{path})", pod.map(|pod| field_of(pod, path)).unwrap_or_default())
    } else if from["resourceFieldRef"].is_object() {
        let of = &from["resourceFieldRef"];
        let resource = text(of, "/resource");
        let divisor = of.get("divisor").map(shown).filter(|divisor| divisor != "0");
        format!("{} ({resource})", amount_of(container, resource, divisor.as_deref().unwrap_or("1")))
    } else {
        text(variable, "/value").to_owned()
    }
}

/// What a field of a pod is, for variables that are made of it.
fn field_of(pod: &Value, path: &str) -> String {
    match pod.pointer(&format!("/{}", path.replace('.', "/"))) {
        Some(Value::Object(map)) => {
            map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("\n")
        }
        Some(value) => shown(value),
        None => String::new(),
    }
}

/// A limit or request, counted in some unit and rounded up.
fn amount_of(container: &Value, resource: &str, divisor: &str) -> String {
    let (kind, name) = resource.split_once('.').unwrap_or_default();
    let milli = |text: &str| text.parse::<api::Quantity>().map_or(0, |quantity| quantity.milli_value());
    let amount = container["resources"][kind].get(name).map_or(0, |value| milli(&shown(value)));
    match amount {
        0 if matches!(resource, "limits.cpu" | "limits.memory") => "node allocatable".to_owned(),
        amount => (amount as u64).div_ceil(milli(divisor).max(1) as u64).to_string(),
    }
}

fn state(title: &str, state: &Value, indent: &str, page: &mut Page) {
    let mut line = |title: &str, value: &str| page.line(&format!("{indent}{title}:\t{value}"));
    let reasons = |state: &Value| {
        [("  Reason", text(state, "/reason").to_owned()), ("  Message", text(state, "/message").to_owned())]
    };
    if state["running"].is_object() {
        line(title, "Running");
        line("  Started", &time(text(state, "/running/startedAt")));
    } else if state["terminated"].is_object() {
        let ended = &state["terminated"];
        line(title, "Terminated");
        for (title, value) in reasons(ended).into_iter().filter(|(_, value)| !value.is_empty()) {
            line(title, &value);
        }
        line("  Exit Code", &shown(&ended["exitCode"]));
        if let Some(signal) = ended["signal"].as_i64().filter(|signal| *signal != 0) {
            line("  Signal", &signal.to_string());
        }
        line("  Started", &time(text(ended, "/startedAt")));
        line("  Finished", &time(text(ended, "/finishedAt")));
    } else {
        line(title, "Waiting");
        if !text(state, "/waiting/reason").is_empty() {
            line("  Reason", text(state, "/waiting/reason"));
        }
    }
}

fn probe(probe: &Value) -> String {
    let number = |field: &str, or: i64| probe[field].as_i64().unwrap_or(or);
    let times = format!(
        "delay={}s timeout={}s period={}s #success={} #failure={}",
        number("initialDelaySeconds", 0),
        number("timeoutSeconds", 1),
        number("periodSeconds", 10),
        number("successThreshold", 1),
        number("failureThreshold", 3)
    );
    let what = if let Some(get) = probe.get("httpGet") {
        let scheme = get["scheme"].as_str().unwrap_or("HTTP").to_lowercase();
        format!("http-get {scheme}://{}:{}{}", text(get, "/host"), shown(&get["port"]), text(get, "/path"))
    } else if let Some(socket) = probe.get("tcpSocket") {
        format!("tcp-socket {}:{}", text(socket, "/host"), shown(&socket["port"]))
    } else if let Some(grpc) = probe.get("grpc") {
        format!("grpc <pod>:{} {}", shown(&grpc["port"]), text(grpc, "/service"))
    } else {
        let words: Vec<String> = items(probe, "/exec/command").map(shown).collect();
        format!("exec [{}]", words.join(" "))
    };
    format!("{what} {times}")
}

/// Where it may run.
fn placement(spec: &Value, indent: &str, page: &mut Page) {
    page.map(&format!("{indent}Node-Selectors"), &spec["nodeSelector"], "=");
    let mut tolerations: Vec<&Value> = items(spec, "/tolerations").collect();
    tolerations.sort_by_key(|toleration| text(toleration, "/key"));
    page.list(&format!("{indent}Tolerations"), tolerations.into_iter().map(toleration));
}

/// How it is spread over the cluster.
fn spread(spec: &Value, indent: &str, page: &mut Page) {
    let mut rules: Vec<&Value> = items(spec, "/topologySpreadConstraints").collect();
    rules.sort_by_key(|rule| text(rule, "/topologyKey"));
    if rules.is_empty() {
        return;
    }
    let lines = rules.into_iter().map(|rule| {
        let selector = rule.get("labelSelector").map(|own| api::printing::label_selector(Some(own)));
        let selector = selector.map(|own| format!(" for selector {own}")).unwrap_or_default();
        let skew = rule["maxSkew"].as_i64().unwrap_or_default();
        let (key, otherwise) = (text(rule, "/topologyKey"), text(rule, "/whenUnsatisfiable"));
        format!("{key}:{otherwise} when max skew {skew} is exceeded{selector}")
    });
    page.list(&format!("{indent}Topology Spread Constraints"), lines);
}

fn toleration(toleration: &Value) -> String {
    let mut line = text(toleration, "/key").to_owned();
    if let Some(value) = toleration["value"].as_str().filter(|value| !value.is_empty()) {
        line.push_str(&format!("={value}"));
    }
    if let Some(effect) = toleration["effect"].as_str().filter(|effect| !effect.is_empty()) {
        line.push_str(&format!(":{effect}"));
    }
    if toleration["operator"] == "Exists" && text(toleration, "/value").is_empty() {
        line.push_str(if line.is_empty() { "op=Exists" } else { " op=Exists" });
    }
    if let Some(seconds) = toleration["tolerationSeconds"].as_i64() {
        line.push_str(&format!(" for {seconds}s"));
    }
    line
}
