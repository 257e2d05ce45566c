//! The meaning of a service's answers.

use super::place::{Found, Place};
use super::reply::Reply;
use crate::answer::Answer;
use crate::report::text::{cut, one_line};
use crate::token;

/// How many characters of an answer are shown.
const SHOWN: usize = 120;

/// Whether a text is a valid header name or method.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// What an answer can mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ok,
    Absent,
    Stale,
    Mismatch,
    Error,
}

/// A pattern for answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// This status, with this text at a place.
    Also(u16, Place, String),
    /// This status, whatever the content.
    Status(u16),
    /// A class of statuses: 4 is 400 to 499.
    Class(u16),
}

impl When {
    /// The precedence: smaller is more exact.
    fn rank(&self) -> u8 {
        match self {
            When::Also(..) => 0,
            When::Status(_) => 1,
            When::Class(_) => 2,
        }
    }

    fn holds(&self, reply: &Reply) -> bool {
        match self {
            When::Status(status) => reply.status == *status,
            When::Class(class) => reply.status / 100 == *class,
            When::Also(status, place, text) => {
                let found = || matches!(place.find(reply), Ok(Some(Found::Text(found))) if found == *text);
                reply.status == *status && found()
            }
        }
    }
}

/// What the answers to one kind of request mean.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcomes {
    pub(super) rules: Vec<(When, Outcome)>,
    /// Where to find the fence; the first place that has one counts.
    pub(super) high: Vec<Place>,
    /// Where to find the value, for reads.
    pub(super) value: Option<Place>,
    /// Where a mismatch reports the current value.
    pub(super) current: Option<Place>,
    /// Where an error reports its code.
    pub(super) code: Option<Place>,
}

impl Outcomes {
    /// Describes the places of this table that were searched and never had a value.
    pub(super) fn never_there(&self, table: &str) -> Vec<String> {
        let places = [("value", &self.value), ("current", &self.current), ("code", &self.code)];
        let single = places.into_iter().filter_map(|(key, place)| Some((key, std::slice::from_ref(place.as_ref()?))));
        let rules = self.rules.iter().filter_map(|(when, _)| match when {
            When::Also(_, place, _) => Some(("at", std::slice::from_ref(place))),
            When::Status(_) | When::Class(_) => None,
        });
        let all = single.chain([("high", &self.high[..])]).chain(rules);
        let told = all.filter_map(|(key, places)| {
            let answers = Place::never_there(places)?;
            let named: Vec<String> = places.iter().map(|place| format!("{place:?}")).collect();
            let was = if answers == 1 { "the only answer".to_owned() } else { format!("any of {answers} answers") };
            Some(format!(
                "`{key}` of {table} is {}, and nothing was there in {was} that should have it: is the place right?",
                named.join(", ")
            ))
        });
        told.collect()
    }

    /// The meaning of an answer; unknown if the map does not describe it or its content does not match the map.
    pub(super) fn answer(&self, reply: &Reply) -> Answer {
        let holding: Vec<_> = self.rules.iter().filter(|(when, _)| when.holds(reply)).collect();
        let Some(rank) = holding.iter().map(|(when, _)| when.rank()).min() else {
            return Answer::unknown(format!("status {}, of which the map says nothing{}", reply.status, shown(reply)));
        };
        let mut outcomes = holding.into_iter().filter(|(when, _)| when.rank() == rank).map(|(_, outcome)| *outcome);
        let first = outcomes.next().unwrap_or(Outcome::Error);
        if outcomes.any(|other| other != first) {
            return Answer::unknown(format!("status {} has two meanings in the map{}", reply.status, shown(reply)));
        }
        let said = match first {
            Outcome::Ok => self.ok(reply),
            Outcome::Absent => self.fence(reply).map(|high| Answer::Ok { value: Some(None), high }),
            Outcome::Stale => self.fence(reply).map(|high| Answer::Stale { high }),
            Outcome::Mismatch => self.mismatch(reply),
            Outcome::Error => Ok(Answer::error(&self.code(reply))),
        };
        said.unwrap_or_else(|why| Answer::unknown(format!("status {}: {why}{}", reply.status, shown(reply))))
    }

    fn ok(&self, reply: &Reply) -> Result<Answer, String> {
        let value = match &self.value {
            None => None,
            Some(place) => Some(match place.find(reply)? {
                None | Some(Found::Null) => None,
                Some(Found::Text(text)) => Some(text),
            }),
        };
        Ok(Answer::Ok { value, high: self.fence(reply)? })
    }

    fn mismatch(&self, reply: &Reply) -> Result<Answer, String> {
        let found = self.current.as_ref().map_or(Ok(None), |place| place.find(reply))?;
        let current = found.map(|found| match found {
            Found::Null => None,
            Found::Text(text) => Some(text),
        });
        Ok(Answer::Mismatch { current })
    }

    fn fence(&self, reply: &Reply) -> Result<Option<u64>, String> {
        let mut problem = Ok(None);
        for place in &self.high {
            match place.find(reply) {
                Ok(None | Some(Found::Null)) => {}
                Ok(Some(Found::Text(text))) => {
                    return token::parse(&text).map(Some).ok_or_else(|| format!("its fence `{text}` is no number"));
                }
                // A body without the member may belong to another outcome; the next place may have it.
                Err(why) => problem = Err(why),
            }
        }
        if self.high.len() > 1 { Ok(None) } else { problem }
    }

    fn code(&self, reply: &Reply) -> String {
        match self.code.as_ref().map(|place| place.find(reply)) {
            Some(Ok(Some(Found::Text(code)))) => code,
            _ => format!("status {}{}", reply.status, shown(reply)),
        }
    }
}

/// The start of the body, on one line.
fn shown(reply: &Reply) -> String {
    let start: String = reply.text().unwrap_or_default().trim_start().chars().take(4 * SHOWN).collect();
    match one_line(&start) {
        line if line.is_empty() => String::new(),
        line => format!(": {}", cut(&line, SHOWN)),
    }
}
