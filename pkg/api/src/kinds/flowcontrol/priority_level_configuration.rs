//! PriorityLevelConfiguration: how many requests of one kind a server works at.

use super::{level, validate_conditions};
use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::object::{self, set_default};
use crate::{equality, names, printing};
use k8s_openapi::api::flowcontrol::v1::PriorityLevelConfiguration;
use serde_json::Value;

const MOST_QUEUES: i64 = 10_000_000;
/// Bits of the hash that deals a flow its queues.
const HASH_BITS: f64 = 60.0;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Type", "string", |level, _| printing::text(level, "spec.type").into()),
            column("NominalConcurrencyShares", "string", |level, _| {
                number(level, "nominalConcurrencyShares")
            }),
            column("Queues", "string", |level, _| number(level, "limitResponse.queuing.queues")),
            column("HandSize", "string", |level, _| number(level, "limitResponse.queuing.handSize")),
            column("QueueLengthLimit", "string", |level, _| {
                number(level, "limitResponse.queuing.queueLengthLimit")
            }),
            printing::age_column(),
        ],
        validate_name: names::dns_subdomain_name,
        default,
        validate,
        validate_status: |new, _, errors| validate_conditions(new, errors),
        ..Kind::new::<PriorityLevelConfiguration>().with_status().with_generation()
    }
}

fn number(level: &Value, path: &str) -> Value {
    printing::at(level, &format!("spec.limited.{path}")).cloned().unwrap_or_else(|| "<none>".into())
}

fn default(level: &mut Value) {
    if let Some(exempt) = level.pointer_mut("/spec/exempt").filter(|exempt| exempt.is_object()) {
        set_default(exempt, "nominalConcurrencyShares", 0);
        set_default(exempt, "lendablePercent", 0);
    }
    let Some(limited) = level.pointer_mut("/spec/limited").filter(|limited| limited.is_object()) else {
        return;
    };
    set_default(limited, "nominalConcurrencyShares", 30);
    set_default(limited, "lendablePercent", 0);
    if let Some(queuing) = limited.pointer_mut("/limitResponse/queuing").filter(|queuing| queuing.is_object())
    {
        for (name, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
            if queuing[name].as_i64().unwrap_or(0) == 0 {
                queuing[name] = value.into();
            }
        }
    }
}

fn validate(object: &Field<'_>, errors: &mut Errors) {
    let spec = object.get("spec");
    let name = object::name(object.value());
    let (ty, limited, exempt) = (spec.get("type"), spec.get("limited"), spec.get("exempt"));
    if (name == "exempt") != (ty.text() == "Exempt") {
        ty.invalid_value(ty.text(), "must be 'Exempt' if and only if `name` is 'exempt'", errors);
    }
    match ty.text() {
        "Exempt" => {
            if limited.exists() {
                limited.forbidden("must be nil if the type is not Limited", errors);
            }
            validate_shares(&exempt, errors);
        }
        "Limited" => {
            if exempt.exists() {
                exempt.forbidden("must be nil if the type is Limited", errors);
            }
            if limited.exists() {
                validate_limited(&limited, errors);
            } else {
                limited.complain(Reason::Required, "must not be empty when type is Limited", errors);
            }
        }
        _ => ty.not_supported(&["Exempt", "Limited"], errors),
    }
    let is_fixed = match name {
        "exempt" => ty.text() == "Exempt" && !limited.exists(),
        "catch-all" => level(name).is_some_and(|fixed| equality::same(&fixed, spec.value())),
        _ => return,
    };
    if !is_fixed {
        let except = if name == "exempt" { " except the 'spec.exempt' field" } else { "" };
        spec.invalid(format!("spec of '{name}'{except} must equal the fixed value"), errors);
    }
}

fn validate_shares(level: &Field<'_>, errors: &mut Errors) {
    let (shares, lendable) = (level.get("nominalConcurrencyShares"), level.get("lendablePercent"));
    if shares.int().is_some_and(|shares| shares < 0) {
        shares.invalid("must be a non-negative integer", errors);
    }
    lendable.in_range(0..=100, errors);
}

fn validate_limited(limited: &Field<'_>, errors: &mut Errors) {
    validate_shares(limited, errors);
    let borrowing = limited.get("borrowingLimitPercent");
    if borrowing.int().is_some_and(|percent| percent < 0) {
        borrowing.invalid("if specified, must be a non-negative integer", errors);
    }
    let response = limited.get("limitResponse");
    let (ty, queuing) = (response.get("type"), response.get("queuing"));
    match ty.text() {
        "Reject" if queuing.exists() => {
            queuing.forbidden("must be nil if limited.limitResponse.type is not Limited", errors);
        }
        "Reject" => {}
        "Queue" if queuing.exists() => validate_queuing(&queuing, errors),
        "Queue" => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            queuing.complain(Reason::Required, detail, errors);
        }
        _ => ty.not_supported(&["Queue", "Reject"], errors),
    }
}

fn validate_queuing(queuing: &Field<'_>, errors: &mut Errors) {
    let (queues, hand, length) =
        (queuing.get("queues"), queuing.get("handSize"), queuing.get("queueLengthLimit"));
    for field in [length, queues, hand] {
        if field.int().unwrap_or(0) <= 0 {
            field.invalid("must be positive", errors);
        }
    }
    let (queues_count, hand_size) = (queues.int().unwrap_or(0), hand.int().unwrap_or(0));
    if queues_count > MOST_QUEUES {
        queues.invalid(format!("must not be greater than {MOST_QUEUES}"), errors);
    }
    if hand_size > queues_count {
        hand.invalid(format!("should not be greater than queues ({queues_count})"), errors);
    } else if hand_size > 0 && entropy_bits(queues_count, hand_size) > HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues_count} and handSize {hand_size} should not be greater than {HASH_BITS}"
        );
        hand.invalid(detail, errors);
    }
}

/// How many bits of a hash it takes to deal a hand of cards, about.
fn entropy_bits(deck: i64, hand: i64) -> f64 {
    ((deck as f64).log2() * hand as f64).ceil()
}
