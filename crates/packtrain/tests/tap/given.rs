//! The example that opens ports with privileges and runs without.

#[path = "../../examples/given.rs"]
#[allow(dead_code, reason = "its main function is not called")]
mod example;

use crate::line::quiet;
use crate::packet::{FAR, HEADER_BYTES, frame, send, veth};
use crate::world::{PacketSocket, create_veth, in_namespace, set_up, wait_until};
use crate::world::{interface_index, wait_until_connected};
use packtrain::port::xdp::{XdpConfig, XdpSocket};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

/// Set in a copy of this program that is the example: its ports.
const PORTS: &str = "PACKTRAIN_TEST_GIVEN";
/// The name of the test.
const TEST: &str = "given::frames_pass_after_all_privileges_went";

/// What each thread of the process has, but those of the test harness.
fn threads(child: &Child) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).expect("it runs");
    let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).ok();
    let all: Vec<_> = tasks.filter_map(|task| status(task.ok()?)).collect();
    let own = |status: &String| line(status, "Uid") != "0 0 0 0";
    all.into_iter().filter(own).collect()
}

/// The words of a line of /proc/PID/status.
fn line(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let line = line.and_then(|line| line.strip_prefix(':'));
    let words: Vec<_> = line.expect(name).split_whitespace().collect();
    words.join(" ")
}

#[test]
fn frames_pass_after_all_privileges_went() {
    if let Ok(specs) = env::var(PORTS) {
        let specs: Vec<_> = specs.split_whitespace().map(str::to_owned).collect();
        let ledger = example::run(&specs).unwrap_or_else(|error| panic!("{error}"));
        assert!(ledger.closed(), "{ledger:?}");
        println!("received {}", ledger.received);
        return;
    }
    in_namespace(|| {
        veth();
        if let Err(error) = XdpSocket::open(&XdpConfig::new("near0")) {
            println!("SKIP: {TEST}: AF_XDP: {error}");
            return;
        }
        create_veth("near1", "far1");
        for name in ["near1", "far1"] {
            quiet(name);
            set_up(name, true);
        }
        wait_until_connected(&PacketSocket::open("far1"), &PacketSocket::open("near1"));
        let socket = env::temp_dir().join(format!("packtrain-given-{}", std::process::id()));
        let ports = format!(
            "xdp:near0,rings=256 packet:near1 tap:tap0 vhost-user:{},server",
            socket.display()
        );
        let mut child = Command::new(env::current_exe().expect("this program's path"))
            .args(["--exact", TEST, "--nocapture", "--test-threads=1"])
            .env(PORTS, ports)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        wait_until("privileges went", || {
            assert_eq!(child.try_wait().expect("a child"), None);
            // One that waits for its input, and workers.
            threads(&child).len() > 1 && interface_index("tap0").is_some()
        });
        for status in threads(&child) {
            for name in ["Uid", "Gid"] {
                assert_eq!(line(&status, name), "65534 65534 65534 65534");
            }
            assert_eq!(line(&status, "Groups"), "");
            for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                assert_eq!(line(&status, name), "0000000000000000", "{name}");
            }
            assert_eq!(line(&status, "NoNewPrivs"), "1");
        }
        quiet("tap0");
        set_up("tap0", true);
        let ends = [FAR, "far1", "tap0"].map(PacketSocket::open);
        let mut sent = 0;
        for (from, end) in ends.iter().enumerate() {
            for number in 0..50 {
                // To all, from a host of its own for each port.
                let bytes = frame([0xff; 6], from as u8, number, 60 + 20 * number as usize);
                let mut arrived = [0; 3];
                send(end, &bytes);
                sent += 1;
                wait_until("it arrives at the others", || {
                    for (count, other) in arrived.iter_mut().zip(&ends) {
                        while let Some((got, _)) = other.receive() {
                            assert!(got[HEADER_BYTES..] == bytes, "{from} {number}");
                            *count += 1;
                        }
                    }
                    let all = (0..3).filter(|&to| to != from).all(|to| arrived[to] == 1);
                    assert!(arrived[from] == 0 && arrived.iter().all(|&count| count <= 1));
                    all
                });
            }
        }
        assert!(socket.exists());
        drop(child.stdin.take());
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert!(text.contains(&format!("received {sent}")), "{text}");
        // Left by the user that may not write to the directory.
        fs::remove_file(socket).unwrap_or(());
    });
}
