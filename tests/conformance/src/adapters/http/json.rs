//! JSON bodies: a document whose strings are templates.
//!
//! Substituted values are always escaped. A member whose string names an absent token is left out; for two tokens it
//! appears twice. `{"{each}": {…}}` and `["{each}", …]` repeat for every write of a batch.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::template::{Field, Fields, Filter, Template, Unsendable};

const EACH: &str = "{each}";

const MARK: &str = "`{each}` stands in a list before what is repeated, or is a member whose members are repeated";

/// A part of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Object(Vec<Member>),
    List(Vec<Item>),
    Text(Template),
    /// A number, `true`, `false` or `null`.
    Plain(String),
    /// `"{each}"`, only while a list is parsed.
    Mark,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Member {
    One(Template, Node),
    Each(Vec<Member>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    One(Node),
    Each(Node),
}

impl Node {
    /// Parses a document.
    pub(super) fn parse(text: &str) -> Result<Node, String> {
        let node =
            serde_json::from_str(text).map_err(|error| format!("this is not the JSON of a template: {error}"))?;
        if node == Node::Mark { Err(MARK.to_owned()) } else { Ok(node) }
    }

    /// The document for one request.
    pub(super) fn text(&self, fields: &Fields<'_>) -> Result<String, Unsendable> {
        match self {
            Node::Object(members) => {
                let mut made = Vec::new();
                object(members, fields, &mut made)?;
                Ok(format!("{{{}}}", made.join(",")))
            }
            Node::List(items) => {
                let mut made = Vec::new();
                for item in items {
                    match item {
                        Item::One(node) => made.extend(node.texts(fields)?),
                        Item::Each(node) => {
                            for write in fields.writes() {
                                made.extend(node.texts(&fields.with(write))?);
                            }
                        }
                    }
                }
                Ok(format!("[{}]", made.join(",")))
            }
            Node::Text(_) | Node::Plain(_) | Node::Mark => Ok(self.texts(fields)?.concat()),
        }
    }

    /// The node as a member or item: absent, once, or twice.
    fn texts(&self, fields: &Fields<'_>) -> Result<Vec<String>, Unsendable> {
        match self {
            Node::Object(_) | Node::List(_) => Ok(vec![self.text(fields)?]),
            Node::Plain(text) => Ok(vec![text.clone()]),
            Node::Mark => Ok(Vec::new()),
            Node::Text(template) if template.only() == Some(Field::Expect) && fields.expect == Some(None) => {
                Ok(vec!["null".to_owned()])
            }
            Node::Text(template) => {
                let quoted = |text: String| if template.is_number() && is_integer(&text) { text } else { quote(&text) };
                Ok(template.texts(fields, Filter::Raw)?.into_iter().map(quoted).collect())
            }
        }
    }

    /// Calls `see` with every template, and whether it is repeated for each write.
    pub(super) fn visit(
        &self,
        each: bool,
        see: &mut dyn FnMut(&Template, bool) -> Result<(), String>,
    ) -> Result<(), String> {
        match self {
            Node::Object(members) => members.iter().try_for_each(|member| member.visit(each, see)),
            Node::List(items) => items.iter().try_for_each(|item| match item {
                Item::One(node) => node.visit(each, see),
                Item::Each(node) => node.visit(true, see),
            }),
            Node::Text(template) => see(template, each),
            Node::Plain(_) | Node::Mark => Ok(()),
        }
    }
}

impl Member {
    fn visit(&self, each: bool, see: &mut dyn FnMut(&Template, bool) -> Result<(), String>) -> Result<(), String> {
        match self {
            Member::One(name, node) => {
                see(name, each)?;
                node.visit(each, see)
            }
            Member::Each(members) => members.iter().try_for_each(|member| member.visit(true, see)),
        }
    }
}

fn object(members: &[Member], fields: &Fields<'_>, made: &mut Vec<String>) -> Result<(), Unsendable> {
    for member in members {
        match member {
            Member::One(name, node) => {
                let name = quote(&name.text(fields, Filter::Raw)?);
                made.extend(node.texts(fields)?.into_iter().map(|text| format!("{name}:{text}")));
            }
            Member::Each(inner) => {
                for write in fields.writes() {
                    object(inner, &fields.with(write), made)?;
                }
            }
        }
    }
    Ok(())
}

/// Whether the text is an integer as JSON writes it. `12.0` and `1e3` are JSON numbers too, equal to 12 and 1000. Sent
/// as numbers, a service could not see what was wrong with them.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let leads = digits.len() > 1 && digits.starts_with('0');
    !digits.is_empty() && !leads && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Plain(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Plain(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Plain(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Plain(value.to_string()))
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Plain("null".to_owned()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        if text == EACH {
            return Ok(Node::Mark);
        }
        Template::parse(text).map(Node::Text).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut members = Vec::new();
        while let Some((name, node)) = map.next_entry::<String, Node>()? {
            members.push(match node {
                Node::Object(inner) if name == EACH => Member::Each(inner),
                _ if name == EACH => {
                    return Err(A::Error::custom("the member `{each}` is an object: its members are repeated"));
                }
                Node::Mark => return Err(A::Error::custom(MARK)),
                node => Member::One(Template::parse(&name).map_err(A::Error::custom)?, node),
            });
        }
        Ok(Node::Object(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(node) = list.next_element::<Node>()? {
            items.push(match node {
                Node::Mark => Item::Each(list.next_element::<Node>()?.unwrap_or(Node::Mark)),
                node => Item::One(node),
            });
        }
        if items.contains(&Item::Each(Node::Mark)) {
            return Err(A::Error::custom("what is repeated stands behind \"{each}\" in its list"));
        }
        Ok(Node::List(items))
    }
}

#[cfg(test)]
mod tests {
    use super::{Node, quote};
    use crate::adapters::http::template::Fields;
    use crate::op::{Op, Write};
    use crate::subject::{Request, Route};
    use crate::token::Token;

    fn text(template: &str, op: &Op) -> String {
        let request = Request { case: "A01", seed: 7, id: 3, client: 2, route: Route::Direct, op };
        Node::parse(template).unwrap().text(&Fields::of(&request)).unwrap()
    }

    #[test]
    fn texts_are_escaped_and_order_is_kept() {
        let op = Op::write("a\"b\\", 42, "h", "line\n");
        let template = r#"{"z": "{value}", "a": ["{res}", 1, 1.5, true, null], "t": "{token:number}"}"#;
        assert_eq!(text(template, &op), r#"{"z":"line\n","a":["a\"b\\",1,1.5,true,null],"t":42}"#);
    }

    #[test]
    fn an_absent_token_is_left_out_and_two_are_there_twice() {
        let write = |token: Token| Op::write("r", token, "h", "v");
        let template = r#"{"fence": {"token": "{token}"}, "v": "{value}"}"#;
        assert_eq!(text(template, &write(Token::Absent)), r#"{"fence":{},"v":"v"}"#);
        let both = Token::Both("5".into(), "9".into());
        assert_eq!(text(template, &write(both)), r#"{"fence":{"token":"5","token":"9"},"v":"v"}"#);
        for token in ["0", "12", "-5", "18446744073709551616"] {
            let sent = format!(r#"{{"t":{token}}}"#);
            assert_eq!(text(r#"{"t": "{token:number}"}"#, &write(Token::text(token))), sent, "an integer is one");
        }
        for token in ["", "-", " 12", "12 ", "5 6", "12\n", "012", "+5", "12.0", "1e3", "0x5", "NaN", "true", "١٢"] {
            let sent = quote(token);
            let sent = format!(r#"{{"t":{sent}}}"#);
            assert_eq!(text(r#"{"t": "{token:number}"}"#, &write(Token::text(token))), sent);
        }
    }

    #[test]
    fn a_value_that_is_not_expected_is_null() {
        assert_eq!(text(r#"{"e": "{expect}"}"#, &Op::cas("r", 1, "h", None, "v")), r#"{"e":null}"#);
        assert_eq!(text(r#"{"e": "{expect}"}"#, &Op::cas("r", 1, "h", Some("null"), "v")), r#"{"e":"null"}"#);
    }

    #[test]
    fn each_write_of_a_batch_repeats_members_and_items() {
        let writes = vec![Write::new("a", 1, "h", "x"), Write::new("b", Token::Absent, "h", "y")];
        let template =
            r#"{"tokens": {"{each}": {"{res}": {"token": "{token}"}}}, "then": ["{each}", {"put": "{res}"}, "end"]}"#;
        let sent = r#"{"tokens":{"a":{"token":"1"},"b":{}},"then":[{"put":"a"},{"put":"b"},"end"]}"#;
        assert_eq!(text(template, &Op::Batch { writes }), sent);
    }

    #[test]
    fn what_is_no_document_is_named() {
        for (template, wrong) in [
            ("{", "EOF"),
            (r#"{"a": "{b}"}"#, "`{b}` is no placeholder"),
            (r#"{"{each}": 1}"#, "is an object"),
            (r#"["{each}"]"#, "stands behind"),
            (r#"{"a": "{each}"}"#, "in a list"),
            (r#""{each}""#, "in a list"),
        ] {
            let error = Node::parse(template).unwrap_err();
            assert!(error.contains(wrong), "{template}: {error}");
        }
    }
}
