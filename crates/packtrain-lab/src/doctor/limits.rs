//! Limits of the process and sysctls that limit it.

use packtrain::policy::priority::AHEAD;
use packtrain::policy::topology::Topology;

use super::finding::Finding;
use super::host::Host;
use crate::cgroup;
use crate::traffic::udp::RECEIVE_BUFFER;

/// Descriptors of a run for each queue of each port, and besides, as the advice for `EMFILE` says.
const DESCRIPTORS_OF_QUEUE: u64 = 4;
const DESCRIPTORS_BESIDES: u64 = 16;

pub(super) fn findings(host: &Host<'_>) -> Vec<Finding> {
    vec![
        receive_buffer(host),
        open_files(host).needed(),
        nice(host),
        cpu_quota(host),
    ]
}

fn receive_buffer(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "net.core.rmem_max";
    match host.trials.receive_buffer {
        // The kernel grants twice the requested bytes, for its own structures.
        Ok(granted) if granted >= 2 * RECEIVE_BUFFER => {
            Finding::yes(SUBJECT, format!("a UDP socket gets {RECEIVE_BUFFER} bytes"))
        }
        Ok(granted) => {
            let got = granted / 2;
            let detail = format!("a UDP socket gets {got} bytes of {RECEIVE_BUFFER}");
            let mend = host.set_sysctl(SUBJECT, &RECEIVE_BUFFER.to_string());
            Finding::limited(SUBJECT, detail).mend(Some(mend))
        }
        Err(error) => Finding::no(SUBJECT, error.to_string()),
    }
}

fn open_files(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "open files";
    let limits = host.read("proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let mut numbers = line
        .unwrap_or_default()
        .split_whitespace()
        .map(|word| match word {
            "unlimited" => Some(u64::MAX),
            _ => word.parse().ok(),
        });
    let mut next = || numbers.next().flatten();
    let (Some(soft), Some(hard)) = (next(), next()) else {
        return Finding::limited(SUBJECT, "the limit is not known: /proc/self/limits");
    };
    let queues = soft.saturating_sub(DESCRIPTORS_BESIDES) / DESCRIPTORS_OF_QUEUE / 2;
    let detail = format!("{soft}: enough for {queues} queues of each of two ports");
    let cpus = Topology::read(host.root).map_or(1, |topology| topology.cpus().len() as u64);
    if queues >= cpus {
        return Finding::yes(SUBJECT, detail);
    }
    let wanted = 2 * DESCRIPTORS_OF_QUEUE * cpus + DESCRIPTORS_BESIDES;
    let mend = if wanted <= hard {
        format!("ulimit -n {wanted}")
    } else {
        host.as_root(&format!("prlimit --pid $$ --nofile={wanted}"))
    };
    if queues == 0 {
        return Finding::no(SUBJECT, detail).mend(Some(mend));
    }
    Finding::limited(SUBJECT, format!("{detail}, and not for one for each CPU")).mend(Some(mend))
}

fn nice(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "nice levels";
    match &host.trials.nice_levels {
        Ok(levels) if *levels >= AHEAD => {
            Finding::yes(SUBJECT, format!("a worker's thread goes {levels} ahead"))
        }
        Ok(levels) => {
            let detail = format!("a worker's thread goes {levels} of {AHEAD} ahead");
            let mend = (!host.trials.superuser)
                .then(|| host.as_root(&format!("prlimit --pid $$ --nice={}", 20 + AHEAD)));
            Finding::limited(SUBJECT, detail).mend(mend)
        }
        Err(error) => Finding::no(SUBJECT, error),
    }
}

fn cpu_quota(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "CPU quota";
    let Some(quota) = cgroup::quota(host.root) else {
        return Finding::yes(SUBJECT, "no control group of the process has one");
    };
    let (cpus, none) = (quota.cpus, quota.none);
    let file = host.system(&quota.file);
    let detail = format!("{cpus:.2} CPUs by {file}");
    let allowed = Topology::read(host.root);
    if cpus >= allowed.map_or(f64::INFINITY, |topology| topology.cpus().len() as f64) {
        return Finding::yes(SUBJECT, format!("{detail}, as many as the process may use"));
    }
    let detail = format!("{detail}: a run that is throttled is not judged");
    let mend = host.as_root(&format!("sh -c 'echo {none} > \"{file}\"'"));
    Finding::limited(SUBJECT, detail).mend(Some(mend))
}
