//! The proxy applies its rules to the bytes.

use super::*;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(100);

/// A server that echoes its input.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut buffer = [0; 1024];
                while let Ok(read @ 1..) = (&stream).read(&mut buffer) {
                    if (&stream).write_all(&buffer[..read]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn through(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

fn said(mut stream: &TcpStream, bytes: usize) -> String {
    let mut buffer = vec![0; bytes];
    stream.read_exact(&mut buffer).unwrap();
    String::from_utf8(buffer).unwrap()
}

fn silent(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(SHORT)).unwrap();
    let read = stream.read(&mut [0; 16]);
    stream.set_read_timeout(Some(LONG)).unwrap();
    read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

#[test]
fn passes_and_counts() {
    let proxy = Proxy::start(echo());
    let mut stream = through(&proxy);
    stream.write_all(b"hello").unwrap();
    assert_eq!(said(&stream, 5), "hello");
    assert_eq!(proxy.count(Direction::Up), Count { bytes: 5, chunks: 1, dropped: 0 });
    assert_eq!(proxy.count(Direction::Down).bytes, 5);
    assert_eq!(proxy.connections(), 1);
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "the end of the stream is forwarded");
    wait::until("the connection to be forgotten", LONG, || (proxy.connections() == 0).then_some(()));
}

#[test]
fn delays() {
    let proxy = Proxy::start(echo());
    proxy.set(Direction::Down, Rule::Delay(SHORT));
    let mut stream = through(&proxy);
    let asked = std::time::Instant::now();
    stream.write_all(b"a").unwrap();
    assert_eq!(said(&stream, 1), "a");
    assert!(asked.elapsed() >= SHORT);
}

#[test]
fn holds_and_lets_go() {
    let proxy = Proxy::start(echo());
    let mut stream = through(&proxy);
    proxy.set(Direction::Down, Rule::Hold);
    stream.write_all(b"ab").unwrap();
    assert!(silent(&stream));
    proxy.pass();
    assert_eq!(said(&stream, 2), "ab");
    proxy.hold();
    stream.write_all(b"cd").unwrap();
    let up = || (proxy.count(Direction::Up).bytes == 4).then_some(());
    wait::until("the request to arrive", LONG, up);
    assert_eq!(proxy.count(Direction::Down).bytes, 2, "the server has not seen it");
    proxy.pass();
    assert_eq!(said(&stream, 2), "cd");
}

#[test]
fn swallows() {
    let proxy = Proxy::start(echo());
    let mut stream = through(&proxy);
    proxy.set(Direction::Down, Rule::DropAfter(1));
    stream.write_all(b"a").unwrap();
    assert_eq!(said(&stream, 1), "a");
    stream.write_all(b"b").unwrap();
    wait::until("the answer to be lost", LONG, || (proxy.count(Direction::Down).dropped == 1).then_some(()));
    proxy.pass();
    stream.write_all(b"c").unwrap();
    assert_eq!(said(&stream, 1), "c", "what was swallowed stays lost");
    proxy.set(Direction::Up, Rule::Drop);
    stream.write_all(b"d").unwrap();
    wait::until("the request to be lost", LONG, || (proxy.count(Direction::Up).dropped == 1).then_some(()));
    assert_eq!(proxy.count(Direction::Down).bytes, 3);
}

#[test]
fn cuts_with_a_reset_and_refuses() {
    let proxy = Proxy::start(echo());
    let mut stream = through(&proxy);
    stream.write_all(b"a").unwrap();
    assert_eq!(said(&stream, 1), "a");
    proxy.hold();
    proxy.cut();
    assert_eq!(stream.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(proxy.connections(), 0);
    proxy.pass();
    proxy.refuse();
    let mut refused = through(&proxy);
    assert!(refused.read(&mut [0; 1]).is_err(), "a new connection is reset");
    proxy.pass();
    let mut stream = through(&proxy);
    stream.write_all(b"b").unwrap();
    assert_eq!(said(&stream, 1), "b");
}

#[test]
fn a_server_that_is_away_is_a_reset() {
    let proxy = Proxy::start(TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    assert!(through(&proxy).read(&mut [0; 1]).is_err());
}

#[test]
fn repeats_and_swaps_chunks() {
    let proxy = Proxy::start(echo());
    let mut stream = through(&proxy);
    proxy.set(Direction::Down, Rule::Duplicate);
    stream.write_all(b"a").unwrap();
    assert_eq!(said(&stream, 2), "aa");
    proxy.set(Direction::Down, Rule::Reorder);
    stream.write_all(b"b").unwrap();
    wait::until("the first chunk", LONG, || (proxy.count(Direction::Down).chunks == 2).then_some(()));
    assert!(silent(&stream));
    stream.write_all(b"c").unwrap();
    assert_eq!(said(&stream, 2), "cb");
}

#[test]
fn several_servers_are_one_behind_it() {
    let mut proxy = Proxy::start(echo());
    let other = proxy.also(echo());
    let connect = |address: SocketAddr| {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    };
    let both = [proxy.address(), other].map(connect);
    for mut stream in &both {
        stream.write_all(b"hi").unwrap();
        assert_eq!(said(stream, 2), "hi");
    }
    assert_eq!((proxy.connections(), proxy.count(Direction::Up).bytes), (2, 4));
    proxy.shut();
    for mut stream in &both {
        assert!(!matches!(stream.read(&mut [0]), Ok(1..)), "reset, or closed");
    }
    drop(proxy);
    wait::until("it to end", LONG, || TcpStream::connect(other).is_err().then_some(()));
}
