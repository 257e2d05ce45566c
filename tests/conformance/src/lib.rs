//! Is your resource really safe? A conformance suite for fenced resources.
//!
//! A fenced resource refuses writes whose token is older than the newest it has seen. [`run`] puts one to the test: by
//! cases that each ask one thing, and by a checker that looks for an order of all operations that explains every answer.

pub mod adapters;
pub mod answer;
pub mod cases;
pub mod checker;
pub mod evidence;
pub mod history;
pub mod manifest;
pub mod op;
pub mod proxy;
pub mod random;
pub mod reference;
pub mod report;
pub mod resource;
pub mod run;
pub mod selftest;
pub mod subject;
pub mod suite;
pub mod token;
pub mod verdict;
pub mod wait;
pub mod words;

pub use answer::Answer;
pub use manifest::Manifest;
pub use op::{Op, Verb, Write};
pub use resource::{FencedResource, InProcess};
pub use token::Token;
