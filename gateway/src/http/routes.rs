//! Routes, and how the route of a request is found. Dispatch works on the raw path; names are decoded later, exactly
//! once.

use hyper::Method;

use super::calls::{Endpoint, ROUTES};
use super::problem::Problem;

/// Callers that may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// Any caller that reaches the gateway.
    Public,
    /// Administrators, over the Unix socket.
    Admin,
}

/// Whether a route takes a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// The call reads the body.
    Body,
    /// No body; one that is sent must be empty.
    Nothing,
}

/// Whether a route takes a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Query {
    /// The call decodes the query.
    Parameters,
    /// No query; one that is sent is refused.
    Nothing,
}

/// Method and path of a call: `/v1/kv/{key}`, `/v1/locks/{name}/renew`, `/healthz`.
#[derive(Debug)]
pub(crate) struct Route {
    /// The method.
    pub(crate) method: Method,
    /// The path up to the name, or the whole path.
    pub(crate) path: &'static str,
    /// What the rest of the path names, if there is a rest.
    pub(super) name: Option<&'static str>,
    /// The last raw segment after the name, if there is one: `/renew`.
    pub(super) action: &'static str,
    pub(super) takes: Takes,
    pub(super) query: Query,
    pub(super) audience: Audience,
    /// One line for the API document.
    pub(super) summary: &'static str,
}

/// Where the paths of routes differ: `/v1/kv/`, `/v1/locks/`, …
const TELLING: usize = 4;

impl Route {
    /// A whole path that any caller may use, without a body or a query.
    pub(super) const fn new(method: Method, path: &'static str, summary: &'static str) -> Route {
        let (takes, query, audience) = (Takes::Nothing, Query::Nothing, Audience::Public);
        Route { method, path, name: None, action: "", takes, query, audience, summary }
    }

    /// The same, with a name as the rest of the path.
    pub(super) const fn named(mut self, name: &'static str) -> Route {
        self.name = Some(name);
        self
    }

    /// The same, with a last segment after the name.
    pub(super) const fn action(mut self, action: &'static str) -> Route {
        self.action = action;
        self
    }

    /// The same, taking a body.
    pub(super) const fn with_body(mut self) -> Route {
        self.takes = Takes::Body;
        self
    }

    /// The same, taking a query.
    pub(super) const fn with_query(mut self) -> Route {
        self.query = Query::Parameters;
        self
    }

    /// The same, for administrators only.
    pub(super) const fn for_administrators(mut self) -> Route {
        self.audience = Audience::Admin;
        self
    }

    fn has_action(&self) -> bool {
        !self.action.is_empty()
    }

    /// The raw name, if the path is this route's.
    fn matches<'p>(&self, path: &'p str) -> Option<&'p str> {
        // Most routes differ in this byte, which costs less than to compare all of them.
        if path.as_bytes().get(TELLING) != self.path.as_bytes().get(TELLING) && self.path.len() > TELLING {
            return None;
        }
        match self.name {
            Some(_) => path.strip_prefix(self.path)?.strip_suffix(self.action),
            None => (path == self.path).then_some(""),
        }
    }

    /// The path as documents write it: `/v1/locks/{name}/renew`.
    pub(super) fn template(&self) -> String {
        match self.name {
            Some(name) => format!("{}{{{name}}}{}", self.path, self.action),
            None => self.path.to_owned(),
        }
    }
}

/// The call that a request makes, its route, and the raw name in its path.
pub(super) fn find<'p>(method: &Method, path: &'p str) -> Result<(Endpoint, &'static Route, &'p str), Problem> {
    let served_as = if *method == Method::HEAD { &Method::GET } else { method };
    let (mut found, mut has_action) = (None, false);
    for (endpoint, route) in ROUTES {
        let Some(name) = route.matches(path) else { continue };
        // A last raw segment that is an action is never part of a name, whatever the method. A name with that ending writes
        // its slash as `%2F`.
        if route.has_action() && !has_action {
            (found, has_action) = (None, true);
        }
        if route.has_action() == has_action && route.method == *served_as {
            found = Some((*endpoint, route, name));
        }
    }
    found.ok_or_else(|| unserved(method, path, has_action))
}

fn unserved(method: &Method, path: &str, has_action: bool) -> Problem {
    let mut allowed = Vec::new();
    for (_, route) in ROUTES.iter().filter(|(_, route)| route.has_action() == has_action) {
        if route.matches(path).is_some() {
            allowed.push(route.method.as_str());
            if route.method == Method::GET {
                allowed.push("HEAD");
            }
        }
    }
    match allowed.is_empty() {
        true => Problem::no_such_route(path),
        false => Problem::method_not_allowed(method, &allowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_by_raw_path() {
        let found = |method: Method, path| find(&method, path).map(|(endpoint, _, name)| (endpoint, name)).ok();
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
        let found = |method: Method, path| find(&method, path).map(|(endpoint, _, name)| (endpoint, name)).ok();
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
        assert_eq!(ROUTES[0].1.template(), "/v1/kv/{key}");
        assert!(ROUTES.iter().any(|(_, route)| route.template() == "/v1/locks/{name}/renew"));
    }
}
