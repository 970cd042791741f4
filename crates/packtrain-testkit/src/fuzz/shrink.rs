//! Fewer and smaller bytes that describe a world with the same failure.

/// Worlds that are run at most to shrink one.
const ATTEMPTS: usize = 600;

/// The smallest bytes that were found for which `fails` is still true. It is true for `bytes`.
pub(super) fn shrink(bytes: &[u8], mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut best = bytes.to_vec();
    let mut left = ATTEMPTS;
    loop {
        let before = best.clone();
        let mut attempt = |best: &mut Vec<u8>, candidate: Vec<u8>| {
            if left == 0 || candidate == *best {
                return false;
            }
            left -= 1;
            let still = fails(&candidate);
            if still {
                *best = candidate;
            }
            still
        };
        // What is behind the end is the smallest decision.
        let mut cut = best.len().div_ceil(2);
        while cut > 0 {
            let keep = best.len().saturating_sub(cut);
            let candidate = best[..keep].to_vec();
            if !attempt(&mut best, candidate) {
                cut /= 2;
            }
            cut = cut.min(best.len());
        }
        let mut chunk = (best.len() / 2).min(32);
        while chunk > 0 {
            let mut at = 0;
            while at < best.len() {
                let end = (at + chunk).min(best.len());
                let mut zeroed = best.clone();
                zeroed[at..end].fill(0);
                let mut without = best.clone();
                without.drain(at..end);
                if !attempt(&mut best, without) {
                    attempt(&mut best, zeroed);
                    at = end;
                }
            }
            chunk /= 2;
        }
        for at in 0..best.len() {
            for lower in [best[at] / 2, best[at].saturating_sub(1)] {
                let mut candidate = best.clone();
                candidate[at] = lower;
                attempt(&mut best, candidate);
            }
        }
        if best == before || left == 0 {
            return best;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_is_removed() {
        let bytes: Vec<_> = (0..200).map(|at| at as u8).collect();
        let fails = |bytes: &[u8]| bytes.contains(&77) && bytes.iter().any(|&byte| byte >= 100);
        let small = shrink(&bytes, fails);
        assert_eq!(small, [77, 100]);
    }

    #[test]
    fn nothing_is_smallest() {
        assert_eq!(shrink(&[1, 2, 3, 4, 5], |_| true), [0; 0]);
        assert_eq!(shrink(&[], |_| true), [0; 0]);
    }

    #[test]
    fn the_number_of_worlds_is_bounded() {
        let mut worlds = 0;
        shrink(&[255; 512], |_| {
            worlds += 1;
            worlds % 3 == 0
        });
        assert!(worlds <= ATTEMPTS);
    }
}
