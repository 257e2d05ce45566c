//! The documents agree with the code.

use std::collections::BTreeSet;

use super::*;
use fencepost_core::ProblemKind;
use fencepost_store::engines::ENGINES;

fn document(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_error_table_has_every_problem_with_its_status() {
    let errors = document("docs/errors.md");
    for kind in ProblemKind::ALL {
        let row = format!("| {} | `{}` |", kind.status(), kind.slug());
        assert!(errors.contains(&row), "docs/errors.md lacks a row that starts with {row}");
    }
    let rows = errors.lines().filter(|line| line.contains("| `")).count();
    assert_eq!(rows, ProblemKind::ALL.len(), "docs/errors.md has rows for problems that do not exist");
}

#[test]
fn the_exit_codes_are_those_of_the_help() {
    let errors = document("docs/errors.md");
    for line in exit::HELP.lines().skip(1) {
        let (code, meaning) = line.trim().split_once("  ").unwrap();
        assert!(
            errors.contains(&format!("| {code} | {meaning} |")),
            "docs/errors.md lacks exit code {code}: {meaning}"
        );
    }
}

#[test]
fn every_lock_service_is_in_the_table() {
    let client = document("docs/client.md");
    for backend in fencepost_client::locks::BACKENDS {
        let fencepost_client::locks::Backend { example, number, waiting, breaks, .. } = backend;
        let row = format!("| `{example}` | {number} | {waiting} | {breaks} |");
        assert!(client.contains(&row), "docs/client.md lacks {row}");
    }
}

#[test]
fn every_flag_of_run_is_explained() {
    let client = document("docs/client.md");
    let mut command = Cli::command();
    command.build();
    let run = command.find_subcommand("run").unwrap();
    for argument in run.get_arguments().filter(|argument| !["help", "command"].contains(&argument.get_id().as_str())) {
        let flag = format!("--{}", argument.get_long().unwrap());
        assert!(client.contains(&flag), "docs/client.md lacks {flag}");
    }
}

#[test]
fn every_flag_of_s3_credentials_is_explained_and_what_it_sets_and_removes() {
    let page = document("docs/s3-credentials.md");
    let mut command = Cli::command();
    command.build();
    let credentials = command.find_subcommand("s3").unwrap().find_subcommand("credentials").unwrap();
    for argument in credentials.get_arguments().filter(|argument| argument.get_id() != "help") {
        let flag = format!("--{}", argument.get_long().unwrap());
        assert!(page.contains(&flag), "docs/s3-credentials.md lacks {flag}");
    }
    for format in
        credentials.get_arguments().find(|argument| argument.get_id() == "format").unwrap().get_possible_values()
    {
        assert!(page.contains(&format!("| `{}` |", format.get_name())), "{}", format.get_name());
    }
    for variable in s3::AWS_UNSET {
        assert!(page.contains(&format!("`{variable}`")), "docs/s3-credentials.md lacks {variable}");
    }
}

#[test]
fn every_flag_of_serve_is_documented_with_its_variable() {
    let configuration = document("docs/configuration.md");
    let mut command = Cli::command();
    command.build();
    let serve = command.find_subcommand("serve").unwrap();
    for argument in serve.get_arguments().filter(|argument| argument.get_id() != "help") {
        let (flag, variable) = (argument.get_long().unwrap(), argument.get_env().unwrap().to_str().unwrap());
        let row = format!("| `--{flag}` | `{variable}` |");
        assert!(configuration.contains(&row), "docs/configuration.md lacks a row that starts with {row}");
    }
}

/// The first cells of the table below a heading of the conformance guide.
fn options_below(heading: &str) -> BTreeSet<String> {
    let guide = document("docs/conformance/README.md");
    let below = guide.split_once(&format!("\n### {heading}\n")).unwrap_or_else(|| panic!("no heading {heading}")).1;
    let section = below.split("\n#").next().unwrap();
    section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).map(str::to_owned).collect()
}

/// Options as the guide writes them: `--level LEVEL`, `--tap`, `FILE`, and what follows `--`.
fn options_of(command: &clap::Command) -> BTreeSet<String> {
    let written = |argument: &clap::Arg| {
        let values = argument.get_value_names().filter(|_| argument.get_action().takes_values()).unwrap_or_default();
        let value = values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        match argument.get_long() {
            Some(long) if value.is_empty() => format!("--{long}"),
            Some(long) => format!("--{long} {value}"),
            None if argument.is_last_set() => format!("-- {value}…"),
            None => value,
        }
    };
    command.get_arguments().filter(|argument| argument.get_id() != "help").map(written).collect()
}

#[test]
fn every_option_of_conform_is_in_the_guide_and_no_other() {
    let mut command = Cli::command();
    command.build();
    let conform = command.find_subcommand("conform").unwrap();
    let of = |name: &str| options_of(conform.find_subcommand(name).unwrap());
    let both = options_below("`http` and `exec`");
    assert!(options_of(conform).is_subset(&both), "{:?}", options_of(conform));
    for name in ["http", "exec"] {
        let own = options_below(&format!("`{name}`"));
        assert_eq!(&both | &own, of(name), "{name}");
        assert!(both.is_disjoint(&own), "{name}: said twice");
    }
    for name in ["recheck", "selftest"] {
        assert_eq!(options_below(&format!("`{name}`")), of(name), "{name}");
    }
    let subcommands: BTreeSet<&str> = conform.get_subcommands().map(clap::Command::get_name).collect();
    assert_eq!(subcommands, BTreeSet::from(["exec", "http", "recheck", "selftest"]), "each has its table");
}

#[test]
fn the_documented_defaults_are_the_defaults() {
    let configuration = document("docs/configuration.md");
    let shown = Config::load(&Flags::default()).unwrap().to_string();
    for line in shown.lines().filter(|line| !line.contains("no guard")) {
        let (key, value) = line.split_once(' ').unwrap();
        let key =
            if key.starts_with("max_") || key.ends_with("_timeout") { format!("limits.{key}") } else { key.to_owned() };
        let cells = format!("| `{key}` | `{}` |", value.trim());
        assert!(configuration.contains(&cells), "docs/configuration.md lacks {cells}");
    }
}

#[test]
fn the_engine_table_is_the_list_of_engines() {
    let configuration = document("docs/configuration.md");
    for engine in ENGINES {
        assert!(configuration.contains(&format!("| `{}` | {} |", engine.name, engine.summary)), "{}", engine.name);
    }
}

#[test]
fn every_engine_on_a_server_has_a_page_with_its_urls() {
    for engine in ENGINES.iter().filter(|engine| engine.is_shared()) {
        let page = document(&format!("docs/{}.md", engine.name));
        for scheme in engine.schemes {
            assert!(page.contains(&format!("`{scheme}://")), "docs/{}.md lacks {scheme}://", engine.name);
        }
        let configuration = document("docs/configuration.md");
        assert!(configuration.contains(&format!("({}.md)", engine.name)), "docs/configuration.md does not link it");
    }
}

#[test]
fn every_command_is_named_on_a_page() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let mut pages = document("README.md");
    for folder in [directory.clone(), directory.join("conformance"), directory.join("locks")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    for command in Cli::command().get_subcommands().map(clap::Command::get_name) {
        // These say all there is in their help.
        if !["version", "completions"].contains(&command) {
            assert!(pages.contains(&format!("fencepost {command}")), "no page names `fencepost {command}`");
        }
    }
}

#[test]
fn the_api_page_names_every_route() {
    let page = document("docs/api.md");
    for (_, route) in crate::http::ROUTES {
        let path = route.path.trim_end_matches('/');
        let named = page.contains(path) && (route.method == "GET" || page.contains(route.method.as_str()));
        assert!(named, "docs/api.md does not name {} {}", route.method, route.path);
    }
}

#[test]
fn the_rule_in_the_design_has_every_refusal() {
    let design = document("docs/design.md");
    for reason in fencepost_core::Reason::ALL {
        assert!(design.contains(&format!("refuse `{}`", reason.as_str())), "docs/design.md lacks {}", reason.as_str());
    }
}

#[test]
fn every_metric_is_documented() {
    let operations = document("docs/operations.md");
    let metrics = crate::metrics::Metrics::new().text();
    for line in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap();
        assert!(operations.contains(&format!("`{name}")), "docs/operations.md lacks {name}");
    }
}
