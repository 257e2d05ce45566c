//! The map file as written: tables and keys, before any check.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::adapters::hooks::{Commands, Limit};
use crate::manifest::{Equal, High, Kill, Policy, Reads};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) map: Spanned<u64>,
    pub(super) resource: Resource,
    pub(super) write: Spanned<Verb>,
    pub(super) read: Option<Spanned<Verb>>,
    pub(super) checked_read: Option<Spanned<Verb>>,
    pub(super) claim: Option<Spanned<Verb>>,
    pub(super) cas: Option<Spanned<Verb>>,
    pub(super) delete: Option<Spanned<Verb>>,
    pub(super) batch: Option<Spanned<Verb>>,
    #[serde(default)]
    pub(super) mutation: Vec<Spanned<Mutation>>,
    pub(super) hooks: Option<Spanned<Commands>>,
}

/// `[resource]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resource {
    pub(super) base: Spanned<Texts>,
    pub(super) timeout: Option<Limit>,
    #[serde(default)]
    pub(super) policy: Policy,
    #[serde(default)]
    pub(super) equal: Equal,
    #[serde(default)]
    pub(super) reads: Reads,
    #[serde(default)]
    pub(super) high: High,
    #[serde(default)]
    pub(super) mismatch_raises: bool,
    #[serde(default)]
    pub(super) kill: Kill,
    #[serde(default = "unlimited", deserialize_with = "crate::token::max_as_text::deserialize")]
    pub(super) token_max: u64,
}

fn unlimited() -> u64 {
    u64::MAX
}

/// `[write]`, `[read]`, …
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Verb {
    pub(super) method: Spanned<String>,
    pub(super) path: Spanned<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Spanned<String>>,
    pub(super) body: Option<Spanned<String>>,
    pub(super) json: Option<Spanned<String>>,
    pub(super) form: Option<BTreeMap<String, Spanned<String>>>,
    pub(super) each: Option<Spanned<String>>,
    pub(super) join: Option<Spanned<String>>,
    pub(super) ok: Vec<Spanned<Status>>,
    #[serde(default)]
    pub(super) absent: Vec<Spanned<Status>>,
    #[serde(default)]
    pub(super) stale: Vec<Spanned<Status>>,
    #[serde(default)]
    pub(super) mismatch: Vec<Spanned<Status>>,
    #[serde(default)]
    pub(super) error: Vec<Spanned<Status>>,
    pub(super) high: Option<Spanned<Texts>>,
    pub(super) value: Option<Spanned<String>>,
    pub(super) current: Option<Spanned<String>>,
    pub(super) code: Option<Spanned<String>>,
    pub(super) when_none: Option<Spanned<Other>>,
}

/// `[cas.when_none]`: the differences if no value is expected.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Other {
    pub(super) method: Option<Spanned<String>>,
    pub(super) path: Option<Spanned<String>>,
    pub(super) headers: Option<BTreeMap<String, Spanned<String>>>,
    pub(super) body: Option<Spanned<String>>,
    pub(super) json: Option<Spanned<String>>,
    pub(super) form: Option<BTreeMap<String, Spanned<String>>>,
}

/// `[[mutation]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mutation {
    pub(super) name: Spanned<String>,
    pub(super) method: Spanned<String>,
    pub(super) path: Spanned<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Spanned<String>>,
    pub(super) body: Option<Spanned<String>>,
    pub(super) json: Option<Spanned<String>>,
    pub(super) form: Option<BTreeMap<String, Spanned<String>>>,
    pub(super) ok: Vec<Spanned<Status>>,
    #[serde(default)]
    pub(super) stale: Vec<Spanned<Status>>,
    #[serde(default)]
    pub(super) error: Vec<Spanned<Status>>,
    pub(super) wait: Option<Spanned<Limit>>,
    pub(super) before: Option<Spanned<Before>>,
}

/// `[mutation.before]`: a request that is sent first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Before {
    pub(super) method: Spanned<String>,
    pub(super) path: Spanned<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Spanned<String>>,
    pub(super) body: Option<Spanned<String>>,
    pub(super) json: Option<Spanned<String>>,
    pub(super) form: Option<BTreeMap<String, Spanned<String>>>,
}

/// A string, or a list of strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Texts(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Texts, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a list of texts")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

/// A pattern for answers: `409`, `"4xx"`, or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Code(u16),
    Class(u16),
    Also(Also),
}

/// `{ status = 409, at = "json:/type", is = "stale" }`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Also {
    pub(super) status: u16,
    pub(super) at: String,
    pub(super) is: String,
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Status, D::Error> {
        struct Statuses;
        impl<'de> Visitor<'de> for Statuses {
            type Value = Status;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a status such as 409, "4xx", or { status = 409, at = "json:/type", is = "stale" }"#)
            }

            fn visit_i64<E: Error>(self, code: i64) -> Result<Status, E> {
                let code = u16::try_from(code).ok().filter(|code| (200..600).contains(code));
                code.map(Status::Code).ok_or_else(|| E::custom("a status is a number from 200 to 599"))
            }

            fn visit_u64<E: Error>(self, code: u64) -> Result<Status, E> {
                self.visit_i64(i64::try_from(code).unwrap_or(0))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Status, E> {
                match text {
                    "2xx" => Ok(Status::Class(2)),
                    "3xx" => Ok(Status::Class(3)),
                    "4xx" => Ok(Status::Class(4)),
                    "5xx" => Err(E::custom(
                        "\"5xx\" is not possible: after an error of the server nobody knows what was done; list the \
                         ones that surely mean it was not done, such as 503",
                    )),
                    code if code.parse().is_ok_and(|code: u16| (200..600).contains(&code)) => {
                        Err(E::custom(format!("write the status {code} without quotes: {code}")))
                    }
                    other => Err(E::custom(format!("`{other}` is no class of statuses: \"2xx\", \"3xx\" or \"4xx\""))),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Status, A::Error> {
                Also::deserialize(MapAccessDeserializer::new(map)).map(Status::Also)
            }
        }
        deserializer.deserialize_any(Statuses)
    }
}
