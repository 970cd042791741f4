//! What the doctor says of this host, and of hosts that lack something, is what other runs find.

mod program;

use program::{PACKTRAIN, Ran, Scratch, assert_documented, command, finish, in_namespace, start};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// A user that each system has (`nobody`).
const NOBODY: u32 = 65534;

fn run(mut command: Command) -> Ran {
    finish(start(&mut command))
}

/// The finding about `subject`.
fn finding<'a>(document: &'a Value, subject: &str) -> &'a Value {
    let findings = document["findings"].as_array().expect("a list");
    let found = findings.iter().find(|one| one["subject"] == subject);
    found.unwrap_or_else(|| panic!("{subject} in {document}"))
}

fn works(document: &Value) -> bool {
    document["works"].as_bool().expect("true or false")
}

/// Checks what each document has in common, and returns it.
fn examined(ran: &Ran) -> Value {
    let document = ran.json();
    assert_documented(&document, &["all", "doctor"]);
    let code = if works(&document) { 0 } else { 3 };
    assert_eq!(ran.code, Some(code), "{ran:?}");
    if works(&document) {
        assert_eq!(ran.err, "", "{ran:?}");
    } else {
        assert!(
            ran.error_line()
                .starts_with("TAP interfaces in namespaces do not work: "),
            "{ran:?}"
        );
    }
    let findings = document["findings"].as_array().expect("a list");
    for one in findings {
        let lacks = one["state"] != "yes";
        assert!(lacks || one["mend"].is_null(), "nothing to mend: {one}");
    }
    let mut needed = findings.iter().filter(|one| one["needed"] == true);
    assert_eq!(
        needed.any(|one| one["state"] == "no"),
        !works(&document),
        "{document}"
    );
    document
}

/// A copy that every user may run, and the words that run it as this one.
struct AsNobody {
    _scratch: Scratch,
    program: String,
}

impl AsNobody {
    /// `None`, with a line that says so, if this process may not become another user.
    fn new() -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").expect("/proc");
        if !status.lines().any(|line| line == "Uid:\t0\t0\t0\t0") {
            println!("SKIP: only root can become another user");
            return None;
        }
        let scratch = Scratch::new("doctor");
        let program = scratch.file("packtrain");
        // By another process: a child that a test beside this one starts would inherit the
        // descriptor, and a file that is open for writing cannot be run.
        let copied = run(command("cp", &[PACKTRAIN, &program]));
        assert_eq!(copied.code, Some(0), "{copied:?}");
        for path in [scratch.file(""), program.clone()] {
            let all = fs::Permissions::from_mode(0o755);
            fs::set_permissions(path, all).expect("our own");
        }
        Some(Self {
            _scratch: scratch,
            program,
        })
    }

    /// `words` with the copy instead of the program.
    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let ours = |word: &&'a str| match *word {
            PACKTRAIN => self.program.as_str(),
            word => word,
        };
        words.iter().map(ours).collect()
    }

    /// Runs `words` as root in the environment of the unprivileged user. The words change the user.
    fn run_as_root(&self, words: &[&str]) -> Ran {
        let mut command = command(words[0], &words[1..]);
        command.current_dir("/").env("USER", NOBODY.to_string());
        run(command)
    }
}

const DOCTOR: [&str; 3] = [PACKTRAIN, "doctor", "--json"];
const PLAN: [&str; 4] = [PACKTRAIN, "plan", "tap:ptdoctor", "null:"];

#[test]
fn a_tap_that_it_calls_possible_opens() {
    examined(&program::packtrain(&DOCTOR[1..]));
    let Some(way) = in_namespace() else { return };
    let words = [&way[1..], &DOCTOR].concat();
    let document = examined(&run(command(way[0], &words)));
    assert!(works(&document), "{document}");
    // `in_namespace` has opened one there.
    for kind in ["tap", "tun"] {
        assert_eq!(finding(&document, kind)["state"], "yes", "{document}");
    }
    let plan = ["plan", "tap:ptdoctor,queues=2", "null:", "--json"];
    let words = [&way[1..], &[PACKTRAIN], &plan].concat();
    let plan = run(command(way[0], &words));
    let opened = plan.code == Some(0);
    assert_eq!(
        finding(&document, "several queues")["state"] == "yes",
        opened,
        "{plan:?}"
    );
    let offloads = &plan.json()["plan"]["ports"]["ptdoctor"]["device_tx"];
    let has = |name: &str| offloads.as_array().expect("a list").contains(&name.into());
    for (subject, name) in [
        ("checksums", "ipv4-checksum"),
        ("tso4", "tso4"),
        ("uso", "uso6"),
    ] {
        let said = finding(&document, subject)["state"] == "yes";
        assert_eq!(said, has(name), "{subject}: {plan:?}");
    }
}

/// A `/dev/net/tun` for one test, in a mount namespace, and how the doctor's command for it starts
/// if a user cannot open it.
const NODES: [(&str, Option<&str>); 3] = [
    ("mknod -m 666 /dev/net/tun c 10 200", None),
    (
        "mknod -m 600 /dev/net/tun c 10 200",
        Some("sudo chmod 666 /dev/net/tun"),
    ),
    (":", Some("sudo sh -c 'mkdir -p /dev/net && mknod ")),
];

/// A script that hides the host's `/dev/net`, runs `as_root`, and then `words` as the
/// unprivileged user.
fn with_node(as_root: &str, words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    format!(
        "mount -t tmpfs -o dev none /dev/net && {as_root} && exec setpriv --reuid {NOBODY} \
         --regid {NOBODY} --clear-groups {}",
        quoted.join(" ")
    )
}

#[test]
fn an_unprivileged_user_sees_what_that_user_may_do() {
    let Some(nobody) = AsNobody::new() else {
        return;
    };
    if in_namespace().is_none() {
        return;
    }
    for (node, mend) in NODES {
        let as_nobody = |words: &[&str]| {
            let script = with_node(node, words);
            nobody.run_as_root(&["unshare", "-m", "sh", "-c", &script])
        };
        let document = examined(&as_nobody(&nobody.words(&DOCTOR)));
        // In the host's namespace, where the attempt is refused.
        let plan = as_nobody(&nobody.words(&PLAN));
        assert_eq!(plan.code, Some(3), "{node}: {plan:?}");
        let said = finding(&document, "tap");
        assert_ne!(said["state"], "yes", "{node}: {said}");
        let expected = mend.unwrap_or("sudo ip tuntap add dev tap0 ");
        let mend = said["mend"].as_str().expect("a command");
        assert!(mend.starts_with(expected), "{node}: {mend}");
        // In one of its own.
        let words = [&["unshare", "-Urn"], &nobody.words(&PLAN)[..]].concat();
        let plan = as_nobody(&words);
        assert_eq!(
            works(&document),
            plan.code == Some(0),
            "{node}: {document} {plan:?}"
        );
    }
}

/// The interface of a user, as the doctor's commands make it, one after the other.
#[test]
fn the_commands_give_an_unprivileged_user_an_interface() {
    let Some(nobody) = AsNobody::new() else {
        return;
    };
    if command("ip", &["-V"]).output().is_err() || in_namespace().is_none() {
        println!("SKIP: no network namespace, or no ip(8), for an interface");
        return;
    }
    for (node, first) in NODES {
        let mut before = node.to_owned();
        for _ in 0..=usize::from(first.is_some()) {
            let script = with_node(&before, &nobody.words(&DOCTOR));
            let ran = nobody.run_as_root(&["unshare", "-mn", "sh", "-c", &script]);
            let document = ran.json();
            let mend = finding(&document, "tap")["mend"]
                .as_str()
                .expect("a command");
            before += " && ";
            before += mend.strip_prefix("sudo ").expect("not root");
        }
        let plan = nobody.words(&[PACKTRAIN, "plan", "tap:tap0,queues=2", "null:"]);
        let script = with_node(&before, &plan);
        let plan = nobody.run_as_root(&["unshare", "-mn", "sh", "-c", &script]);
        assert_eq!(plan.code, Some(0), "{before}: {plan:?}");
    }
}

/// Runs a doctor after `lack`, in a user and a mount namespace, and another one after its command:
/// the last word of `subject`'s finding is that it works.
fn mends(options: &str, lack: &str, subject: &str, expected: &str) {
    if !command("unshare", &[options, "sh", "-c", lack])
        .output()
        .is_ok_and(|made| made.status.success())
    {
        println!("SKIP: no namespaces here for: {lack}");
        return;
    }
    let doctor = |mend: &str| {
        let script = format!("{lack} && {mend} && exec \"$0\" doctor --json");
        run(command(
            "unshare",
            &[options, "sh", "-c", &script, PACKTRAIN],
        ))
    };
    let ran = doctor(":");
    let document = examined(&ran);
    assert!(!works(&document), "{document}");
    let found = finding(&document, subject);
    assert_eq!(
        (&found["state"], &found["needed"]),
        (&"no".into(), &true.into()),
        "{found}"
    );
    let mend = found["mend"].as_str().expect("a command");
    assert!(mend.starts_with(expected), "{mend}");
    assert!(ran.error_line().ends_with(mend), "{ran:?}");
    let program = mend.split(' ').next().expect("a word");
    if program == "sysctl" && command("sysctl", &["-V"]).output().is_err() {
        println!("SKIP: no sysctl(8) here: {mend} is not tried");
        return;
    }
    let mended = examined(&doctor(&format!("{mend} >/dev/null")));
    assert_eq!(finding(&mended, subject)["state"], "yes", "{mended}");
}

#[test]
fn the_command_mends_a_limit_of_zero_namespaces() {
    if in_namespace().is_none() {
        return;
    }
    mends(
        "-Ur",
        "echo 0 > /proc/sys/user/max_net_namespaces",
        "network namespaces",
        "sysctl -w user.max_net_namespaces=",
    );
}

/// In a user namespace the kernel makes no device node.
#[test]
fn the_command_mends_a_device_that_is_not_there() {
    if AsNobody::new().is_none() || in_namespace().is_none() {
        return;
    }
    let hide = "mount -t tmpfs -o dev none /dev/net";
    mends("-m", hide, "/dev/net/tun", "sh -c 'mkdir -p /dev/net");
}

/// A process that may neither make namespaces nor become root of one.
#[test]
fn without_user_namespaces_the_sysctl_is_named() {
    if command("setpriv", &["--version"]).output().is_err() {
        println!("SKIP: no setpriv(1) here to drop capabilities with");
        return;
    }
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv \
                  --bounding-set=-all --inh-caps=-all \"$0\" doctor";
    let doctor = |script: &str| run(command("unshare", &["-Ur", "sh", "-c", script, PACKTRAIN]));
    if doctor("exit 0").code != Some(0) {
        println!("SKIP: no user namespace can be made here");
        return;
    }
    let document = examined(&doctor(&format!("{script} --json")));
    let found = finding(&document, "user namespaces");
    assert_eq!(found["state"], "no", "{found}");
    let mend = found["mend"].as_str().expect("a command");
    assert!(
        mend.starts_with("sysctl -w user.max_user_namespaces="),
        "{mend}"
    );
    let interface = finding(&document, "TAP in a namespace");
    assert_eq!(interface["detail"], "it needs network namespaces");
    // The table has the same, and the exit status too.
    let table = doctor(script);
    assert_eq!(table.code, Some(3), "{table:?}");
    assert!(
        table
            .out
            .contains(&format!("  {mend}\n      user namespaces, ")),
        "{table:?}"
    );
    assert!(
        table
            .out
            .contains("do not work, for lack of user namespaces"),
        "{table:?}"
    );
}

#[test]
fn the_command_mends_a_limit_on_descriptors() {
    if in_namespace().is_none() {
        return;
    }
    mends("-Ur", "ulimit -Sn 16", "open files", "ulimit -n ");
}

/// With any number of descriptors there is a report.
#[test]
fn it_says_so_if_descriptors_run_out() {
    let mut advised = 0;
    for limit in 3..=12 {
        let script = format!("ulimit -n {limit}; exec \"$0\" doctor --json");
        let ran = run(command("sh", &["-c", &script, PACKTRAIN]));
        // With very few the loader itself gives up, with 127.
        if ran.code != Some(127) {
            assert!(!works(&examined(&ran)), "{limit}: {ran:?}");
            advised += usize::from(ran.error_line().contains("`ulimit -n`"));
        }
    }
    assert!(advised > 0, "no limit was low enough");
}
