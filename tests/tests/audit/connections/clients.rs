//! Third-party HTTP clients: what they see when the answer arrives before they have sent the whole body.

use super::*;

/// PUTs a body of this many bytes with Python's http.client, ten times; prints each status and the code of an error.
const HTTP_CLIENT: &str = "import sys, http.client, re\n\
    url, size, token = sys.argv[1], int(sys.argv[2]), sys.argv[3]\n\
    host, path = url.removeprefix('http://').split('/', 1)\n\
    for n in range(int(sys.argv[4])):\n\
    \x20   try:\n\
    \x20       c = http.client.HTTPConnection(host, timeout=60)\n\
    \x20       c.request('PUT', '/' + path, body=b'x' * size, headers={'Fencing-Token': token} if token else {})\n\
    \x20       a = c.getresponse(); text = a.read().decode()\n\
    \x20       print(a.status, *re.findall('<Code>(.*?)</Code>', text))\n\
    \x20   except OSError as e:\n\
    \x20       print(repr(e))";

/// The same with requests.
const REQUESTS: &str = "import sys, requests, re\n\
    url, size, token = sys.argv[1], int(sys.argv[2]), sys.argv[3]\n\
    for n in range(int(sys.argv[4])):\n\
    \x20   try:\n\
    \x20       a = requests.put(url, data=b'x' * size, headers={'Fencing-Token': token} if token else {})\n\
    \x20       print(a.status_code, *re.findall('<Code>(.*?)</Code>', a.text))\n\
    \x20   except OSError as e:\n\
    \x20       print(repr(e))";

/// The same with the fetch of Node.
const FETCH: &str = "const [url, size, token, rounds] = process.argv.slice(1);\n\
    (async () => { for (let n = 0; n < +rounds; n++) try {\n\
    \x20   const a = await fetch(url, {method: 'PUT', body: Buffer.alloc(+size, 'x'), headers: token ? {'Fencing-Token': token} : {}});\n\
    \x20   const code = (await a.text()).match(/<Code>(.*?)<.Code>/); console.log(a.status + (code ? ' ' + code[1] : ''));\n\
    } catch (e) { console.log(e.message, e.cause && e.cause.code) } })();";

/// What the three clients report, in every round.
fn told(url: &str, size: usize, token: &str, rounds: usize) -> Vec<(&'static str, String)> {
    let (size, rounds) = (size.to_string(), rounds.to_string());
    let arguments = [url, &size, token, &rounds];
    let node = Command::new("node").arg("-e").arg(FETCH).args(arguments).stderr(Stdio::inherit()).output().unwrap();
    let node = String::from_utf8(node.stdout).unwrap();
    vec![
        ("http.client", python(HTTP_CLIENT, &arguments)),
        ("requests", python(REQUESTS, &arguments)),
        ("fetch", node.trim().to_owned()),
    ]
}

fn assert_told(url: &str, size: usize, token: &str, rounds: usize, expected: &str) {
    for (client, told) in told(url, size, token, rounds) {
        assert_eq!(told, vec![expected; rounds].join("\n"), "{client}, {size} bytes");
    }
}

#[test]
fn b03_a_body_above_the_limit_is_answered_so_that_clients_see_it() {
    let gateway = Fresh::memory(&[]);
    let url = format!("{}/v1/kv/k", gateway.url());
    assert_told(&url, 5 << 20, "1", 10, "413");
    assert_told(&url, 64 << 20, "1", 2, "413");
    let large = tempfile::NamedTempFile::new().unwrap();
    large.as_file().set_len(5 << 20).unwrap();
    let file = format!("@{}", large.path().display());
    // By default curl sends Expect; without it, curl sends the body at once.
    for expect in ["x: y", "Expect:"] {
        let curl = Command::new("curl")
            .args(["-s", "-X", "PUT", "-H", "Fencing-Token: 1", "-H", expect, "--data-binary", &file])
            .args(["-o", "/dev/null", "-w", "%{http_code}", &url])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&curl.stdout), "413", "{curl:?}");
    }
    assert_eq!(gateway.client().get("k").status, 404);
}

#[test]
fn b03_a_zombie_is_told_that_its_token_is_stale() {
    let gateway = Bucketed::start();
    let zombie = gateway.credentials("reports", "33");
    let url = presigned(&gateway, &zombie, "put_object", "o");
    gateway.credentials("reports", "34");
    assert_told(&url, 8 << 20, "", 10, "403 StaleFencingToken");
    assert_told(&url, 64 << 20, "", 2, "403 StaleFencingToken");
    assert!(gateway.files().is_empty());
}

#[test]
fn b03_a_connection_is_drained_for_a_bounded_time() {
    let gateway = Fresh::memory(&["--body-timeout", "2s"]);
    let mut endless = gateway.client();
    endless
        .send(b"PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 1\r\ncontent-length: 99999999999\r\n\r\n")
        .unwrap();
    assert_eq!(endless.receive().unwrap().status, 413);
    let started = Instant::now();
    wait::until("the gateway to close", PATIENCE, || {
        wait::pause(Duration::from_millis(50));
        endless.send(b"more").err()
    });
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
}

#[test]
fn b02_an_expect_that_was_never_continued_ends_its_connection() {
    let gateway = Bucketed::start();
    let credentials = gateway.credentials("reports", "33");
    let url = presigned(&gateway, &credentials, "put_object", "empty");
    let (s3, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let public = gateway.address();
    for (address, path, statuses) in
        [(public, "v1/kv/k", [204, 413]), (s3, path, [200, 400]), (s3, "reports/unsigned", [403, 403])]
    {
        for (length, status) in [("0", statuses[0]), ("99999999999", statuses[1])] {
            let mut client = Client::connect(address);
            let head = format!(
                "PUT /{path} HTTP/1.1\r\nhost: {address}\r\nfencing-token: 1\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
            );
            let head = if address == s3 { head.replace("fencing-token: 1\r\n", "") } else { head };
            client.send(head.as_bytes()).unwrap();
            let answer = client.receive().unwrap();
            assert_eq!(answer.status, status, "{path} {length}: {}", answer.text());
            assert_eq!(answer.header("connection"), Some("close"), "{path} {length}");
            assert!(client.is_closed(), "{path} {length}");
        }
    }
    // A wanted body is answered with 100 Continue, and the connection stays open.
    let mut client = gateway.client();
    client
        .send(b"PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 1\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n")
        .unwrap();
    assert_eq!(client.receive().unwrap().status, 100);
    client.send(b"four").unwrap();
    assert_eq!(client.receive().unwrap().status, 204);
    assert_eq!(client.get("k").text(), "four");
}
