//! NetworkPolicy: which pods may speak with which.

use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::kinds::pod_spec::list_mut;
use crate::kinds::rules;
use crate::object::{object_mut, set_default};
use crate::{meta, names, printing};
use ipnet::IpNet;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};

/// Whoever writes one must not believe that it holds where nobody sees to it.
const UNENFORCED: &str = "the built-in network does not enforce NetworkPolicies: traffic is limited only where a network \
    plug-in (CNI) that supports them is installed";

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Pod-Selector", "string", |policy, _| {
                printing::label_selector(printing::at(policy, "spec.podSelector")).into()
            }),
            printing::age_column(),
        ],
        validate_name: names::dns_subdomain_name,
        default,
        validate,
        warnings: |_| vec![UNENFORCED.to_owned()],
        ..Kind::new::<NetworkPolicy>().short(&["netpol"]).with_generation()
    }
}

fn default(policy: &mut Value) {
    object_mut(policy, "spec");
    let spec = &mut policy["spec"];
    if printing::items(spec, "policyTypes").is_empty() {
        // Every policy without types is about what comes in, at least.
        let has_egress = !printing::items(spec, "egress").is_empty();
        spec["policyTypes"] = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    }
    for direction in ["ingress", "egress"] {
        for port in list_mut(spec, direction).iter_mut().flat_map(|rule| list_mut(rule, "ports")) {
            set_default(port, "protocol", "TCP");
        }
    }
}

fn validate(policy: &Field<'_>, errors: &mut Errors) {
    let spec = policy.get("spec");
    meta::validate_label_selector(&spec.get("podSelector"), errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.get(direction).items() {
            for port in rule.get("ports").items() {
                validate_port(&port, errors);
            }
            for peer in rule.get(peers).items() {
                validate_peer(&peer, errors);
            }
        }
    }
    let types = spec.get("policyTypes");
    if types.len() > 2 {
        types.invalid("may not specify more than two policyTypes", errors);
        return;
    }
    for ty in types.items() {
        ty.one_of(&["Egress", "Ingress"], errors);
    }
}

fn validate_port(entry: &Field<'_>, errors: &mut Errors) {
    entry.get("protocol").one_of(&["SCTP", "TCP", "UDP"], errors);
    let (port, end) = (entry.get("port"), entry.get("endPort"));
    match port.value() {
        Value::Null if end.exists() => {
            end.invalid("may not be specified when `port` is not specified", errors);
        }
        Value::Null => {}
        Value::String(_) => {
            if end.exists() {
                end.invalid("may not be specified when `port` is non-numeric", errors);
            }
            port.conforms(names::is_port_name, errors);
        }
        number => {
            rules::validate_port(&port, errors);
            if end.exists() {
                if end.int() < number.as_i64() {
                    end.invalid_value(number.clone(), "must be greater than or equal to `port`", errors);
                }
                rules::validate_port(&end, errors);
            }
        }
    }
}

fn validate_peer(peer: &Field<'_>, errors: &mut Errors) {
    let (pods, namespaces) = (peer.get("podSelector"), peer.get("namespaceSelector"));
    let block = peer.get("ipBlock");
    meta::validate_label_selector(&pods, errors);
    meta::validate_label_selector(&namespaces, errors);
    if block.exists() {
        validate_ip_block(&block, errors);
    }
    let by_labels = pods.exists() || namespaces.exists();
    if !by_labels && !block.exists() {
        peer.complain(Reason::Required, "must specify a peer", errors);
    } else if by_labels && block.exists() {
        peer.forbidden("may not specify both ipBlock and another peer", errors);
    }
}

fn validate_ip_block(block: &Field<'_>, errors: &mut Errors) {
    let cidr = block.get("cidr");
    if !cidr.required(errors) {
        return;
    }
    cidr.conforms(names::is_legacy_cidr, errors);
    let Ok(net) = cidr.text().parse::<IpNet>() else { return };
    for except in block.get("except").items() {
        except.conforms(names::is_legacy_cidr, errors);
        let inside = except
            .text()
            .parse::<IpNet>()
            .map_or(true, |except| net.contains(&except.network()) && net.prefix_len() < except.prefix_len());
        if !inside {
            except.invalid("must be a strict subset of `cidr`", errors);
        }
    }
}
