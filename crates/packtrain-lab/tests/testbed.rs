//! Whatever joins the two hosts of a testbed carries their packets.

use packtrain_lab::ToolError;
use packtrain_lab::cpus;
use packtrain_lab::ethtool::Offload;
use packtrain_lab::harness::{self, assert_refused, need_tap, options, skip, start, wait_for};
use packtrain_lab::options::Fields;
use packtrain_lab::testbed::{Testbed, TestbedOptions, Through};
use packtrain_lab::tool::{self, Control, Measured, Tool};
use packtrain_lab::tools::blast::Blast;
use packtrain_lab::topology::{Settings, TwoHosts};
use packtrain_lab::traffic::{Amount, IpVersion, Transfer};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{self, ExitCode};

fn main() -> ExitCode {
    harness::main(&[
        ("packtrain_joins", || joins(Through::Packtrain)),
        ("a_veth_pair_joins", || joins(Through::Veth)),
        ("a_bridge_joins", || joins(Through::Bridge)),
        ("the_c_forwarder_joins", || joins(Through::C)),
        ("what_the_caller_joins_is_measured", caller),
        ("a_wrong_port_is_explained", wrong_port),
        ("settings_are_read_back", read_back),
        ("parts_are_bound_to_cpus", bound),
        ("the_c_forwarder_is_bound_to_a_cpu", c_bound),
        ("a_device_that_fails_is_the_error", fails),
        (
            "faults_and_memory_are_figures_of_an_experiment",
            faults_and_memory,
        ),
    ])
}

const BYTES: u64 = 4 << 20;

fn joins(through: Through) {
    need_tap();
    // Skipped without a C compiler.
    let testbed = start(&TestbedOptions {
        through,
        ..options(&["mtu = 9000"])
    });
    let hosts = testbed.hosts();
    let before = testbed.used();
    for (from, to) in [(&hosts.left, &hosts.right), (&hosts.right, &hosts.left)] {
        for ip in [IpVersion::V4, IpVersion::V6] {
            let transfer = Transfer::tcp(ip, Amount::Bytes(BYTES));
            let report = transfer.run(from, to).expect("a transfer");
            assert!(report.hash_ok, "{report:?}");
        }
    }
    let has_threads = matches!(through, Through::Packtrain | Through::C);
    let used = testbed.used();
    assert_eq!(used.threads > 0, has_threads, "{through:?}");
    // packtrain's threads are in this process.
    let is_other = !used.of_other_process().is_zero();
    assert_eq!(is_other, through == Through::C, "{through:?}");
    assert_eq!(
        !used.since(&before).cpu.is_zero(),
        has_threads,
        "{through:?}"
    );
    let settings = testbed.settings();
    assert_eq!(settings.contains_key("c_offload"), through == Through::C);
    let ended = testbed.finish().expect("a closed ledger");
    let report = ended.report;
    assert_eq!(report.is_some(), through == Through::Packtrain);
    if let Some(report) = report {
        assert!(report.snapshot.ledger.received > 4 * BYTES / 65_536);
    }
}

/// A veth pair joins the hosts, and the process that is taken for the forwarder is this one, which
/// sends.
fn caller() {
    let hosts = TwoHosts::veth(&Settings::default()).expect("hosts");
    let host = &hosts.left;
    let has = |offload: Offload| offload.get(&host.netns, &host.link.name).expect("a switch");
    assert!(has(Offload::Checksum) && has(Offload::Tso));
    let off = Offload::Checksum.set(&host.netns, &host.link.name, false);
    off.expect("a veth has the switch");
    assert!(!has(Offload::Checksum) && !has(Offload::Tso));

    let testbed = Testbed::around(hosts, Some(process::id()));
    let blast: Blast = options(&["duration = '50ms'"]);
    let figures = blast
        .run(&testbed, &Control::default())
        .expect("a run")
        .figures;
    assert!(figures.received_packets > 0, "{figures:?}");
    assert!(figures.cpu_forwarder_percent > 0.0, "{figures:?}");
    assert!(!testbed.used().of_other_process().is_zero());
    let ended = testbed.finish().expect("the caller ends the forwarder");
    assert!(ended.report.is_none());

    let hosts = TwoHosts::veth(&Settings::default()).expect("hosts");
    assert_eq!(Testbed::around(hosts, None).used().threads, 0);
}

fn wrong_port() {
    for (a, expected) in [
        ("null", "--a cannot be 'null'"),
        ("tap,offlod=off", "--a: "),
        ("tap,queues=9999", "queues="),
    ] {
        let outcome = Testbed::start(&options(&[&format!("a = '{a}'")]));
        assert_refused(outcome, expected);
    }
}

fn read_back() {
    need_tap();
    let port = "a = 'tap,tx=shared,moderation=fixed(50,64)'";
    let testbed = start(&options(&[port, "mtu = 9000"]));
    let settings = testbed.settings();
    assert_eq!(settings["through"], "packtrain");
    assert_eq!(settings["mtu"], 9000);
    for (name, value) in [
        ("path_a", "shared"),
        ("path_b", "owned"),
        ("moderation_a", "fixed(50,64)"),
        ("moderation_b", "adaptive"),
    ] {
        assert_eq!(settings[name], value, "{name}");
    }
    testbed.finish().expect("a closed ledger");
}

/// Ends the device under test, and fails as a tool does that only sees no more packets.
struct Breaks;

impl Tool for Breaks {
    type Settings = Fields;
    type Figures = Fields;

    fn run(&self, testbed: &Testbed, _control: &Control<'_>) -> Result<Measured, ToolError> {
        let stalled = ToolError::Failed("tcp send stalled".to_owned());
        if let Some(session) = testbed.session() {
            let host = &testbed.hosts().left;
            host.netns.rtnl()?.delete(host.link.index)?;
            wait_for("the end of packtrain", || session.is_over());
        } else {
            let forwarder = child().expect("the C forwarder");
            kill_process(forwarder, Signal::KILL).expect("a signal");
            wait_for("the end of the C forwarder", || child().is_none());
        }
        Err(stalled)
    }
}

/// A process that this one started and that runs.
fn child() -> Option<Pid> {
    let own = process::id().to_string();
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    processes.into_iter().find_map(|entry| {
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // Its name, which may contain anything, ends at the last parenthesis.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let (state, parent) = (fields.next()?, fields.next()?);
        (parent == own && state != "Z").then(|| Pid::from_raw(number))?
    })
}

fn fails() {
    need_tap();
    let control = Control::default();
    for (through, cause) in [
        (Through::Packtrain, "pt-a: "),
        (Through::C, "the C forwarder ended by itself: signal: 9"),
    ] {
        let options = TestbedOptions {
            through,
            ..TestbedOptions::default()
        };
        match tool::measure(&options, &Breaks, &control) {
            Err(ToolError::Failed(line)) => assert!(line.starts_with(cause), "{line}"),
            // A C compiler.
            Err(ToolError::Missing(what)) => skip(what),
            other => panic!("{other:?}"),
        }
    }
}

fn faults_and_memory() {
    need_tap();
    let testbed = "a = 'tap,offload=off,corrupt=0.05,seed=1', b = 'tap,offload=off'";
    let blast = "tool = 'blast', rate = '20k', burst = 1, count = 900, settle = '50ms'";
    let run = |figure: &str| {
        let setup = harness::setup(testbed, blast, figure, 1);
        setup.run(&Control::default()).expect("a run").figures
    };
    let figures = run("lost_packets");
    assert_eq!(figures.get("memory"), None, "no figure needs it");
    let figures = run("memory.small_used");
    let corrupted = figures["faults"]["a"]["corrupted"].as_u64();
    assert!(corrupted > Some(0), "{corrupted:?}");
    assert!(figures["faults"]["b"].is_null(), "no injector");
    // The receiving kernel finds every one by its checksum.
    assert_eq!(figures["lost_packets"].as_u64(), corrupted);
    let memory = |key: &str| figures["memory"][key].as_u64().expect(key);
    for size in ["small", "large"] {
        let (used, total) = (
            memory(&format!("{size}_used")),
            memory(&format!("{size}_total")),
        );
        assert!(0 < used && used <= total, "{size}: {used} of {total}");
    }
    let device = &figures["b"]["device"];
    assert!(device["rx_packets"].as_u64() > Some(0));
    assert_eq!(device["rx_errors"], 0);
}

fn c_bound() {
    need_tap();
    let allowed = cpus::allowed().expect("the mask");
    for worker in [None, allowed.last()] {
        let cpus = worker.map(|cpu| format!("cpus = 'worker={cpu}'"));
        // Skipped without a C compiler.
        let testbed = start(&options(&["through = 'c'", &cpus.unwrap_or_default()]));
        let found = testbed.settings()["c_cpus"].as_str().expect("CPUs");
        match worker {
            Some(cpu) => assert_eq!(found, cpu.to_string()),
            None => assert_eq!(found.contains([',', '-']), allowed.len() > 1, "{found}"),
        }
        testbed.finish().expect("it runs");
    }
}

fn bound() {
    need_tap();
    let cpu = cpus::allowed().expect("the mask")[0];
    let all = format!("cpus = 'sender={cpu},worker={cpu},receiver={cpu}'");
    let testbed = start(&options(&[&all]));
    let settings = testbed.settings();
    assert_eq!(settings["placement"], format!("list({cpu})"));
    let shared = format!("sender, worker and receiver share CPU {cpu}");
    assert_eq!(settings["cpus_shared"], shared);
    // The threads read their masks back.
    let blast: Blast = options(&["count = 1000, rate = '100kpps'"]);
    let measured = blast.run(&testbed, &Control::default()).expect("a run");
    assert_eq!(measured.figures.sent_packets, 1000);
    testbed.finish().expect("a closed ledger");

    let testbed = start(&options(&["priority = 'nice(19)'"]));
    assert_eq!(testbed.settings()["priority"], "nice(19)");
    let session = testbed.session().expect("packtrain joins the hosts");
    let workers = session.snapshot().workers;
    assert!(workers.iter().all(|worker| worker.nice == 19));
    testbed.finish().expect("a closed ledger");
    for (keys, expected) in [
        ("through = 'veth'", "leave worker= out"),
        ("placement = 'none'", "contradict each other"),
        ("mtu = 1279", "--mtu cannot be '1279'"),
    ] {
        assert_refused(Testbed::start(&options(&[&all, keys])), expected);
    }
    // A file may name a CPU that this machine lacks: then the row is missing.
    match Testbed::start(&options(&["cpus = 'sender=60000'"])) {
        Err(ToolError::Missing(line)) => assert!(line.contains("'60000'"), "{line}"),
        other => panic!("{other:?}"),
    }
}
