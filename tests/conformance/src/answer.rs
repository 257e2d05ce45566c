//! The answers of a resource.

use serde::{Deserialize, Deserializer, Serialize};

use crate::token::as_text;

/// The answer to one operation. Its JSON form is what an adapter prints, without the number of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Answer {
    /// The operation was done.
    Ok {
        /// For reads and claims: the value, `Some(None)` if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        value: Option<Option<String>>,
        /// The fence after the operation, if the resource reports it.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "as_text")]
        high: Option<u64>,
    },
    /// The operation was refused because its token is behind the fence.
    Stale {
        /// The fence, if the resource reports it.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "as_text")]
        high: Option<u64>,
    },
    /// A condition did not hold.
    Mismatch {
        /// The current value, if the resource reports it.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        current: Option<Option<String>>,
    },
    /// The operation was not done, and never will be, for another reason.
    Error {
        /// `false` makes it an unknown outcome: the operation may have been done.
        definite: bool,
        /// The resource's own code for the error.
        #[serde(default)]
        code: String,
    },
    /// The operation may have been done, may be done later, or never.
    Unknown {
        /// Why no answer was received.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// The resource does not have the operation.
    Unsupported,
}

/// A field that is present, and perhaps null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(Some)
}

impl Answer {
    /// Done, with nothing reported.
    pub fn ok() -> Answer {
        Answer::Ok { value: None, high: None }
    }

    /// A definite error.
    pub fn error(code: &str) -> Answer {
        Answer::Error { definite: true, code: code.to_owned() }
    }

    /// An unknown outcome.
    pub fn unknown(why: impl Into<String>) -> Answer {
        Answer::Unknown { why: why.into() }
    }

    /// Whether the operation was done.
    pub fn is_ok(&self) -> bool {
        matches!(self, Answer::Ok { .. })
    }

    /// Whether the operation was refused as stale.
    pub fn is_stale(&self) -> bool {
        matches!(self, Answer::Stale { .. })
    }

    /// Whether the outcome is unknown.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Answer::Unknown { .. } | Answer::Error { definite: false, .. })
    }

    /// Whether the operation was certainly not done: refused, failed on a condition, or ended in a definite error.
    pub fn is_not_done(&self) -> bool {
        match self {
            Answer::Ok { .. } | Answer::Unknown { .. } | Answer::Error { definite: false, .. } => false,
            Answer::Stale { .. } | Answer::Mismatch { .. } | Answer::Error { definite: true, .. } => true,
            Answer::Unsupported => true,
        }
    }

    /// The fence it reports.
    pub fn high(&self) -> Option<u64> {
        match self {
            Answer::Ok { high, .. } | Answer::Stale { high } => *high,
            _ => None,
        }
    }

    /// The value it reports: of a read or claim that was done, or in a mismatch.
    pub fn value(&self) -> Option<Option<&str>> {
        match self {
            Answer::Ok { value, .. } | Answer::Mismatch { current: value } => value.as_ref().map(Option::as_deref),
            _ => None,
        }
    }

    /// A word or two for sentences: `accepted`, `refused as stale`, …
    pub fn word(&self) -> &'static str {
        match self {
            Answer::Ok { .. } => "accepted",
            Answer::Stale { .. } => "refused as stale",
            Answer::Mismatch { .. } => "answered with a mismatch",
            Answer::Error { definite: true, .. } => "answered with an error",
            Answer::Error { definite: false, .. } | Answer::Unknown { .. } => "not answered clearly",
            Answer::Unsupported => "answered as unsupported",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Answer;

    #[test]
    fn an_answer_is_what_adapters_print() {
        for (json, answer) in [
            (r#"{"result":"ok"}"#, Answer::ok()),
            (r#"{"result":"ok","value":null,"high":"42"}"#, Answer::Ok { value: Some(None), high: Some(42) }),
            (r#"{"result":"stale","high":"9"}"#, Answer::Stale { high: Some(9) }),
            (r#"{"result":"stale"}"#, Answer::Stale { high: None }),
            (r#"{"result":"mismatch","current":"v-1"}"#, Answer::Mismatch { current: Some(Some("v-1".into())) }),
            (r#"{"result":"error","definite":true,"code":"bad-token"}"#, Answer::error("bad-token")),
            (r#"{"result":"unknown"}"#, Answer::unknown("")),
            (r#"{"result":"unsupported"}"#, Answer::Unsupported),
        ] {
            assert_eq!(serde_json::from_str::<Answer>(json).unwrap(), answer, "{json}");
            assert_eq!(serde_json::to_string(&answer).unwrap(), json);
        }
        assert!(serde_json::from_str::<Answer>(r#"{"result":"ok","high":42}"#).is_err(), "tokens are strings");
    }
}
