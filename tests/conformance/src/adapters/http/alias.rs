//! Alternative spellings of the same request. A service may take one for another resource, or refuse it. It must not
//! take it for the same resource and ignore the fence.

use super::shape::Message;

/// One alternative spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alias {
    DoubleSlash,
    LeadingSlashes,
    EncodedPath,
    EncodedName,
    OtherCase,
    TrailingSlash,
    Dot,
    Parameter,
    AbsoluteForm,
    OverrideHeader(&'static str),
    OverrideQuery,
}

impl Alias {
    /// All spellings.
    pub(super) const ALL: [Alias; 13] = [
        Alias::DoubleSlash,
        Alias::LeadingSlashes,
        Alias::EncodedPath,
        Alias::EncodedName,
        Alias::OtherCase,
        Alias::TrailingSlash,
        Alias::Dot,
        Alias::Parameter,
        Alias::AbsoluteForm,
        Alias::OverrideHeader("X-HTTP-Method-Override"),
        Alias::OverrideHeader("X-HTTP-Method"),
        Alias::OverrideHeader("X-Method-Override"),
        Alias::OverrideQuery,
    ];

    /// A short description.
    pub(super) fn describe(self) -> String {
        match self {
            Alias::DoubleSlash => "a path with two slashes before the name".to_owned(),
            Alias::LeadingSlashes => "a path that begins with two slashes".to_owned(),
            Alias::EncodedPath => "a path with a percent-encoded letter".to_owned(),
            Alias::EncodedName => "a name with a percent-encoded letter".to_owned(),
            Alias::OtherCase => "a path in the other case".to_owned(),
            Alias::TrailingSlash => "a path with a slash at its end".to_owned(),
            Alias::Dot => "a path with `/./` before the name".to_owned(),
            Alias::Parameter => "a path with `;a=b` at its end".to_owned(),
            Alias::AbsoluteForm => "a path with scheme and host before it".to_owned(),
            Alias::OverrideHeader(name) => format!("POST with the method in {name}"),
            Alias::OverrideQuery => "POST with the method in `?_method=`".to_owned(),
        }
    }

    /// The message in this spelling; `None` if it would be the same.
    pub(super) fn apply(self, message: &Message, host: &str) -> Option<Message> {
        let mut changed = message.clone();
        let (path, query) = match message.target.split_once('?') {
            Some((path, query)) => (path, format!("?{query}")),
            None => (message.target.as_str(), String::new()),
        };
        let fixed = message.fixed.min(path.len());
        let (front, name) = path.split_at_checked(fixed)?;
        let path = match self {
            Alias::DoubleSlash => format!("{}/{name}", front.strip_suffix('/').map(|_| front)?),
            Alias::LeadingSlashes => format!("/{path}"),
            Alias::EncodedPath => format!("{}{name}", encode_last_letter(front)?),
            Alias::EncodedName => format!("{front}{}", encode_last_letter(name)?),
            Alias::OtherCase => format!("{}{name}", other_case(front)?),
            Alias::TrailingSlash => format!("{path}/"),
            Alias::Dot => format!("{}./{name}", front.strip_suffix('/').map(|_| front)?),
            Alias::Parameter => format!("{path};a=b"),
            Alias::AbsoluteForm => format!("http://{host}{path}"),
            Alias::OverrideHeader(header) => {
                changed.headers.push((header.to_owned(), overridden(&mut changed.method)?));
                path.to_owned()
            }
            Alias::OverrideQuery => {
                let method = overridden(&mut changed.method)?;
                let between = if query.is_empty() { '?' } else { '&' };
                changed.target = format!("{path}{query}{between}_method={method}");
                return Some(changed);
            }
        };
        changed.target = format!("{path}{query}");
        Some(changed)
    }
}

fn overridden(method: &mut String) -> Option<String> {
    (method != "POST").then(|| std::mem::replace(method, "POST".to_owned()))
}

fn other_case(text: &str) -> Option<String> {
    let upper = text.to_ascii_uppercase();
    if upper != text {
        return Some(upper);
    }
    let lower = text.to_ascii_lowercase();
    (lower != text).then_some(lower)
}

/// Percent-encodes the last letter that is not part of an encoding.
fn encode_last_letter(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let encoded =
        |place: usize| (1..=2).any(|back| place >= back && bytes[place - back] == b'%') || (bytes[place] == b'%');
    let place = (0..bytes.len()).rev().find(|place| bytes[*place].is_ascii_alphanumeric() && !encoded(*place))?;
    Some(format!("{}%{:02X}{}", &text[..place], bytes[place], &text[place + 1..]))
}

#[cfg(test)]
mod tests {
    use super::{Alias, Message};

    #[test]
    fn each_way_says_the_same_differently() {
        let message = Message {
            method: "PUT".to_owned(),
            target: "/v1/kv/r-1?a=b".to_owned(),
            fixed: 7,
            headers: Vec::new(),
            body: Vec::new(),
        };
        let said: Vec<_> = Alias::ALL.iter().map(|alias| alias.apply(&message, "h:1").unwrap()).collect();
        let targets: Vec<_> = said.iter().map(|message| message.target.as_str()).collect();
        assert_eq!(
            targets,
            [
                "/v1/kv//r-1?a=b",
                "//v1/kv/r-1?a=b",
                "/v1/k%76/r-1?a=b",
                "/v1/kv/r-%31?a=b",
                "/V1/KV/r-1?a=b",
                "/v1/kv/r-1/?a=b",
                "/v1/kv/./r-1?a=b",
                "/v1/kv/r-1;a=b?a=b",
                "http://h:1/v1/kv/r-1?a=b",
                "/v1/kv/r-1?a=b",
                "/v1/kv/r-1?a=b",
                "/v1/kv/r-1?a=b",
                "/v1/kv/r-1?a=b&_method=PUT",
            ]
        );
        assert!(said[9..].iter().all(|message| message.method == "POST"));
        assert_eq!(said[10].headers, [("X-HTTP-Method".to_owned(), "PUT".to_owned())]);
        let post = Message { method: "POST".to_owned(), target: "/%C3%BC".to_owned(), fixed: 1, ..message };
        assert!(Alias::OverrideQuery.apply(&post, "h").is_none());
        assert!(Alias::EncodedName.apply(&post, "h").is_none(), "every letter is part of an encoding");
    }
}
