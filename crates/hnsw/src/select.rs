//! pgvector's choice of neighbors.

use crate::finish::Space;

/// The diversity rule with refill (algorithm 4 of the HNSW paper with `keepPrunedConnections`): of the candidates, nearest first, those
/// that are nearer to the element than to any neighbor chosen before; what is then left of the list gets the nearest of the rest.
///
/// `candidates` are pairs of distance and element in ascending order; `list` is emptied first.
pub(crate) fn diverse(space: Space<'_>, candidates: &[(f32, u32)], wanted: usize, list: &mut Vec<u32>) {
    list.clear();
    if candidates.len() <= wanted {
        list.extend(candidates.iter().map(|&(_, candidate)| candidate));
        return;
    }
    let mut pruned = Vec::new();
    for &(distance, candidate) in candidates {
        if list.len() == wanted {
            return;
        }
        if list.iter().all(|&chosen| space.distance(candidate, chosen) > distance) {
            list.push(candidate);
        } else {
            pruned.push(candidate);
        }
    }
    let missing = wanted - list.len();
    list.extend(pruned.into_iter().take(missing));
}
