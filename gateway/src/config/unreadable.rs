//! Why a configuration file cannot be read, in messages that repeat no secret of it.

use std::path::Path;

use super::ConfigError;

/// Tables that may hold a secret, and what hints at one: words, and parts of a URL, which may have a password in it.
const MAY_HOLD_A_SECRET: [&str; 7] = ["s3", "identity", "secret", "password", "private", "://", "@"];

/// An error quotes its line, unless the file may hold a secret. Then it has only the position and our own words for the
/// kind of error: the messages of the parser repeat values, and a secret can be on any line, for example in a string
/// that was not closed.
pub(super) fn unreadable(path: &Path, text: &str, error: toml::de::Error) -> ConfigError {
    let lower = text.to_ascii_lowercase();
    if !MAY_HOLD_A_SECRET.iter().any(|word| lower.contains(word)) && !names_are_escaped(&lower) {
        return ConfigError::Parse(path.to_owned(), Box::new(error));
    }
    let (line, column) = position(text, error.span().map_or(0, |span| span.start));
    ConfigError::ParseSecret { path: path.to_owned(), line, column, why: kind(error.message()) }
}

/// Whether names may be escaped: `"\u0073\u0033"` is `s3`.
fn names_are_escaped(text: &str) -> bool {
    text.contains("\\u") || text.contains("\\x")
}

/// Line and column of a byte, both from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at.min(text.len())).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |rest| rest.chars().count()) + 1;
    (line, column)
}

/// The kind of an error, without any text of the file. What follows "expected" is a list of our own names.
fn kind(message: &str) -> String {
    let expected =
        || message.rsplit_once(", expected ").map_or(String::new(), |(_, names)| format!(", expected {names}"));
    if message.starts_with("unknown field") {
        format!("an unknown setting{}", expected())
    } else if message.starts_with("missing field") {
        message.to_owned()
    } else if message.starts_with("invalid type") || message.starts_with("invalid value") {
        "a value of the wrong kind".to_owned()
    } else if message.starts_with("duplicate") {
        "a setting is given twice".to_owned()
    } else {
        "not as TOML is written, or a value that cannot be used".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Flags};

    fn error_of(text: &str) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fencepost.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(&Flags { config: Some(path), ..Flags::default() }).expect_err(text).to_string()
    }

    #[test]
    fn s16_no_error_repeats_a_line_of_a_file_with_keys() {
        let key = "[[s3.key]]\naccess_key_id = 'reader'\n";
        for (text, word) in [
            (format!("{key}secret_access_key = hunter2\n"), "line 3, column 21"),
            (format!("{key}secret_acess_key = 'hunter2'\n"), "unknown setting, expected one of `access_key_id`"),
            (format!("{key}secret_access_key = ['hunter2']\n"), "line 3"),
            (format!("{key}secret_access_key = \"\"\"\nhunter2\n"), "line "),
            (format!("{key}secret_access_key = '''\nhunter2''' x\n"), "line "),
            (format!("{key}password=hunter2\n"), "line 3"),
            (format!("{key}password='hunter2'\n"), "unknown setting"),
            (format!("{key}hunter2\n"), "line 3"),
            (format!("{key}hunter2 = 1\n"), "unknown setting"),
            ("[s3]\nmac_keys = ['hunter2']\n".to_owned(), "line 2"),
            ("[s3]\nmac_keys = [{ id = 'hunter2', key_file = 'x' }]\n".to_owned(), "wrong kind"),
            ("[s3]\nkey = [{ access_key_id = 'x', secret_access_key = 'hunter2\n' }]\n".to_owned(), "line "),
            ("[['\\u0073\\u0033'.key]]\nx = hunter2\n".to_owned(), "line "),
            ("[[\"\\u0073\\u0033\".key]]\nx = hunter2\n".to_owned(), "line 2"),
            ("[[identity]]\ntoken = 'hunter2'\n".to_owned(), "unknown setting"),
            (format!("listn = 'hunter2'\n{key}"), "line 1, column 1"),
            ("engine = postgres://bob:hunter2@db/fencepost\n".to_owned(), "line 1"),
            ("engine = 'postgres:bob:hunter2@db/fencepost\n".to_owned(), "line "),
            ("engine = 'postgres://bob:hunter2\nqueue = 7\n".to_owned(), "line "),
            ("engine = ['postgres://bob:hunter2@db/fencepost']\n".to_owned(), "wrong kind"),
            ("engin = 'postgres://bob:hunter2@db/fencepost'\n".to_owned(), "unknown setting"),
        ] {
            let error = error_of(&text);
            assert!(error.contains(word) && error.contains("not shown"), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{text}: {error}");
        }
    }

    #[test]
    fn lines_of_other_files_are_shown() {
        let error = error_of("listn = 'x'");
        assert!(error.contains("listn = 'x'"), "{error}");
        let error = error_of("[[guard]]\nkeys = 'a'\nequal = 'maybe'\n");
        assert!(error.contains("equal = 'maybe'"), "{error}");
    }

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        assert_eq!(position("", 0), (1, 1));
        assert_eq!(position("a\nbé = c", 6), (2, 4));
        assert_eq!(position("a\n", 99), (2, 1));
    }
}
