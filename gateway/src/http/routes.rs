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
    /// Show a fence.
    GetFence,
    /// List fences.
    ListFences,
    /// Is the process alive?
    Healthz,
    /// Can it take writes?
    Readyz,
    /// Counters and histograms.
    Metrics,
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
    /// Where it leads.
    pub endpoint: Endpoint,
    /// Does it take a body?
    pub takes: Takes,
    /// One line for people.
    pub summary: &'static str,
}

const fn route(
    method: Method,
    path: &'static str,
    name: Option<&'static str>,
    endpoint: Endpoint,
    takes: Takes,
    summary: &'static str,
) -> Route {
    Route { method, path, name, endpoint, takes, summary }
}

/// Every route. HEAD is taken wherever GET is.
#[rustfmt::skip]
pub const ROUTES: &[Route] = &[
    route(Method::PUT,    "/v1/kv/",     Some("key"),      Endpoint::PutValue,    Takes::Body,    "write a value"),
    route(Method::GET,    "/v1/kv/",     Some("key"),      Endpoint::GetValue,    Takes::Nothing, "read a value"),
    route(Method::DELETE, "/v1/kv/",     Some("key"),      Endpoint::DeleteValue, Takes::Nothing, "remove a value; the fence stays"),
    route(Method::GET,    "/v1/kv",      None,             Endpoint::ListKeys,    Takes::Nothing, "list keys"),
    route(Method::POST,   "/v1/claim/",  Some("resource"), Endpoint::Claim,       Takes::Body,    "raise the fence and read, in one step"),
    route(Method::GET,    "/v1/fences/", Some("resource"), Endpoint::GetFence,    Takes::Nothing, "show a fence"),
    route(Method::GET,    "/v1/fences",  None,             Endpoint::ListFences,  Takes::Nothing, "list fences"),
    route(Method::GET,    "/healthz",    None,             Endpoint::Healthz,     Takes::Nothing, "is the process alive?"),
    route(Method::GET,    "/readyz",     None,             Endpoint::Readyz,      Takes::Nothing, "can it take writes?"),
    route(Method::GET,    "/metrics",    None,             Endpoint::Metrics,     Takes::Nothing, "counters and histograms"),
];

impl Route {
    /// The raw name, if the path is this route's.
    fn matches<'p>(&self, path: &'p str) -> Option<&'p str> {
        match self.name {
            Some(_) => path.strip_prefix(self.path),
            None => (path == self.path).then_some(""),
        }
    }
}

/// The route of a request, and the raw name in its path.
pub(super) fn find<'p>(method: &Method, path: &'p str) -> Result<(&'static Route, &'p str), Problem> {
    let mut allowed = Vec::new();
    let served_as = if *method == Method::HEAD { &Method::GET } else { method };
    for route in ROUTES {
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
}
