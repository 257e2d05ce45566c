//! The lines of the protocol: requests, and the answers they allow.

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::answer::Answer;
use crate::manifest::Manifest;
use crate::op::{Op, Verb};
use crate::subject::Request;

/// The version of the protocol.
pub const PROTO: u64 = 1;

/// Every result with the fields it may have.
pub const RESULTS: [(&str, &[&str]); 6] = [
    ("ok", &["value", "high"]),
    ("stale", &["high"]),
    ("mismatch", &["current"]),
    ("error", &["definite", "code"]),
    ("unknown", &["why"]),
    ("unsupported", &[]),
];

#[derive(Serialize)]
struct Init<'a> {
    id: u64,
    op: &'static str,
    proto: u64,
    dir: &'a Path,
    instance: usize,
}

#[derive(Serialize)]
struct Ask<'a> {
    id: u64,
    case: &'a str,
    seed: u64,
    operation: u64,
    client: u32,
    #[serde(flatten)]
    op: &'a Op,
}

/// The first line sent to an adapter.
pub(super) fn init(id: u64, dir: &Path, instance: usize) -> Result<Vec<u8>, String> {
    line(&Init { id, op: "init", proto: PROTO, dir, instance })
}

/// The line of an operation.
pub(super) fn ask(id: u64, request: &Request<'_>) -> Result<Vec<u8>, String> {
    let Request { case, seed, id: operation, client, op, .. } = *request;
    line(&Ask { id, case, seed, operation, client, op })
}

fn line(request: &impl Serialize) -> Result<Vec<u8>, String> {
    let mut line = serde_json::to_vec(request).map_err(|error| format!("a request cannot be written: {error}"))?;
    line.push(b'\n');
    Ok(line)
}

/// The kind of a request, as far as its answer depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The first line.
    Init,
    /// An operation.
    Op(Verb),
}

/// A valid answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The answer to `init`.
    Manifest(Manifest),
    /// The answer to `init` of an adapter that cannot start, with its reason.
    CannotStart(String),
    /// The answer to an operation.
    Answer(Answer),
}

impl Asked {
    /// An example of a valid answer, for messages.
    pub(super) fn example(self, id: u64) -> String {
        let more = match self {
            Asked::Init => r#","caps":["read"],"policy":"ge""#,
            Asked::Op(Verb::Read | Verb::CheckedRead | Verb::Claim) => r#","value":"v-17","high":"42""#,
            Asked::Op(Verb::Write | Verb::Cas | Verb::Delete) => r#","high":"42""#,
            Asked::Op(Verb::Batch) => "",
        };
        format!(r#"{{"id":{id},"result":"ok"{more}}}"#)
    }

    /// The name of the request, for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Asked::Init => "init",
            Asked::Op(verb) => verb.name(),
        }
    }

    /// Parses an answer to this request.
    pub(super) fn understand(self, mut fields: Map<String, Value>) -> Result<Reply, String> {
        let result = match fields.get("result") {
            Some(Value::String(result)) => result.clone(),
            Some(_) => return Err("`result` is not a string".to_owned()),
            None => return Err("it has no `result`".to_owned()),
        };
        match self {
            Asked::Init => {
                fields.remove("result");
                init_reply(&result, fields)
            }
            Asked::Op(verb) => answer(verb, &result, fields).map(Reply::Answer),
        }
    }
}

/// The number of the request that a line answers, and the remaining fields.
pub(super) fn numbered(line: &[u8]) -> Result<(u64, Map<String, Value>), String> {
    let mut fields = match serde_json::from_slice(line) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => return Err("it is JSON, but not an object".to_owned()),
        Err(error) => return Err(format!("it is not JSON ({error})")),
    };
    match fields.remove("id") {
        None => Err("it has no `id`".to_owned()),
        Some(id) => match id.as_u64() {
            Some(id) => Ok((id, fields)),
            None => Err("its `id` is not the number of a request".to_owned()),
        },
    }
}

fn init_reply(result: &str, mut fields: Map<String, Value>) -> Result<Reply, String> {
    match result {
        "ok" => {}
        "error" => {
            let code = fields.get("code").and_then(Value::as_str).unwrap_or_default();
            return Ok(Reply::CannotStart(code.to_owned()));
        }
        other => return Err(format!("`{other}` is no answer to init: `ok` or `error`")),
    }
    match fields.remove("proto") {
        None => {}
        Some(proto) if proto.as_u64() == Some(PROTO) => {}
        Some(proto) => {
            return Err(format!("it speaks version {proto} of the protocol, and this suite version {PROTO}"));
        }
    }
    if !fields.contains_key("caps") {
        let verbs: Vec<_> = Verb::ALL.into_iter().map(Verb::name).collect();
        return Err(format!("it has no `caps`, the list of the verbs it has: {}", verbs.join(", ")));
    }
    serde_json::from_value(Value::Object(fields)).map(Reply::Manifest).map_err(|error| error.to_string())
}

fn answer(verb: Verb, result: &str, fields: Map<String, Value>) -> Result<Answer, String> {
    let Some((_, known)) = RESULTS.iter().find(|(word, _)| *word == result) else {
        let words: Vec<_> = RESULTS.iter().map(|(word, _)| *word).collect();
        return Err(format!("`{result}` is no result: {}", words.join(", ")));
    };
    if let Some(field) = fields.keys().find(|field| *field != "result" && !known.contains(&field.as_str())) {
        let fields = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(format!("`{result}` has no field `{field}`; its fields: {fields}"));
    }
    let name = verb.name();
    let reads = matches!(verb, Verb::Read | Verb::CheckedRead | Verb::Claim);
    let wrong = match result {
        "ok" if reads && !fields.contains_key("value") => {
            Some(format!("an ok of {name} must have `value`: a string, or null if there is none"))
        }
        "ok" if !reads && fields.contains_key("value") => Some(format!("an ok of {name} has no `value`")),
        "ok" | "stale" if verb == Verb::Batch && fields.contains_key("high") => {
            Some("a batch is about several fences, so its answer has no `high`".to_owned())
        }
        "stale" if verb == Verb::Read => Some("a read carries no token, so it cannot be stale".to_owned()),
        "mismatch" if verb != Verb::Cas => Some(format!("only cas has a mismatch, {name} has none")),
        "error" if !fields.get("definite").is_some_and(Value::is_boolean) => Some(
            "an error must have `definite`: true if it was surely not done and never will be, else false".to_owned(),
        ),
        _ => None,
    };
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    if let Some(high) = fields.get("high").filter(|high| high.is_number()) {
        return Err(format!("`high` is the number {high}, which a JSON parser may round: write it as a string"));
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Asked, Reply, ask, init, numbered};
    use crate::answer::Answer;
    use crate::manifest::{Manifest, Policy};
    use crate::op::{Op, Verb};
    use crate::subject::{Request, Route};
    use crate::token::Token;

    fn understood(asked: Asked, line: &str) -> Result<Reply, String> {
        let (id, fields) = numbered(line.as_bytes())?;
        assert_eq!(id, 1);
        asked.understand(fields)
    }

    fn line(op: &Op) -> String {
        let request = Request { case: "C01", seed: 7, id: 41, client: 3, route: Route::Direct, op };
        String::from_utf8(ask(2, &request).unwrap()).unwrap()
    }

    #[test]
    fn requests_are_as_documented() {
        let first = String::from_utf8(init(1, Path::new("/data"), 0).unwrap()).unwrap();
        assert_eq!(first, "{\"id\":1,\"op\":\"init\",\"proto\":1,\"dir\":\"/data\",\"instance\":0}\n");
        let common = r#"{"id":2,"case":"C01","seed":7,"operation":41,"client":3,"op":"#;
        for (op, rest) in [
            (
                Op::write("r1", 42, "h3", "v-17"),
                r#""write","res":"r1","token":"42","holder":"h3","value":"v-17"}"#.to_owned(),
            ),
            (Op::write("r1", Token::Absent, "h", "v"), r#""write","res":"r1","holder":"h","value":"v"}"#.to_owned()),
            (Op::read("r\n1"), r#""read","res":"r\n1"}"#.to_owned()),
            (
                Op::checked_read("r1", Token::Both("5".into(), "9".into())),
                r#""checked_read","res":"r1","token":["5","9"]}"#.to_owned(),
            ),
            (
                Op::cas("r1", 1, "h", None, "v"),
                r#""cas","res":"r1","token":"1","holder":"h","expect":null,"value":"v"}"#.to_owned(),
            ),
            (
                Op::Batch { writes: vec![crate::op::Write::new("a", 1, "h", "v")] },
                r#""batch","writes":[{"res":"a","token":"1","holder":"h","value":"v"}]}"#.to_owned(),
            ),
        ] {
            assert_eq!(line(&op), format!("{common}{rest}\n"));
        }
    }

    #[test]
    fn every_example_is_understood() {
        for verb in Verb::ALL {
            understood(Asked::Op(verb), &Asked::Op(verb).example(1)).unwrap();
        }
        let Ok(Reply::Manifest(manifest)) = understood(Asked::Init, &Asked::Init.example(1)) else { panic!() };
        assert!(
            manifest.has(Verb::Read) && manifest.policy == Policy::Ge && manifest.reads == Manifest::default().reads
        );
        assert_eq!(
            understood(Asked::Op(Verb::Read), r#"{"id":1,"result":"ok","value":null,"high":null}"#),
            Ok(Reply::Answer(Answer::Ok { value: Some(None), high: None }))
        );
    }

    #[test]
    fn one_that_cannot_start_may_say_so() {
        let line = r#"{"id":1,"result":"error","definite":true,"code":"no database"}"#;
        assert_eq!(understood(Asked::Init, line), Ok(Reply::CannotStart("no database".to_owned())));
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (verb, line, said) in [
            (Verb::Write, r#"{"id":1}"#, "no `result`"),
            (Verb::Write, r#"{"id":1,"result":1}"#, "not a string"),
            (Verb::Write, r#"{"id":1,"result":"okay"}"#, "`okay` is no result: ok, stale, mismatch"),
            (Verb::Write, r#"{"id":1,"result":"ok","high":42}"#, "write it as a string"),
            (Verb::Write, r#"{"id":1,"result":"ok","high":"042"}"#, "not a token"),
            (Verb::Write, r#"{"id":1,"result":"ok","value":"v"}"#, "an ok of write has no `value`"),
            (Verb::Write, r#"{"id":1,"result":"ok","hi":"42"}"#, "no field `hi`; its fields: value, high"),
            (Verb::Write, r#"{"id":1,"result":"mismatch"}"#, "only cas has a mismatch"),
            (Verb::Write, r#"{"id":1,"result":"error","code":"x"}"#, "must have `definite`"),
            (Verb::Write, r#"{"id":1,"result":"unsupported","high":"1"}"#, "its fields: none"),
            (Verb::Read, r#"{"id":1,"result":"ok","high":"42"}"#, "must have `value`"),
            (Verb::Read, r#"{"id":1,"result":"ok","value":7}"#, "expected a string"),
            (Verb::Read, r#"{"id":1,"result":"stale"}"#, "cannot be stale"),
            (Verb::Claim, r#"{"id":1,"result":"ok"}"#, "must have `value`"),
            (Verb::Batch, r#"{"id":1,"result":"ok","high":"42"}"#, "several fences"),
        ] {
            let wrong = understood(Asked::Op(verb), line).unwrap_err();
            assert!(wrong.contains(said), "{line}: {wrong}");
        }
        for (line, said) in [
            (r#"{"id":1,"result":"ok"}"#, "no `caps`"),
            (r#"{"id":1,"result":"ok","caps":["reed"]}"#, "unknown variant `reed`"),
            (r#"{"id":1,"result":"ok","caps":[],"policy":"lt"}"#, "unknown variant `lt`"),
            (r#"{"id":1,"result":"ok","caps":[],"polcy":"ge"}"#, "unknown field `polcy`"),
            (r#"{"id":1,"result":"ok","caps":[],"proto":2}"#, "version 2"),
            (r#"{"id":1,"result":"ok","caps":[],"token_max":5}"#, "expected a string"),
            (r#"{"id":1,"result":"stale"}"#, "no answer to init"),
            (r#"{"id":"1"}"#, "not the number of a request"),
            (r#"{"id":-1}"#, "not the number of a request"),
            (r#"{"result":"ok"}"#, "no `id`"),
            ("[1]", "not an object"),
            ("hello", "not JSON"),
            ("", "not JSON"),
        ] {
            let wrong = understood(Asked::Init, line).unwrap_err();
            assert!(wrong.contains(said), "{line}: {wrong}");
        }
    }
}
