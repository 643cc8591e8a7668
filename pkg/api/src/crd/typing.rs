//! Schemas as types of expressions: how a rule sees a value, and which fields it may name.

use super::structural::{Additional, Structural, Type};
use crate::expression::{self, COUNTED, Native, undeclared_text};
use crate::schema::{self, Format, Schema};
use base64::Engine;
use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue};
use cel::common::types::{CelBytes, CelDouble, CelInt, CelMapKey};
use cel::common::value::Val;
use serde_json::Value;

/// Words of the language, which no field of a rule may be.
pub(crate) const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name by which rules know a property; `None` if they cannot name it.
pub(super) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let escaped = name.replace("__", "__underscores__").replace('.', "__dot__");
    let escaped = escaped.replace('-', "__dash__").replace('/', "__slash__");
    escaped.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(escaped)
}

/// A value as rules see it. Of the metadata of a resource that is its names.
pub(super) fn typed<'v>(schema: &Structural, value: &'v Value, resource: bool) -> Box<dyn Val + 'v> {
    match (schema.ty, value) {
        (Some(Type::Number), Value::Number(number)) => {
            Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN)))
        }
        (Some(Type::Integer | Type::IntOrString), Value::Number(number)) => {
            let whole = number.as_i64().or_else(|| number.as_f64().map(|float| float as i64));
            Box::new(CelInt::from(whole.unwrap_or_default()))
        }
        (Some(Type::String), Value::String(text)) => match schema.format() {
            Some("byte") => match base64::engine::general_purpose::STANDARD.decode(text) {
                Ok(bytes) => Box::new(CelBytes::from(bytes)),
                Err(_) => expression::from_json(value),
            },
            Some(format) => match Native::of_format(format, text) {
                Some(native) => Box::new(native),
                None => expression::from_json(value),
            },
            None => expression::from_json(value),
        },
        (_, Value::Array(items)) => match schema.items.as_deref() {
            Some(element) => {
                expression::list(items.iter().map(|item| typed(element, item, element.embedded)))
            }
            None => expression::from_json(value),
        },
        (_, Value::Object(members)) => {
            expression::map(members.iter().filter_map(|(name, value)| member(schema, name, value, resource)))
        }
        _ => expression::from_json(value),
    }
}

/// A member of an object as rules see it, if they can name it.
fn member<'v>(
    schema: &Structural,
    name: &'v str,
    value: &'v Value,
    resource: bool,
) -> Option<(CelMapKey<'v>, Box<dyn Val + 'v>)> {
    if resource && name == "metadata" {
        let names = ["name", "generateName"].into_iter();
        let shown = |name| Some((CelMapKey::from(name), expression::from_json(value.get(name)?)));
        return Some((name.into(), expression::map(names.filter_map(shown))));
    }
    Some(match (schema.properties.get(name), &schema.additional) {
        (Some(property), _) => (escape(name)?.into(), typed(property, value, property.embedded)),
        (None, Additional::Schema(schema)) => (name.into(), typed(schema, value, schema.embedded)),
        (None, _) => (name.into(), expression::from_json(value)),
    })
}

/// What is known of the type of a part of an expression.
#[derive(Clone, Copy)]
pub(crate) enum Known<'a> {
    Nothing,
    /// Anything may be in it, and it in anything.
    Dyn,
    /// A value of this schema, of a kind that need not be a custom one.
    Typed(&'a Schema),
    /// A struct of these fields.
    Fields(&'a [(&'a str, Known<'a>)]),
    /// A struct whose fields stand in the scope, as `struct.field`. It is nothing by itself.
    Composed,
    /// A value of this schema, and whether that is a resource.
    Node(&'a Structural, bool),
    /// What rules see of the metadata of a resource.
    Metadata,
    /// A type of the language itself.
    Plain(&'static str),
}

impl Known<'_> {
    /// The type of the language, if it is a simple one.
    fn name(self) -> Option<&'static str> {
        match self {
            Known::Plain(name) => Some(name),
            Known::Node(node, _) => plain(node),
            Known::Typed(schema) => match schema.resolve().ty {
                schema::Type::String(Format::Plain) => Some("string"),
                schema::Type::Integer { .. } => Some("int"),
                schema::Type::Number => Some("double"),
                schema::Type::Boolean => Some("bool"),
                _ => None,
            },
            Known::Nothing | Known::Metadata | Known::Dyn | Known::Fields(_) | Known::Composed => None,
        }
    }

    /// The type as complaints name it, if it is known.
    pub(crate) fn shown(self) -> Option<&'static str> {
        match self {
            Known::Dyn => Some("dyn"),
            Known::Plain("list") => Some("list(dyn)"),
            known => known.name(),
        }
    }

    /// Whether a value can be of this type for all that is known.
    pub(super) fn may_be(self, wanted: &str) -> bool {
        match self {
            Known::Nothing | Known::Dyn => true,
            Known::Metadata | Known::Fields(_) | Known::Composed => false,
            Known::Node(node, _) if node.ty.is_none() => true,
            Known::Node(..) | Known::Typed(_) | Known::Plain(_) => self.name() == Some(wanted),
        }
    }
}

fn plain(node: &Structural) -> Option<&'static str> {
    Some(match node.ty? {
        Type::String => match node.format() {
            Some("byte" | "date" | "date-time" | "duration") => return None,
            _ => "string",
        },
        Type::Integer => "int",
        Type::Number => "double",
        Type::Boolean => "bool",
        Type::Object | Type::Array | Type::IntOrString => return None,
    })
}

/// Whether rules may name a field of this schema: what has no type they cannot see.
fn is_visible(node: &Structural) -> bool {
    match (node.ty, &node.additional, node.items.as_deref()) {
        (Some(Type::Array), _, Some(items)) => is_visible(items),
        (Some(Type::Object), Additional::Schema(schema), _) => is_visible(schema),
        (ty, ..) => ty.is_some(),
    }
}

/// Variables and what is known of them.
pub(crate) type Scope<'a> = Vec<(String, Known<'a>)>;

/// The type of an expression, or the node that is wrong and why.
pub(crate) fn infer<'a>(expression: &IdedExpr, scope: &mut Scope<'a>) -> Result<Known<'a>, (u64, String)> {
    Ok(match &expression.expr {
        Expr::Unspecified | Expr::Struct(_) => Known::Nothing,
        Expr::Literal(literal) => match literal {
            LiteralValue::Boolean(_) => Known::Plain("bool"),
            LiteralValue::Int(_) => Known::Plain("int"),
            LiteralValue::Double(_) => Known::Plain("double"),
            LiteralValue::String(_) => Known::Plain("string"),
            _ => Known::Nothing,
        },
        Expr::Ident(name) => match find(scope, name) {
            Some(Known::Composed) => return Err((expression.id, undeclared_text(name))),
            found => found.unwrap_or(Known::Nothing),
        },
        Expr::Select(select) => {
            let field = match &select.operand.expr {
                Expr::Ident(name) if matches!(find(scope, name), Some(Known::Composed)) => {
                    find(scope, &format!("{name}.{}", select.field)).ok_or_else(|| undefined(&select.field))
                }
                _ => field(infer(&select.operand, scope)?, &select.field),
            };
            let field = field.map_err(|why| (expression.id, why))?;
            if select.test { Known::Plain("bool") } else { field }
        }
        Expr::List(list) => {
            for element in &list.elements {
                infer(element, scope)?;
            }
            Known::Plain("list")
        }
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    infer(&entry.key, scope)?;
                    infer(&entry.value, scope)?;
                }
            }
            Known::Nothing
        }
        Expr::Call(call) => {
            if let Some(target) = &call.target {
                infer(target, scope)?;
            }
            let arguments =
                call.args.iter().map(|argument| infer(argument, scope)).collect::<Result<Vec<_>, _>>()?;
            match (call.func_name.as_str(), arguments.as_slice()) {
                (COUNTED, [counted]) => *counted,
                ("_[_]", [container, _]) => element(*container),
                ("_?_:_", [_, Known::Plain(a), Known::Plain(b)]) if a == b => Known::Plain(a),
                ("_+_", [Known::Plain(a), Known::Plain(b)]) if a == b => Known::Plain(a),
                ("_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "_+_", [a, b])
                    if never_compare(*a, *b) =>
                {
                    let types =
                        format!("({}, {})", a.name().unwrap_or_default(), b.name().unwrap_or_default());
                    let why =
                        format!("found no matching overload for '{}' applied to '{types}'", call.func_name);
                    return Err((expression.id, why));
                }
                ("_&&_" | "_||_" | "!_" | "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "@in", _) => {
                    Known::Plain("bool")
                }
                ("@matches" | "startsWith" | "endsWith" | "contains", _) => Known::Plain("bool"),
                ("size", _) => Known::Plain("int"),
                ("string", _) => Known::Plain("string"),
                _ => Known::Nothing,
            }
        }
        Expr::Comprehension(all) => {
            let range = infer(&all.iter_range, scope)?;
            let start = infer(&all.accu_init, scope)?;
            let before = scope.len();
            let each = match range {
                Known::Node(node, _) if node.ty == Some(Type::Object) => Known::Plain("string"),
                Known::Typed(schema) if schema.element().is_none() => Known::Nothing,
                range => element(range),
            };
            scope.push((all.iter_var.clone(), each));
            scope.push((all.accu_var.clone(), start));
            let parts = [&all.loop_cond, &all.loop_step, &all.result].map(|part| infer(part, scope));
            scope.truncate(before);
            let [condition, step, result] = parts;
            condition.and(step).and(result)?
        }
    })
}

fn find<'a>(scope: &Scope<'a>, name: &str) -> Option<Known<'a>> {
    scope.iter().rev().find(|(variable, _)| variable == name).map(|(_, known)| *known)
}

/// Whether one is text and the other is not: numbers of all kinds compare with each other, and nothing adds to text.
fn never_compare(a: Known<'_>, b: Known<'_>) -> bool {
    match (a.name(), b.name()) {
        (Some(a), Some(b)) => (a == "string") != (b == "string"),
        _ => false,
    }
}

fn element(container: Known<'_>) -> Known<'_> {
    let below = match container {
        Known::Dyn => return Known::Dyn,
        Known::Typed(schema) => {
            return schema.element().or_else(|| others(schema)).map_or(Known::Nothing, Known::Typed);
        }
        Known::Node(node, _) => match &node.additional {
            Additional::Schema(schema) => Some(&**schema),
            _ => node.items.as_deref(),
        },
        _ => None,
    };
    below.map_or(Known::Nothing, |node| Known::Node(node, node.embedded))
}

/// The schema of members that are not named.
fn others(schema: &Schema) -> Option<&Schema> {
    match &schema.resolve().ty {
        schema::Type::Object { additional, .. } => additional.as_deref(),
        _ => None,
    }
}

fn undefined(field: &str) -> String {
    format!("undefined field '{field}'")
}

fn field<'a>(of: Known<'a>, name: &str) -> Result<Known<'a>, String> {
    match of {
        Known::Nothing | Known::Dyn | Known::Composed => Ok(of),
        Known::Typed(schema) => match (&schema.resolve().ty, of.name()) {
            (schema::Type::Object { properties, .. }, _) => {
                let is_named = |property: &str| escape(property).as_deref() == Some(name);
                let found =
                    properties.iter().find(|(property, _)| is_named(property)).map(|(_, schema)| schema);
                match found.or_else(|| others(schema)) {
                    Some(schema) => Ok(Known::Typed(schema)),
                    // Of an object of which nothing is said anything may be asked.
                    None if properties.iter().next().is_none() => Ok(Known::Dyn),
                    None => Err(undefined(name)),
                }
            }
            (_, Some(ty)) => Err(format!("type '{ty}' does not support field selection")),
            _ => Ok(Known::Nothing),
        },
        Known::Fields(fields) => match fields.iter().find(|(field, _)| *field == name) {
            Some((_, known)) => Ok(*known),
            None => Err(undefined(name)),
        },
        Known::Plain(ty) => Err(format!("type '{ty}' does not support field selection")),
        Known::Metadata if matches!(name, "name" | "generateName") => Ok(Known::Plain("string")),
        Known::Metadata => Err(undefined(name)),
        Known::Node(node, resource) => match (node.ty, &node.additional) {
            (Some(Type::Object), Additional::Schema(_)) => Ok(element(of)),
            (Some(Type::Object), _) => match name {
                "apiVersion" | "kind" if resource => Ok(Known::Plain("string")),
                "metadata" if resource => Ok(Known::Metadata),
                _ => {
                    let is_named = |property: &str| escape(property).as_deref() == Some(name);
                    let mut properties = node.properties.iter();
                    let found = properties.find(|(property, node)| is_named(property) && is_visible(node));
                    let (_, node) = found.ok_or_else(|| undefined(name))?;
                    Ok(Known::Node(node, node.embedded))
                }
            },
            _ => match plain(node) {
                Some(ty) => Err(format!("type '{ty}' does not support field selection")),
                None => Ok(Known::Nothing),
            },
        },
    }
}
