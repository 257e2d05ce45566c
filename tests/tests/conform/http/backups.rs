//! Backups of a program that the suite started: copies of its directory, or the effect of its commands.

use std::path::Path;

use fencepost_conformance::Op;
use fencepost_conformance::adapters::http::{HttpSubject, Overrides, open};
use fencepost_conformance::run::{Options, run};
use fencepost_conformance::subject::{Hook, Restored, Subject};
use fencepost_conformance::verdict::Status;

use crate::http::{MapFile, call};

/// Keeps each value in a file of its own. With `no-restore` it records how many values it starts with, and does not
/// start with fewer.
const SERVER: &str = r#"
import sys

data = os.path.join(os.environ["CONFORM_DIR"], "data")
os.makedirs(data, exist_ok=True)
files = len(os.listdir(data))
if "no-restore" in sys.argv:
    path = sys.argv[2]
    newest = int(open(path).read()) if os.path.exists(path) else 0
    if files < newest:
        sys.exit("this store is older than it was")
    open(path, "w").write(str(files))

class Handler(Answering):
    def do_GET(self):
        path = data + self.path
        if not os.path.isfile(path):
            return self.answer(404)
        self.answer(200, open(path, "rb").read())
    def do_PUT(self):
        open(data + self.path, "wb").write(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(204)

serve(Handler)
"#;

fn map(hooks: &str) -> MapFile {
    let text = format!(
        "map = 1\n[resource]\nbase = \"http://127.0.0.1:{{port}}\"\n[write]\nmethod = \"PUT\"\npath = \"/{{res}}\"\n\
         headers = {{ Token = \"{{token}}\" }}\nbody = \"{{value}}\"\nok = [204]\nstale = [409]\n\
         [read]\nmethod = \"GET\"\npath = \"/{{res}}\"\nok = [200]\nabsent = [404]\nvalue = \"body\"\n[hooks]\n{hooks}\n"
    );
    MapFile::with_server(&text, SERVER)
}

fn put(subject: &HttpSubject, res: &str, value: &str) {
    assert!(call(subject, &Op::write(res, 5, "h", value)).is_ok());
}

fn get(subject: &HttpSubject, res: &str) -> Option<String> {
    call(subject, &Op::read(res)).value().expect("it can be read").map(str::to_owned)
}

#[test]
fn the_directory_goes_back_and_everything_that_came_later_is_gone() {
    let map = map("start = \"exec python3 server.py\"");
    let subject = map.open().unwrap();
    put(&subject, "r", "old");
    for _ in 0..2 {
        assert!(subject.has(Hook::Backup) && subject.has(Hook::Restore));
        subject.hook(Hook::Backup).unwrap();
        assert_eq!(get(&subject, "r").as_deref(), Some("old"), "it goes on as before");
        put(&subject, "r", "new");
        put(&subject, "later", "new");
        assert_eq!(subject.restore().unwrap(), Restored::Serves);
        assert_eq!((get(&subject, "r").as_deref(), get(&subject, "later")), (Some("old"), None));
    }
    put(&subject, "r", "newer");
    subject.hook(Hook::Backup).unwrap();
    subject.hook(Hook::Restore).unwrap();
    assert_eq!(get(&subject, "r").as_deref(), Some("newer"), "the last one counts");
}

#[test]
fn a_program_that_does_not_start_with_a_backup_gets_back_what_it_had() {
    let map = map("start = \"exec python3 server.py no-restore \\\"$PWD/newest\\\"\"");
    let subject = map.open().unwrap();
    put(&subject, "r", "old");
    subject.hook(Hook::Backup).unwrap();
    put(&subject, "r", "new");
    put(&subject, "later", "new");
    // The service records the number of values when it starts.
    subject.hook(Hook::Restart).unwrap();
    let Restored::Refuses(why) = subject.restore().unwrap() else { panic!("it serves") };
    assert!(why.contains("this store is older than it was"), "{why}");
    assert_eq!((get(&subject, "r").as_deref(), get(&subject, "later").as_deref()), (Some("new"), Some("new")));
    let broken = subject.hook(Hook::Restore).unwrap_err();
    assert!(broken.0.contains("does not serve with a backup that was put back"), "{broken}");
}

#[test]
fn commands_take_the_backup_while_it_runs_and_put_it_back_while_it_does_not() {
    let map = map("start = \"exec python3 server.py\"\nbackup = \"curl -sf 127.0.0.1:$CONFORM_PORT/r > kept\"\n\
         restore = \"! curl -s 127.0.0.1:$CONFORM_PORT/r && cp kept $CONFORM_DIR/data/r\"");
    let subject = map.open().unwrap();
    put(&subject, "r", "old");
    subject.hook(Hook::Backup).unwrap();
    put(&subject, "r", "new");
    put(&subject, "later", "new");
    assert_eq!(subject.restore().unwrap(), Restored::Serves);
    assert_eq!((get(&subject, "r").as_deref(), get(&subject, "later").as_deref()), (Some("old"), Some("new")));
}

#[test]
fn one_without_the_other_is_a_mistake() {
    for hook in ["backup", "restore"] {
        let error = map(&format!("start = \"exec python3 server.py\"\n{hook} = \"true\"")).error();
        assert!(error.contains("`backup` and `restore` belong together: give both, or none"), "{error}");
    }
}

#[test]
fn a_service_that_forgets_what_was_raised_since_is_told_so_and_is_safe_all_the_same() {
    let node = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/conformance/node/fencepost.toml");
    let subject = open(&node, &Overrides::default()).unwrap();
    let options = Options { only: vec!["R01".to_owned(), "R11".to_owned()], ..Options::default() };
    let results = run(&subject, &options, &mut ());
    let last = results.cases.last().unwrap();
    assert_eq!(last.status, Status::Info, "{}", last.reason);
    assert!(last.reason.contains("has forgotten the fences raised since"), "{}", last.reason);
    assert_eq!(results.exit_code(), 0);
}
