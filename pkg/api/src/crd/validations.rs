//! Rules in CEL (`x-kubernetes-validations`): compiled with the schema, checked when it is defined, evaluated on its
//! objects.

use super::check::counterpart;
use super::structural::{Additional, Structural, Type};
use super::typing::{Known, Scope, infer, typed};
use super::{flag, text};
use crate::admission::usable_message;
use crate::expression::{self, Answer, Expression, Failure, Fault};
use crate::field::{Errors, Field, FieldError, Reason};
use crate::place::Place;
use crate::schema::ListType;
use serde_json::Value;
use std::sync::{Arc, LazyLock, OnceLock};

/// What rules may name.
const VARIABLES: &[&str] = &["self", "oldSelf"];
/// What all rules may take on one object, in the steps of which one evaluation may take a quarter.
const BUDGET: u64 = 2_000_000;

/// One rule of a node.
#[derive(Debug)]
pub(super) struct Rule {
    text: Box<str>,
    message: Box<str>,
    reason: Reason,
    /// Below the node, where complaints are about one of its fields.
    field_path: Option<String>,
    optional_old_self: bool,
    expression: Lazy,
    uses_old_self: OnceLock<bool>,
    message_expression: Option<Lazy>,
}

/// An expression that is understood when it is first needed: that takes long, and of those who compile a schema few
/// evaluate its rules.
type Lazy = LazyLock<Result<Expression, Fault>, Box<dyn FnOnce() -> Result<Expression, Fault> + Send>>;

fn lazily(text: &str) -> Lazy {
    let text = text.to_owned();
    LazyLock::new(Box::new(move || Expression::parse(&text, VARIABLES)))
}

impl Rule {
    fn compile(json: &Value, node: &Structural) -> Rule {
        let message_expression = Some(text(json, "messageExpression")).filter(|text| !text.trim().is_empty());
        Rule {
            text: text(json, "rule").trim().into(),
            message: text(json, "message").trim().into(),
            reason: match text(json, "reason") {
                "FieldValueForbidden" => Reason::Forbidden,
                "FieldValueRequired" => Reason::Required,
                "FieldValueDuplicate" => Reason::Duplicate,
                _ => Reason::Invalid,
            },
            field_path: Some(text(json, "fieldPath"))
                .filter(|path| !path.is_empty())
                .and_then(|path| field_path(path, node)),
            optional_old_self: flag(json, "optionalOldSelf"),
            expression: lazily(text(json, "rule")),
            uses_old_self: OnceLock::new(),
            message_expression: message_expression.map(lazily),
        }
    }

    /// Whether it is about a change.
    fn uses_old_self(&self) -> bool {
        let look = || self.expression.as_ref().is_ok_and(|expression| expression.names("oldSelf"));
        *self.uses_old_self.get_or_init(look)
    }

    /// The functions for which the rule, or its message, is not evaluated.
    pub(super) fn missing(&self) -> impl Iterator<Item = &str> {
        let parts = [Some(&self.expression), self.message_expression.as_ref()].into_iter().flatten();
        parts.filter_map(|part| match &**part {
            Err(Fault::Missing(name)) => Some(name.as_str()),
            _ => None,
        })
    }

    /// What the rule is called where it could not be evaluated.
    fn name(&self) -> &str {
        if self.message.is_empty() { &self.text } else { &self.message }
    }
}

/// The rules of a node, whose other parts are compiled already.
pub(super) fn compile(json: &Value, node: &Structural) -> Arc<[Rule]> {
    let rules = json.get("x-kubernetes-validations").and_then(Value::as_array);
    rules.into_iter().flatten().map(|rule| Rule::compile(rule, node)).collect()
}

/// A path of fields such as `.spec['a.b']`, as complaints write it; `None` if there is no such field.
pub(super) fn field_path(path: &str, node: &Structural) -> Option<String> {
    let (mut rest, mut node, mut out) = (path, node, String::new());
    while !rest.is_empty() {
        let name = if let Some(after) = rest.strip_prefix("['") {
            let end = after.match_indices("']").map(|(at, _)| at).find(|at| !after[..*at].ends_with('\\'))?;
            rest = &after[end + 2..];
            after[..end].replace("\\'", "'").replace("\\\\", "\\")
        } else {
            let after = rest.strip_prefix('.')?;
            let end = after.find(['.', '[']).unwrap_or(after.len());
            rest = &after[end..];
            after[..end].to_owned()
        };
        match (&node.additional, node.properties.get(name.as_str())) {
            (_, Some(property)) => {
                node = property;
                out.push_str(if out.is_empty() { "" } else { "." });
                out.push_str(&name);
            }
            (Additional::Schema(schema), None) if node.properties.is_empty() => {
                node = schema;
                out.push_str(&format!("[{name}]"));
            }
            _ => return None,
        }
    }
    Some(out)
}

/// Complains about rules that cannot be kept: those of this node and all below. `uncorrelatable` is the path of the
/// list above whose elements have no past.
pub(super) fn check_definition(
    schema: &Field<'_>,
    node: &Structural,
    resource: bool,
    uncorrelatable: Option<&str>,
    errors: &mut Errors,
) {
    if !node.has_validations {
        return;
    }
    if let Additional::Schema(below) = &node.additional {
        check_definition(&schema.get("additionalProperties"), below, below.embedded, uncorrelatable, errors);
    }
    for (name, property) in schema.get("properties").entries() {
        if let Some(below) = node.properties.get(name) {
            check_definition(&property, below, below.embedded, uncorrelatable, errors);
        }
    }
    if let Some(below) = node.items.as_deref() {
        let path = schema.path();
        let has_no_past = (!matches!(node.list, ListType::Map(_))).then_some(path.as_str());
        check_definition(&schema.get("items"), below, below.embedded, uncorrelatable.or(has_no_past), errors);
    }
    for (rule, place) in node.validations().iter().zip(schema.get("x-kubernetes-validations").items()) {
        check_rule(rule, &place, Known::Node(node, resource), uncorrelatable, errors);
    }
}

fn check_rule<'a>(
    rule: &Rule,
    place: &Field<'_>,
    this: Known<'a>,
    uncorrelatable: Option<&str>,
    errors: &mut Errors,
) {
    let old = if rule.optional_old_self { Known::Nothing } else { this };
    let wrong =
        |expression: &Result<Expression, Fault>, text: &str, wanted: &str, must: &str| match expression {
            Err(Fault::Missing(_)) => None,
            Err(Fault::Invalid(why)) => Some(format!("compilation failed: {why}")),
            Ok(expression) => {
                let mut scope: Scope<'a> = vec![("self".to_owned(), this), ("oldSelf".to_owned(), old)];
                match infer(expression.tree(), &mut scope) {
                    Err((id, why)) => {
                        Some(format!("compilation failed: {}", Expression::complaint(text, id, &why)))
                    }
                    Ok(known) if !known.may_be(wanted) => Some(must.to_owned()),
                    Ok(_) => None,
                }
            }
        };
    let rule_text = place.get("rule");
    if let Some(why) =
        wrong(&rule.expression, rule_text.text(), "bool", "cel expression must evaluate to a bool")
    {
        complain(&rule_text, place.value(), &why, errors);
        return;
    }
    let message = place.get("messageExpression");
    if let Some(expression) = &rule.message_expression
        && let Some(why) =
            wrong(expression, message.text(), "string", "messageExpression must evaluate to a string")
    {
        let why = why.replacen("compilation failed", "messageExpression compilation failed", 1);
        complain(&message, place.value(), &why, errors);
    }
    if let (true, Some(path)) = (rule.uses_old_self(), uncorrelatable) {
        rule_text.invalid(
            format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {path}"),
            errors,
        );
    }
    if !rule.uses_old_self() && rule.expression.is_ok() && place.get("optionalOldSelf").exists() {
        place.get("optionalOldSelf").invalid("may not be set if oldSelf is not used in rule", errors);
    }
}

/// Complains as upstream does, which shows the whole rule as Go does.
fn complain(place: &Field<'_>, rule: &Value, why: &str, errors: &mut Errors) {
    let shown = |name: &str, absent: &str| match rule.get(name) {
        None | Some(Value::Null) => absent.to_owned(),
        Some(value) => {
            value.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
        }
    };
    let detail = format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}: {why}"#,
        shown("rule", "\"\""),
        shown("message", "\"\""),
        shown("messageExpression", "\"\""),
        shown("reason", "null"),
        shown("fieldPath", "\"\""),
        shown("optionalOldSelf", "null"),
    );
    errors.push(FieldError { reason: Reason::Invalid, path: place.path(), value: None, detail });
}

/// Complains about an object that breaks rules of its schema. Those about what is unchanged since `old` are let be,
/// unless they are about the change.
pub(super) fn check_object(schema: &Structural, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let mut run = Run { budget: BUDGET, errors };
    // What ended the run is among the errors.
    let _ended = run.visit(schema, object, old, false, &Place::root(), true);
}

struct Run<'e> {
    budget: u64,
    errors: &'e mut Errors,
}

/// Why no further rules are evaluated: the budget is spent.
struct Ended;

impl Run<'_> {
    fn visit(
        &mut self,
        schema: &Structural,
        value: &Value,
        old: Option<&Value>,
        unchanged: bool,
        place: &Place<'_>,
        resource: bool,
    ) -> Result<(), Ended> {
        if !schema.has_validations || value.is_null() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        let unchanged = old.map_or(unchanged, |old| old == value);
        if !schema.validations().is_empty() {
            self.evaluate(schema, value, old, unchanged, place, resource)?;
        }
        match value {
            Value::Array(items) => {
                let Some(element) = schema.items.as_deref() else { return Ok(()) };
                let old_items = old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                for (index, item) in items.iter().enumerate() {
                    let old = counterpart(&schema.list, item, old_items);
                    self.visit(element, item, old, unchanged, &place.index(index), element.embedded)?;
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    let old = old.and_then(|old| old.get(name));
                    let (below, place) = match (&schema.additional, schema.properties.get(name.as_str())) {
                        (_, Some(property)) => (property, place.name(name)),
                        (Additional::Schema(schema), None) => (&**schema, place.key(name)),
                        _ => continue,
                    };
                    self.visit(below, member, old, unchanged, &place, below.embedded)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn evaluate(
        &mut self,
        schema: &Structural,
        value: &Value,
        old: Option<&Value>,
        unchanged: bool,
        place: &Place<'_>,
        resource: bool,
    ) -> Result<(), Ended> {
        let mut outer = expression::context();
        outer.add_variable_as_val("self", typed(schema, value, resource));
        for rule in schema.validations() {
            let broken = |detail: String| FieldError {
                reason: Reason::Invalid,
                path: place.path(),
                value: Some(type_name(schema).into()),
                detail,
            };
            let expression = match &*rule.expression {
                Ok(expression) => expression,
                Err(Fault::Missing(_)) => continue,
                Err(Fault::Invalid(why)) => {
                    self.errors.push(broken(format!("rule compile error: compilation failed: {why}")));
                    continue;
                }
            };
            if rule.uses_old_self() && old.is_none() && !rule.optional_old_self {
                continue;
            }
            let mut context = outer.new_inner_scope();
            if rule.uses_old_self() {
                let old = old.map(|old| typed(schema, old, resource));
                match (rule.optional_old_self, old) {
                    (true, old) => context.add_variable_as_val("oldSelf", expression::optional(old)),
                    (false, Some(old)) => context.add_variable_as_val("oldSelf", old),
                    (false, None) => {}
                }
            }
            if self.budget == 0 {
                let spent = "validation failed due to running out of cost budget, no further validation rules will be \
                             run";
                self.errors.push(broken(spent.to_owned()));
                return Err(Ended);
            }
            match expression.evaluate(&context, &mut self.budget) {
                Ok(Answer::Bool(true)) => {}
                Ok(_) if unchanged && !rule.uses_old_self() => {}
                Ok(_) => {
                    let message = rule.message_expression.as_ref().and_then(|message| message.as_ref().ok());
                    let message = message.and_then(|message| message.evaluate(&context, &mut self.budget).ok());
                    self.errors.push(failure(rule, message.and_then(usable_message), schema, value, place));
                }
                Err(Failure::TooMuch) => {
                    self.errors.push(broken(format!(
                        "'operation cancelled: actual cost limit exceeded': no further validation rules will be run \
                         due to call cost exceeds limit for rule: {}",
                        rule.name()
                    )));
                    return Err(Ended);
                }
                Err(Failure::NoOverload) => self.errors.push(broken(format!(
                    "'no such overload': call arguments did not match a supported operator, function or macro \
                     signature for rule: {}",
                    rule.name()
                ))),
                Err(Failure::Failed(why)) => {
                    self.errors.push(broken(format!("{why} evaluating rule: {}", rule.name())));
                }
            }
        }
        Ok(())
    }
}

fn failure(
    rule: &Rule,
    message: Option<String>,
    schema: &Structural,
    value: &Value,
    place: &Place<'_>,
) -> FieldError {
    let path = match &rule.field_path {
        Some(below) => place.name(below).path(),
        None => place.path(),
    };
    let detail = match message {
        Some(message) => message,
        None if rule.message.is_empty() => format!("failed rule: {}", rule.text),
        None => rule.message.to_string(),
    };
    let is_scalar = !matches!(type_name(schema), "object" | "array");
    FieldError {
        reason: rule.reason,
        path,
        value: is_scalar.then(|| value.clone()),
        // Upstream says of a duplicate only that it is one.
        detail: if rule.reason == Reason::Duplicate { String::new() } else { detail },
    }
}

/// The type as the schema gives it.
fn type_name(schema: &Structural) -> &'static str {
    match schema.ty {
        None | Some(Type::IntOrString) => "",
        Some(ty) => ty.name(),
    }
}

#[cfg(test)]
mod tests;
