//! Interrupts between CPUs, as the system counts them: what it costs to wake a thread elsewhere.

use std::fs;

/// Interrupts that CPUs sent to each other, of the whole system: whoever else runs is in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// To run something else: a thread there was woken, above all (`RES` on x86).
    pub reschedule: u64,
    /// To run a function of the kernel: to flush address translations, or to wake an idle CPU's
    /// queue (`CAL` on x86).
    pub function_call: u64,
}

impl Interrupts {
    /// All of them since the system started; `None` where it does not say, as in some containers
    /// and on systems with one CPU.
    pub(super) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/interrupts").ok()?)
    }

    /// Reads the two rows of `/proc/interrupts` (`arch_show_interrupts` in Linux). Rows are known
    /// by their text, since their names are not the same on all processors.
    fn parse(text: &str) -> Option<Self> {
        let row = |title: &str| {
            let mut rows = text.lines().filter_map(|line| line.strip_suffix(title));
            let (_name, counts) = rows.next()?.split_once(':')?;
            // As many as there are CPUs, perhaps more CPUs than a buffer had place for.
            let counts = counts.split_whitespace().map(str::parse::<u64>);
            counts.sum::<Result<u64, _>>().ok()
        };
        Some(Self {
            reschedule: row("Rescheduling interrupts")?,
            function_call: row("Function call interrupts")?,
        })
    }

    /// What came since `start`.
    pub(super) const fn since(self, start: Self) -> Self {
        Self {
            reschedule: self.reschedule.wrapping_sub(start.reschedule),
            function_call: self.function_call.wrapping_sub(start.function_call),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_x86_and_arm_are_summed_over_all_cpus() {
        let x86 = "            CPU0       CPU1       \n\
            \x20 4:       1013          0   IO-APIC   4-edge      ttyS0\n\
            NMI:          0          0   Non-maskable interrupts\n\
            RES:      78369      74600   Rescheduling interrupts\n\
            CAL:     471214     477205   Function call interrupts\n\
            ERR:          0\n";
        let expected = Interrupts {
            reschedule: 152_969,
            function_call: 948_419,
        };
        assert_eq!(Interrupts::parse(x86), Some(expected));
        let arm = "           CPU0       CPU1       CPU2\n\
            \x2011:      5     6     7     GICv3  27 Level     arch_timer\n\
            IPI0:         1          2          3       Rescheduling interrupts\n\
            IPI1:        10         20         30       Function call interrupts\n\
            IPI2:         0          0          0       CPU stop interrupts\n";
        let expected = Interrupts {
            reschedule: 6,
            function_call: 60,
        };
        assert_eq!(Interrupts::parse(arm), Some(expected));
    }

    #[test]
    fn what_is_not_there_is_not_known() {
        for text in [
            "",
            "CPU0\n 4: 1 IO-APIC 4-edge ttyS0\n",
            "RES: 1 2 Rescheduling interrupts\n",
            "RES: 1 x Rescheduling interrupts\nCAL: 1 Function call interrupts\n",
            "Rescheduling interrupts\nFunction call interrupts\n",
        ] {
            assert_eq!(Interrupts::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_difference_is_what_came_meanwhile() {
        let at = |reschedule, function_call| Interrupts {
            reschedule,
            function_call,
        };
        assert_eq!(at(7, 100).since(at(5, 1)), at(2, 99));
        if let (Some(before), Some(after)) = (Interrupts::now(), Interrupts::now()) {
            assert!(after.reschedule >= before.reschedule);
            assert!(after.function_call >= before.function_call);
        }
    }
}
