//! Services that forget their fence with a value that expires, and services that keep values and fences in different
//! places.

use fencepost_conformance::run::{Options, run};
use fencepost_conformance::verdict::{CaseResult, Status};

use crate::http::MapFile;

/// Fences in one directory, values in another. A write may give the milliseconds until its value expires.
const SERVER: &str = r#"
import sys, threading, time

fences, values, bug = os.environ["CONFORM_DIR"], sys.argv[1], sys.argv[2]
os.makedirs(values, exist_ok=True)
lock, expiries = threading.Lock(), {}

def load(directory, name):
    path = os.path.join(directory, name)
    return open(path).read() if os.path.isfile(path) else None

def store(directory, name, text):
    path = os.path.join(directory, name)
    with open(path + "~", "w") as file:
        file.write(text)
    os.rename(path + "~", path)

def expire(name):
    if name in expiries and time.monotonic() >= expiries[name]:
        del expiries[name]
        os.remove(os.path.join(values, name))
        if bug == "forgets":
            os.remove(os.path.join(fences, name))

class Handler(Answering):
    def do_GET(self):
        with lock:
            expire(self.path[1:])
            value = load(values, self.path[1:])
        self.answer(404) if value is None else self.answer(200, value.encode())
    def do_PUT(self):
        value = self.rfile.read(int(self.headers["Content-Length"])).decode()
        name, _, ttl = self.path[1:].partition("?ttl=")
        if not self.headers.get("Token", "").isdigit() or not name.replace("-", "").isalnum():
            return self.answer(400)
        with lock:
            expire(name)
            token, fence = int(self.headers["Token"]), load(fences, name)
            if fence is not None and token < int(fence):
                return self.answer(409)
            store(fences, name, str(token))
            store(values, name, value)
            if ttl:
                expiries[name] = time.monotonic() + int(ttl) / 1000
        self.answer(204)

serve(Handler)
"#;

/// Runs a case against the service, with its values in this place, which its shell expands.
fn judged(values: &str, bug: &str, case: &str) -> CaseResult {
    let text = format!(
        r#"
map = 1
[resource]
base = "http://127.0.0.1:{{port}}"
[write]
method = "PUT"
path = "/{{res}}"
headers = {{ Token = "{{token}}" }}
body = "{{value}}"
ok = [204]
stale = [409]
error = [400]
[read]
method = "GET"
path = "/{{res}}"
ok = [200]
absent = [404]
value = "body"
[[mutation]]
name = "a value that expires"
method = "PUT"
path = "/{{res}}?ttl=20"
headers = {{ Token = "{{token}}" }}
body = "{{value}}"
ok = [204]
stale = [409]
wait = "100ms"
[hooks]
start = 'exec python3 server.py {values} {bug}'
"#
    );
    let map = MapFile::with_server(&text, SERVER);
    let subject = map.open().unwrap();
    let options = Options { only: vec![case.to_owned()], ..Options::default() };
    run(&subject, &options, &mut ()).cases.remove(0)
}

/// The request for an expiry is fenced like every other, and takes effect later.
#[test]
fn an_expiry_that_takes_the_fence_along_is_found_when_it_is_waited_for() {
    let right = judged(r#""$CONFORM_DIR/values""#, "none", "B05");
    assert_eq!(right.status, Status::Pass, "{}", right.reason);
    let remark = right.remark.unwrap();
    assert!(remark.ends_with(" other spellings of a write, 1 other requests"), "{remark}");
    let forgets = judged(r#""$CONFORM_DIR/values""#, "forgets", "B05");
    assert_eq!(forgets.status, Status::Fail, "{}", forgets.reason);
    let said = "The fence was 9. After a request by another way (a value that expires) with token 10, a write with token 8 was accepted";
    assert!(forgets.reason.starts_with(said), "{}", forgets.reason);
}

/// A suite that copied only the fences and not the values would itself cause the inconsistency.
#[test]
fn a_service_with_its_values_elsewhere_is_not_convicted_by_half_a_copy() {
    let elsewhere = judged(r#""$PWD/values""#, "none", "R11");
    assert_eq!(elsewhere.status, Status::NotApplicable, "{}", elsewhere.reason);
    assert!(elsewhere.reason.contains("its values do not lie in CONFORM_DIR"), "{}", elsewhere.reason);
    let together = judged(r#""$CONFORM_DIR/values""#, "none", "R11");
    assert_eq!(together.status, Status::Info, "{}", together.reason);
}
