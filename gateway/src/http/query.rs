//! Queries: `prefix`, `after`, `limit` of the lists, the lease to release, and the engine to ask about.

use std::borrow::Cow;

use fencepost_core::wire::MAX_PAGE;
use fencepost_core::{ProblemKind, percent_decode_name};
use fencepost_store::record::LeaseId;

use super::problem::Problem;

/// The parameters of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListQuery {
    pub(super) prefix: String,
    pub(super) after: Option<String>,
    pub(super) limit: usize,
}

pub(super) const DEFAULT_LIMIT: usize = 100;

impl ListQuery {
    pub(super) fn parse(query: Option<&str>) -> Result<ListQuery, Problem> {
        let (mut prefix, mut after, mut limit) = (None, None, None);
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = match name {
                "prefix" => &mut prefix,
                "after" => &mut after,
                "limit" => &mut limit,
                _ => return Err(wrong(format!("there is no parameter `{}`; use prefix, after, limit", text(name)?))),
            };
            if slot.replace(text(value)?).is_some() {
                return Err(wrong(format!("`{name}` is given more than once")));
            }
        }
        let limit = match limit.as_deref() {
            None => DEFAULT_LIMIT,
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|limit| (1..=MAX_PAGE).contains(limit))
                .ok_or_else(|| wrong(format!("limit must be a number from 1 to {MAX_PAGE}")))?,
        };
        let after = after.filter(|after| !after.is_empty());
        Ok(ListQuery { prefix: prefix.unwrap_or_default(), after, limit })
    }

    /// Refuses any query.
    pub(super) fn none(query: Option<&str>) -> Result<(), Problem> {
        match query {
            None | Some("") => Ok(()),
            Some(_) => Err(wrong("this call takes no query parameters; write a literal `?` in a name as `%3F`".into())),
        }
    }
}

/// `lease=…`, or nothing at all.
pub(super) fn lease(query: Option<&str>) -> Result<Option<LeaseId>, Problem> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(None) };
    let unknown = || wrong("a release takes no parameter but ?lease=…, as it was granted".into());
    let value = query.strip_prefix("lease=").ok_or_else(unknown)?;
    text(value)?.parse().map(Some).map_err(|why: &str| wrong(why.to_owned()))
}

/// `engine=…`, or nothing at all.
pub(super) fn engine(query: Option<&str>) -> Result<Option<String>, Problem> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(None) };
    let unknown = || wrong("this call takes no parameter but ?engine=…, the name of an engine".into());
    query.strip_prefix("engine=").ok_or_else(unknown).and_then(text).map(Some)
}

/// As in forms: `+` is a space, `%XX` a byte.
fn text(raw: &str) -> Result<String, Problem> {
    let spaced = raw.replace('+', " ");
    percent_decode_name(&spaced).map(Cow::into_owned).map_err(|error| wrong(format!("a parameter: {error}")))
}

fn wrong(detail: String) -> Problem {
    Problem::new(ProblemKind::MalformedQuery, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses() {
        let query = ListQuery::parse(Some("prefix=orders%2F&limit=10&after=a+b%2Bc")).unwrap();
        assert_eq!(query, ListQuery { prefix: "orders/".into(), after: Some("a b+c".into()), limit: 10 });
        assert_eq!(ListQuery::parse(None).unwrap().limit, DEFAULT_LIMIT);
        for bad in
            ["limit=0", "limit=1001", "limit=x", "limit=-1", "offset=1", "prefix=a&prefix=b", "prefix=%FF", "after=%zz"]
        {
            assert_eq!(ListQuery::parse(Some(bad)).unwrap_err().kind(), ProblemKind::MalformedQuery, "{bad}");
        }
        assert!(ListQuery::none(Some("x=1")).is_err());
    }
}
