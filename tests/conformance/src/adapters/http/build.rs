//! Turns the tables of a map into shapes and outcomes.

use std::collections::BTreeMap;

use toml::Spanned;

use super::file;
use super::json::Node;
use super::map::Wrong;
use super::outcome::{Outcome, Outcomes, When, is_token};
use super::place::Place;
use super::shape::{Body, Shape};
use super::template::{Field, Template};

type Text = Spanned<String>;

/// The keys that describe a request, from any table.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    method: &'a Text,
    path: &'a Text,
    headers: &'a BTreeMap<String, Text>,
    body: Option<&'a Text>,
    json: Option<&'a Text>,
    form: Option<&'a BTreeMap<String, Text>>,
    each: Option<&'a Text>,
    join: Option<&'a Text>,
}

/// The keys that every table with a request has. The tables share no type, because serde's `flatten` cannot refuse
/// unknown keys.
macro_rules! parts {
    ($keys:ident) => {
        Parts {
            method: &$keys.method,
            path: &$keys.path,
            headers: &$keys.headers,
            body: $keys.body.as_ref(),
            json: $keys.json.as_ref(),
            form: $keys.form.as_ref(),
            each: None,
            join: None,
        }
    };
}

impl<'a> Parts<'a> {
    /// The keys of a verb.
    pub(super) fn of(keys: &'a file::Verb) -> Parts<'a> {
        Parts { each: keys.each.as_ref(), join: keys.join.as_ref(), ..parts!(keys) }
    }

    /// The keys of a mutation.
    pub(super) fn of_mutation(keys: &'a file::Mutation) -> Parts<'a> {
        parts!(keys)
    }

    /// The keys of the request before a mutation.
    pub(super) fn of_before(keys: &'a file::Before) -> Parts<'a> {
        parts!(keys)
    }

    /// These keys with some replaced; a body of any kind replaces the body.
    pub(super) fn but(self, other: &'a file::Other) -> Parts<'a> {
        let body = other.body.is_some() || other.json.is_some() || other.form.is_some();
        Parts {
            method: other.method.as_ref().unwrap_or(self.method),
            path: other.path.as_ref().unwrap_or(self.path),
            headers: other.headers.as_ref().unwrap_or(self.headers),
            body: if body { other.body.as_ref() } else { self.body },
            json: if body { other.json.as_ref() } else { self.json },
            form: if body { other.form.as_ref() } else { self.form },
            ..self
        }
    }
}

/// Makes the shape of a request that may contain these fields. In a batch only repeated parts may contain them.
pub(super) fn shape(parts: &Parts<'_>, allowed: &[Field], batch: bool) -> Result<Shape, Wrong> {
    let outside: &[Field] = if batch { &[] } else { allowed };
    let template = |text: &Text, allowed: &[Field]| {
        let template = Template::parse(text.get_ref()).map_err(|what| Wrong::at(text, what))?;
        template.check(allowed).map_err(|what| {
            let hint = if batch {
                "; in a batch only what is repeated says them (`each`, or \"{each}\" in `json`)"
            } else {
                ""
            };
            Wrong::at(text, format!("{what}{hint}"))
        })?;
        Ok(template)
    };
    let method = parts.method.get_ref();
    if !is_token(method) || method.chars().any(|letter| letter.is_ascii_lowercase()) {
        return Err(Wrong::at(parts.method, format!("`{method}` is no method: write one such as \"PUT\"")));
    }
    let whole = parts.path.get_ref();
    if !whole.starts_with('/') {
        return Err(Wrong::at(parts.path, format!("`{whole}` is no path: it begins with `/`")));
    }
    let (path, query) = whole.split_once('?').map_or((whole.as_str(), None), |(path, query)| (path, Some(query)));
    let inside = |text: &str| template(&Spanned::new(parts.path.span(), text.to_owned()), outside);
    let path = inside(path)?;
    let query = query.into_iter().flat_map(|query| query.split('&')).map(inside).collect::<Result<_, _>>()?;
    let mut headers = Vec::new();
    for (name, value) in parts.headers {
        if !is_token(name) {
            return Err(Wrong::at(value, format!("`{name}` is no name of a header")));
        }
        if ["content-length", "transfer-encoding", "connection"].contains(&name.to_ascii_lowercase().as_str()) {
            return Err(Wrong::at(value, format!("the header {name} is made by the suite: leave it out")));
        }
        headers.push((name.clone(), template(value, outside)?));
    }
    let body = match (parts.body, parts.json, parts.form, parts.each) {
        (None, None, None, None) => Body::None,
        (Some(text), None, None, None) => Body::Text(template(text, outside)?),
        (None, None, None, Some(each)) => {
            let join = parts.join.map_or("\n", |join| join.get_ref()).to_owned();
            Body::Each { each: template(each, allowed)?, join }
        }
        (None, Some(json), None, None) => {
            let node = Node::parse(json.get_ref()).map_err(|what| Wrong::at(json, what))?;
            node.visit(false, &mut |template, each| template.check(if each { allowed } else { outside }))
                .map_err(|what| Wrong::at(json, what))?;
            Body::Json(node)
        }
        (None, None, Some(form), None) => {
            let pair = |(name, value): (&String, &Text)| Ok((name.clone(), template(value, outside)?));
            Body::Form(form.iter().map(pair).collect::<Result<_, _>>()?)
        }
        _ => {
            return Err(Wrong::at(parts.path, "a request has one body: `body`, `json`, `form` or `each`"));
        }
    };
    if parts.each.is_none()
        && let Some(join) = parts.join
    {
        return Err(Wrong::at(join, "`join` joins what `each` makes: give `each`"));
    }
    Ok(Shape { method: method.clone(), path, query, headers, body })
}

/// If no value is expected, `{expect}` must stand in a place that can be left out, or be null.
pub(super) fn expect_can_be_left_out(shape: &Shape) -> Result<(), String> {
    let mut good = !shape.path.has(Field::Expect);
    match &shape.body {
        Body::Text(text) => good &= !text.has(Field::Expect),
        Body::Json(node) => {
            node.visit(false, &mut |template, _| {
                good &= !template.has(Field::Expect) || template.only() == Some(Field::Expect);
                Ok(())
            })?;
        }
        Body::None | Body::Form(_) | Body::Each { .. } => {}
    }
    if good {
        return Ok(());
    }
    Err("[cas.when_none] is needed: it says what is sent if no value is expected, for `{expect}` is then nothing"
        .to_owned())
}

/// The meanings of a verb's answers.
pub(super) fn outcomes(keys: &file::Verb) -> Result<Outcomes, Wrong> {
    let place = |text: &Text| Place::parse(text.get_ref()).map_err(|what| Wrong::at(text, what));
    let mut high = Vec::new();
    if let Some(places) = &keys.high {
        for text in &places.get_ref().0 {
            high.push(Place::parse(text).map_err(|what| Wrong::at(places, what))?);
        }
    }
    Ok(Outcomes {
        rules: rules([&keys.ok, &keys.absent, &keys.stale, &keys.mismatch, &keys.error])?,
        high,
        value: keys.value.as_ref().map(place).transpose()?,
        current: keys.current.as_ref().map(place).transpose()?,
        code: keys.code.as_ref().map(place).transpose()?,
    })
}

/// The outcome of each status. No status may have two.
pub(super) fn rules(lists: [&[Spanned<file::Status>]; 5]) -> Result<Vec<(When, Outcome)>, Wrong> {
    let outcomes = [Outcome::Ok, Outcome::Absent, Outcome::Stale, Outcome::Mismatch, Outcome::Error];
    let mut rules: Vec<(When, Outcome)> = Vec::new();
    for (list, outcome) in lists.into_iter().zip(outcomes) {
        for status in list {
            let when = match status.get_ref() {
                file::Status::Code(code) => When::Status(*code),
                file::Status::Class(class) => When::Class(*class),
                file::Status::Also(also) => {
                    let place = Place::parse(&also.at).map_err(|what| Wrong::at(status, what))?;
                    When::Also(also.status, place, also.is.clone())
                }
            };
            if rules.iter().any(|(known, other)| *known == when && *other != outcome) {
                let what = "this answer has two meanings: tell them apart by what it says, with { status, at, is }";
                return Err(Wrong::at(status, what));
            }
            rules.push((when, outcome));
        }
    }
    Ok(rules)
}
