//! A virtual machine, as it is written in a file: `4x2`, or `16,interrupt=0.5`.

use crate::rig::Rig;
use crate::{Costs, Hardware, Vectors, machine};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The most cores of a machine that is written.
const CORES_MAX: usize = 64;
/// The range of the factor of a price.
const FACTORS: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// What a world is made of. It is read from `CORES` or `CORESxTHREADS`, and behind them the factors
/// of prices that are not the usual ones ([`Costs`]): `4x2,irq=msi,wakeup=1.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualMachine {
    /// Its CPUs.
    pub hardware: Hardware,
    /// Its prices.
    pub costs: Costs,
    /// How the interrupts of its devices reach workers: `irq=msix`, `msi` or `intx`.
    pub vectors: Vectors,
    /// See [`World::new`](crate::World::new).
    pub seed: u64,
}

impl VirtualMachine {
    /// An empty world.
    #[must_use]
    pub fn rig(&self) -> Rig {
        Rig::new(self.hardware, self.costs, self.seed)
    }
}

impl FromStr for VirtualMachine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let cpus = parts.next().unwrap_or_default();
        let (cores, threads) = cpus.split_once('x').unwrap_or((cpus, "1"));
        let number = |text: &str, most| text.parse().ok().filter(|n| (1..=most).contains(n));
        let (Some(cores), Some(threads)) = (number(cores, CORES_MAX), number(threads, 2)) else {
            return Err(format!(
                "a machine has 1 to {CORES_MAX} cores of 1 or 2 threads: write 8, or 4x2"
            ));
        };
        let (mut costs, mut vectors) = (Costs::default(), Vectors::default());
        for price in parts {
            let (name, factor) = price.split_once('=').unwrap_or((price, ""));
            if name == "irq" {
                let known = Vectors::NAMES.into_iter().find(|(name, _)| *name == factor);
                let Some((_, known)) = known else {
                    return Err("irq= is msix, msi or intx".to_owned());
                };
                vectors = known;
                continue;
            }
            let factor = factor
                .parse()
                .ok()
                .filter(|factor| FACTORS.contains(factor));
            let known = costs.prices_mut();
            let known = known.into_iter().find(|(other, _)| *other == name);
            let (Some((_, price)), Some(factor)) = (known, factor) else {
                let names: Vec<_> = costs.prices_mut().map(|(name, _)| name).into();
                return Err(format!(
                    "'{}' is not the factor of a price: write as in {}=1.5, 0.01 to 100; the \
                     prices are {}",
                    price.escape_default(),
                    names[0],
                    names.join(", ")
                ));
            };
            *price = price.mul_f64(factor).max(Duration::from_nanos(1));
        }
        let hardware = Hardware {
            cpus: cores * threads,
            ..machine(cores)
        };
        Ok(Self {
            hardware,
            costs,
            vectors,
            seed: 1,
        })
    }
}

/// The text that is read as the same, without the seed.
impl fmt::Display for VirtualMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hardware { cpus, cores, .. } = self.hardware;
        match cpus == cores {
            true => write!(f, "{cores}")?,
            false => write!(f, "{cores}x{}", cpus / cores)?,
        }
        if self.vectors != Vectors::default() {
            let mut names = Vectors::NAMES.into_iter();
            let name = names.find(|(_, vectors)| *vectors == self.vectors);
            write!(f, ",irq={}", name.map_or("", |(name, _)| name))?;
        }
        let (mut own, mut usual) = (self.costs, Costs::default());
        for ((name, price), (_, usual)) in own.prices_mut().into_iter().zip(usual.prices_mut()) {
            if price != usual {
                write!(f, ",{name}={}", price.as_secs_f64() / usual.as_secs_f64())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_what_was_written() {
        for (text, cpus, cores) in [("1", 1, 1), ("16", 16, 16), ("4x2", 8, 4)] {
            let machine: VirtualMachine = text.parse().expect(text);
            assert_eq!(
                (machine.hardware.cpus, machine.hardware.cores),
                (cpus, cores)
            );
            assert_eq!(machine.costs, Costs::default());
            assert_eq!(machine.to_string(), text);
        }
        let text = "2,irq=msi,wakeup=0.5,switch=1.5";
        let machine: VirtualMachine = text.parse().expect(text);
        let usual = Costs::default();
        assert_eq!(machine.vectors, Vectors::Port);
        assert_eq!(machine.costs.wakeup, usual.wakeup / 2);
        assert_eq!(machine.costs.switch, usual.switch * 3 / 2);
        assert_eq!(machine.to_string(), text);
    }

    #[test]
    fn what_is_no_machine_is_explained() {
        let error = "2,irq=pin"
            .parse::<VirtualMachine>()
            .expect_err("no vector");
        assert_eq!(error, "irq= is msix, msi or intx");
        for text in ["", "0", "65", "4x3", "4x0", "x2", "-1"] {
            let error = text.parse::<VirtualMachine>().expect_err(text);
            assert!(error.contains("write 8, or 4x2"), "{text}: {error}");
        }
        for text in ["2,", "2,sun=1", "2,switch", "2,switch=x", "2,switch=0"] {
            let error = text.parse::<VirtualMachine>().expect_err(text);
            assert!(error.contains("the prices are step, packet"), "{error}");
        }
    }
}
