//! Strings with placeholders: `/v1/kv/{res}`.

use crate::op::{Op, Write};
use crate::subject::Request;
use crate::token::Token;

/// What a placeholder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Res,
    Token,
    Holder,
    Value,
    Expect,
    Case,
    Seed,
    Id,
    Client,
}

impl Field {
    /// All fields, with their names.
    const NAMES: [(&'static str, Field); 9] = [
        ("res", Field::Res),
        ("token", Field::Token),
        ("holder", Field::Holder),
        ("value", Field::Value),
        ("expect", Field::Expect),
        ("case", Field::Case),
        ("seed", Field::Seed),
        ("id", Field::Id),
        ("client", Field::Client),
    ];

    /// The field's name in a map.
    pub(super) fn name(self) -> &'static str {
        Field::NAMES.iter().find(|(_, field)| *field == self).map_or("", |(name, _)| name)
    }

    /// Whether the field describes the request itself; such fields are allowed everywhere.
    fn is_about_the_request(self) -> bool {
        matches!(self, Field::Case | Field::Seed | Field::Id | Field::Client)
    }
}

/// How substituted values are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Raw,
    Percent,
    Segments,
    Hex,
    Json,
    Number,
}

impl Filter {
    const NAMES: [(&'static str, Filter); 6] = [
        ("raw", Filter::Raw),
        ("percent", Filter::Percent),
        ("segments", Filter::Segments),
        ("hex", Filter::Hex),
        ("json", Filter::Json),
        ("number", Filter::Number),
    ];

    fn apply(self, text: &str) -> String {
        match self {
            Filter::Raw | Filter::Number => text.to_owned(),
            Filter::Percent => percent(text),
            Filter::Segments => text.split('/').map(percent).collect::<Vec<_>>().join("/"),
            Filter::Hex => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
            Filter::Json => {
                let quoted = serde_json::Value::from(text).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            }
        }
    }
}

/// Percent-encodes everything but letters, digits, `-`, `_`, `~`, and dots that do not form a segment of their own.
pub(super) fn percent(text: &str) -> String {
    let dots = text == "." || text == "..";
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'.' if dots => encoded.push_str("%2E"),
            b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => encoded.push(char::from(byte)),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The values of the placeholders in one request.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) res: Option<&'a str>,
    pub(super) token: Option<&'a Token>,
    pub(super) holder: Option<&'a str>,
    pub(super) value: Option<&'a str>,
    pub(super) expect: Option<Option<&'a str>>,
}

impl<'a> Fields<'a> {
    /// The values of an operation; a batch has none of its own.
    pub(super) fn of(request: &'a Request<'a>) -> Fields<'a> {
        let none = Fields { request, res: None, token: None, holder: None, value: None, expect: None };
        match request.op {
            Op::Write(write) => none.with(write),
            Op::Read { res } => Fields { res: Some(res), ..none },
            Op::CheckedRead { res, token } => Fields { res: Some(res), token: Some(token), ..none },
            Op::Claim { res, token, holder } | Op::Delete { res, token, holder } => {
                Fields { res: Some(res), token: Some(token), holder: Some(holder), ..none }
            }
            Op::Cas { res, token, holder, expect, value } => Fields {
                res: Some(res),
                token: Some(token),
                holder: Some(holder),
                value: Some(value),
                expect: Some(expect.as_deref()),
                ..none
            },
            Op::Batch { .. } => none,
        }
    }

    /// The values of one write of a batch.
    pub(super) fn with(self, write: &'a Write) -> Fields<'a> {
        Fields {
            res: Some(&write.res),
            token: Some(&write.token),
            holder: Some(&write.holder),
            value: Some(&write.value),
            ..self
        }
    }

    /// The writes of a batch.
    pub(super) fn writes(&self) -> &'a [Write] {
        match self.request.op {
            Op::Batch { writes } => writes,
            _ => &[],
        }
    }
}

/// Why a text cannot be produced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unsendable(pub(super) String);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Field(Field, Option<Filter>),
}

/// A parsed template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

impl Template {
    /// Parses a template; `{{` and `}}` are literal braces. The error describes what is wrong.
    pub(super) fn parse(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix("{{") {
                plain.push('{');
                rest = after;
            } else if let Some(after) = rest.strip_prefix("}}") {
                plain.push('}');
                rest = after;
            } else if let Some(after) = rest.strip_prefix('{') {
                let (name, after) = after
                    .split_once('}')
                    .ok_or_else(|| format!("a `{{` is never closed in `{text}`; write `{{{{` for a brace"))?;
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(placeholder(name)?);
                rest = after;
            } else if letter == '}' {
                return Err(format!("a `}}` was never opened in `{text}`; write `}}}}` for a brace"));
            } else {
                plain.push(letter);
                rest = &rest[letter.len_utf8()..];
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Template { pieces })
    }

    /// The placeholders it contains.
    pub(super) fn fields(&self) -> impl Iterator<Item = Field> + '_ {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Field(field, _) => Some(*field),
            Piece::Text(_) => None,
        })
    }

    /// Whether it contains this placeholder.
    pub(super) fn has(&self, field: Field) -> bool {
        self.fields().any(|found| found == field)
    }

    /// Rejects a placeholder that is not allowed here.
    pub(super) fn check(&self, allowed: &[Field]) -> Result<(), String> {
        match self.fields().find(|field| !allowed.contains(field) && !field.is_about_the_request()) {
            None => Ok(()),
            Some(field) => {
                let here: Vec<_> = allowed.iter().map(|field| format!("`{{{}}}`", field.name())).collect();
                let here = if here.is_empty() { "none".to_owned() } else { here.join(", ") };
                Err(format!("`{{{}}}` means nothing here; there is {here}", field.name()))
            }
        }
    }

    /// The literal text before the first placeholder.
    pub(super) fn fixed(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text,
            _ => "",
        }
    }

    /// The placeholder, if the template is one placeholder and nothing else.
    pub(super) fn only(&self) -> Option<Field> {
        match self.pieces[..] {
            [Piece::Field(field, _)] => Some(field),
            _ => None,
        }
    }

    /// Whether the template is one numeric placeholder and nothing else.
    pub(super) fn is_number(&self) -> bool {
        matches!(self.pieces[..], [Piece::Field(_, Some(Filter::Number))])
    }

    /// The texts it produces: none if it names an absent token or expected value, two for two tokens.
    pub(super) fn texts(&self, fields: &Fields<'_>, filter: Filter) -> Result<Vec<String>, Unsendable> {
        if self.has(Field::Expect) && fields.expect == Some(None) {
            return Ok(Vec::new());
        }
        let tokens = match fields.token {
            Some(Token::Absent) if self.has(Field::Token) => Vec::new(),
            Some(Token::Both(first, second)) if self.has(Field::Token) => vec![first.clone(), second.clone()],
            Some(Token::Number(number)) => vec![number.to_string()],
            Some(Token::Text(text)) => vec![text.clone()],
            Some(Token::Absent | Token::Both(..)) | None => vec![String::new()],
        };
        tokens.iter().map(|token| self.with_token(fields, token, filter)).collect()
    }

    /// The single text it produces, where exactly one is needed: an absent token becomes empty, two tokens are an
    /// error.
    pub(super) fn text(&self, fields: &Fields<'_>, filter: Filter) -> Result<String, Unsendable> {
        let texts = self.texts(fields, filter)?;
        match &texts[..] {
            [] => self.with_token(fields, "", filter),
            [text] => Ok(text.clone()),
            _ => Err(Unsendable("two tokens have no place here, so nothing was sent".to_owned())),
        }
    }

    fn with_token(&self, fields: &Fields<'_>, token: &str, otherwise: Filter) -> Result<String, Unsendable> {
        let mut text = String::new();
        for piece in &self.pieces {
            let (field, filter) = match piece {
                Piece::Text(plain) => {
                    text.push_str(plain);
                    continue;
                }
                Piece::Field(field, filter) => (*field, filter.unwrap_or(otherwise)),
            };
            let missing = || Unsendable(format!("this operation has no {}, so nothing was sent", field.name()));
            let request = fields.request;
            match field {
                Field::Res => text.push_str(&filter.apply(fields.res.ok_or_else(missing)?)),
                Field::Holder => text.push_str(&filter.apply(fields.holder.ok_or_else(missing)?)),
                Field::Value => text.push_str(&filter.apply(fields.value.ok_or_else(missing)?)),
                Field::Expect => text.push_str(&filter.apply(fields.expect.ok_or_else(missing)?.unwrap_or_default())),
                Field::Token => {
                    fields.token.ok_or_else(missing)?;
                    text.push_str(&filter.apply(token));
                }
                Field::Case => text.push_str(request.case),
                Field::Seed => text.push_str(&request.seed.to_string()),
                Field::Id => text.push_str(&request.id.to_string()),
                Field::Client => text.push_str(&request.client.to_string()),
            }
        }
        Ok(text)
    }
}

fn placeholder(text: &str) -> Result<Piece, String> {
    let (name, filter) = match text.split_once(':') {
        Some((name, filter)) => (name, Some(filter)),
        None => (text, None),
    };
    let field = Field::NAMES.iter().find(|(known, _)| *known == name).map(|(_, field)| *field).ok_or_else(|| {
        let names: Vec<_> = Field::NAMES.iter().map(|(name, _)| format!("{{{name}}}")).collect();
        format!("`{{{text}}}` is no placeholder: {}; write `{{{{` for a brace", names.join(" "))
    })?;
    let filter = match filter {
        None => None,
        Some(filter) => {
            let found = Filter::NAMES.iter().find(|(known, _)| *known == filter).map(|(_, filter)| *filter);
            Some(found.ok_or_else(|| {
                let names: Vec<_> = Filter::NAMES.iter().map(|(name, _)| *name).collect();
                format!("`{filter}` in `{{{text}}}` is no way of writing: {}", names.join(", "))
            })?)
        }
    };
    Ok(Piece::Field(field, filter))
}

#[cfg(test)]
mod tests {
    use super::{Field, Fields, Filter, Template};
    use crate::op::Op;
    use crate::subject::{Request, Route};
    use crate::token::Token;

    fn texts(template: &str, op: &Op, filter: Filter) -> Vec<String> {
        let request = Request { case: "A01", seed: 7, id: 3, client: 2, route: Route::Direct, op };
        Template::parse(template).unwrap().texts(&Fields::of(&request), filter).unwrap()
    }

    #[test]
    fn placeholders_are_filled_and_encoded() {
        let op = Op::write("a/b ü", 42, "h", "x\"y");
        assert_eq!(texts("/kv/{res}", &op, Filter::Percent), ["/kv/a%2Fb%20%C3%BC"]);
        assert_eq!(texts("/kv/{res:segments}", &op, Filter::Percent), ["/kv/a/b%20%C3%BC"]);
        assert_eq!(texts("{res:hex}", &op, Filter::Raw), ["612f6220c3bc"]);
        assert_eq!(texts("{{{value:json}}}", &op, Filter::Raw), ["{x\\\"y}"]);
        assert_eq!(texts("{token} {case} {seed} {id} {client}", &op, Filter::Raw), ["42 A01 7 3 2"]);
        assert_eq!(texts("{res}", &Op::read(".."), Filter::Percent), ["%2E%2E"]);
    }

    #[test]
    fn an_absent_token_leaves_the_text_out_and_two_make_two() {
        let write = |token: Token| Op::write("r", token, "h", "v");
        assert_eq!(texts("{token}", &write(Token::Absent), Filter::Raw), [""; 0]);
        assert_eq!(texts("{holder}", &write(Token::Absent), Filter::Raw), ["h"]);
        assert_eq!(texts("t={token}", &write(Token::Both("5".into(), "9".into())), Filter::Raw), ["t=5", "t=9"]);
        assert_eq!(texts("{expect}", &Op::cas("r", 1, "h", None, "v"), Filter::Raw), [""; 0]);
    }

    #[test]
    fn what_is_no_template_is_named() {
        for (text, wrong) in [
            ("{name}", "`{name}` is no placeholder: {res} {token}"),
            ("{res:base64}", "`base64` in `{res:base64}` is no way of writing: raw, percent"),
            ("a{res", "never closed"),
            ("a}", "never opened"),
        ] {
            assert!(Template::parse(text).unwrap_err().contains(wrong), "{text}");
        }
        let wrong = Template::parse("{value}").unwrap().check(&[Field::Res]).unwrap_err();
        assert_eq!(wrong, "`{value}` means nothing here; there is `{res}`");
        assert!(Template::parse("{case}").unwrap().check(&[]).is_ok());
    }
}
