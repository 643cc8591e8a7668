//! Expressions of the Common Expression Language: conditions and validations of admission, rules of custom kinds.
//!
//! What an expression names is checked when it is compiled: a variable or function that is not there is refused then,
//! not ignored later. There is no type checker: an expression whose types do not fit fails when it is evaluated.
//!
//! An evaluation is bounded: compiled expressions count what they iterate over and build up, and end when it is too
//! much.

mod functions;

pub(crate) use functions::Native;

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, SourceInfo, operators};
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelOptional, CelString, DYN_TYPE,
};
use cel::common::value::{CowVal, Val};
use cel::{Context, Env, ExecutionError, Program};
use serde_json::Value;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Types, which stand where variables do.
const TYPES: [&str; 10] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];
/// What stands before the dot of functions such as `optional.of`.
const NAMESPACES: [&str; 4] = ["lists", "optional", "sets", "strings"];
/// Functions of the language and its extensions, beside the operators, whose names hold what no name of a function
/// may, and those of [`functions`].
const FUNCTIONS: [&str; 38] = [
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
    "none",
    "of",
    "ofNonZeroValue",
    "or",
    "orValue",
    "quote",
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
/// Functions that Kubernetes gives to rules and that are not here: of addresses, of versions, of named formats, and
/// loops over two variables.
const MISSING: [&str; 46] = [
    "all",
    "byte",
    "cidr",
    "containsCIDR",
    "containsIP",
    "date",
    "datetime",
    "dns1035Label",
    "dns1035LabelPrefix",
    "dns1123Label",
    "dns1123LabelPrefix",
    "dns1123Subdomain",
    "dns1123SubdomainPrefix",
    "escapeKey",
    "exists",
    "existsOne",
    "exists_one",
    "family",
    "first",
    "ip",
    "isCIDR",
    "isCanonical",
    "isGlobalUnicast",
    "isIP",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isSemver",
    "isUnspecified",
    "labelValue",
    "last",
    "major",
    "masked",
    "minor",
    "named",
    "patch",
    "prefixLength",
    "qualifiedName",
    "semver",
    "transformList",
    "transformMap",
    "transformMapEntry",
    "unwrap",
    "uri",
    "uuid",
    "validate",
];
/// Longer texts are programs, not conditions.
const LONGEST: usize = 10 * 1024;
/// Deeper trees are refused: evaluating one goes down as far on the stack of whoever asks.
pub(crate) const DEEPEST: usize = 250;
/// A stack that parsing the longest text does not fill, however deep that is.
const PARSER_STACK: usize = 256 << 20;
/// What one evaluation may iterate over and build up, in elements and tens of bytes.
const MOST_STEPS: u64 = 500_000;
/// Wrapped around what grows: counts it and hands it on.
pub(crate) const COUNTED: &str = "@counted";

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    env.add_extension(cel::extensions::strings).expect("names of its own");
    env.add_extension(cel::extensions::lists).expect("names of its own");
    env.add_extension(functions::extension).expect("names of its own");
    env.add_overload(COUNTED, COUNTED, vec![DYN_TYPE], count).expect("a name of its own");
    Arc::new(env)
});

thread_local! {
    /// What the evaluation of this thread has taken.
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// An expression, ready to be evaluated.
#[derive(Debug, Clone)]
pub struct Expression(IdedExpr);

/// Why a text is no expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// It is wrong, in upstream's words.
    Invalid(String),
    /// It calls a function that upstream has and this server has not.
    Missing(String),
}

/// What an expression came to.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    Bool(bool),
    Text(String),
    /// A value of another type: its name.
    Other(String),
}

/// Why an expression came to nothing.
#[derive(Debug, PartialEq)]
pub(crate) enum Failure {
    /// It took more than one evaluation may.
    TooMuch,
    /// Values are not of the types that an operator or function takes.
    NoOverload,
    /// Anything else, in upstream's words.
    Failed(String),
}

impl Expression {
    /// Understands a text that names nothing but these variables; otherwise says why not.
    pub fn compile(text: &str, variables: &[&str]) -> Result<Expression, String> {
        Expression::parse(text, variables).map_err(|fault| match fault {
            Fault::Invalid(why) => format!("compilation failed: {why}"),
            Fault::Missing(name) => format!("compilation failed: {}", undeclared_text(&name)),
        })
    }

    /// [`Expression::compile`], telling what is wrong from what is only missing here.
    pub(crate) fn parse(text: &str, variables: &[&str]) -> Result<Expression, Fault> {
        if text.len() > LONGEST {
            return Err(Fault::Invalid(format!("the expression is longer than {LONGEST} bytes")));
        }
        let program = program(text).map_err(Fault::Invalid)?;
        let mut known: Vec<&str> = variables.iter().chain(&TYPES).copied().collect();
        if let Some((id, name)) = undeclared(program.expression(), &mut known) {
            return Err(match MISSING.contains(&name) {
                true => Fault::Missing(name.to_owned()),
                false => Fault::Invalid(drawing(text, program.source_info(), id, &undeclared_text(name))),
            });
        }
        let mut expression = program.expression().clone();
        measure(&mut expression);
        Ok(Expression(expression))
    }

    /// A complaint about one node of a text that was compiled, drawn as upstream's compiler does.
    pub(crate) fn complaint(text: &str, id: u64, what: &str) -> String {
        match program(text) {
            Ok(program) => drawing(text, program.source_info(), id, what),
            Err(why) => why,
        }
    }

    /// The tree, with [`COUNTED`] in it.
    pub(crate) fn tree(&self) -> &IdedExpr {
        &self.0
    }

    /// Whether the expression looks at a variable.
    pub(crate) fn names(&self, variable: &str) -> bool {
        self.0.references().has_variable(variable)
    }

    /// How many nodes stand below each other, where each variable of the struct `variables` has its own.
    pub(crate) fn depth(&self, variables: &HashMap<String, usize>) -> usize {
        depth(&self.0, variables)
    }

    /// Evaluates the expression with the variables of a [`context`]. What it takes is taken from `budget`.
    pub(crate) fn evaluate(&self, context: &Context<'_, '_>, budget: &mut u64) -> Result<Answer, Failure> {
        STEPS.set(0);
        let value = cel::Value::resolve_val(&self.0, context);
        let steps = STEPS.get();
        *budget = budget.saturating_sub(steps + 1);
        // Also where an operator made do with what came before: `false && …` is false whatever follows.
        if steps > MOST_STEPS {
            return Err(Failure::TooMuch);
        }
        let value = value.map_err(Failure::from)?;
        Ok(match (value.downcast_ref::<CelBool>(), value.downcast_ref::<CelString<'_>>()) {
            (Some(answer), _) => Answer::Bool(*answer.inner()),
            (None, Some(text)) => Answer::Text(text.inner().to_owned()),
            (None, None) => Answer::Other(value.get_type().name().to_owned()),
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::TooMuch => "operation cancelled: actual cost limit exceeded",
            Failure::NoOverload => "no such overload",
            Failure::Failed(why) => why,
        })
    }
}

impl From<ExecutionError> for Failure {
    fn from(error: ExecutionError) -> Failure {
        Failure::Failed(match error {
            ExecutionError::NoSuchOverload(_)
            | ExecutionError::UnexpectedType { .. }
            | ExecutionError::ValuesNotComparable(..)
            | ExecutionError::UnsupportedBinaryOperator(..) => return Failure::NoOverload,
            ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
            ExecutionError::IndexOutOfBounds(cel::Value::Int(index)) => {
                format!("index out of bounds: {index}")
            }
            ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
            ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
            ExecutionError::Overflow(..) => "integer overflow".to_owned(),
            ExecutionError::FunctionError { message, .. } => message,
            other => other.to_string(),
        })
    }
}

/// Where an expression is evaluated, without variables yet.
pub(crate) fn context<'v>() -> Context<'static, 'v> {
    Context::with_env(ENVIRONMENT.clone())
}

/// A value as an expression sees it if nothing is known of its type.
pub(crate) fn from_json(value: &Value) -> Box<dyn Val + '_> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(value) => Box::new(CelBool::from(*value)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Box::new(CelInt::from(integer)),
            (None, number) => Box::new(CelDouble::from(number.unwrap_or(f64::NAN))),
        },
        Value::String(text) => Box::new(CelString::from(text.as_str())),
        Value::Array(items) => list(items.iter().map(from_json)),
        Value::Object(members) => {
            map(members.iter().map(|(name, value)| (CelMapKey::from(name.as_str()), from_json(value))))
        }
    }
}

/// A list of values.
pub(crate) fn list<'v>(items: impl Iterator<Item = Box<dyn Val + 'v>>) -> Box<dyn Val + 'v> {
    Box::new(CelList::from(items.collect::<Vec<_>>()))
}

/// A map of values.
pub(crate) fn map<'v>(
    entries: impl Iterator<Item = (CelMapKey<'v>, Box<dyn Val + 'v>)>,
) -> Box<dyn Val + 'v> {
    Box::new(CelMap::from(entries.collect::<HashMap<_, _>>()))
}

/// A value that may not be there.
pub(crate) fn optional<'v>(value: Option<Box<dyn Val + 'v>>) -> Box<dyn Val + 'v> {
    Box::new(CelOptional::from(value))
}

/// Parses a text, on a thread with a stack of its own.
fn program(text: &str) -> Result<Program, String> {
    let parse = || {
        // The crate's drawings lack the space that upstream's have before the bar.
        let drawn = |errors: cel::ParseErrors| errors.to_string().replace("\n| ", "\n | ");
        let program = ENVIRONMENT.compile(text).map_err(drawn)?;
        match depth(program.expression(), &HashMap::new()) > DEEPEST {
            true => Err(format!("expression recursion limit exceeded: {DEEPEST}")),
            false => Ok(program),
        }
    };
    std::thread::scope(|scope| {
        let parser = std::thread::Builder::new().stack_size(PARSER_STACK).spawn_scoped(scope, parse);
        let parser = parser.map_err(|error| format!("the expression cannot be parsed now: {error}"))?;
        parser.join().unwrap_or_else(|_| Err("the expression cannot be parsed".to_owned()))
    })
}

/// How many nodes stand below each other. What `variables.x` comes to is as deep as that says.
fn depth(expression: &IdedExpr, variables: &HashMap<String, usize>) -> usize {
    let of = |part: &IdedExpr| depth(part, variables);
    let deepest = |parts: &mut dyn Iterator<Item = &IdedExpr>| parts.map(of).max().unwrap_or(0);
    let of_entry = |entry: &EntryExpr| match entry {
        EntryExpr::StructField(field) => of(&field.value),
        EntryExpr::MapEntry(entry) => of(&entry.key).max(of(&entry.value)),
    };
    let below = match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => 0,
        Expr::Select(select) => match &select.operand.expr {
            Expr::Ident(name) if name == "variables" => variables.get(&select.field).map_or(1, |of| of + 1),
            _ => of(&select.operand),
        },
        Expr::List(list) => deepest(&mut list.elements.iter()),
        Expr::Map(map) => map.entries.iter().map(|entry| of_entry(&entry.expr)).max().unwrap_or(0),
        Expr::Struct(of) => of.entries.iter().map(|entry| of_entry(&entry.expr)).max().unwrap_or(0),
        Expr::Call(call) => deepest(&mut call.target.iter().map(|target| &**target).chain(&call.args)),
        Expr::Comprehension(all) => deepest(
            &mut [&all.iter_range, &all.accu_init, &all.loop_cond, &all.loop_step, &all.result].into_iter(),
        ),
    };
    below + 1
}

pub(crate) fn undeclared_text(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

/// A complaint with the line that it is about, and a pointer to the place in it.
fn drawing(text: &str, source: &SourceInfo, id: u64, what: &str) -> String {
    let offset = source.offset_for(id).map_or(0, |(start, _)| start as usize);
    let before: String = text.chars().take(offset).collect();
    let line = before.matches('\n').count();
    let column = before.chars().rev().take_while(|c| *c != '\n').count();
    let snippet = text.lines().nth(line).unwrap_or_default();
    format!("ERROR: <input>:{}:{}: {what}\n | {snippet}\n | {}^", line + 1, column + 1, ".".repeat(column))
}

/// Wraps what may grow into [`COUNTED`]: what loops run over, and what sums and functions give.
fn measure(expression: &mut IdedExpr) {
    let mut grows = false;
    match &mut expression.expr {
        Expr::Call(call) => {
            // The crate appends to the result of a loop in place, if it sees that a loop does that.
            let is_result =
                |first: &IdedExpr| matches!(&first.expr, Expr::Ident(name) if name.starts_with('@'));
            let appends_to_result = call.args.first().is_some_and(is_result);
            grows = match is_operator(&call.func_name) {
                true => call.func_name == operators::ADD && !appends_to_result,
                false => true,
            };
            if call.func_name == "matches" {
                call.func_name = functions::MATCHES.to_owned();
            }
            call.target.iter_mut().for_each(|target| measure(target));
            call.args.iter_mut().for_each(measure);
        }
        Expr::Comprehension(all) => {
            let all = &mut **all;
            let parts = [
                &mut all.iter_range,
                &mut all.accu_init,
                &mut all.loop_cond,
                &mut all.loop_step,
                &mut all.result,
            ];
            parts.into_iter().for_each(measure);
            count_in(&mut all.iter_range);
        }
        Expr::Select(select) => measure(&mut select.operand),
        Expr::List(list) => list.elements.iter_mut().for_each(measure),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| {
            if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                measure(&mut entry.key);
                measure(&mut entry.value);
            }
        }),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => {}
    }
    if grows {
        count_in(expression);
    }
}

fn count_in(expression: &mut IdedExpr) {
    let counted = std::mem::take(expression);
    let call = CallExpr { func_name: COUNTED.to_owned(), target: None, args: vec![counted] };
    expression.expr = Expr::Call(call);
}

fn count<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = args.pop().ok_or_else(|| ExecutionError::invalid_argument_count(1, 0))?;
    let size = match value.downcast_ref::<CelString<'_>>() {
        Some(text) => text.inner().len() as u64 / 10,
        None => value.as_sizer().map_or(0, |sizer| sizer.size().inner().unsigned_abs()),
    };
    STEPS.set(STEPS.get() + 1 + size);
    match STEPS.get() > MOST_STEPS {
        true => Err(ExecutionError::function_error(COUNTED, "actual cost limit exceeded")),
        false => Ok(value),
    }
}

fn is_operator(function: &str) -> bool {
    function.contains(['_', '@']) && !MISSING.contains(&function)
}

/// The first variable or function that is not there. `known` is what may be named; it grows within comprehensions.
fn undeclared<'a>(expression: &'a IdedExpr, known: &mut Vec<&'a str>) -> Option<(u64, &'a str)> {
    match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) => None,
        Expr::Ident(name) => (!known.contains(&name.as_str())).then_some((expression.id, name)),
        Expr::Select(select) => undeclared(&select.operand, known),
        Expr::List(list) => list.elements.iter().find_map(|element| undeclared(element, known)),
        Expr::Map(map) => map.entries.iter().find_map(|entry| undeclared_entry(&entry.expr, known)),
        Expr::Struct(of_type) => Some((expression.id, &of_type.type_name)),
        Expr::Call(call) => {
            let name = call.func_name.as_str();
            if !is_operator(name) && !FUNCTIONS.contains(&name) && !functions::NAMES.contains(&name) {
                return Some((expression.id, name));
            }
            let in_namespace = |target: &&IdedExpr| match &target.expr {
                Expr::Ident(name) => !known.contains(&name.as_str()) && NAMESPACES.contains(&name.as_str()),
                _ => false,
            };
            let target = call.target.as_deref().filter(|target| !in_namespace(target));
            let target = target.and_then(|target| undeclared(target, known));
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

fn undeclared_entry<'a>(entry: &'a EntryExpr, known: &mut Vec<&'a str>) -> Option<(u64, &'a str)> {
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

    fn holds(expression: &Expression, variables: &[(&str, &Value)]) -> Result<bool, String> {
        let mut context = context();
        for (name, value) in variables {
            context.add_variable_as_val(*name, from_json(value));
        }
        match expression.evaluate(&context, &mut u64::MAX.clone()) {
            Ok(Answer::Bool(answer)) => Ok(answer),
            Ok(other) => Err(format!("not a bool: {other:?}")),
            Err(failure) => Err(failure.to_string()),
        }
    }

    fn check(text: &str, expected: Result<bool, &str>) {
        let object = json!({"metadata": {"name": "web", "labels": {"app": "x"}, "finalizers": ["a/b", "c"]},
            "spec": {"replicas": 3, "ratio": 0.5}});
        let request =
            json!({"operation": "CREATE", "userInfo": {"username": "system:node:n", "groups": ["g"]}});
        let variables = [("object", &object), ("oldObject", &Value::Null), ("request", &request)];
        let said = Expression::compile(text, &variables.map(|(name, _)| name))
            .and_then(|compiled| holds(&compiled, &variables));
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
            Err("compilation failed: ERROR: <input>:1:59: undeclared reference to 'allowed'"),
        );
        check(
            "variables.x == 1",
            Err(
                "compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')\n \
                 | variables.x == 1\n | ^",
            ),
        );
        check(
            "object.metadata.finalizers.all(f, g == f)",
            Err("compilation failed: ERROR: <input>:1:35: undeclared reference to 'g'"),
        );
        check("object.metadata.name", Err("not a bool: Text(\"web\")"));
        check("object.spec.nothing == 1", Err("no such key: nothing"));
        check(&"(".repeat(5000), Err("compilation failed"));
    }

    #[test]
    fn deep_expressions_are_refused_and_do_not_end_the_program() {
        let shapes = [
            ("(", "1", ")"),
            ("[", "1", "]"),
            ("!", "true", ""),
            ("size(", "[]", ")"),
            ("{1: ", "1", "}"),
            ("1 + ", "1", ""),
            ("true && ", "true", ""),
            ("true ? true : ", "true", ""),
            ("1 == ", "1", ""),
            ("", "object", ".a"),
            ("", "object", "[0]"),
            ("", "object", ".trim()"),
            ("[1].all(x, ", "true", ")"),
        ];
        for (open, middle, close) in shapes {
            for length in [500, 1000, 2000, 5000, LONGEST] {
                let depth = (length - 10) / (open.len() + close.len());
                let text = format!("{}{middle}{}", open.repeat(depth), close.repeat(depth));
                if let Ok(expression) = Expression::compile(&text, &["object"]) {
                    let _ = holds(&expression, &[("object", &json!({}))]);
                }
            }
        }
        let long = format!("1{} == 1", " + 1".repeat(1000));
        let Err(why) = Expression::compile(&long, &[]) else { panic!("it is deep") };
        assert_eq!(why, "compilation failed: expression recursion limit exceeded: 250");
    }
}
