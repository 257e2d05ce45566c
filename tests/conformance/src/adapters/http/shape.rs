//! The shape of a request, and the bytes it becomes.

use super::json::Node;
use super::template::{Field, Fields, Filter, Template, Unsendable};
use crate::subject::Request;

/// The body of a request.
#[derive(Clone, Debug)]
pub(super) enum Body {
    None,
    Text(Template),
    Json(Node),
    Form(Vec<(String, Template)>),
    /// One text per write of a batch, joined by `join`.
    Each {
        each: Template,
        join: String,
    },
}

/// A request with placeholders.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) method: String,
    pub(super) path: Template,
    pub(super) query: Vec<Template>,
    pub(super) headers: Vec<(String, Template)>,
    pub(super) body: Body,
}

/// A request that is ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) method: String,
    /// Path and query.
    pub(super) target: String,
    /// The length of the target's leading part that is the same for every resource.
    pub(super) fixed: usize,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Shape {
    /// Calls `see` with every template, and whether it is repeated for each write.
    pub(super) fn visit(&self, see: &mut dyn FnMut(&Template, bool) -> Result<(), String>) -> Result<(), String> {
        see(&self.path, false)?;
        self.query.iter().try_for_each(|pair| see(pair, false))?;
        self.headers.iter().try_for_each(|(_, value)| see(value, false))?;
        match &self.body {
            Body::None => Ok(()),
            Body::Text(text) => see(text, false),
            Body::Json(node) => node.visit(false, see),
            Body::Form(pairs) => pairs.iter().try_for_each(|(_, value)| see(value, false)),
            Body::Each { each, .. } => see(each, true),
        }
    }

    /// Whether the request contains this field.
    pub(super) fn says(&self, field: Field) -> bool {
        let mut found = false;
        // The closure never returns an error.
        let _ = self.visit(&mut |template, _| {
            found |= template.has(field);
            Ok(())
        });
        found
    }

    /// The message for a request; `prefix` is the path prefix of the base address.
    pub(super) fn message(&self, request: &Request<'_>, prefix: &str) -> Result<Message, Unsendable> {
        let fields = &Fields::of(request);
        let mut target = format!("{prefix}{}", self.path.text(fields, Filter::Percent)?);
        let mut between = '?';
        for pair in &self.query {
            for text in pair.texts(fields, Filter::Percent)? {
                target.push(between);
                target.push_str(&text);
                between = '&';
            }
        }
        if let Some(byte) = target.bytes().find(|byte| *byte <= b' ' || *byte == 0x7f) {
            return Err(Unsendable(format!("no path can have a byte {byte:#04x} in it, so nothing was sent")));
        }
        let mut headers = Vec::new();
        for (name, value) in &self.headers {
            for text in value.texts(fields, Filter::Raw)? {
                if text.contains(['\r', '\n']) || text.trim_matches([' ', '\t']) != text {
                    return Err(Unsendable(format!("the header {name} cannot carry {text:?}, so nothing was sent")));
                }
                headers.push((name.clone(), text));
            }
        }
        let (body, kind) = self.body(fields)?;
        if let Some(kind) = kind
            && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        {
            headers.push(("Content-Type".to_owned(), kind.to_owned()));
        }
        let fixed = prefix.len() + self.path.fixed().len();
        Ok(Message { method: self.method.clone(), target, fixed, headers, body: body.into_bytes() })
    }

    fn body(&self, fields: &Fields<'_>) -> Result<(String, Option<&'static str>), Unsendable> {
        match &self.body {
            Body::None => Ok((String::new(), None)),
            Body::Text(text) => Ok((text.text(fields, Filter::Raw)?, None)),
            Body::Json(node) => Ok((node.text(fields)?, Some("application/json"))),
            Body::Form(pairs) => {
                let mut made = Vec::new();
                for (name, value) in pairs {
                    let name = super::template::percent(name);
                    made.extend(value.texts(fields, Filter::Percent)?.iter().map(|text| format!("{name}={text}")));
                }
                Ok((made.join("&"), Some("application/x-www-form-urlencoded")))
            }
            Body::Each { each, join } => {
                let mut made = Vec::new();
                for write in fields.writes() {
                    made.push(each.text(&fields.with(write), Filter::Raw)?);
                }
                Ok((made.join(join), None))
            }
        }
    }
}

impl Message {
    /// The head of the message, up to and including the empty line.
    pub(super) fn head(&self, host: &str, request: &Request<'_>) -> Vec<u8> {
        let Request { case, seed, id, client, .. } = request;
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str(&format!("Host: {host}\r\n"));
        }
        head.push_str(concat!("User-Agent: fencepost-conformance/", env!("CARGO_PKG_VERSION"), "\r\n"));
        head.push_str(&format!("X-Conformance: case={case}; seed={seed}; op={id}; client={client}\r\n"));
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty() || matches!(self.method.as_str(), "PUT" | "POST" | "PATCH") {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// Whether the answer has no body.
    pub(super) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }
}
