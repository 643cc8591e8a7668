//! A pod template as people read it.

use serde_json::{Map, Value};
use std::fmt::Write;

/// As upstream shows the template of a revision.
pub fn describe(template: &Value, cause: Option<&str>) -> String {
    let mut text = String::from("Pod Template:\n");
    let (metadata, spec) = (&template["metadata"], &template["spec"]);
    pairs(&mut text, "Labels", metadata["labels"].as_object(), "=");
    let mut annotations = metadata["annotations"].as_object().cloned().unwrap_or_default();
    if let Some(cause) = cause {
        annotations.insert("kubernetes.io/change-cause".into(), cause.into());
    }
    if !annotations.is_empty() {
        pairs(&mut text, "Annotations", Some(&annotations), ": ");
    }
    if let Some(account) = spec["serviceAccountName"].as_str() {
        let _ = writeln!(text, "  Service Account:\t{account}");
    }
    for (field, title) in [("initContainers", "Init Containers"), ("containers", "Containers")] {
        if let Some(list) = spec[field].as_array().filter(|list| !list.is_empty()) {
            let _ = writeln!(text, "  {title}:");
            list.iter().for_each(|one| container(&mut text, one));
        }
    }
    volumes(&mut text, spec["volumes"].as_array());
    if let Some(class) = spec["priorityClassName"].as_str() {
        let _ = writeln!(text, "  Priority Class Name:\t{class}");
    }
    pairs(&mut text, "Node-Selectors", spec["nodeSelector"].as_object(), "=");
    let tolerations: Vec<String> =
        spec["tolerations"].as_array().into_iter().flatten().map(toleration).collect();
    let _ = writeln!(text, "  Tolerations:\t{}", none_or(&tolerations.join("\n              \t")));
    text
}

/// What a revision of a function is made of.
pub fn function(parts: &Value) -> String {
    let mut text = String::new();
    for (field, title) in [("runtime", "Runtime"), ("image", "Image"), ("handler", "Handler")] {
        if let Some(word) = parts[field].as_str().filter(|word| !word.is_empty()) {
            let _ = writeln!(text, "  {title}:\t{word}");
        }
    }
    let code = parts["code"].as_str().filter(|code| !code.is_empty()).map(|code| ("Code", code));
    let files = parts["files"].as_object().into_iter().flatten();
    let files = files.map(|(name, file)| (name.as_str(), file.as_str().unwrap_or_default()));
    for (name, file) in code.into_iter().chain(files) {
        let _ = writeln!(text, "  {name}:");
        for line in file.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

fn none_or(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

fn pairs(text: &mut String, title: &str, map: Option<&Map<String, Value>>, between: &str) {
    let lines: Vec<String> = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}{between}{}", value.as_str().unwrap_or_default()))
        .collect();
    let _ = writeln!(text, "  {title}:\t{}", none_or(&lines.join("\n\t")));
}

fn container(text: &mut String, container: &Value) {
    let word = |field: &str| container[field].as_str().unwrap_or_default();
    let _ = writeln!(text, "   {}:\n    Image:\t{}", word("name"), word("image"));
    let ports = |field: &str| {
        let ports = container["ports"].as_array().into_iter().flatten().map(|port| {
            let number = port[field].as_i64().unwrap_or_default();
            format!("{number}/{}", port["protocol"].as_str().unwrap_or("TCP"))
        });
        ports.collect::<Vec<_>>().join(", ")
    };
    let plural = if container["ports"].as_array().is_some_and(|ports| ports.len() > 1) { "s" } else { "" };
    let _ = writeln!(text, "    Port{plural}:\t{}", none_or(&ports("containerPort")));
    let _ = writeln!(text, "    Host Port{plural}:\t{}", none_or(&ports("hostPort")));
    for (field, title) in [("command", "Command"), ("args", "Args")] {
        let words: Vec<&str> =
            container[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !words.is_empty() {
            let _ = writeln!(text, "    {title}:\n      {}", words.join("\n      "));
        }
    }
    for (field, title) in [("limits", "Limits"), ("requests", "Requests")] {
        if let Some(amounts) = container["resources"][field].as_object().filter(|map| !map.is_empty()) {
            let _ = writeln!(text, "    {title}:");
            for (name, amount) in amounts {
                let _ = writeln!(text, "      {name}:\t{}", amount.as_str().unwrap_or_default());
            }
        }
    }
    let env: Vec<String> = container["env"].as_array().into_iter().flatten().map(variable).collect();
    let env = if env.is_empty() { "\t<none>".to_owned() } else { format!("\n{}", env.join("\n")) };
    let _ = writeln!(text, "    Environment:{env}");
    let mounts: Vec<String> = container["volumeMounts"].as_array().into_iter().flatten().map(mount).collect();
    let mounts = if mounts.is_empty() { "\t<none>".to_owned() } else { format!("\n{}", mounts.join("\n")) };
    let _ = writeln!(text, "    Mounts:{mounts}");
}

fn variable(variable: &Value) -> String {
    let name = variable["name"].as_str().unwrap_or_default();
    match variable.get("valueFrom").and_then(Value::as_object).and_then(|from| from.iter().next()) {
        Some((kind, reference)) => {
            let word = |field: &str| reference[field].as_str().unwrap_or_default();
            let from = if kind == "fieldRef" {
                format!("({}:{})", reference["apiVersion"].as_str().unwrap_or("v1"), word("fieldPath"))
            } else {
                let kind = if kind == "secretKeyRef" { "secret" } else { "config map" };
                format!("<set to the key '{}' of {kind} '{}'>", word("key"), word("name"))
            };
            format!("      {name}:\t{from}")
        }
        None => format!("      {name}:\t{}", variable["value"].as_str().unwrap_or_default()),
    }
}

fn mount(mount: &Value) -> String {
    let word = |field: &str| mount[field].as_str().unwrap_or_default();
    let how = if mount["readOnly"] == true { "ro" } else { "rw" };
    format!("      {} from {} ({how})", word("mountPath"), word("name"))
}

fn volumes(text: &mut String, volumes: Option<&Vec<Value>>) {
    let Some(volumes) = volumes.filter(|volumes| !volumes.is_empty()) else {
        text.push_str("  Volumes:\t<none>\n");
        return;
    };
    text.push_str("  Volumes:\n");
    for volume in volumes {
        let kind = volume.as_object().into_iter().flatten().find(|(field, _)| *field != "name");
        let kind = kind.map(|(field, _)| field.as_str()).unwrap_or_default();
        let _ = writeln!(text, "   {}:\n    Type:\t{kind}", volume["name"].as_str().unwrap_or_default());
    }
}

fn toleration(toleration: &Value) -> String {
    let word = |field: &str| toleration[field].as_str().unwrap_or_default();
    let mut text = word("key").to_owned();
    if !word("value").is_empty() {
        text.push_str(&format!("={}", word("value")));
    }
    if !word("effect").is_empty() {
        text.push_str(&format!(":{}", word("effect")));
    }
    if word("operator") == "Exists" && word("value").is_empty() {
        text.push_str(if text.is_empty() { "op=Exists" } else { " op=Exists" });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_template_reads_as_upstreams() {
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "nginx", "image": "nginx:1.24"}]}});
        let expected = "Pod Template:\n  Labels:\tapp=web\n  Containers:\n   nginx:\n    Image:\tnginx:1.24\n    Port:\t<none>\n    \
            Host Port:\t<none>\n    Environment:\t<none>\n    Mounts:\t<none>\n  Volumes:\t<none>\n  Node-Selectors:\t<none>\n  \
            Tolerations:\t<none>\n";
        assert_eq!(describe(&template, None), expected);
    }
}
