//! Functions on a real apiserver, with the real runtime: what a node would do with their pods is done by [`node`], with
//! processes of this machine.

mod calls;
mod failures;
mod images;
mod load;
mod node;
mod promised;
mod support;
mod workflows;
