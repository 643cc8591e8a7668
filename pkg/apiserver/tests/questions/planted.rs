//! Faults put between the questions and a server that is right: each does what a server would that had it.

use crate::grammar::{Question, RESOURCES};
use crate::wire::Answer;
use crate::world::{Who, World};

/// What somebody might have got wrong.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// Scope is not compared with the kind: what has no namespaces answers below one.
    ScopeOfAnything,
    /// The text of a selector is searched for a name, and the path's name counts where none is found.
    NameByText,
    /// A watch by its old form is permitted as a watch, and then is whatever the path says.
    OldWatchOfAnything,
    /// A deletion of many is permitted by the name that its selector says.
    ManyByName,
}

impl Fault {
    /// The answer of a server that has the fault.
    pub async fn ask(self, world: &World, question: &Question) -> Answer {
        let answer = world.ask(question).await;
        match self.instead(question, &answer) {
            Some(instead) => world.ask_as(Who::Admin, &instead).await,
            None => answer,
        }
    }

    /// What the server would have done, if the fault matters.
    fn instead(self, question: &Question, answer: &Answer) -> Option<Question> {
        let (path, query) = question.path.split_once('?').unwrap_or((&question.path, ""));
        if question.who == Who::Admin
            || question.headers.iter().any(|(name, _)| name.starts_with("impersonate-"))
        {
            return None;
        }
        let is_nowhere = answer.code == 404 && !answer.body.is_empty();
        let path = match self {
            Fault::ScopeOfAnything => without_namespace(path).filter(|_| is_nowhere)?,
            Fault::OldWatchOfAnything => {
                let plain = path.replacen("/watch/", "/", 1);
                let is_it = matches!(answer.code, 404 | 405) && plain != path;
                is_it.then_some(plain)?
            }
            Fault::NameByText => {
                let is_it =
                    question.who == Who::Holder && answer.code == 400 && query.contains("fieldSelector");
                let collection = path.strip_suffix("/allowed").filter(|_| is_it)?;
                let is_it = collection.ends_with("/namespaces/team/secrets");
                is_it.then(|| collection.replacen("/watch/", "/", 1))?
            }
            Fault::ManyByName => {
                let names =
                    query.contains("metadata.name%3Dallowed") || query.contains("metadata.name=allowed");
                let is_it = question.who == Who::Holder && question.method == "DELETE" && answer.code == 403;
                (names && is_it && path.ends_with("/namespaces/team/secrets")).then(|| path.to_owned())?
            }
        };
        let watch = if matches!(self, Fault::NameByText) { "watch=1&" } else { "" };
        Some(Question { path: format!("{path}?{watch}{query}"), ..question.clone() })
    }
}

/// The path without its namespace, where the resource below it has none.
fn without_namespace(path: &str) -> Option<String> {
    let (before, below) = path.split_once("/namespaces/")?;
    let (_, below) = below.split_once('/')?;
    let plural = below.split('/').next()?;
    let is_without = RESOURCES.iter().any(|known| !known.namespaced && known.plural == plural);
    is_without.then(|| format!("{before}/{below}"))
}
