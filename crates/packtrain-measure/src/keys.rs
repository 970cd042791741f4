//! Whether keys are grouped.

/// True if equal keys are neighbours; with `stable`, also in the order of their indices.
pub fn is_grouped<T>(items: &[T], key: impl Fn(&T) -> (u64, u64), stable: bool) -> bool {
    let mut seen = std::collections::HashSet::new();
    items.chunk_by(|a, b| key(a).0 == key(b).0).all(|group| {
        let ordered = group.is_sorted_by_key(|item| key(item).1);
        seen.insert(key(&group[0]).0) && (ordered || !stable)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grouped_means_together_and_in_order() {
        let key = |item: &(u64, u64)| *item;
        assert!(is_grouped(&[(5, 0), (5, 2), (3, 1)], key, true));
        assert!(!is_grouped(&[(5, 2), (5, 0), (3, 1)], key, true));
        assert!(is_grouped(&[(5, 2), (5, 0), (3, 1)], key, false));
        assert!(!is_grouped(&[(5, 0), (3, 1), (5, 2)], key, false));
    }
}
