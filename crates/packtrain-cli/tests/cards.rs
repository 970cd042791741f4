//! `packtrain guest`: one command in a virtual machine with cards, its exit code, and how it ends.

mod program;

use packtrain_lab::harness::{need_guest, wait_for};
use program::{PACKTRAIN, Ran, Scratch, command, ends, finish, start};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitCode};

fn main() -> ExitCode {
    packtrain_lab::tests![
        2 at once:
        a_command_has_its_own_exit_code_and_ctrl_c_and_a_guest_ends_without_it,
        packets_pass_from_one_card_to_the_other,
        a_fault_of_the_iommu_is_a_failed_check,
        no_virtual_machine_outlives_a_killed_program,
        the_file_that_was_started_is_packtrain_in_the_guest,
        rows_of_an_experiment_are_run_beside_the_cards,
        what_is_missing_is_said,
    ]
}

/// The command with the kernel of the tests.
fn guest(args: &[&str]) -> Command {
    guest_of(PACKTRAIN, args)
}

fn guest_of(program: &str, args: &[&str]) -> Command {
    let image = need_guest().image();
    let folder = image.parent().expect("a folder");
    let mut command = command(program, &[&["guest"], args].concat());
    command.env("PACKTRAIN_GUEST", folder);
    command
}

fn run(args: &[&str]) -> Ran {
    finish(start(&mut guest(args)))
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    kill_process(pid, signal).expect("it runs");
}

/// The command of README: a third card sends, and a fourth one receives.
fn packets_pass_from_one_card_to_the_other() {
    const LINE: &str = "packtrain forward -q e1000e:0000:01:00.0 e1000e:0000:02:00.0 &
    packtrain forward -q null:source e1000e:0000:03:00.0 &
    packtrain forward -q --count 5000 e1000e:0000:04:00.0 null:; kill $(jobs -p); wait";
    const CARDS: [&str; 4] = [
        "e1000e,hub=1",
        "e1000e,hub=2",
        "e1000e,hub=1",
        "e1000e,hub=2",
    ];
    let cards = CARDS.map(|card| ["--card", card]).concat();
    let readme = include_str!("../../../README.md");
    let command = format!("packtrain guest {} -- '{LINE}'", cards.join(" "));
    assert!(readme.contains(&command), "README is without {command}");
    let ran = run(&[&*cards, &["--", LINE]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let closed = "ledger (wire packets): 5,000 received = 5,000 transmitted: closed\n";
    assert!(ran.out.contains(closed), "{ran:?}");
    assert_eq!(ran.out.matches(": closed\n").count(), 3, "{ran:?}");
}

/// Both drivers of one card, and what they count.
fn rows_of_an_experiment_are_run_beside_the_cards() {
    let scratch = Scratch::new("experiment-in-a-guest");
    let file = scratch.file("both.toml");
    fs::write(&file, BOTH).expect("a file");
    let image = need_guest().image();
    let folder = image.parent().expect("a folder");
    let words = ["experiment", &file, "--repeats", "1", "--json", "--quiet"];
    let ran = finish(start(
        command(PACKTRAIN, &words).env("PACKTRAIN_GUEST", folder),
    ));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document = ran.json();
    let runs = document["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2, "{ran:?}");
    for run in runs {
        let figures = &run["figures"];
        assert_eq!(run["settings"]["where"], "guest", "{run}");
        let sent = figures["sent_packets"].as_u64();
        assert!(sent > Some(50), "{run}");
        assert_eq!(figures["offered_packets"].as_u64(), sent, "{run}");
        // They sent for some 200 ms, at an instruction each nanosecond.
        assert!(figures["instructions"].as_f64() > Some(1.5e8), "{run}");
        if run["setting"]["driver"] == "packtrain" {
            assert_eq!(figures["a"]["device"]["rx_packets"].as_u64(), sent, "{run}");
        } else {
            assert_eq!(run["settings"]["path_a"], "socket", "{run}");
        }
    }
}

const BOTH: &str = r#"
name = "both"
source = "S1"
title = "both drivers of a card"
meaning = "nothing"

[document]
claims = "none"

[guest]
cards = ["e1000e"]
icount = true

[testbed]
a = "e1000e:0000:01:00.0"

[workload]
tool = "send"
batch = 1
rate = "1000"
duration = "200ms"

[quick.workload]
duration = "20ms"

[[axes]]
name = "driver"
settings = ["packtrain", { name = "kernel", testbed = { host-a = "0000:01:00.0" } }]

[[figures]]
key = "instructions"
title = "instructions"
"#;

/// The card transmits from a ring where nothing is mapped.
fn a_fault_of_the_iommu_is_a_failed_check() {
    let line = "
cd /sys/bus/pci/devices/0000:01:00.0
echo 0000:01:00.0 >driver/unbind
echo 1 >enable
printf '\\006\\000' | dd of=config bs=1 seek=4 conv=notrunc 2>/dev/null
bar=$(head -n 1 resource | cut -d ' ' -f 1)
for pair in 3800=0x1000 3804=0 3808=128 3810=0 3828=0x2000000 400=2 3818=1; do
    devmem $((bar + 0x${pair%=*})) 32 ${pair#*=}
done
until dmesg | grep -q 'DMAR.*fault'; do sleep 0.1; done";
    let ran = run(&["--card", "e1000e", "--", line]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let error = ran.error_line();
    assert!(
        error.starts_with("the IOMMU stopped accesses of a card to memory: "),
        "{error}"
    );
    assert!(error.contains("01:00.0"), "{error}");
}

/// The child, and what it has written, once the line `on` has come.
fn until_on(mut child: Child) -> (Child, String) {
    let out = child.stdout.as_mut().expect("it is piped");
    let mut lines = Vec::new();
    while !lines.ends_with(b"on\n") {
        let mut byte = [0];
        if out.read(&mut byte).expect("its output") == 0 {
            panic!("it ended before the line: {:?}", finish(child));
        }
        lines.extend(byte);
    }
    (child, String::from_utf8(lines).expect("UTF-8"))
}

/// Ctrl-C is for the command. If that does not end, the guest does, after 10 s: the next boot is
/// meanwhile.
fn a_command_has_its_own_exit_code_and_ctrl_c_and_a_guest_ends_without_it() {
    // While it boots: QEMU runs, and the command does not.
    let child = start(&mut guest(&["--", "echo", "on"]));
    machine_of(&child);
    signal(&child, Signal::INT);
    let ran = finish(child);
    assert_eq!((ran.code, &*ran.out), (Some(4), ""), "{ran:?}");
    assert_eq!(ran.error_line(), "stopped while the guest was booting");

    let line = "trap '' INT; echo on; while :; do sleep 0.05; done";
    let (endless, _) = until_on(start(&mut guest(&["--", line])));
    signal(&endless, Signal::INT);

    let line = "packtrain --version; echo wrong >&2";
    let all = "cd /sys/bus/pci/drivers/vfio-pci && ls -d 0000:*";
    let rest = "trap 'echo caught; exit 9' INT; echo on; while :; do sleep 0.05; done";
    let third = start(&mut guest(&["--", line, ";", all, ";", rest]));
    let version = ends(0, &["--version"]).out;
    let cards = "0000:01:00.0\n0000:02:00.0\n";
    let (child, written) = until_on(third);
    assert_eq!(written, format!("{version}{cards}on\n"));
    signal(&child, Signal::INT);
    let ran = finish(child);
    assert_eq!((ran.code, &*ran.out), (Some(9), "caught\n"), "{ran:?}");
    assert_eq!(ran.err, "wrong\n");

    let ran = finish(endless);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(
        ran.error_line().contains("has not ended 10 s after SIGINT"),
        "{ran:?}"
    );
}

fn no_virtual_machine_outlives_a_killed_program() {
    let mut child = start(&mut guest(&["--", "sleep", "1000"]));
    let machine = machine_of(&child);
    signal(&child, Signal::KILL);
    child.wait().expect("it was a child");
    let process = format!("/proc/{machine}");
    wait_for("the end of QEMU", || !Path::new(&process).exists());
}

/// The file has another name here.
fn the_file_that_was_started_is_packtrain_in_the_guest() {
    let scratch = Scratch::new("name");
    let file = scratch.file("pt-2");
    fs::copy(PACKTRAIN, &file).expect("a copy");
    let ran = finish(start(&mut guest_of(
        &file,
        &["--", "packtrain", "--version"],
    )));
    let version = ends(0, &["--version"]).out;
    assert_eq!((ran.code, &ran.out), (Some(0), &version), "{ran:?}");
}

/// The process of QEMU that a program has started.
fn machine_of(child: &Child) -> String {
    let tasks = format!("/proc/{}/task", child.id());
    let mut machine = None;
    wait_for("QEMU", || {
        let tasks = fs::read_dir(&tasks).expect("it runs").flatten();
        let children = tasks.filter_map(|task| {
            let children = fs::read_to_string(task.path().join("children")).ok()?;
            children.split_whitespace().next().map(str::to_owned)
        });
        machine = children.last();
        let name = machine
            .as_ref()
            .map(|pid| fs::read_to_string(format!("/proc/{pid}/comm")));
        matches!(name, Some(Ok(name)) if name.starts_with("qemu-system"))
    });
    machine.expect("a child")
}

fn what_is_missing_is_said() {
    let ran = run(&["--card", "e1000", "--", "true"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.error_line()
            .contains("the models are e1000e, vmxnet3, virtio"),
        "{ran:?}"
    );
    let ran = run(&["--card", "virtio,kernle", "--", "true"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.error_line()
            .contains("'kernle' is not kernel, hub=N or tap=NAME"),
        "{ran:?}"
    );
    let ran = run(&["--card", "virtio,tap=abcdefghijklmnop", "--", "true"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let limit = "'abcdefghijklmnop' has 16 bytes, and Linux accepts at most 15";
    assert!(ran.error_line().contains(limit), "{ran:?}");
    let ran = run(&[]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.error_line().contains("packtrain guest -- COMMAND"),
        "{ran:?}"
    );
    let ran = finish(start(
        guest(&["--", "true"]).env("PACKTRAIN_GUEST", "/nowhere"),
    ));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.error_line().contains("`packtrain guest --fetch`"),
        "{ran:?}"
    );
    let ran = finish(start(guest(&["--", "true"]).env("PATH", "/nowhere")));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.error_line().contains("apt-get install"), "{ran:?}");
}
