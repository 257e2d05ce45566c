//! docs/s3.md: each section works as written, against a gateway that was started as it describes.

use std::path::{Path, PathBuf};
use std::process::Command;

use fencepost_harness::process::GatewayProcess;

use crate::client::{Program, said};

const SECTIONS: [&str; 7] = ["aws cli", "boto3", "rclone", "rclone mount", "s3cmd", "object_store", "Presigned URLs"];

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/s3.md");
    std::fs::read_to_string(path).unwrap()
}

/// A block of code below a heading: its language and its text.
struct Block {
    heading: String,
    language: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let (mut blocks, mut heading, mut open): (Vec<Block>, _, Option<Block>) = (Vec::new(), String::new(), None);
    for line in document().lines() {
        match (&mut open, line.strip_prefix("```"), line.strip_prefix("##")) {
            (Some(_), Some(_), _) => blocks.extend(open.take()),
            (Some(block), ..) => block.text.push_str(&format!("{line}\n")),
            (None, Some(language), _) => {
                open = Some(Block { heading: heading.clone(), language: language.to_owned(), text: String::new() });
            }
            (None, _, Some(name)) => heading = name.trim_start_matches('#').trim().to_owned(),
            (None, None, None) => {}
        }
    }
    blocks
}

/// The section that sets everything up: the server's commands, and the user's first ones.
fn opening() -> [String; 2] {
    let found = blocks().into_iter().filter(|block| block.heading == "A gateway with a bucket");
    found.map(|block| block.text).collect::<Vec<_>>().try_into().unwrap()
}

/// A gateway as documented, but on free ports.
struct Documented {
    program: Program,
    gateway: GatewayProcess,
    s3: String,
}

impl Documented {
    fn start() -> Documented {
        let program = Program::new(&[("FENCEPOST_LISTEN", "127.0.0.1:0")]);
        let [server, _] = opening();
        let script = server.replace("127.0.0.1:9000", "127.0.0.1:0").replace("fencepost serve", "exec fencepost serve");
        let gateway = GatewayProcess::spawn(shell(&program, &script)).unwrap();
        let s3 = gateway.s3_address().to_string();
        Documented { program, gateway, s3 }
    }

    /// Runs everything below a heading. Returns the output.
    fn run(&self, heading: &str) -> String {
        let mut script = opening()[1].clone();
        for block in blocks().into_iter().filter(|block| block.heading == heading) {
            match block.language.as_str() {
                "sh" => script.push_str(&block.text),
                "python" => {
                    let name = block.text.lines().next().unwrap().strip_prefix("# ").unwrap().to_owned();
                    std::fs::write(self.program.home().join(name), &block.text).unwrap();
                }
                other => panic!("nobody runs {other} below {heading}"),
            }
        }
        let script = script.replace("127.0.0.1:9000", &self.s3).replace("127.0.0.1:3362", self.gateway.address());
        let mut command = shell(&self.program, &script);
        command.env("FENCEPOST_URL", self.gateway.url());
        said(&mut command).expect_ok(heading)
    }

    fn home(&self) -> &Path {
        self.program.home()
    }

    fn read(&self, file: &str) -> String {
        let file: PathBuf = self.home().join(file);
        std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }
}

fn shell(program: &Program, script: &str) -> Command {
    let mut command = program.command(Path::new("/bin/bash"));
    command.args(["-euo", "pipefail", "-c", script]);
    command
}

const REPORT: &str = "day,total\n";

#[test]
fn every_section_with_commands_is_run() {
    let mut headings: Vec<String> = blocks().into_iter().map(|block| block.heading).collect();
    headings.dedup();
    assert_eq!(headings[0], "A gateway with a bucket");
    assert_eq!(headings[1..], SECTIONS);
}

#[test]
fn aws_cli() {
    let documented = Documented::start();
    let said = documented.run("aws cli");
    assert!(said.contains("report.csv"), "{said}");
    assert_eq!(documented.read("objects/reports/2026/report.csv"), REPORT);
    assert_eq!(documented.read("copy.csv"), REPORT);
    assert!(!documented.home().join("objects/reports/out/über 100%.csv").exists());
}

#[test]
fn boto3() {
    let documented = Documented::start();
    assert_eq!(documented.run("boto3").trim(), REPORT.trim());
    assert_eq!(documented.read("objects/reports/2026/report.csv"), REPORT);
}

#[test]
fn rclone() {
    let documented = Documented::start();
    let said = documented.run("rclone");
    assert!(said.contains("2026/report.csv") && said.contains("out/über 100%.csv"), "{said}");
    assert_eq!(documented.read("objects/reports/out/über 100%.csv"), REPORT);
}

#[test]
fn rclone_mount() {
    let documented = Documented::start();
    documented.run("rclone mount");
    assert_eq!(documented.read("objects/reports/mounted.csv"), REPORT);
}

#[test]
fn s3cmd() {
    let documented = Documented::start();
    let said = documented.run("s3cmd");
    assert!(said.contains("s3://reports/out/über 100%.csv"), "{said}");
    assert_eq!(documented.read("copy.csv"), REPORT);
    assert!(!documented.home().join("objects/reports/out/über 100%.csv").exists());
}

#[test]
fn presigned_urls() {
    let documented = Documented::start();
    assert!(documented.run("Presigned URLs").ends_with(REPORT));
}

/// The Rust code of the document is also in a test beside this one, line for line.
#[test]
fn object_store() {
    let source = include_str!("object_store.rs");
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let block = blocks().into_iter().find(|block| block.language == "rust").unwrap();
    let wanted: Vec<&str> = block.text.lines().map(str::trim).collect();
    assert!(lines.windows(wanted.len()).any(|window| window == wanted), "{} is nowhere run", block.text);
}
