//! Taints of nodes and tolerations of pods: which taint a toleration lets a pod live with.
//!
//! ```text
//! Taint {key, value, effect} <──tolerates── Toleration {key, operator, value, effect}
//! ```

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// A taint, as far as tolerations look at it.
#[derive(Debug, Clone, Copy)]
pub struct TaintParts<'a> {
    /// What it is called.
    pub key: &'a str,
    /// What it says; may be empty.
    pub value: &'a str,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: &'a str,
}

/// A toleration, as far as taints look at it. What is empty was not said.
#[derive(Debug, Clone, Copy)]
pub struct TolerationParts<'a> {
    /// The taints meant; all, if empty.
    pub key: &'a str,
    /// `Equal`, which is also meant by nothing, or `Exists`.
    pub operator: &'a str,
    /// The value meant, with `Equal`.
    pub value: &'a str,
    /// The effect meant; all, if empty.
    pub effect: &'a str,
}

impl<'a> From<&'a Taint> for TaintParts<'a> {
    fn from(taint: &'a Taint) -> TaintParts<'a> {
        TaintParts {
            key: &taint.key,
            value: taint.value.as_deref().unwrap_or_default(),
            effect: &taint.effect,
        }
    }
}

impl<'a> From<&'a Toleration> for TolerationParts<'a> {
    fn from(toleration: &'a Toleration) -> TolerationParts<'a> {
        let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
        TolerationParts {
            key: text(&toleration.key),
            operator: text(&toleration.operator),
            value: text(&toleration.value),
            effect: text(&toleration.effect),
        }
    }
}

/// Whether a toleration lets a pod live with a taint.
pub fn tolerates<'a>(toleration: impl Into<TolerationParts<'a>>, taint: impl Into<TaintParts<'a>>) -> bool {
    let (toleration, taint) = (toleration.into(), taint.into());
    (toleration.effect.is_empty() || toleration.effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match toleration.operator {
            "" | "Equal" => toleration.value == taint.value,
            "Exists" => true,
            // Written by a server that knows more operators.
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toleration_names_what_it_tolerates() {
        let taint = TaintParts { key: "gpu", value: "a", effect: "NoSchedule" };
        let cases = [
            (["gpu", "Equal", "a", "NoSchedule"], true),
            (["gpu", "", "a", "NoSchedule"], true),
            (["gpu", "Equal", "b", "NoSchedule"], false),
            (["gpu", "", "", "NoSchedule"], false),
            (["gpu", "Exists", "", "NoSchedule"], true),
            (["gpu", "Exists", "", ""], true),
            (["gpu", "Exists", "", "NoExecute"], false),
            (["", "Exists", "", ""], true),
            (["", "Exists", "", "NoExecute"], false),
            (["disk", "Exists", "", ""], false),
            (["gpu", "Gt", "a", ""], false),
        ];
        for ([key, operator, value, effect], expected) in cases {
            let toleration = TolerationParts { key, operator, value, effect };
            assert_eq!(tolerates(toleration, taint), expected, "{toleration:?}");
        }
    }

    #[test]
    fn what_was_not_said_is_empty() {
        let taint = Taint { key: "k".into(), effect: "NoExecute".into(), ..Taint::default() };
        let toleration = Toleration { key: Some("k".into()), ..Toleration::default() };
        assert!(tolerates(&toleration, &taint));
    }
}
