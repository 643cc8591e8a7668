//! Whatever an Ingress says, nginx is told what is meant and nothing else.
#![no_main]

#[path = "../../pkg/proxy/tests/said/nginx.rs"]
mod nginx;

use libfuzzer_sys::fuzz_target;
use proxy::gateway::{Classes, Listen, Services, render, sites};
use serde_json::json;
use std::path::Path;

fuzz_target!(|data: (String, String, String, String, bool)| {
    let (host, path, service, namespace, exact) = data;
    let kind = if exact { "Exact" } else { "Prefix" };
    let backend = json!({"service": {"name": service, "port": {"number": 80}}});
    let rule = json!({"host": host, "http": {"paths": [{"path": path, "pathType": kind, "backend": backend}]}});
    let metadata = json!({"namespace": namespace, "name": service});
    let ingress = json!({"metadata": metadata, "spec": {"rules": [rule], "defaultBackend": backend}});
    let object = json!({"metadata": metadata, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}});
    let (Ok(ingress), Ok(object)) = (serde_json::from_value(ingress), serde_json::from_value(object)) else { return };
    let slice = json!({"metadata": {}, "addressType": "IPv4", "ports": [{"name": "", "port": 8080}],
        "endpoints": [{"addresses": ["10.244.1.7"]}]});
    let Ok(slice) = serde_json::from_value::<proxy::record::Slice>(slice) else { return };
    let services = Services::new([object].iter(), |_| vec![slice.clone().into()]);
    let all = sites([].iter(), [ingress].iter(), &Classes::default(), &services, true);
    let text = render(&all, Path::new("/x"), Listen { http: 80, https: 443, ipv6: true }, &|_| None);
    if let Err(error) = nginx::says_the_same(&all, &text) {
        panic!("{error}\n{text}");
    }
});
