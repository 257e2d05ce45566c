//! What the table of routes does not say: what each call takes, what it answers, and which problems it can have.

use fencepost_core::wire::{
    AcquireRequest, ClaimAnswer, ClaimRequest, FenceAnswer, FencePage, ForceReleasedAnswer, KeyPage, LeaseAnswer,
    LockPage, LockView, ObjectsCheckAnswer, ObjectsCheckRequest, ObjectsCollectAnswer, ObjectsCollectRequest,
    OutcomeAnswer, ReloadAnswer, RenewRequest, RotateAllRequest, RotatePrefixAnswer, RotatePrefixRequest,
    RotateRequest, RotatedAnswer, S3CredentialsAnswer, S3CredentialsRequest, TxnAnswer, TxnRequest, header,
};
use fencepost_core::{Access, IdempotencyKey, Key, ProblemKind, Reason, Resource, Token};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::super::metrics::METRICS_CONTENT_TYPE;
use super::super::routes::Endpoint;
use super::parts::{self, Headers};

/// One call.
pub(super) struct Details {
    /// Its group.
    pub(super) tag: &'static str,
    /// What the name in its path is.
    pub(super) name: Option<Value>,
    /// Headers and query.
    pub(super) parameters: Vec<Value>,
    pub(super) body: Option<Value>,
    /// Answers that are no problems, by status.
    pub(super) answers: Vec<(u16, Value)>,
    /// Beside those that every call can have.
    pub(super) problems: Vec<ProblemKind>,
}

/// A commit that was refused, or whose outcome is not known.
const WRITING: [ProblemKind; 6] = [
    ProblemKind::OutcomeUnknown,
    ProblemKind::Unavailable,
    ProblemKind::Poisoned,
    ProblemKind::Draining,
    ProblemKind::MappingChanged,
    ProblemKind::NoSpace,
];
const READING: [ProblemKind; 2] = [ProblemKind::ReadFailed, ProblemKind::MappingChanged];
/// Of an idempotency key.
const ONCE: [ProblemKind; 2] = [ProblemKind::KeyReused, ProblemKind::Abandoned];

/// The details of a call. A new endpoint does not compile without its own.
pub(super) fn details(endpoint: Endpoint) -> Details {
    match endpoint {
        Endpoint::PutValue => Details::of("values")
            .named::<Key>()
            .parameters(parts::presented())
            .parameters(parts::write_conditions())
            .parameters([parts::idempotency_key()])
            .body(parts::value_body())
            .answer(204, "Written.", written().required("ETag", "The value's version.", parts::etag()))
            .judged(Access::Write)
            .problems(&[ProblemKind::MalformedToken, ProblemKind::UnsupportedHeader, ProblemKind::ConditionFailed])
            .problems(&ONCE)
            .problems(&WRITING),
        Endpoint::DeleteValue => Details::of("values")
            .named::<Key>()
            .parameters(parts::presented())
            .parameters(parts::write_conditions())
            .parameters([parts::idempotency_key()])
            .answer(204, "The key has no value now. The fence stays.", written())
            .judged(Access::Write)
            .problems(&[ProblemKind::MalformedToken, ProblemKind::UnsupportedHeader, ProblemKind::ConditionFailed])
            .problems(&ONCE)
            .problems(&WRITING),
        Endpoint::GetValue => Details::of("values")
            .named::<Key>()
            .parameters(parts::presented())
            .parameters(parts::read_conditions())
            .value(200, "The value, with the content type it was written with.", value_read())
            .answer(304, "`If-None-Match` holds: the value is the one you know.", value_read())
            .judged(Access::CheckedRead)
            .problems(&[ProblemKind::MalformedToken, ProblemKind::Absent, ProblemKind::ConditionFailed])
            .problems(&READING),
        Endpoint::ListKeys => Details::of("values")
            .parameters(parts::page())
            .json::<KeyPage>(200, "One page, in order of name.", Headers::new())
            .problems(&READING),
        Endpoint::Claim => Details::of("fences")
            .named::<Resource>()
            .parameters(parts::presented())
            .body(parts::optional_body::<ClaimRequest>(json!({"keys": ["orders/123", "orders/123/lines"]})))
            .json::<ClaimAnswer>(200, "The fence, and the values as of the same instant.", fenced())
            .judged(Access::Claim)
            .problems(&[ProblemKind::MalformedToken, ProblemKind::UnsupportedHeader, ProblemKind::NotAResource])
            .problems(&WRITING),
        Endpoint::Transact => Details::of("transactions")
            .parameters([parts::idempotency_key()])
            .body(parts::body::<TxnRequest>(json!({
                "tokens": {
                    "orders/123": {"token": "34", "holder": "worker-a#9f2c", "issuer": "etcd:4711"},
                    "stock/sku-7": "12",
                },
                "if": [{"key": "orders/123", "absent": true}, {"key": "stock/sku-7", "at_least": 0}],
                "then": [
                    {"put": "orders/123", "text": "paid", "content_type": "text/plain"},
                    {"add": "stock/sku-7", "by": "5", "min": "0"},
                    {"get": "orders/123/lines"},
                ],
            })))
            .json::<TxnAnswer>(200, "Done: one result per operation.", observed().optional_replayed())
            .judged(Access::Write)
            .problems(&[
                ProblemKind::MalformedName,
                ProblemKind::UnsupportedHeader,
                ProblemKind::NotAResource,
                ProblemKind::ConditionFailed,
                ProblemKind::AddImpossible,
            ])
            .problems(&ONCE)
            .problems(&WRITING),
        Endpoint::GetFence => Details::of("fences")
            .named::<Resource>()
            .json::<FenceAnswer>(200, "Its generation and fence, also if it was never seen.", Headers::new())
            .problems(&[ProblemKind::NotAResource])
            .problems(&READING),
        Endpoint::ListFences => Details::of("fences")
            .parameters(parts::page())
            .json::<FencePage>(200, "One page, in order of name.", Headers::new())
            .problems(&READING),
        Endpoint::AcquireLock => Details::of("locks")
            .named::<Resource>()
            .parameters([parts::idempotency_key()])
            .body(parts::body::<AcquireRequest>(json!({"holder": "worker-a#9f2c", "ttl_ms": 30_000, "wait_ms": 500})))
            .json::<LeaseAnswer>(201, "The lock is yours.", observed().optional_replayed())
            .problems(&[
                ProblemKind::NotAResource,
                ProblemKind::ForeignIssuer,
                ProblemKind::Exhausted,
                ProblemKind::LeaseLost,
                ProblemKind::LockHeld,
            ])
            .problems(&ONCE)
            .problems(&WRITING),
        Endpoint::RenewLock => Details::of("locks")
            .named::<Resource>()
            .parameters([parts::lease_header()])
            .body(parts::body::<RenewRequest>(json!({"lease": "00000000000000000000000000000000", "ttl_ms": 30_000})))
            .json::<LeaseAnswer>(200, "The lease lasts for its new time from now on.", observed())
            .problems(&[ProblemKind::UnsupportedHeader, ProblemKind::NotAResource, ProblemKind::LeaseLost])
            .problems(&WRITING),
        Endpoint::ReleaseLock => Details::of("locks")
            .named::<Resource>()
            .parameters([parts::lease_header(), parts::lease_query()])
            .answer(204, "The lock is free.", Headers::new())
            .problems(&[ProblemKind::UnsupportedHeader, ProblemKind::NotAResource, ProblemKind::LeaseLost])
            .problems(&WRITING),
        Endpoint::GetLock => Details::of("locks")
            .named::<Resource>()
            .json::<LockView>(200, "Who holds it, and how long at the most.", Headers::new())
            .problems(&[ProblemKind::NotAResource, ProblemKind::NotHeld])
            .problems(&READING),
        Endpoint::ListLocks => Details::of("locks")
            .parameters(parts::page())
            .json::<LockPage>(200, "One page of the locks that are held, in order of name.", Headers::new())
            .problems(&READING),
        Endpoint::IssueS3Credentials => Details::of("s3")
            .parameters(parts::presented())
            .body(parts::body::<S3CredentialsRequest>(json!({"resource": "reports/daily", "ttl_s": 3600})))
            .json::<S3CredentialsAnswer>(200, "The fence is raised; these credentials carry the token.", fenced())
            .judged(Access::Claim)
            .problems(&[
                ProblemKind::MalformedToken,
                ProblemKind::UnsupportedHeader,
                ProblemKind::NotAResource,
                ProblemKind::NoS3Face,
            ])
            .problems(&WRITING),
        Endpoint::GetOutcome => Details::of("outcomes")
            .named::<IdempotencyKey>()
            .json::<OutcomeAnswer>(200, "What is recorded. Only `applied` and `failed` are final.", Headers::new())
            .problems(&READING),
        Endpoint::AbandonOutcome => Details::of("outcomes")
            .named::<IdempotencyKey>()
            .body(parts::empty_body())
            .json::<OutcomeAnswer>(200, "What is recorded now: `applied`, or `failed` for ever.", Headers::new())
            .problems(&WRITING),
        Endpoint::Rotate => Details::of("admin")
            .named::<Resource>()
            .body(parts::body::<RotateRequest>(json!({"from": 0, "reason": "etcd was restored from a backup"})))
            .json::<RotatedAnswer>(200, "The new generation has begun.", Headers::new())
            .problems(&[ProblemKind::AdminOnly, ProblemKind::NotAResource])
            .problems(&[ProblemKind::ConditionFailed, ProblemKind::Exhausted])
            .problems(&WRITING),
        Endpoint::RotatePrefix => Details::of("admin")
            .body(parts::body::<RotatePrefixRequest>(
                json!({"prefix": "orders/", "from": 0, "reason": "etcd was restored from a backup"}),
            ))
            .json::<RotatePrefixAnswer>(200, "One page of fences is done.", Headers::new())
            .problems(&[ProblemKind::AdminOnly])
            .problems(&WRITING),
        Endpoint::RotateAll => Details::of("admin")
            .body(parts::body::<RotateAllRequest>(json!({"from": 0, "reason": "etcd was restored from a backup"})))
            .json::<RotatedAnswer>(200, "The new generation has begun for every resource.", Headers::new())
            .problems(&[ProblemKind::AdminOnly, ProblemKind::ConditionFailed, ProblemKind::Exhausted])
            .problems(&WRITING),
        Endpoint::ForceRelease => Details::of("admin")
            .named::<Resource>()
            .body(parts::empty_body())
            .json::<ForceReleasedAnswer>(200, "The lock is free, and its last token is refused.", Headers::new())
            .problems(&[ProblemKind::AdminOnly, ProblemKind::NotAResource, ProblemKind::NotHeld])
            .problems(&[ProblemKind::ForeignIssuer, ProblemKind::Exhausted])
            .problems(&WRITING),
        Endpoint::Reload => Details::of("admin")
            .body(parts::empty_body())
            .json::<ReloadAnswer>(200, "The rules are those of the file now.", Headers::new())
            .problems(&[ProblemKind::AdminOnly, ProblemKind::ReloadRefused, ProblemKind::Unavailable]),
        Endpoint::CheckObjects => Details::of("admin")
            .body(parts::body::<ObjectsCheckRequest>(json!({"adopt": false})))
            .json::<ObjectsCheckAnswer>(200, "One page of names was compared.", Headers::new())
            .problems(&[ProblemKind::AdminOnly, ProblemKind::NoS3Face])
            .problems(&WRITING),
        Endpoint::CollectObjects => Details::of("admin")
            .body(parts::body::<ObjectsCollectRequest>(json!({"older_than_s": 86400, "dry_run": true})))
            .json::<ObjectsCollectAnswer>(
                200,
                "Leftovers were counted, and removed unless it was a dry run.",
                Headers::new(),
            )
            .problems(&[ProblemKind::AdminOnly, ProblemKind::NoS3Face])
            .problems(&WRITING),
        Endpoint::Healthz => Details::of("operations").text(200, "It is alive.", "text/plain"),
        Endpoint::Readyz => Details::of("operations")
            .text(200, "It takes writes.", "text/plain")
            .problems(&[ProblemKind::Draining, ProblemKind::Poisoned]),
        Endpoint::Metrics => Details::of("operations").text(200, "OpenMetrics text.", METRICS_CONTENT_TYPE),
        Endpoint::OpenApi => {
            let document = parts::content("application/json", json!({"type": "object"}));
            Details::of("operations").with(200, parts::answer("This document.", Headers::new(), document))
        }
    }
}

fn observed() -> Headers {
    let why = "The guard only observes: why this would have been refused, a word per resource.";
    Headers::new().optional(header::FENCING_OBSERVED, why, json!({"type": "string"}))
}

fn fenced() -> Headers {
    observed().optional(header::FENCE, "The resource's fence now.", parts::schema::<Token>())
}

fn written() -> Headers {
    fenced().optional_replayed()
}

fn value_read() -> Headers {
    fenced()
        .required("ETag", "The value's version.", parts::etag())
        .optional(header::FENCING_TOKEN, "The token of the write that made this value.", parts::schema::<Token>())
        .optional(
            header::FENCING_UNCLAIMED,
            "Your token is above the fence, so nothing protects what you read.",
            json!({"type": "string", "enum": ["true"]}),
        )
}

impl Details {
    fn of(tag: &'static str) -> Details {
        Details { tag, name: None, parameters: vec![], body: None, answers: vec![], problems: vec![] }
    }

    fn named<T: ToSchema>(mut self) -> Details {
        self.name = Some(parts::schema::<T>());
        self.problems(&[ProblemKind::MalformedName])
    }

    fn parameters(mut self, parameters: impl IntoIterator<Item = Value>) -> Details {
        self.parameters.extend(parameters);
        self
    }

    fn body(mut self, body: Value) -> Details {
        self.body = Some(body);
        self
    }

    fn with(mut self, status: u16, answer: Value) -> Details {
        self.answers.push((status, answer));
        self
    }

    fn answer(self, status: u16, description: &str, headers: Headers) -> Details {
        self.with(status, parts::answer(description, headers, json!({})))
    }

    fn json<T: ToSchema>(self, status: u16, description: &str, headers: Headers) -> Details {
        let content = parts::content("application/json", parts::schema::<T>());
        self.with(status, parts::answer(description, headers, content))
    }

    fn text(self, status: u16, description: &str, content_type: &str) -> Details {
        let content = parts::content(content_type, json!({"type": "string"}));
        self.with(status, parts::answer(description, Headers::new(), content))
    }

    fn value(self, status: u16, description: &str, headers: Headers) -> Details {
        self.with(status, parts::answer(description, headers, parts::content("*/*", json!({}))))
    }

    fn problems(mut self, kinds: &[ProblemKind]) -> Details {
        self.problems.extend(kinds);
        self
    }

    /// What the judge can say to this kind of request.
    fn judged(mut self, access: Access) -> Details {
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
