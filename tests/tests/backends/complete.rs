//! Completeness: each service of the list has its tests and its page, each case of the suite is explained, and the
//! recipe without the library works as written.

use std::path::PathBuf;
use std::process::Command;

use fencepost_client::locks::BACKENDS;
use fencepost_harness::fresh::Fresh;

fn file(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_service_has_tests_and_a_page() {
    let (main, client) = (file("tests/tests/backends/main.rs"), file("docs/client.md"));
    for backend in BACKENDS {
        let scheme = backend.scheme;
        assert!(main.contains(&format!("mod {scheme};")), "{scheme} has no tests");
        let tests = file(&format!("tests/tests/backends/{scheme}.rs"));
        match scheme {
            // They have no service that could be started, delayed or cut off.
            "token" | "exec" => assert!(tests.contains("fn a_zombie_is_refused"), "{scheme} has no zombie"),
            _ => assert!(tests.contains("suite!("), "{scheme} does not pass the suite"),
        }
        let (page, word) = match scheme {
            "fencepost" => ("locks.md".to_owned(), "fencepost lock acquire".to_owned()),
            "token" | "exec" => ("locks/token-and-exec.md".to_owned(), format!("`{scheme}:")),
            _ => (format!("locks/{scheme}.md"), format!("{scheme}://")),
        };
        assert!(file(&format!("docs/{page}")).contains(&word), "docs/{page} does not say {word}");
        assert!(client.contains(&format!("]({page})")), "docs/client.md does not lead to {page}");
        assert!(client.contains(&format!("| `{}` |", backend.example)), "docs/client.md lacks {}", backend.example);
    }
}

#[test]
fn every_case_of_the_suite_is_explained() {
    let (suite, page) = (file("tests/tests/backends/suite.rs"), file("docs/locks/adding-a-backend.md"));
    let (_, cases) = suite.split_once("cases! { $service:").unwrap();
    let (cases, _) = cases.split_once('}').unwrap();
    assert!(cases.split_whitespace().count() > 20, "{cases}");
    for case in cases.split_whitespace() {
        assert!(page.contains(&format!("`{case}`")), "docs/locks/adding-a-backend.md does not name {case}");
    }
}

/// Runs the commands of the recipe one after another, as a user would paste them.
#[test]
fn the_recipe_without_the_library_works() {
    let gateway = Fresh::memory(&[]);
    let page = file("docs/locks/raw-http.md");
    let commands: Vec<&str> =
        page.split("```sh\n").skip(1).map(|rest| rest.split_once("```").unwrap().0.trim()).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    let answers: Vec<String> = commands
        .into_iter()
        .map(|command| {
            let here =
                command.replace("http://127.0.0.1:3362", gateway.url()).replace("curl -s", "curl -sS --fail-with-body");
            assert_ne!(here, command);
            let output = Command::new("sh").args(["-c", &here]).output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert!(output.status.success(), "{here}\n{}{}", text(&output.stdout), text(&output.stderr));
            text(&output.stdout)
        })
        .collect();
    let json = |answer: &str| serde_json::from_str::<serde_json::Value>(answer).unwrap();
    assert_eq!(json(&answers[0])["generation"], 0);
    assert_eq!(json(&answers[1])["fence"]["token"], "34");
    assert_eq!(gateway.client().get("orders/123").text(), "paid");
}
