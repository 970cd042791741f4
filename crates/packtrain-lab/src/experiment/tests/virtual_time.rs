//! Settings that run on virtual machines.

use serde_json::Value;

use super::OPTIONS;
use crate::error::ToolError;
use crate::experiment::{BUILT_IN, Only, Options, built_in};
use crate::harness::{rows, setup};
use crate::tool::{Control, Measured};

fn run(testbed: &str, workload: &str, seed: u64) -> Measured {
    let measured = setup(testbed, workload, "seconds", seed).run(&Control::default());
    measured.unwrap_or_else(|error| panic!("{testbed}: {error}"))
}

fn number(measured: &Measured, name: &str) -> f64 {
    let found = measured.figures.get(name).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("{name}: {:?}", measured.figures))
}

const TOOLS: [(&str, &str); 3] = [
    (
        r#"machine = "4x2,irq=msi", a = "sim:rate=1000000""#,
        r#"tool = "send", senders = 2, batch = 1, busy = 1, duration = "1ms""#,
    ),
    (
        r#"machine = "2", a = "sim:", b = "sim:tx=shared""#,
        r#"tool = "forward", rate = "200k", duration = "1ms""#,
    ),
    (
        r#"machine = "2,irq=intx", idle = "halt", a = "sim:", b = "sim:far=echo""#,
        r#"tool = "ping", rate = "20k", duration = "1ms""#,
    ),
];

#[test]
fn a_virtual_run_is_the_same_twice_to_the_bit() {
    for (testbed, workload) in TOOLS {
        let [first, second, other] = [7, 7, 8].map(|seed| run(testbed, workload, seed));
        assert_eq!(first, second, "{workload}");
        assert_ne!(first, other, "{workload}: the seed counts");
        let machine = first.settings["machine"].as_str().expect("a machine");
        assert!(machine.starts_with("virtual "), "{machine}");
    }
}

#[test]
fn a_virtual_run_accounts_for_its_packets_and_its_time() {
    let [send, forward, ping] = TOOLS.map(|(testbed, workload)| run(testbed, workload, 1));
    let sent = number(&send, "sent_packets");
    assert!(sent > 100.0 && sent == number(&send, "received_packets"));
    // What is in the rings at the end of the millisecond is sent, too.
    assert!((1e-3..8e-3).contains(&number(&send, "seconds")));
    let parts = ["ns_per_packet_sender", "ns_per_packet_worker"].map(|name| number(&send, name));
    assert!(parts.iter().all(|part| *part > 0.0), "{parts:?}");
    let sum = parts.iter().sum::<f64>();
    assert!((number(&send, "ns_per_packet") - sum).abs() < 1e-6);
    assert!((195.0..=200.0).contains(&number(&forward, "packets")));
    assert!(number(&forward, "switches_per_s") > 0.0);
    assert_eq!(
        number(&ping, "sent_requests"),
        number(&ping, "received_replies")
    );
    let latency = &ping.figures["latency_us"];
    assert!(latency["p50"].as_f64() > Some(5.0), "{latency}");
}

#[test]
fn a_shared_interrupt_adds_its_handler_and_a_timer_holds_requests() {
    let median = |irq: &str, rate: &str| {
        let machine = format!("machine = \"2,irq={irq}\"");
        let testbed = format!("{machine}, idle = \"halt\", a = \"sim:\", b = \"sim:far=echo\"");
        let workload = format!("tool = \"ping\", rate = \"{rate}\", duration = \"4ms\"");
        let ping = run(&testbed, &workload, 1);
        ping.figures["latency_us"]["p50"].as_f64().expect("replies")
    };
    assert!(
        median("msi", "2k") > median("msix", "2k") + 1.0,
        "reading the cause"
    );
    // Requests are 50 us apart, and interrupts 125 us.
    assert!(median("intx", "20k") > median("msi", "20k") + 25.0);
    assert!(median("intx", "2k") < median("intx", "20k"));
}

#[test]
fn what_a_virtual_machine_cannot_have_is_explained() {
    for [testbed, workload, expected] in rows(
        r#"
        a = "tap" | tool = "send" | a cannot be 'tap' on a virtual machine
        a = "sim:", b = "tap:x" | tool = "forward" | b cannot be 'tap:x'
        a = "sim:" | tool = "blast" | tool blast is not for a virtual machine
        a = "sim:", cpus = "sender=2" | tool = "send" | the CPUs 0-1
        a = "sim:", placement = "list(2)" | tool = "send" | choose from 0-1
        a = "sim:", b = "sim:" | tool = "ping", flood = true | flood=
        a = "null:", b = "sim:" | tool = "forward", rate = "1k" | a = "sim:"
        "#,
    ) {
        let testbed = format!("machine = \"2\", {testbed}");
        let outcome = setup(&testbed, workload, "seconds", 1).run(&Control::default());
        let (Err(ToolError::Usage(line)) | Err(ToolError::Missing(line))) = &outcome else {
            panic!("{testbed}: {outcome:?}");
        };
        assert!(line.contains(expected), "{line}");
    }
}

/// A virtual figure is not to be taken for a measurement.
#[test]
fn virtual_settings_of_built_in_experiments_are_called_so() {
    for (name, _) in BUILT_IN {
        let experiment = built_in(name).expect("a built-in experiment");
        let title = &experiment.definition.title;
        for (index, cell) in experiment.cells.iter().enumerate() {
            let is_called = cell.names.iter().any(|name| name.starts_with("virtual"));
            let is_called = is_called || title.contains("in virtual time");
            assert_eq!(cell.is_virtual(), is_called, "{}", experiment.label(index));
            let kept = |only| {
                let only = Some(only);
                Options { only, ..OPTIONS }.leave_out(cell).is_none()
            };
            assert_eq!(kept(Only::Sim), cell.is_virtual());
            assert_eq!(kept(Only::Guest), cell.is_in_guest());
            let is_here = !cell.is_virtual() && !cell.is_in_guest();
            assert_eq!(kept(Only::Kernel), is_here);
        }
    }
}
