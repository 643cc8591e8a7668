//! Expressions of the Common Expression Language, as match conditions of webhooks are.
//!
//! What an expression names is checked when it is compiled: a variable or function that is not there is refused then,
//! not ignored later. There is no type checker: an expression whose types do not fit fails when it is evaluated.

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::objects::{Key, Map};
use cel::{Context, Env, Program};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// What a match condition may look at.
pub const MATCH_VARIABLES: &[&str] = &["object", "oldObject", "request"];

/// Types, which stand where variables do.
const TYPES: [&str; 9] = ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"];
/// Functions beside the operators, whose names hold what no name of a function may.
const FUNCTIONS: [&str; 34] = [
    "bool",
    "bytes",
    "charAt",
    "contains",
    "distinct",
    "double",
    "dyn",
    "endsWith",
    "flatten",
    "format",
    "hasValue",
    "indexOf",
    "int",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "matches",
    "or",
    "orValue",
    "range",
    "replace",
    "reverse",
    "size",
    "slice",
    "sort",
    "split",
    "startsWith",
    "string",
    "substring",
    "trim",
    "type",
    "uint",
    "upperAscii",
    "value",
];
/// Longer texts are programs, not conditions.
const LONGEST: usize = 10 * 1024;

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    env.add_extension(cel::extensions::strings).expect("names of its own");
    env.add_extension(cel::extensions::lists).expect("names of its own");
    Arc::new(env)
});

/// An expression, ready to be evaluated.
pub struct Expression(Program);

impl Expression {
    /// Understands a text that names nothing but these variables; otherwise says why not.
    pub fn compile(text: &str, variables: &[&str]) -> Result<Expression, String> {
        if text.len() > LONGEST {
            return Err(format!("compilation failed: the expression is longer than {LONGEST} bytes"));
        }
        let failed = |why: &dyn std::fmt::Display| format!("compilation failed: {why}");
        let program = ENVIRONMENT.compile(text).map_err(|errors| failed(&errors))?;
        let mut known: Vec<&str> = variables.iter().chain(&TYPES).copied().collect();
        match undeclared(program.expression(), &mut known) {
            Some(name) => Err(failed(&format!("undeclared reference to '{name}' (in container '')"))),
            None => Ok(Expression(program)),
        }
    }

    /// Whether the expression is true of these values.
    pub fn holds(&self, variables: &[(&str, &Value)]) -> Result<bool, String> {
        let mut context = Context::with_env(ENVIRONMENT.clone());
        for (name, value) in variables {
            context.add_variable_from_value(*name, from_json(value));
        }
        match self.0.execute(&context) {
            Ok(cel::Value::Bool(answer)) => Ok(answer),
            Ok(other) => Err(format!("cel expression evaluated to {}, not to bool", other.type_of())),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn from_json(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => cel::Value::Int(integer),
            (None, number) => cel::Value::Float(number.unwrap_or(f64::NAN)),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(from_json).collect())),
        Value::Object(members) => {
            let entry =
                |(name, value): (&String, &Value)| (Key::String(Arc::new(name.clone())), from_json(value));
            let map: HashMap<Key, cel::Value> = members.iter().map(entry).collect();
            cel::Value::Map(Map { map: Arc::new(map) })
        }
    }
}

/// The first variable or function that is not there. `known` is what may be named; it grows within comprehensions.
fn undeclared<'a>(expression: &'a IdedExpr, known: &mut Vec<&'a str>) -> Option<&'a str> {
    match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) => None,
        Expr::Ident(name) => (!known.contains(&name.as_str())).then_some(name),
        Expr::Select(select) => undeclared(&select.operand, known),
        Expr::List(list) => list.elements.iter().find_map(|element| undeclared(element, known)),
        Expr::Map(map) => map.entries.iter().find_map(|entry| undeclared_entry(&entry.expr, known)),
        Expr::Struct(of_type) => Some(&of_type.type_name),
        Expr::Call(call) => {
            let name = call.func_name.as_str();
            let is_operator = name.contains(['_', '@']);
            if !is_operator && !FUNCTIONS.contains(&name) {
                return Some(name);
            }
            let target = call.target.as_deref().and_then(|target| undeclared(target, known));
            target.or_else(|| call.args.iter().find_map(|argument| undeclared(argument, known)))
        }
        Expr::Comprehension(all) => {
            let outside = undeclared(&all.iter_range, known).or_else(|| undeclared(&all.accu_init, known));
            if outside.is_some() {
                return outside;
            }
            let before = known.len();
            known.extend([all.iter_var.as_str(), all.accu_var.as_str()]);
            known.extend(all.iter_var2.as_deref());
            let parts = [&all.loop_cond, &all.loop_step, &all.result];
            let inside = parts.into_iter().find_map(|part| undeclared(part, known));
            known.truncate(before);
            inside
        }
    }
}

fn undeclared_entry<'a>(entry: &'a EntryExpr, known: &mut Vec<&'a str>) -> Option<&'a str> {
    match entry {
        EntryExpr::StructField(field) => undeclared(&field.value, known),
        EntryExpr::MapEntry(entry) => {
            undeclared(&entry.key, known).or_else(|| undeclared(&entry.value, known))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(text: &str, expected: Result<bool, &str>) {
        let object = json!({"metadata": {"name": "web", "labels": {"app": "x"}, "finalizers": ["a/b", "c"]},
            "spec": {"replicas": 3, "ratio": 0.5}});
        let request =
            json!({"operation": "CREATE", "userInfo": {"username": "system:node:n", "groups": ["g"]}});
        let variables = [("object", &object), ("oldObject", &Value::Null), ("request", &request)];
        let said = Expression::compile(text, MATCH_VARIABLES).and_then(|compiled| compiled.holds(&variables));
        match (&said, expected) {
            (Err(said), Err(expected)) => assert!(said.starts_with(expected), "{text}\n{said}"),
            (said, expected) => assert_eq!(said.clone(), expected.map_err(str::to_owned), "{text}"),
        }
    }

    #[test]
    fn conditions_as_webhooks_have_them() {
        for (text, expected) in [
            ("object.metadata.name != 'skip-me'", true),
            ("object.metadata.name == 'skip-me'", false),
            ("object.spec.replicas > 1 && object.spec.replicas <= 3", true),
            ("object.spec.replicas % 2 == 1 && object.spec.ratio < 1.0", true),
            ("request.operation in ['CREATE', 'UPDATE']", true),
            ("!('system:nodes' in request.userInfo.groups)", true),
            ("!request.userInfo.username.startsWith('system:node:')", false),
            ("has(object.metadata.labels) && 'app' in object.metadata.labels", true),
            ("has(object.metadata.annotations)", false),
            ("oldObject == null || oldObject.spec != object.spec", true),
            ("object.metadata.finalizers.exists(f, f.contains('/'))", true),
            ("object.metadata.finalizers.all(f, f.matches('^[a-z]$'))", false),
            ("object.metadata.labels[?'app'].orValue('') == 'x'", true),
            ("size(object.metadata.finalizers.filter(f, f.size() == 1)) == 1", true),
        ] {
            check(text, Ok(expected));
        }
    }

    #[test]
    fn what_cannot_be_evaluated_is_refused_by_name() {
        check("... [] bad expression", Err("compilation failed: ERROR"));
        check(
            "authorizer.group('').resource('pods').check('get').allowed()",
            Err("compilation failed: undeclared reference to 'allowed'"),
        );
        check("variables.x == 1", Err("compilation failed: undeclared reference to 'variables'"));
        check(
            "object.metadata.finalizers.all(f, g == f)",
            Err("compilation failed: undeclared reference to 'g'"),
        );
        check("object.metadata.name", Err("cel expression evaluated to string, not to bool"));
        check("object.spec.nothing == 1", Err("No such key"));
        check(&"(".repeat(5000), Err("compilation failed"));
    }
}
