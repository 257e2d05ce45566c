//! Details of a call that its route does not hold: its parameters, its answers, and its problems.

use fencepost_core::{Access, ProblemKind, Reason};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::schema::ComponentsBuilder;

use super::parts::{self, Headers};

/// The details of one call.
pub(in crate::http) struct Details {
    /// The call's group in the document.
    pub(super) tag: &'static str,
    /// The schema of the name in its path.
    pub(super) name: Option<Value>,
    /// Headers and query.
    pub(super) parameters: Vec<Value>,
    pub(super) body: Option<Value>,
    /// Answers that are no problems, by status.
    pub(super) answers: Vec<(u16, Value)>,
    /// Problems beside those that every call can have.
    pub(super) problems: Vec<ProblemKind>,
    /// Each adds the schema of a type that the call refers to.
    pub(super) schemas: Vec<fn(ComponentsBuilder) -> ComponentsBuilder>,
}

/// Problems of a write: the commit was refused, or its outcome is not known.
pub(in crate::http) const WRITING: [ProblemKind; 6] = [
    ProblemKind::OutcomeUnknown,
    ProblemKind::Unavailable,
    ProblemKind::Poisoned,
    ProblemKind::Draining,
    ProblemKind::MappingChanged,
    ProblemKind::NoSpace,
];
pub(in crate::http) const READING: [ProblemKind; 2] = [ProblemKind::ReadFailed, ProblemKind::MappingChanged];
/// Problems of an idempotency key.
pub(in crate::http) const ONCE: [ProblemKind; 2] = [ProblemKind::KeyReused, ProblemKind::Abandoned];

impl Details {
    pub(in crate::http) fn of(tag: &'static str) -> Details {
        Details { tag, name: None, parameters: vec![], body: None, answers: vec![], problems: vec![], schemas: vec![] }
    }

    pub(in crate::http) fn named<T: ToSchema>(mut self) -> Details {
        self.name = Some(parts::schema::<T>());
        self.problems(&[ProblemKind::MalformedName])
    }

    pub(in crate::http) fn parameters(mut self, parameters: impl IntoIterator<Item = Value>) -> Details {
        self.parameters.extend(parameters);
        self
    }

    pub(in crate::http) fn body<T: ToSchema>(mut self, example: Value) -> Details {
        self.body = Some(parts::body::<T>(example));
        self.refers_to::<T>()
    }

    pub(in crate::http) fn optional_body<T: ToSchema>(mut self, example: Value) -> Details {
        self.body = Some(parts::optional_body::<T>(example));
        self.refers_to::<T>()
    }

    pub(in crate::http) fn empty_body(mut self) -> Details {
        self.body = Some(parts::empty_body());
        self
    }

    /// The bytes of a value.
    pub(in crate::http) fn value_body(mut self) -> Details {
        self.body = Some(parts::value_body());
        self
    }

    /// A type inside a body or an answer, which the document shows under its name.
    pub(in crate::http) fn refers_to<T: ToSchema>(mut self) -> Details {
        self.schemas.push(ComponentsBuilder::schema_from::<T>);
        self
    }

    pub(in crate::http) fn with(mut self, status: u16, answer: Value) -> Details {
        self.answers.push((status, answer));
        self
    }

    pub(in crate::http) fn answer(self, status: u16, description: &str, headers: Headers) -> Details {
        self.with(status, parts::answer(description, headers, json!({})))
    }

    pub(in crate::http) fn json<T: ToSchema>(self, status: u16, description: &str, headers: Headers) -> Details {
        let content = parts::content("application/json", parts::schema::<T>());
        self.with(status, parts::answer(description, headers, content)).refers_to::<T>()
    }

    pub(in crate::http) fn text(self, status: u16, description: &str, content_type: &str) -> Details {
        let content = parts::content(content_type, json!({"type": "string"}));
        self.with(status, parts::answer(description, Headers::new(), content))
    }

    pub(in crate::http) fn value(self, status: u16, description: &str, headers: Headers) -> Details {
        self.with(status, parts::answer(description, headers, parts::content("*/*", json!({}))))
    }

    pub(in crate::http) fn problems(mut self, kinds: &[ProblemKind]) -> Details {
        self.problems.extend(kinds);
        self
    }

    /// Adds the refusals that the judge can answer to this kind of request.
    pub(in crate::http) fn judged(mut self, access: Access) -> Details {
        let reasons = Reason::ALL.into_iter().filter(|reason| match (reason, access) {
            (_, Access::Write) => true,
            (Reason::Spent | Reason::Unclaimed, _) => false,
            (Reason::MissingToken | Reason::Implausible, Access::CheckedRead) => false,
            (_, Access::Claim | Access::CheckedRead) => true,
        });
        self.problems.extend(reasons.map(Reason::problem));
        self
    }
}
