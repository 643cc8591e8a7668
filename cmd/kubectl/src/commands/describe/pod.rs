//! Pods, and templates of pods.

use super::page::{Page, items, shown, text, time};
use serde_json::Value;

pub fn describe(pod: &Value, page: &mut Page) {
    page.field("Name", text(pod, "/metadata/name"));
    page.field("Namespace", text(pod, "/metadata/namespace"));
    page.field("Priority", &pod["spec"]["priority"].as_i64().unwrap_or_default().to_string());
    for (title, path) in [
        ("Priority Class Name", "/spec/priorityClassName"),
        ("Runtime Class Name", "/spec/runtimeClassName"),
        ("Service Account", "/spec/serviceAccountName"),
    ] {
        if !text(pod, path).is_empty() {
            page.field(title, text(pod, path));
        }
    }
    match text(pod, "/spec/nodeName") {
        "" => page.field("Node", "<none>"),
        node => page.field("Node", &format!("{node}/{}", text(pod, "/status/hostIP"))),
    }
    if !text(pod, "/status/startTime").is_empty() {
        page.field("Start Time", &time(text(pod, "/status/startTime")));
    }
    page.labels_and_annotations(pod);
    if pod["metadata"]["deletionTimestamp"].is_string() {
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
    for (title, path) in [("Reason", "/status/reason"), ("Message", "/status/message")] {
        if !text(pod, path).is_empty() {
            page.field(title, text(pod, path));
        }
    }
    page.field("IP", text(pod, "/status/podIP"));
    let mut addresses = items(pod, "/status/podIPs").peekable();
    if addresses.peek().is_none() {
        page.field("IPs", "<none>");
    } else {
        page.line("IPs:");
        addresses.for_each(|address| page.line(&format!("  IP:\t{}", text(address, "/ip"))));
    }
    page.owner(pod);
    for (title, list, statuses) in [
        ("Init Containers", "/spec/initContainers", "/status/initContainerStatuses"),
        ("Containers", "/spec/containers", "/status/containerStatuses"),
        ("Ephemeral Containers", "/spec/ephemeralContainers", "/status/ephemeralContainerStatuses"),
    ] {
        containers(title, "", items(pod, list), Some((pod, statuses)), page);
    }
    let mut conditions = items(pod, "/status/conditions").peekable();
    if conditions.peek().is_some() {
        page.line("Conditions:\n  Type\tStatus");
        for condition in conditions {
            page.line(&format!("  {}\t{} ", text(condition, "/type"), text(condition, "/status")));
            // Why it waits is what people look for here.
            if condition["status"] == "False"
                && condition["type"] == "PodScheduled"
                && condition["message"].is_string()
            {
                page.line(&format!("    {}: {}", text(condition, "/reason"), text(condition, "/message")));
            }
        }
    }
    volumes(&pod["spec"], "", page);
    if !text(pod, "/status/qosClass").is_empty() {
        page.field("QoS Class", text(pod, "/status/qosClass"));
    }
    placement(&pod["spec"], "", page);
}

/// A workload's template.
pub fn template(template: &Value, page: &mut Page) {
    page.line("Pod Template:");
    let mut labels = template["metadata"]["labels"].as_object().into_iter().flatten();
    let first =
        labels.next().map_or_else(|| "<none>".to_owned(), |(key, value)| format!("{key}={}", shown(value)));
    page.line(&format!("  Labels:\t{first}"));
    labels.for_each(|(key, value)| page.line(&format!("  \t{key}={}", shown(value))));
    if let Some(annotations) = template["metadata"]["annotations"].as_object() {
        for (index, (key, value)) in annotations.iter().enumerate() {
            page.line(&format!(
                "  {}\t{key}: {}",
                if index == 0 { "Annotations:" } else { "" },
                shown(value)
            ));
        }
    }
    if !text(template, "/spec/serviceAccountName").is_empty() {
        page.line(&format!("  Service Account:\t{}", text(template, "/spec/serviceAccountName")));
    }
    containers("Init Containers", "  ", items(template, "/spec/initContainers"), None, page);
    containers("Containers", "  ", items(template, "/spec/containers"), None, page);
    volumes(&template["spec"], "  ", page);
    placement(&template["spec"], "  ", page);
}

fn containers<'a>(
    title: &str,
    indent: &str,
    list: impl Iterator<Item = &'a Value>,
    pod: Option<(&Value, &str)>,
    page: &mut Page,
) {
    for (index, container) in list.enumerate() {
        if index == 0 {
            page.line(&format!("{indent}{title}:"));
        }
        let status =
            pod.and_then(|(pod, path)| items(pod, path).find(|status| status["name"] == container["name"]));
        self::container(container, status, &format!("{indent}  "), pod.is_some(), page);
    }
}

fn container(container: &Value, status: Option<&Value>, indent: &str, of_pod: bool, page: &mut Page) {
    page.line(&format!("{indent}{}:", text(container, "/name")));
    let indent = format!("{indent}  ");
    let mut field = |title: &str, value: &str| page.line(&format!("{indent}{title}:\t{value}"));
    if of_pod {
        field("Container ID", status.map_or("", |status| text(status, "/containerID")));
    }
    field("Image", text(container, "/image"));
    if of_pod {
        field("Image ID", status.map_or("", |status| text(status, "/imageID")));
    }
    let ports = |of: &str| {
        let list: Vec<String> = items(container, "/ports")
            .map(|port| {
                format!(
                    "{}/{}",
                    port[of].as_i64().unwrap_or_default(),
                    port["protocol"].as_str().unwrap_or("TCP")
                )
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
        state("State", &status["state"], &indent, page);
        if status["lastState"].as_object().is_some_and(|state| !state.is_empty()) {
            state("Last State", &status["lastState"], &indent, page);
        }
        let ready = if status["ready"] == true { "True" } else { "False" };
        page.line(&format!("{indent}Ready:\t{ready}"));
        page.line(&format!(
            "{indent}Restart Count:\t{}",
            status["restartCount"].as_i64().unwrap_or_default()
        ));
    }
    for (title, list) in [("Limits", "/resources/limits"), ("Requests", "/resources/requests")] {
        let quantities = container.pointer(list).and_then(Value::as_object).filter(|map| !map.is_empty());
        if let Some(quantities) = quantities {
            page.line(&format!("{indent}{title}:"));
            quantities
                .iter()
                .for_each(|(name, value)| page.line(&format!("{indent}  {name}:\t{}", shown(value))));
        }
    }
    for (title, probe) in
        [("Liveness", "livenessProbe"), ("Readiness", "readinessProbe"), ("Startup", "startupProbe")]
    {
        if container[probe].is_object() {
            page.line(&format!("{indent}{title}:\t{}", self::probe(&container[probe])));
        }
    }
    environment(container, &indent, page);
    let mut mounts = items(container, "/volumeMounts").peekable();
    if mounts.peek().is_none() {
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

fn environment(container: &Value, indent: &str, page: &mut Page) {
    for (index, source) in items(container, "/envFrom").enumerate() {
        if index == 0 {
            page.line(&format!("{indent}Environment Variables from:"));
        }
        let (kind, of) = if source["configMapRef"].is_object() {
            ("ConfigMap", "configMapRef")
        } else {
            ("Secret", "secretRef")
        };
        let optional = source[of]["optional"] == true;
        page.line(&format!("{indent}  {}\t{kind}\tOptional: {optional}", text(&source[of], "/name")));
    }
    let mut variables = items(container, "/env").peekable();
    if variables.peek().is_none() {
        page.line(&format!("{indent}Environment:\t<none>"));
        return;
    }
    page.line(&format!("{indent}Environment:"));
    for variable in variables {
        let from = &variable["valueFrom"];
        let reference = |of: &str, kind: &str| {
            let of = &from[of];
            format!(
                "<set to the key '{}' in {kind} '{}'>\tOptional: {}",
                text(of, "/key"),
                text(of, "/name"),
                of["optional"] == true
            )
        };
        let value = if from["secretKeyRef"].is_object() {
            reference("secretKeyRef", "secret")
        } else if from["configMapKeyRef"].is_object() {
            reference("configMapKeyRef", "config map")
        } else if from["fieldRef"].is_object() {
            format!(
                " ({}:{})",
                from["fieldRef"]["apiVersion"].as_str().unwrap_or("v1"),
                text(from, "/fieldRef/fieldPath")
            )
        } else if from["resourceFieldRef"].is_object() {
            format!(" ({})", text(from, "/resourceFieldRef/resource"))
        } else {
            text(variable, "/value").to_owned()
        };
        page.line(&format!("{indent}  {}:\t{value}", text(variable, "/name")));
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

fn volumes(spec: &Value, indent: &str, page: &mut Page) {
    let mut list = items(spec, "/volumes").peekable();
    if list.peek().is_none() {
        if !indent.is_empty() {
            page.line(&format!("{indent}Volumes:\t<none>"));
        }
        return;
    }
    page.line(&format!("{indent}Volumes:"));
    for volume in list {
        page.line(&format!("{indent}  {}:", text(volume, "/name")));
        let source = volume.as_object().into_iter().flatten().find(|(field, _)| *field != "name");
        let Some((kind, source)) = source else { continue };
        let indent = format!("{indent}    ");
        let mut field = |title: &str, value: &str| page.line(&format!("{indent}{title}:\t{value}"));
        let optional = (source["optional"] == true).to_string();
        match kind.as_str() {
            "hostPath" => {
                field("Type", "HostPath (bare host directory volume)");
                field("Path", text(source, "/path"));
                field("HostPathType", text(source, "/type"));
            }
            "emptyDir" => {
                field("Type", "EmptyDir (a temporary directory that shares a pod's lifetime)");
                field("Medium", text(source, "/medium"));
                field("SizeLimit", &source.get("sizeLimit").map_or_else(|| "<unset>".to_owned(), shown));
            }
            "configMap" => {
                field("Type", "ConfigMap (a volume populated by a ConfigMap)");
                field("Name", text(source, "/name"));
                field("Optional", &optional);
            }
            "secret" => {
                field("Type", "Secret (a volume populated by a Secret)");
                field("SecretName", text(source, "/secretName"));
                field("Optional", &optional);
            }
            "persistentVolumeClaim" => {
                field(
                    "Type",
                    "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
                );
                field("ClaimName", text(source, "/claimName"));
                field("ReadOnly", &(source["readOnly"] == true).to_string());
            }
            "projected" => projected(source, &indent, page),
            other => field("Type", other),
        }
    }
}

fn projected(source: &Value, indent: &str, page: &mut Page) {
    page.line(&format!(
        "{indent}Type:\tProjected (a volume that contains injected data from multiple sources)"
    ));
    for part in items(source, "/sources") {
        for (field, title, name) in
            [("secret", "SecretName", "/secret/name"), ("configMap", "ConfigMapName", "/configMap/name")]
        {
            if part[field].is_object() {
                page.line(&format!("{indent}{title}:\t{}", text(part, name)));
                if field == "configMap" {
                    page.line(&format!("{indent}Optional:\t{}", part[field]["optional"] == true));
                }
            }
        }
        if part["downwardAPI"].is_object() {
            page.line(&format!("{indent}DownwardAPI:\ttrue"));
        }
        if let Some(seconds) = part["serviceAccountToken"]["expirationSeconds"].as_i64() {
            page.line(&format!("{indent}TokenExpirationSeconds:\t{seconds}"));
        }
    }
}

/// Where it may run.
fn placement(spec: &Value, indent: &str, page: &mut Page) {
    let mut selectors = spec["nodeSelector"].as_object().into_iter().flatten();
    let first = selectors
        .next()
        .map_or_else(|| "<none>".to_owned(), |(key, value)| format!("{key}={}", shown(value)));
    page.line(&format!("{indent}Node-Selectors:\t{first}"));
    selectors.for_each(|(key, value)| page.line(&format!("{indent}\t{key}={}", shown(value))));
    let tolerations: Vec<String> = items(spec, "/tolerations").map(toleration).collect();
    page.line(&format!("{indent}Tolerations:\t{}", tolerations.first().map_or("<none>", String::as_str)));
    tolerations.iter().skip(1).for_each(|line| page.line(&format!("{indent}\t{line}")));
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
