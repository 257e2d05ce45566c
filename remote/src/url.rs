//! URLs of servers: `kind://user:password@host:port,host:port/path?name=value`.

use std::fmt;

use percent_encoding::percent_decode_str;

use crate::Unusable;

/// The address of a server. `Display` and `Debug` omit the password.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl {
    /// The original text, for libraries that parse it themselves.
    pub text: String,
    /// The scheme: `redis`, `etcd`, …
    pub scheme: String,
    /// User name and password, decoded.
    pub user: Option<(String, Option<String>)>,
    /// One or more `host:port`; empty for schemes without hosts.
    pub hosts: Vec<String>,
    /// The part after the hosts, without the first `/`, decoded.
    pub path: String,
    /// The settings of the query string, decoded.
    pub query: Vec<(String, String)>,
}

impl ServerUrl {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<ServerUrl, Unusable> {
        let (scheme, rest) = text.split_once(':').ok_or_else(|| Unusable::url(text, "it has no scheme"))?;
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        whole_password(authority, &rest[authority.len()..], query)?;
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        let decoded = |part: &str| {
            let decoded = percent_decode_str(part).decode_utf8().map(|text| text.into_owned());
            decoded.map_err(|_| Unusable("a part of the URL of a server is not UTF-8".to_owned()))
        };
        let user = match user.map(|user| user.split_once(':').map_or((user, None), |(user, word)| (user, Some(word)))) {
            Some((user, word)) => Some((decoded(user)?, word.map(decoded).transpose()?)),
            None => None,
        };
        let settings = query.split('&').filter(|setting| !setting.is_empty());
        let query = settings.map(|setting| {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            Ok((decoded(name)?, decoded(value)?))
        });
        Ok(ServerUrl {
            text: text.to_owned(),
            scheme: scheme.to_ascii_lowercase(),
            user,
            hosts: hosts.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect(),
            path: decoded(path)?,
            query: query.collect::<Result<_, Unusable>>()?,
        })
    }

    /// The original URL without the password.
    pub fn without_password(&self) -> String {
        let Some((user, Some(_))) = &self.user else { return self.text.clone() };
        let start = self.text.find(':').map_or(0, |colon| colon + 1);
        let start = if self.text[start..].starts_with("//") { start + 2 } else { start };
        let end = self.text[start..].find(['/', '?']).map_or(self.text.len(), |end| start + end);
        let (Some(colon), Some(at)) = (self.text[start..end].find(':'), self.text[start..end].rfind('@')) else {
            return self.to_string();
        };
        let after = if user.is_empty() { at + 1 } else { at };
        format!("{}{}", &self.text[..start + colon], &self.text[start + after..])
    }

    /// The original URL for each of the hosts alone.
    pub fn one_by_one(&self) -> Vec<String> {
        let start = self.text.find("://").map_or(0, |at| at + 3);
        let end = self.text[start..].find(['/', '?']).map_or(self.text.len(), |end| start + end);
        let start = self.text[start..end].rfind('@').map_or(start, |at| start + at + 1);
        self.hosts.iter().map(|host| format!("{}{host}{}", &self.text[..start], &self.text[end..])).collect()
    }

    /// The value of a setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The same URL with this path, which needs no escaping.
    pub fn with_path(&self, path: &str) -> ServerUrl {
        let (address, settings) = self.text.split_once('?').map_or((self.text.as_str(), None), |(a, s)| (a, Some(s)));
        let start = address.find("://").map_or(0, |at| at + 3);
        let end = address[start..].find('/').map_or(address.len(), |end| start + end);
        let mut url = self.clone();
        url.text = format!("{}/{path}", &address[..end]);
        if let Some(settings) = settings {
            url.text = format!("{}?{settings}", url.text);
        }
        url.path = path.to_owned();
        url
    }

    /// The same URL with this setting, in place of others of that name. The value needs no escaping.
    pub fn with_setting(&self, name: &str, value: &str) -> ServerUrl {
        let (address, settings) = self.text.split_once('?').unwrap_or((&self.text, ""));
        let is_other = |setting: &&str| !setting.is_empty() && setting.split('=').next() != Some(name);
        let mut settings: Vec<&str> = settings.split('&').filter(is_other).collect();
        let setting = format!("{name}={value}");
        settings.push(&setting);
        let mut url = self.clone();
        url.text = format!("{address}?{}", settings.join("&"));
        url.query.retain(|(other, _)| other != name);
        url.query.push((name.to_owned(), value.to_owned()));
        url
    }

    /// Rejects settings other than the known ones, so that a misspelt one is not ignored.
    pub fn only(&self, known: &[&str]) -> Result<(), Unusable> {
        match self.query.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) if known.is_empty() => {
                Err(Unusable::url(&self.to_string(), &format!("`{name}` is unknown; it takes no settings")))
            }
            Some((name, _)) => {
                let known = known.join("`, `");
                Err(Unusable::url(&self.to_string(), &format!("the setting `{name}` is unknown; it takes `{known}`")))
            }
        }
    }
}

/// An unescaped `/` or `?` in a password would end the hosts too early, and part of the password would be shown as a
/// host.
fn whole_password(authority: &str, path: &str, query: &str) -> Result<(), Unusable> {
    if (authority.contains(':') || authority.contains('@')) && (path.contains('@') || query.contains('@')) {
        let why = "in the URL of a server, write `/` in a password as %2F, `?` as %3F and `@` as %40";
        return Err(Unusable(why.to_owned()));
    }
    Ok(())
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        match &self.user {
            Some((user, Some(_))) => write!(f, "{user}:…@")?,
            Some((user, None)) => write!(f, "{user}@")?,
            None => {}
        }
        f.write_str(&self.hosts.join(","))?;
        if !self.path.is_empty() {
            write!(f, "/{}", self.path)?;
        }
        Ok(())
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let url = ServerUrl::parse("zk://bob:p%40ss@a:1,b:2/locks/here?x=1&y=%20").unwrap();
        assert_eq!((url.scheme.as_str(), url.path.as_str()), ("zk", "locks/here"));
        assert_eq!(url.user, Some(("bob".into(), Some("p@ss".into()))));
        assert_eq!(url.hosts, ["a:1", "b:2"]);
        assert_eq!((url.setting("x"), url.setting("y"), url.setting("z")), (Some("1"), Some(" "), None));
        assert!(url.only(&["x", "y"]).is_ok());
        let error = url.only(&["x"]).unwrap_err().to_string();
        assert!(error.contains("`y`") && error.contains("`x`"), "{error}");
    }

    #[test]
    fn a_setting_replaces_others_of_its_name() {
        for (text, with) in [
            ("postgres://bob:p%40ss@a,b/db", "postgres://bob:p%40ss@a,b/db?schema=x"),
            ("postgres://a/db?schema=y&sslmode=require&schema=z", "postgres://a/db?sslmode=require&schema=x"),
        ] {
            let url = ServerUrl::parse(text).unwrap().with_setting("schema", "x");
            assert_eq!((url.text.as_str(), url.setting("schema")), (with, Some("x")));
            assert!(ServerUrl::parse(with).unwrap() == url);
        }
    }

    #[test]
    fn a_path_replaces_another() {
        let with = |text| ServerUrl::parse(text).unwrap().with_path("new");
        for (text, expected) in [
            ("etcd://a:1,b/old?max_ops=3", "etcd://a:1,b/new?max_ops=3"),
            ("etcd://bob:p@a", "etcd://bob:p@a/new"),
            ("etcd://a?x=1/2", "etcd://a/new?x=1/2"),
        ] {
            assert_eq!((with(text).text.as_str(), with(text).path.as_str()), (expected, "new"));
            assert_eq!(with(text), ServerUrl::parse(expected).unwrap());
        }
    }

    #[test]
    fn each_host_has_a_url_of_its_own() {
        let each = |text| ServerUrl::parse(text).unwrap().one_by_one();
        assert_eq!(each("postgres://bob:p@a:1,b/db?x=1"), ["postgres://bob:p@a:1/db?x=1", "postgres://bob:p@b/db?x=1"]);
        assert_eq!(each("etcd://[::1]:1,b"), ["etcd://[::1]:1", "etcd://b"]);
        assert_eq!(each("postgres:///db"), [""; 0]);
    }

    #[test]
    fn a_password_is_never_shown() {
        let url = ServerUrl::parse("redis://:secret@127.0.0.1:6379").unwrap();
        assert_eq!(url.to_string(), "redis://:…@127.0.0.1:6379");
        assert!(!format!("{url:?} {:?}", url.only(&[])).contains("secret"));
        let odd = ServerUrl::parse("redis://:secret@127.0.0.1:6379?zz=1").unwrap();
        assert!(!odd.only(&["a"]).unwrap_err().to_string().contains("secret"));
    }

    #[test]
    fn s20_a_url_without_its_password_is_still_a_url() {
        for (url, without) in [
            ("redis://:s%3Acret@127.0.0.1:6379/0?x=1", "redis://127.0.0.1:6379/0?x=1"),
            ("zk://bob:p%40ss@a:1,b:2/locks?x=1", "zk://bob@a:1,b:2/locks?x=1"),
            ("postgres://bob:a:b@h:5432/db", "postgres://bob@h:5432/db"),
            ("redis:bob:x@h:1", "redis:bob@h:1"),
            ("etcd://bob@a:2379", "etcd://bob@a:2379"),
            ("fencepost://127.0.0.1:3362", "fencepost://127.0.0.1:3362"),
            ("token:2:34", "token:2:34"),
        ] {
            assert_eq!(ServerUrl::parse(url).unwrap().without_password(), without);
        }
    }

    #[test]
    fn a_password_that_is_not_escaped_is_not_shown_either() {
        for url in ["postgres://u:pa/ss@h/db", "redis://:se?cret@h:1", "redis://u:12/34@h", "redis://u:p@ss/x@h"] {
            let error = ServerUrl::parse(url).unwrap_err().to_string();
            assert!(error.contains("%2F") && !error.contains("pa/ss") && !error.contains("cret"), "{error}");
        }
        let error = ServerUrl::parse("redis://:s%E9cret@h").unwrap_err().to_string();
        assert!(!error.contains("cret"), "{error}");
        assert!(ServerUrl::parse("exec:/usr/bin/next@home").is_ok());
    }

    #[test]
    fn without_hosts() {
        let url = ServerUrl::parse("token:34").unwrap();
        assert_eq!((url.scheme.as_str(), url.hosts.as_slice()), ("token", &["34".to_owned()][..]));
        assert!(ServerUrl::parse("nothing").is_err());
    }
}
