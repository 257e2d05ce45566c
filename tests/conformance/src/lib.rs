//! Is your resource really safe? A conformance suite for fenced resources.
//!
//! A fenced resource refuses writes whose token is older than the newest it has seen. [`run`] puts one to the test: by
//! cases that each ask one thing, and by a checker that looks for an order of all operations that explains every answer.
//! `fencepost conform` runs it on HTTP APIs and on programs in any language; a Rust type implements [`FencedResource`]:
//!
//! ```
//! use std::sync::Mutex;
//! use fencepost_conformance::{Answer, FencedResource, Manifest, Verb};
//!
//! /// One register: its fence, and its value.
//! #[derive(Default)]
//! struct Register(Mutex<(u64, Option<String>)>);
//!
//! impl FencedResource for Register {
//!     fn manifest(&self) -> Manifest {
//!         Manifest { caps: [Verb::Write].into(), ..Manifest::default() }
//!     }
//!
//!     fn write(&self, _res: &str, token: u64, _holder: &str, value: &str) -> Answer {
//!         let mut register = self.0.lock().unwrap();
//!         if token < register.0 {
//!             return Answer::Stale { high: Some(register.0) };
//!         }
//!         *register = (token, Some(value.to_owned()));
//!         Answer::Ok { value: None, high: Some(token) }
//!     }
//! }
//!
//! let register = Register::default();
//! register.write("r", 34, "b", "new");
//! assert_eq!(register.write("r", 33, "a", "late"), Answer::Stale { high: Some(34) });
//! // In a file of tests, `fencepost_conformance::suite!(Register::default, L2);` makes a test of every case.
//! ```
//!
//! # Types and modules
//!
//! | item | for |
//! | --- | --- |
//! | [`FencedResource`], [`suite!`] | a Rust type under test |
//! | [`Manifest`], [`Verb`], [`Op`], [`Write`], [`Answer`], [`Token`] | what a resource promises, is asked, and answers |
//! | [`adapters`] | resources behind HTTP or another program |
//! | [`cases`] | the cases, one for each thing that goes wrong in the field |
//! | [`history`], [`checker`] | what was seen, and the search for an order that explains it |
//! | [`run`], [`verdict`], [`report`] | a run, its verdict, and its page, JSON, JUnit and TAP |
//! | [`reference`](mod@reference), [`selftest`] | a correct resource and broken ones, which test the suite itself |
//! | [`proxy`] | a TCP proxy that delays, drops and cuts what passes through it |
//!
//! # Read on
//!
//! `docs/conformance/README.md` begins with a run in a minute; `docs/conformance/rust.md` is about Rust types.

pub mod adapters;
pub mod answer;
pub mod cases;
pub mod checker;
pub mod evidence;
pub mod history;
pub mod manifest;
pub mod op;
pub mod proxy;
pub mod quantity;
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
