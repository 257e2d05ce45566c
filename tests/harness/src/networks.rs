//! Networks of a test's own, whose machines can be cut off from each other.
//!
//! The test is run again in namespaces of its own, as their root, so it needs no rights outside and leaves nothing behind.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

/// Set in the second run.
const INSIDE: &str = "FENCEPOST_OWN_NETWORK";

/// Runs the test of this name again, in a network of its own. Returns whether this is that run.
pub fn in_own_network(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        // The names of further networks are kept in /run.
        run(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]));
        ip(&["link", "set", "lo", "up"]);
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("this network can forward");
        return true;
    }
    let program = std::env::current_exe().expect("the test has a program");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--mount"]).arg(program);
    run(command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1"));
    false
}

/// A machine: a network with one address, reached from the test's own.
pub struct Machine {
    name: String,
    address: Ipv4Addr,
}

impl Machine {
    /// The machine with this number.
    pub fn new(number: u8) -> Machine {
        let (name, outside) = (format!("m{number}"), format!("g{number}"));
        let (address, gateway) = (Ipv4Addr::new(10, 77, number, 2), Ipv4Addr::new(10, 77, number, 1));
        ip(&["netns", "add", &name]);
        ip(&["link", "add", &outside, "type", "veth", "peer", "name", "e0", "netns", &name]);
        ip(&["addr", "add", &format!("{gateway}/24"), "dev", &outside]);
        ip(&["link", "set", &outside, "up"]);
        for line in [format!("addr add {address}/24 dev e0"), "link set e0 up".to_owned(), "link set lo up".to_owned()]
        {
            ip_in(&name, &line);
        }
        ip_in(&name, &format!("route add default via {gateway}"));
        Machine { name, address }
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Runs a program on it.
    pub fn wrap(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("ip");
        wrapped.args(["netns", "exec", &self.name]).arg(command.get_program()).args(command.get_args());
        wrapped
    }

    /// From now on, no packet passes between the two.
    pub fn cut_off(&self, other: &Machine) {
        ip_in(&self.name, &format!("route add blackhole {}", other.address));
        ip_in(&other.name, &format!("route add blackhole {}", self.address));
    }

    /// Ends that.
    pub fn join(&self, other: &Machine) {
        ip_in(&self.name, &format!("route del blackhole {}", other.address));
        ip_in(&other.name, &format!("route del blackhole {}", self.address));
    }
}

fn ip_in(network: &str, line: &str) {
    let line: Vec<&str> = ["-n", network].into_iter().chain(line.split_whitespace()).collect();
    ip(&line);
}

fn ip(arguments: &[&str]) {
    run(Command::new("ip").args(arguments));
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
