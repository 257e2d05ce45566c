//! The one table of routes. Dispatch works on the raw path; names are decoded later, exactly once.

use hyper::Method;

use super::problem::Problem;

/// What a route leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Write a value.
    PutValue,
    /// Read a value.
    GetValue,
    /// Remove a value.
    DeleteValue,
    /// List keys.
    ListKeys,
    /// Raise and read.
    Claim,
    /// Conditions and operations, all or nothing.
    Transact,
    /// Show a fence.
    GetFence,
    /// List fences.
    ListFences,
    /// Acquire a lock.
    AcquireLock,
    /// Renew a lease.
    RenewLock,
    /// Give a lock back.
    ReleaseLock,
    /// Who holds a lock?
    GetLock,
    /// List locks that are held.
    ListLocks,
    /// Credentials for the S3 face.
    IssueS3Credentials,
    /// What became of a request with an idempotency key?
    GetOutcome,
    /// Make sure that it is never applied.
    AbandonOutcome,
    /// End a resource's generation.
    Rotate,
    /// End the generation of resources with a prefix.
    RotatePrefix,
    /// End the generation of every resource.
    RotateAll,
    /// Take a lock from its holder.
    ForceRelease,
    /// Read the rules of the guards again.
    Reload,
    /// Compare the index of objects with the storage.
    CheckObjects,
    /// Remove bytes that belong to nothing.
    CollectObjects,
    /// Is the process alive?
    Healthz,
    /// Can it take writes?
    Readyz,
    /// Counters and histograms.
    Metrics,
    /// This table, for programs.
    OpenApi,
}

/// Who may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Everybody who reaches the gateway.
    Public,
    /// The administrator, by the Unix socket.
    Admin,
}

/// Whether a route takes a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// It does.
    Body,
    /// It does not; one that is sent must be empty.
    Nothing,
}

/// One row of the table.
#[derive(Debug)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path up to the name, or the whole path.
    pub path: &'static str,
    /// What the rest of the path is, if there is a rest.
    pub name: Option<&'static str>,
    /// The last raw segment after the name, if there is one: `/renew`.
    pub action: &'static str,
    /// Where it leads.
    pub endpoint: Endpoint,
    /// Does it take a body?
    pub takes: Takes,
    /// Who may come in?
    pub door: Door,
    /// One line for people.
    pub summary: &'static str,
}

/// `/v1/kv/{key}`, `/v1/locks/{name}/renew`, `/healthz`.
const fn route(
    method: Method,
    path: &'static str,
    (name, action): (Option<&'static str>, &'static str),
    endpoint: Endpoint,
    (takes, door): (Takes, Door),
    summary: &'static str,
) -> Route {
    Route { method, path, name, action, endpoint, takes, door, summary }
}

const ALONE: (Option<&str>, &str) = (None, "");
const KEY: (Option<&str>, &str) = (Some("key"), "");
const RESOURCE: (Option<&str>, &str) = (Some("resource"), "");
const LOCK: (Option<&str>, &str) = (Some("name"), "");
const NOTHING: (Takes, Door) = (Takes::Nothing, Door::Public);
const BODY: (Takes, Door) = (Takes::Body, Door::Public);
const ADMIN: (Takes, Door) = (Takes::Body, Door::Admin);

/// Every route. HEAD is taken wherever GET is.
#[rustfmt::skip]
pub const ROUTES: &[Route] = &[
    route(Method::PUT,    "/v1/kv/",             KEY,      Endpoint::PutValue,       BODY,    "write a value"),
    route(Method::GET,    "/v1/kv/",             KEY,      Endpoint::GetValue,       NOTHING, "read a value"),
    route(Method::DELETE, "/v1/kv/",             KEY,      Endpoint::DeleteValue,    NOTHING, "remove a value; the fence stays"),
    route(Method::GET,    "/v1/kv",              ALONE,    Endpoint::ListKeys,       NOTHING, "list keys"),
    route(Method::POST,   "/v1/claim/",          RESOURCE, Endpoint::Claim,          BODY,    "raise the fence and read, in one step"),
    route(Method::POST,   "/v1/txn",             ALONE,    Endpoint::Transact,       BODY,    "conditions and operations, all or nothing"),
    route(Method::GET,    "/v1/fences/",         RESOURCE, Endpoint::GetFence,       NOTHING, "show a fence"),
    route(Method::GET,    "/v1/fences",          ALONE,    Endpoint::ListFences,     NOTHING, "list fences"),
    route(Method::POST,   "/v1/locks/",          (Some("name"), "/renew"), Endpoint::RenewLock, BODY, "renew a lease"),
    route(Method::POST,   "/v1/locks/",          LOCK,     Endpoint::AcquireLock,    BODY,    "acquire a lock"),
    route(Method::DELETE, "/v1/locks/",          LOCK,     Endpoint::ReleaseLock,    NOTHING, "give a lock back"),
    route(Method::GET,    "/v1/locks/",          LOCK,     Endpoint::GetLock,        NOTHING, "who holds a lock?"),
    route(Method::GET,    "/v1/locks",           ALONE,    Endpoint::ListLocks,      NOTHING, "list locks that are held"),
    route(Method::POST,   "/v1/s3/credentials",  ALONE,    Endpoint::IssueS3Credentials, BODY, "claim, and get credentials for the S3 face"),
    route(Method::POST,   "/v1/outcomes/",       (Some("key"), "/abandon"), Endpoint::AbandonOutcome, BODY, "make sure that a request is never applied"),
    route(Method::GET,    "/v1/outcomes/",       KEY,      Endpoint::GetOutcome,     NOTHING, "what became of a request?"),
    route(Method::POST,   "/v1/admin/fences/",   (Some("resource"), "/rotate"), Endpoint::Rotate, ADMIN, "end a resource's generation"),
    route(Method::POST,   "/v1/admin/rotate-prefix", ALONE, Endpoint::RotatePrefix,  ADMIN,   "end the generation of resources with a prefix"),
    route(Method::POST,   "/v1/admin/rotate-all", ALONE,   Endpoint::RotateAll,      ADMIN,   "end the generation of every resource"),
    route(Method::POST,   "/v1/admin/locks/",    (Some("name"), "/force-release"), Endpoint::ForceRelease, ADMIN, "take a lock from its holder"),
    route(Method::POST,   "/v1/admin/reload",    ALONE,    Endpoint::Reload,         ADMIN,   "read the rules of the guards and the keys of the S3 face again"),
    route(Method::POST,   "/v1/admin/objects/check", ALONE, Endpoint::CheckObjects,  ADMIN,   "compare the index of objects with the storage"),
    route(Method::POST,   "/v1/admin/objects/collect", ALONE, Endpoint::CollectObjects, ADMIN, "remove bytes that belong to no object"),
    route(Method::GET,    "/healthz",            ALONE,    Endpoint::Healthz,        NOTHING, "is the process alive?"),
    route(Method::GET,    "/readyz",             ALONE,    Endpoint::Readyz,         NOTHING, "can it take writes?"),
    route(Method::GET,    "/metrics",            ALONE,    Endpoint::Metrics,        NOTHING, "counters and histograms"),
    route(Method::GET,    "/openapi.json",       ALONE,    Endpoint::OpenApi,        NOTHING, "this table, for programs"),
];

impl Route {
    /// The raw name, if the path is this route's.
    fn matches<'p>(&self, path: &'p str) -> Option<&'p str> {
        match self.name {
            Some(_) => path.strip_prefix(self.path)?.strip_suffix(self.action),
            None => (path == self.path).then_some(""),
        }
    }

    /// The path as documents write it: `/v1/locks/{name}/renew`.
    pub fn template(&self) -> String {
        match self.name {
            Some(name) => format!("{}{{{name}}}{}", self.path, self.action),
            None => self.path.to_owned(),
        }
    }
}

/// The route of a request, and the raw name in its path.
pub(super) fn find<'p>(method: &Method, path: &'p str) -> Result<(&'static Route, &'p str), Problem> {
    let mut allowed = Vec::new();
    let served_as = if *method == Method::HEAD { &Method::GET } else { method };
    // A last raw segment that is an action is never part of a name, whatever the method: there it is written `%2F`.
    let has_action = ROUTES.iter().any(|route| !route.action.is_empty() && route.matches(path).is_some());
    for route in ROUTES.iter().filter(|route| route.action.is_empty() != has_action) {
        if let Some(name) = route.matches(path) {
            if route.method == *served_as {
                return Ok((route, name));
            }
            allowed.push(route.method.as_str());
            if route.method == Method::GET {
                allowed.push("HEAD");
            }
        }
    }
    if allowed.is_empty() {
        Err(Problem::no_such_route(path))
    } else {
        Err(Problem::method_not_allowed(method, &allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_by_raw_path() {
        let found = |method: Method, path| find(&method, path).map(|(route, name)| (route.endpoint, name)).ok();
        assert_eq!(found(Method::PUT, "/v1/kv/a%2Fb"), Some((Endpoint::PutValue, "a%2Fb")));
        assert_eq!(found(Method::HEAD, "/v1/kv/a"), Some((Endpoint::GetValue, "a")));
        assert_eq!(found(Method::HEAD, "/healthz"), Some((Endpoint::Healthz, "")));
        assert_eq!(found(Method::HEAD, "/v1/claim/a"), None);
        assert_eq!(found(Method::GET, "/v1/kv"), Some((Endpoint::ListKeys, "")));
        assert_eq!(found(Method::GET, "/v1/kv/"), Some((Endpoint::GetValue, "")));
        assert_eq!(found(Method::POST, "/v1/claim/orders/1"), Some((Endpoint::Claim, "orders/1")));
        assert_eq!(found(Method::GET, "/v1/kvx"), None);
        assert_eq!(found(Method::PATCH, "/v1/kv/a"), None);
        assert_eq!(found(Method::GET, "/healthz/"), None);
    }

    #[test]
    fn an_action_is_the_last_raw_segment() {
        let found = |method: Method, path| find(&method, path).map(|(route, name)| (route.endpoint, name)).ok();
        assert_eq!(found(Method::POST, "/v1/locks/a/b/renew"), Some((Endpoint::RenewLock, "a/b")));
        assert_eq!(found(Method::POST, "/v1/locks/a%2Frenew"), Some((Endpoint::AcquireLock, "a%2Frenew")));
        assert_eq!(found(Method::POST, "/v1/locks/renew"), Some((Endpoint::AcquireLock, "renew")));
        assert_eq!(found(Method::GET, "/v1/locks/a/renew"), None);
        assert_eq!(found(Method::DELETE, "/v1/locks/a/renew"), None);
        assert_eq!(found(Method::POST, "/v1/locks/a/renewal"), Some((Endpoint::AcquireLock, "a/renewal")));
        assert_eq!(found(Method::POST, "/v1/outcomes/k/abandon"), Some((Endpoint::AbandonOutcome, "k")));
        assert_eq!(found(Method::POST, "/v1/admin/fences/orders/1/rotate"), Some((Endpoint::Rotate, "orders/1")));
        assert_eq!(found(Method::POST, "/v1/admin/fences/orders/1"), None);
    }

    #[test]
    fn templates() {
        assert_eq!(ROUTES[0].template(), "/v1/kv/{key}");
        assert!(ROUTES.iter().any(|route| route.template() == "/v1/locks/{name}/renew"));
    }
}
