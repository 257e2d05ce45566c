//! Histories as files, so that a verdict can be checked again: JSON lines, the first of which describes the file.
//!
//! ```text
//! {"format":"fencepost-history","version":1,"case":"C02","seed":7,"manifest":{…}}
//! {"operation":{"id":1,"client":0,"op":{"op":"write",…},"called":1200,"returned":1900,"answer":{"result":"ok"}}}
//! {"mark":{"at":2400,"event":"killed"}}
//! ```

use std::collections::HashSet;
use std::fmt;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use super::{History, Judged, Mark, Operation};
use crate::manifest::Manifest;

/// The name of the format in the first line.
const FORMAT: &str = "fencepost-history";

/// The version that is written, and the only one that is read.
const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: String,
    version: u64,
    case: String,
    seed: u64,
    manifest: Manifest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    judged: Option<Judged>,
}

/// The fields that a later version shares with this one.
#[derive(Deserialize)]
struct AnyHeader {
    format: String,
    version: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'h> {
    Operation(&'h Operation),
    Mark(&'h Mark),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OwnedLine {
    Operation(Box<Operation>),
    Mark(Mark),
}

/// Why a file is not a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with the line, and what was expected.
    pub problem: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for Unreadable {}

impl History {
    /// Writes the history, in the order of time.
    pub fn write_to(&self, mut writer: impl Write) -> io::Result<()> {
        let header = Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            case: self.case.clone(),
            seed: self.seed,
            manifest: self.manifest.clone(),
            judged: self.judged.clone(),
        };
        line(&mut writer, &header)?;
        let mut marks = self.marks.iter().peekable();
        for operation in &self.operations {
            while let Some(mark) = marks.next_if(|mark| mark.at <= operation.called) {
                line(&mut writer, &Line::Mark(mark))?;
            }
            line(&mut writer, &Line::Operation(operation))?;
        }
        marks.try_for_each(|mark| line(&mut writer, &Line::Mark(mark)))?;
        writer.flush()
    }

    /// Reads what [`History::write_to`] wrote. Unknown versions are refused.
    pub fn read_from(reader: impl BufRead) -> Result<History, Unreadable> {
        let mut history = History::default();
        let mut ids = HashSet::new();
        let mut begun = false;
        for (index, text) in reader.lines().enumerate() {
            let line = index + 1;
            let wrong = |problem: String| Unreadable { line, problem };
            let text = text.map_err(|error| wrong(format!("it cannot be read as text: {error}")))?;
            if !begun {
                let header = header(&text).map_err(wrong)?;
                let Header { case, seed, manifest, judged, .. } = header;
                history = History { case, seed, manifest, judged, ..history };
                begun = true;
                continue;
            }
            match serde_json::from_str(&text) {
                Ok(OwnedLine::Mark(mark)) => history.marks.push(mark),
                Ok(OwnedLine::Operation(operation)) => {
                    if operation.returned < operation.called {
                        return Err(wrong(format!(
                            "operation #{} returned at {} ns, before it was called at {} ns",
                            operation.id, operation.returned, operation.called
                        )));
                    }
                    if !ids.insert(operation.id) {
                        return Err(wrong(format!(
                            "there are two operations #{}; each has a number of its own",
                            operation.id
                        )));
                    }
                    history.operations.push(*operation);
                }
                Err(error) => {
                    return Err(wrong(format!(
                        "expected {{\"operation\":{{…}}}} or {{\"mark\":{{…}}}}: {}",
                        reason(&error)
                    )));
                }
            }
        }
        if !begun {
            let problem = format!("the file is empty; expected {{\"format\":\"{FORMAT}\",…}}");
            return Err(Unreadable { line: 1, problem });
        }
        history.operations.sort_by_key(|operation| (operation.called, operation.id));
        history.marks.sort_by_key(|mark| mark.at);
        Ok(history)
    }
}

fn line(writer: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    writer.write_all(text.as_bytes())
}

fn header(text: &str) -> Result<Header, String> {
    let any: AnyHeader = serde_json::from_str(text)
        .map_err(|error| format!("expected {{\"format\":\"{FORMAT}\",\"version\":{VERSION},…}}: {}", reason(&error)))?;
    if any.format != FORMAT {
        return Err(format!("the format is `{}`, expected `{FORMAT}`", any.format));
    }
    if any.version != VERSION {
        return Err(format!(
            "the history has version {}, and this fencepost reads version {VERSION}: use the one that wrote it",
            any.version
        ));
    }
    serde_json::from_str(text)
        .map_err(|error| format!("expected case, seed and manifest after the version: {}", reason(&error)))
}

/// The reason without the position: each line is parsed alone, so the parser's line number would always be 1.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(short) => format!("{short} (column {})", error.column()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use crate::answer::Answer;
    use crate::history::{Event, History, Mark, Operation};
    use crate::op::{Op, Write};
    use crate::subject::Shift;
    use crate::token::Token;

    fn sample() -> History {
        let ops = [
            Op::write("r1", 5, "h1", "v-1"),
            Op::cas("r1", u64::MAX, "h1", None, "v-2"),
            Op::Batch { writes: vec![Write::new("r1", Token::Both("5".into(), "6".into()), "h1", "v-3")] },
            Op::Delete { res: "r1".into(), token: Token::Absent, holder: "h1".into() },
            Op::checked_read("r1", Token::text("0x5")),
            Op::claim("r1", 7, "h1"),
            Op::read("r1"),
        ];
        let answers = [
            Answer::Ok { value: None, high: Some(5) },
            Answer::Mismatch { current: Some(Some("v-1".into())) },
            Answer::error("bad-token"),
            Answer::Stale { high: None },
            Answer::Unsupported,
            Answer::unknown("reset"),
            Answer::Ok { value: Some(None), high: None },
        ];
        let operations = ops.into_iter().zip(answers).enumerate().map(|(index, (op, answer))| {
            let called = 10 * index as u64;
            let (dead_by, copy_of) = ((index == 5).then_some(57), (index == 5).then_some(1));
            let returned = if index == 5 { u64::MAX } else { called + 5 };
            Operation { id: index as u64 + 1, client: 0, op, called, returned, answer, dead_by, copy_of }
        });
        History {
            case: "C02".into(),
            seed: u64::MAX,
            operations: operations.collect(),
            marks: vec![
                Mark::new(57, Event::Killed),
                Mark::new(90, Event::Restarted),
                Mark::new(95, Event::Clock(Shift::BEHIND)),
            ],
            ..History::default()
        }
    }

    fn written() -> Vec<String> {
        let mut bytes = Vec::new();
        sample().write_to(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    fn read(lines: &[String]) -> Result<History, String> {
        History::read_from(lines.join("\n").as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_read() {
        let lines = written();
        assert_eq!(lines.len(), 11, "one line each: {lines:#?}");
        assert_eq!(lines[7], r#"{"mark":{"at":57,"event":"killed"}}"#, "in the order of time");
        assert_eq!(lines[10], r#"{"mark":{"at":95,"event":{"clock":-86400}}}"#);
        assert_eq!(read(&lines), Ok(sample()));
    }

    #[test]
    fn an_error_names_the_line_and_what_was_expected() {
        let good = written();
        let with = |line: usize, text: &str| {
            let mut lines = good.clone();
            lines[line - 1] = text.to_owned();
            read(&lines).unwrap_err()
        };
        let starts = |found: String, expected: &str| assert!(found.starts_with(expected), "{found}");
        starts(with(3, "rubbish"), r#"line 3: expected {"operation":{…}} or {"mark":{…}}: expected value (column 1)"#);
        starts(with(4, r#"{"event":"killed"}"#), "line 4: expected");
        starts(with(1, &good[1]), "line 1: expected {\"format\":\"fencepost-history\",\"version\":1,…}");
        starts(with(1, &good[0].replace("-history", "")), "line 1: the format is `fencepost`, expected");
        starts(with(1, &good[0].replace("\"version\":1", "\"version\":2")), "line 1: the history has version 2, and");
        starts(with(1, &good[0].replace("\"seed\"", "\"sed\"")), "line 1: expected case, seed and manifest");
        starts(with(3, &good[1]), "line 3: there are two operations #1");
        starts(with(3, &good[2].replace("\"returned\":15", "\"returned\":9")), "line 3: operation #2 returned at 9 ns");
        starts(read(&[]).unwrap_err(), "line 1: the file is empty");
    }
}
