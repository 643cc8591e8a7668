//! Expressions of admission: when webhooks and policies are asked, and what policies demand of a request.
//!
//! ```text
//! object, oldObject, request, params ──> Conditions ──> Program: variables (when first named) ──> validations ──> Denials
//! ```
//!
//! A policy is understood once, when it is written or read; what of it could not be understood then fails when it is
//! evaluated. `authorizer` is not here: an expression that names it is refused.

mod variables;

use crate::crd::typing::{Known, Scope, infer};
use crate::expression::{self, Answer, DEEPEST, Expression, Failure};
use crate::schema::Schema;
use cel::Context;
use serde_json::{Value, json};
use std::collections::HashMap;
use variables::Variables;

/// What all expressions of one evaluation may take together, in the steps of which each may take a quarter.
const BUDGET: u64 = 2_000_000;
/// A message that an expression makes is dropped if it is longer.
const LONGEST_MESSAGE: usize = 5 * 1024;

const TEXT: Known<'static> = Known::Plain("string");
const LIST: Known<'static> = Known::Plain("list");
const KIND: Known<'static> = Known::Fields(&[("group", TEXT), ("version", TEXT), ("kind", TEXT)]);
const RESOURCE: Known<'static> = Known::Fields(&[("group", TEXT), ("version", TEXT), ("resource", TEXT)]);
const REQUEST: Known<'static> = Known::Fields(&[
    ("kind", KIND),
    ("resource", RESOURCE),
    ("subResource", TEXT),
    ("requestKind", KIND),
    ("requestResource", RESOURCE),
    ("requestSubResource", TEXT),
    ("name", TEXT),
    ("namespace", TEXT),
    ("operation", TEXT),
    (
        "userInfo",
        Known::Fields(&[("username", TEXT), ("uid", TEXT), ("groups", LIST), ("extra", Known::Nothing)]),
    ),
    ("dryRun", Known::Plain("bool")),
    ("options", Known::Dyn),
]);
const NAMESPACE: Known<'static> = Known::Fields(&[
    (
        "metadata",
        Known::Fields(&[
            ("name", TEXT),
            ("generateName", TEXT),
            ("namespace", TEXT),
            ("labels", Known::Nothing),
            ("annotations", Known::Nothing),
            ("UID", TEXT),
            ("creationTimestamp", Known::Nothing),
            ("deletionGracePeriodSeconds", Known::Plain("int")),
            ("deletionTimestamp", Known::Nothing),
            ("generation", Known::Plain("int")),
            ("resourceVersion", TEXT),
            ("finalizers", LIST),
        ]),
    ),
    ("spec", Known::Fields(&[("finalizers", LIST)])),
    ("status", Known::Fields(&[("conditions", LIST), ("phase", TEXT)])),
]);

/// An expression, or why it is none.
type Compiled = Result<Expression, String>;

/// Understands the expressions of one policy or webhook in their order: each may name the variables before it.
pub(crate) struct Compiler<'a> {
    names: Vec<&'static str>,
    scope: Scope<'a>,
    /// How deep the evaluation of each variable goes.
    depths: HashMap<String, usize>,
}

impl<'a> Compiler<'a> {
    /// For expressions that may name parameters, and variables, or not.
    pub(crate) fn new(has_params: bool, has_variables: bool) -> Compiler<'a> {
        Compiler::of(Known::Dyn, has_params.then_some(Known::Dyn), has_variables)
    }

    /// For expressions about objects, and with parameters, of which this is known.
    fn of(object: Known<'a>, params: Option<Known<'a>>, has_variables: bool) -> Compiler<'a> {
        let mut known = vec![
            ("object", object),
            ("oldObject", object),
            ("request", REQUEST),
            ("namespaceObject", NAMESPACE),
        ];
        known.extend(params.map(|params| ("params", params)));
        known.extend(has_variables.then_some(("variables", Known::Composed)));
        Compiler {
            names: known.iter().map(|(name, _)| *name).collect(),
            scope: known.into_iter().map(|(name, known)| (name.to_owned(), known)).collect(),
            depths: HashMap::new(),
        }
    }

    /// A variable, which those that follow may name even if it is wrong.
    pub(crate) fn variable(&mut self, name: &str, text: &str) -> Compiled {
        let understood = self.understand(text);
        let (known, depth) =
            understood.as_ref().map_or((Known::Dyn, 0), |(_, known, depth)| (*known, *depth));
        self.scope.push((format!("variables.{name}"), known));
        self.depths.entry(name.to_owned()).or_insert(depth);
        understood.map(|(expression, ..)| expression)
    }

    /// An expression that comes to a value of one of these types.
    pub(crate) fn expression(&mut self, text: &str, wanted: &[&str]) -> Compiled {
        let (expression, known, _) = self.understand(text)?;
        match (known.shown(), wanted) {
            (Some(got), [one]) if got != *one => Err(format!("must evaluate to {one} but got {got}")),
            (Some(got), _) if !wanted.contains(&got) => {
                Err(format!("must evaluate to one of [{}] but got {got}", wanted.join(" ")))
            }
            _ => Ok(expression),
        }
    }

    fn understand(&mut self, text: &str) -> Result<(Expression, Known<'a>, usize), String> {
        let expression = Expression::compile(text, &self.names)?;
        let known = infer(expression.tree(), &mut self.scope)
            .map_err(|(id, why)| format!("compilation failed: {}", Expression::complaint(text, id, &why)))?;
        // Every node may have a counter above it.
        let depth = expression.depth(&self.depths);
        match depth > 2 * DEEPEST {
            true => Err(format!("compilation failed: expression recursion limit exceeded: {DEEPEST}")),
            false => Ok((expression, known, depth)),
        }
    }
}

/// What is wrong with a policy's expressions about objects of these kinds, named as Go names them, and with parameters of
/// this schema, where it is known: `expressionWarnings` of its status.
pub fn type_check(spec: &Value, kinds: &[(String, &Schema)], params: Option<&Schema>) -> Vec<Value> {
    let params = spec.get("paramKind").map(|_| params.map_or(Known::Dyn, Known::Typed));
    let has_variables = list(spec, "variables").next().is_some();
    let places = list(spec, "validations").enumerate().flat_map(|(index, validation)| {
        let place =
            move |member: &str| (format!("spec.validations[{index}].{member}"), text(validation, member));
        ["expression", "messageExpression"].map(place)
    });
    let mut complaints: Vec<(String, String, Vec<String>)> = places
        .filter(|(_, expression)| !expression.is_empty())
        .map(|(place, expression)| (place, expression, Vec::new()))
        .collect();
    for (kind, schema) in kinds {
        let mut compiler = Compiler::of(Known::Typed(schema), params, has_variables);
        for variable in list(spec, "variables") {
            // What is wrong with it shows where it is used, if that does not suit either.
            let _ = compiler.variable(&text(variable, "name"), &text(variable, "expression"));
        }
        for (_, expression, wrong) in &mut complaints {
            if let Err(why) = compiler.understand(expression) {
                wrong.push(format!("{kind}: {}\n", why.trim_start_matches("compilation failed: ")));
            }
        }
    }
    let told = complaints.into_iter().filter(|(_, _, wrong)| !wrong.is_empty());
    told.map(|(place, _, wrong)| json!({"fieldRef": place, "warning": wrong.join("\n")})).collect()
}

/// Conditions that must all hold before a webhook or policy is asked.
pub struct Conditions {
    /// Each with its text.
    all: Vec<(String, Compiled)>,
    ignores_failure: bool,
}

impl Conditions {
    /// Those of a webhook, or of the `spec` of a policy, which may name parameters if it has any.
    pub fn compile(of: &Value) -> Conditions {
        let mut compiler = Compiler::new(of.get("paramKind").is_some(), false);
        let mut understood = |condition: &Value| {
            let text = text(condition, "expression");
            let compiled = compiler.expression(text.trim(), &["bool"]);
            (text, compiled)
        };
        Conditions {
            all: list(of, "matchConditions").map(&mut understood).collect(),
            ignores_failure: of["failurePolicy"] == "Ignore",
        }
    }

    /// Whether there are none.
    pub fn are_none(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether all hold. One that does not is enough, whatever is wrong with others; what is wrong with them counts as
    /// no where failures are ignored.
    pub fn hold(&self, given: &[(&str, &Value)]) -> Result<bool, String> {
        let context = context(given);
        let mut budget = BUDGET;
        let mut wrong = Vec::new();
        for (text, compiled) in &self.all {
            match evaluate(text, compiled, &context, &mut budget) {
                Ok(Answer::Bool(true)) => {}
                Ok(Answer::Bool(false)) => return Ok(false),
                Ok(_) => wrong.push(format!("expression '{text}' must evaluate to bool")),
                Err(why) => wrong.push(why),
            }
        }
        match wrong.as_mut_slice() {
            [] => Ok(true),
            _ if self.ignores_failure => Ok(false),
            [one] => Err(std::mem::take(one)),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }
}

/// What a policy demands.
pub struct Program {
    variables: Vec<(String, Compiled)>,
    validations: Vec<Validation>,
    /// The texts, and what they are compiled to.
    annotations: Vec<(String, Compiled)>,
    ignores_failure: bool,
}

struct Validation {
    text: String,
    expression: Compiled,
    message: String,
    message_expression: Option<Compiled>,
    reason: String,
}

/// Why a request does not suit a policy.
#[derive(Debug, PartialEq)]
pub struct Denial {
    /// In words.
    pub message: String,
    /// As a `Status` has it; empty where none was given.
    pub reason: String,
    /// Whether it counts whatever the binding says is to be done.
    pub is_final: bool,
}

impl Program {
    /// That of the `spec` of a policy.
    pub fn compile(spec: &Value) -> Program {
        let has_variables = list(spec, "variables").next().is_some();
        let mut compiler = Compiler::new(spec.get("paramKind").is_some(), has_variables);
        let variable = |variable: &Value| {
            let name = text(variable, "name");
            let compiled = compiler.variable(&name, &text(variable, "expression"));
            (name, compiled)
        };
        let variables = list(spec, "variables").map(variable).collect();
        let validation = |validation: &Value| {
            let message = text(validation, "messageExpression");
            let has_message = !message.trim().is_empty();
            Validation {
                expression: compiler.expression(&text(validation, "expression"), &["bool"]),
                text: text(validation, "expression"),
                message: text(validation, "message").trim().to_owned(),
                message_expression: has_message.then(|| compiler.expression(&message, &["string"])),
                reason: text(validation, "reason"),
            }
        };
        let validations = list(spec, "validations").map(validation).collect();
        let annotation = |annotation: &Value| {
            let text = text(annotation, "valueExpression");
            let compiled = compiler.expression(&text, &["string", "null_type"]);
            (text, compiled)
        };
        Program {
            variables,
            validations,
            annotations: list(spec, "auditAnnotations").map(annotation).collect(),
            ignores_failure: spec["failurePolicy"] == "Ignore",
        }
    }

    /// What stands against a request, as the variables of expressions show it.
    pub fn evaluate(&self, given: &[(&str, &Value)]) -> Vec<Denial> {
        let variables = Variables::new(&self.variables, context(given));
        let context = variables.context();
        let mut budget = BUDGET;
        let mut denials = Vec::new();
        for validation in &self.validations {
            match evaluate(&validation.text, &validation.expression, &context, &mut budget) {
                Ok(Answer::Bool(true)) => {}
                Ok(_) => denials.push(validation.denial(&context, &mut budget)),
                Err(_) if self.ignores_failure => {}
                Err(message) => denials.push(Denial { message, reason: String::new(), is_final: false }),
            }
        }
        // There is no log to annotate; what is wrong with an annotation refuses the request all the same.
        for (text, compiled) in &self.annotations {
            let message = match evaluate(text, compiled, &context, &mut budget) {
                Ok(Answer::Text(_)) => continue,
                Ok(Answer::Other(ty)) if ty == "null_type" => continue,
                Ok(Answer::Bool(_)) => unsupported(text, "bool"),
                Ok(Answer::Other(ty)) => unsupported(text, &ty),
                Err(_) if self.ignores_failure => continue,
                Err(message) => message,
            };
            denials.push(Denial { message, reason: String::new(), is_final: true });
        }
        denials
    }
}

impl Validation {
    fn denial(&self, context: &Context<'_, '_>, budget: &mut u64) -> Denial {
        let made = self.message_expression.as_ref().and_then(|message| message.as_ref().ok());
        let made = made.and_then(|message| message.evaluate(context, budget).ok());
        let message = match made.and_then(usable_message) {
            Some(message) => message,
            None if self.message.is_empty() => format!("failed expression: {}", self.text.trim()),
            None => self.message.clone(),
        };
        Denial { message, reason: self.reason.clone(), is_final: false }
    }
}

/// The message that an expression made, if it can be shown.
pub(crate) fn usable_message(answer: Answer) -> Option<String> {
    let Answer::Text(text) = answer else { return None };
    let text = text.trim();
    let fits = !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
    fits.then(|| text.to_owned())
}

fn unsupported(text: &str, ty: &str) -> String {
    format!(
        "valueExpression '{text}' resulted in unsupported return type: {ty}. Return type must be either string or null."
    )
}

fn context<'v>(given: &[(&str, &'v Value)]) -> Context<'v, 'v> {
    let mut context: Context<'v, 'v> = expression::context();
    for (name, value) in given {
        context.add_variable_as_val(*name, expression::from_json(value));
    }
    context
}

fn evaluate(
    text: &str,
    compiled: &Compiled,
    context: &Context<'_, '_>,
    budget: &mut u64,
) -> Result<Answer, String> {
    let expression = compiled.as_ref().map_err(|why| format!("compilation error: {why}"))?;
    if *budget == 0 {
        let spent =
            "validation failed due to running out of cost budget, no further validation rules will be run";
        return Err(spent.to_owned());
    }
    let failed = |failure: Failure| format!("expression '{text}' resulted in error: {failure}");
    expression.evaluate(context, budget).map_err(failed)
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
