//! Places in the answers of a service, with counts of how often they hold a value.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use super::outcome::is_token;
use super::reply::Reply;

/// A place in an answer, as the map names it. Clones share their counts.
#[derive(Clone)]
pub(super) struct Place {
    named: String,
    part: Part,
    seen: Arc<Seen>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Header(String),
    /// A JSON pointer into the body.
    Json(String),
    Body,
}

/// How often the place was searched, and how often it held a value.
#[derive(Default)]
struct Seen {
    looked: AtomicU64,
    found: AtomicU64,
}

impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        self.part == other.part
    }
}

impl Eq for Place {}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.named)
    }
}

impl Place {
    /// Parses `header:Name`, `json:/pointer` or `body`.
    pub(super) fn parse(text: &str) -> Result<Place, String> {
        let part = match text.split_once(':') {
            None if text == "body" => Part::Body,
            Some(("header", name)) if is_token(name) => Part::Header(name.to_ascii_lowercase()),
            Some(("json", pointer)) if pointer.is_empty() || pointer.starts_with('/') => Part::Json(pointer.to_owned()),
            _ => {
                return Err(format!(
                    "`{text}` is no place in an answer: write \"header:Name\", \"json:/pointer/to/it\" or \"body\""
                ));
            }
        };
        Ok(Place { named: text.to_owned(), part, seen: Arc::default() })
    }

    /// The number of answers searched, if some of these places were searched and none ever held a value.
    pub(super) fn never_there(places: &[Place]) -> Option<u64> {
        let looked = places.iter().map(|place| place.seen.looked.load(Ordering::Relaxed)).max()?;
        let found = places.iter().any(|place| place.seen.found.load(Ordering::Relaxed) > 0);
        (looked > 0 && !found).then_some(looked)
    }

    /// The value at this place: `None` if absent, an error if the answer cannot be parsed.
    pub(super) fn find(&self, reply: &Reply) -> Result<Option<Found>, String> {
        let found = self.look(reply);
        self.seen.looked.fetch_add(1, Ordering::Relaxed);
        self.seen.found.fetch_add(u64::from(matches!(found, Ok(Some(_)))), Ordering::Relaxed);
        found
    }

    fn look(&self, reply: &Reply) -> Result<Option<Found>, String> {
        match &self.part {
            Part::Header(name) => Ok(reply.header(name).map(|text| Found::Text(text.to_owned()))),
            Part::Body => reply.text().map(|text| Some(Found::Text(text.to_owned()))),
            Part::Json(pointer) => {
                let json: Value = serde_json::from_str(reply.text()?)
                    .map_err(|error| format!("its body is not JSON ({error}), but the map looks for {pointer}"))?;
                match json.pointer(pointer) {
                    Some(Value::Null) => Ok(Some(Found::Null)),
                    Some(Value::String(text)) => Ok(Some(Found::Text(text.clone()))),
                    Some(other) => Ok(Some(Found::Text(other.to_string()))),
                    None => {
                        let parent = pointer.rsplit_once('/').map_or("", |(parent, _)| parent);
                        match json.pointer(parent) {
                            Some(Value::Object(_)) => Ok(None),
                            _ => Err(format!("its JSON has no {parent} that could hold {pointer}")),
                        }
                    }
                }
            }
        }
    }
}

/// A value found at a place.
pub(super) enum Found {
    Text(String),
    Null,
}
