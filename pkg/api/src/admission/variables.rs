//! The variables of a policy: each is evaluated when it is first named, and not again.

use super::Compiled;
use crate::expression::Failure;
use cel::common::traits::Indexer;
use cel::common::types::{CelString, Type};
use cel::common::value::{CowVal, Val};
use cel::{Context, ExecutionError};
use std::fmt;
use std::sync::{Arc, OnceLock};

static TYPE: Type = Type::new_unspecified_type("kubernetes.variables");

/// The struct `variables` as expressions see it.
#[derive(Clone)]
pub(super) struct Variables<'d>(Arc<Inner<'d>>);

struct Inner<'d> {
    expressions: &'d [(String, Compiled)],
    /// What they may name beside each other.
    outer: Context<'d, 'd>,
    values: Vec<OnceLock<Result<Box<dyn Val + 'd>, String>>>,
}

impl<'d> Variables<'d> {
    pub(super) fn new(expressions: &'d [(String, Compiled)], outer: Context<'d, 'd>) -> Variables<'d> {
        let values = expressions.iter().map(|_| OnceLock::new()).collect();
        Variables(Arc::new(Inner { expressions, outer, values }))
    }

    /// Where expressions that name them are evaluated.
    pub(super) fn context(&self) -> Context<'_, 'd> {
        let mut context = self.0.outer.new_inner_scope();
        context.add_variable_as_val("variables", Box::new(self.clone()));
        context
    }

    /// The first of that name: a variable names only those before it, so that none ends up in itself.
    fn value(&self, name: &str) -> Result<&(dyn Val + 'd), ExecutionError> {
        let no_such_key = || ExecutionError::NoSuchKey(Arc::new(name.to_owned()));
        let index = self.0.expressions.iter().position(|(known, _)| known == name);
        let index = index.ok_or_else(no_such_key)?;
        let value = self.0.values[index].get_or_init(|| self.evaluate(index));
        value.as_deref().map_err(|why| ExecutionError::function_error("variables", why))
    }

    fn evaluate(&self, index: usize) -> Result<Box<dyn Val + 'd>, String> {
        let (name, compiled) = &self.0.expressions[index];
        let expression = compiled
            .as_ref()
            .map_err(|why| format!("composited variable {name:?} fails to compile: {why}"))?;
        let context = self.context();
        // What it takes counts as taken by the expression that named it first.
        let value = cel::Value::resolve_val(expression.tree(), &context);
        value.map(CowVal::into_owned).map_err(|error| {
            format!("composited variable {name:?} fails to evaluate: {}", Failure::from(error))
        })
    }
}

impl fmt::Debug for Variables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("variables")
    }
}

impl<'d> Val for Variables<'d> {
    fn get_type(&self) -> &Type {
        &TYPE
    }

    fn cel_type() -> &'static Type {
        &TYPE
    }

    fn as_indexer<'b, 'w>(&'b self) -> Option<&'b (dyn Indexer + 'w)>
    where
        Self: 'w,
    {
        Some(self)
    }

    fn clone_as_boxed<'w>(&self) -> Box<dyn Val + 'w>
    where
        Self: 'w,
    {
        Box::new(self.clone())
    }
}

impl<'d> Indexer for Variables<'d> {
    fn get<'b, 'w>(&'b self, name: &dyn Val) -> Result<CowVal<'b, 'w>, ExecutionError>
    where
        Self: 'w,
    {
        let name = name.downcast_ref::<CelString<'_>>().map(|name| name.inner()).unwrap_or_default();
        Ok(CowVal::Borrowed(self.value(name)?))
    }

    fn steal<'w>(self: Box<Self>, name: &dyn Val) -> Result<Box<dyn Val + 'w>, ExecutionError>
    where
        Self: 'w,
    {
        self.get(name).map(CowVal::into_owned)
    }
}
