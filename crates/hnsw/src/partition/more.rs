//! Repeats the partition with other pivots while the candidates lack too many true neighbors.
//!
//! Rows without structure in many dimensions share few leaves with their nearest neighbors: the more rows, the fewer. So the candidates of
//! a sample are compared with its true neighbors. While too many are missing, the points are partitioned again by other pivots.
//!
//! The same sample, drawn before the first partition, shows whether codes rank true neighbors. If not, no partition by codes would find them.

use distance::Candidate;

use super::Partition;
use crate::exact;
use crate::random::Random;
use crate::space::representation::most;
use crate::space::{Query, Space};
use crate::{BuildError, Control, Pool};

/// Points of the sample. To compare each with all points takes about a fiftieth of a build.
const SAMPLE: usize = 100;
/// True neighbors compared, for each point of the sample.
const K: usize = 10;
/// Neighbors that codes rank, for each point of the sample.
const RANKED: usize = 32;
/// Codes are used if the half of these that codes rank nearer has at least this share of the [`K`] true neighbors. It has all of them with
/// embeddings, and would have half of them in a random order.
const RANKED_WELL: f32 = 0.9;
/// Recall of the candidates from which no partition is added. Far below it the graph's recall is lower than insertion's; embeddings have
/// .97 and more.
const ENOUGH: f32 = 0.8;
/// A partition that raises the recall by less than this is the last: each costs about half as much as the rest of a build.
const LITTLE: f32 = 0.05;
/// The first random stream of these partitions; the first partition uses lower numbers.
const MORE: u64 = 1 << 40;

/// Partitions the points again while their candidates lack too many true neighbors.
pub(crate) fn partition_more(
    partition: &Partition<'_>,
    sample: &Sample,
    random: &Random,
    pool: &Pool,
) -> Result<(), BuildError> {
    let most = partition.plan.more;
    if !sample.resolved {
        return Ok(());
    }
    let mut recall = sample.recall(partition);
    for round in 1..=most {
        if recall >= ENOUGH {
            break;
        }
        if partition.counted {
            partition.control.progress().expect_more(partition.points.len() as u64);
        }
        pool.run(|| partition.run(&random.fork(MORE + round)))?;
        let before = std::mem::replace(&mut recall, sample.recall(partition));
        if recall < before + LITTLE {
            break;
        }
    }
    Ok(())
}

/// Points with their true neighbors.
pub(crate) struct Sample {
    /// For each point of the sample, its position and the distance of its [`K`]th true neighbor.
    points: Vec<(usize, f32)>,
    /// Whether codes, if there are any, rank true neighbors before others. They may not, though they resolve the distances, if hundreds of
    /// rows are almost equally near. Also true if codes do not resolve most distances: there exact ones are used anyway.
    pub(crate) ranked: bool,
    /// Whether codes, if there are any, resolve most distances to true neighbors. They do not within groups of near-identical rows, where a
    /// partition costs several times as much, and any other row of the group is as good a candidate as the true neighbors.
    resolved: bool,
}

impl Sample {
    /// Runs on the threads of the pool it is called from.
    pub(crate) fn draw(
        space: Space<'_>,
        points: &[u32],
        random: &Random,
        control: &Control,
    ) -> Result<Self, BuildError> {
        let sample: Vec<usize> = random.fork(MORE).sample(SAMPLE, points.len());
        let values: Vec<Vec<u8>> = sample.iter().map(|&at| space.value(points[at]).to_vec()).collect();
        // One more, since the nearest of each is itself.
        let mut nearest = exact::nearest(space, points, &values, RANKED + 1, control.section("neighbors of a sample"))?;
        nearest.iter_mut().for_each(|nearest| drop(nearest.drain(..1.min(nearest.len()))));
        let is_resolved = |(&at, nearest): (&usize, &Vec<Candidate>)| {
            let neighbors: Vec<u32> = nearest.iter().take(K).map(|near| near.element()).collect();
            space.codes.is_none() || space.trusted(points[at], &neighbors).codes.is_some()
        };
        let resolved = most(sample.iter().zip(&nearest).map(is_resolved));
        let reach =
            |nearest: &[Candidate]| nearest.get(K - 1).or(nearest.last()).map_or(f32::INFINITY, |last| last.distance());
        let codes = space.codes.filter(|codes| !codes.of_components());
        let hits = |(&at, nearest): (&usize, &Vec<Candidate>)| {
            let Some(codes) = codes else { return K };
            let mut by_codes: Vec<(f32, f32)> =
                nearest.iter().map(|near| (codes.distance(points[at], near.element()), near.distance())).collect();
            by_codes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            // Of rows that are equally near, any will do.
            by_codes.iter().take(RANKED / 2).filter(|(_, exact)| *exact <= reach(nearest)).count().min(K)
        };
        let hits: usize = sample.iter().zip(&nearest).map(hits).sum();
        let ranked = !resolved || hits as f32 >= RANKED_WELL * (K * sample.len()) as f32;
        Ok(Self {
            points: sample.into_iter().zip(nearest.iter().map(|nearest| reach(nearest))).collect(),
            resolved,
            ranked,
        })
    }

    /// The share of true neighbors among the candidates, 0 to 1.
    fn recall(&self, partition: &Partition<'_>) -> f32 {
        let Partition { space, points, found, .. } = *partition;
        let (mut list, mut query) = (Vec::new(), Query::default());
        let hits = |&(at, reach): &(usize, f32)| {
            list.clear();
            found.of(at, &mut list);
            // Measured again: a candidate's own distance may be by codes, `reach` is one of searches.
            space.prepare(&mut query, points[at]);
            let near = list.iter().filter(|near| space.distance_of(&query, near.element()) <= reach);
            near.count().min(K)
        };
        self.points.iter().map(hits).sum::<usize>() as f32 / (K * self.points.len()) as f32
    }
}

#[cfg(test)]
mod tests {
    use distance::{Elements, Metric};

    use super::{ENOUGH, Sample, partition_more};
    use crate::Control;
    use crate::candidates::Candidates;
    use crate::partition::Partition;
    use crate::partition::plan::{Compared, Plan};
    use crate::random::Random;
    use crate::space::{Codes, Measure, Space};
    use crate::testing::{cube, euclidean, pool, sparse, store, store_of};

    const POINTS: usize = 6000;

    /// The recall of the candidates after one partition, in which a point goes to `fan` leaves, and after more.
    fn recall<const DIMS: usize>(fan: usize) -> [f32; 2] {
        let store = store(&cube::<DIMS>(POINTS, 1));
        recall_in(euclidean::<DIMS>(&store), fan)
    }

    fn recall_in(space: Space<'_>, fan: usize) -> [f32; 2] {
        let (control, pool, random) = (Control::default(), pool(), Random::new(1));
        let points: Vec<u32> = (0..POINTS as u32).collect();
        let mut plan = Plan::new(64, 32, Compared::ByTiles, POINTS);
        plan.fans = [fan, 1];
        let found = Candidates::new(POINTS, plan.keep);
        let partition = Partition {
            space,
            points: &points,
            plan: &plan,
            found: &found,
            also: None,
            control: &control,
            counted: false,
        };
        pool.run(|| partition.run(&random)).unwrap();
        let sample = pool.run(|| Sample::draw(space, &points, &random, &control)).unwrap();
        let before = sample.recall(&partition);
        partition_more(&partition, &sample, &random, &pool).unwrap();
        [before, sample.recall(&partition)]
    }

    #[test]
    fn points_without_structure_are_partitioned_again() {
        let [before, after] = recall::<64>(1);
        assert!(before < ENOUGH / 2.0 && after > 1.5 * before, "{before} {after}");
    }

    #[test]
    fn near_identical_points_are_not_partitioned_again() {
        // In two groups larger than a leaf, whose distances the codes do not resolve.
        let (centers, mut values) = (cube::<64>(2, 2), cube::<64>(POINTS, 1));
        for (at, value) in values.iter_mut().enumerate() {
            value.iter_mut().zip(centers[at % 2]).for_each(|(x, center)| *x = center + 2e-3 * *x);
        }
        let store = store(&values);
        let exact = euclidean::<64>(&store);
        let tiles = exact.measure.tiles.unwrap();
        let Some(kernels) = tiles.codes else { return };
        let codes = Codes::new(exact, (tiles, kernels), false, POINTS, &Control::default()).unwrap();
        let [before, after] = recall_in(Space { codes: Some(&codes), ..exact }, 1);
        assert!(before < ENOUGH && after == before, "{before} {after}");
        // Exact distances have no quantisation error: the same points are partitioned again.
        let [before, after] = recall_in(exact, 1);
        assert!(after > before, "{before} {after}");
    }

    #[test]
    fn codes_must_rank_neighbors_that_are_almost_equally_near() {
        const DIMS: usize = 160;
        // Rows that share a tag are nearer than all others; among them the noise decides, which is below a step of the codes.
        let (mut tags, mut random) = (cube::<DIMS>(POINTS, 1), Random::new(2));
        for tags in &mut tags {
            tags.iter_mut().for_each(|x| *x *= 2e-3);
            random.sample(2, DIMS).into_iter().for_each(|tag| tags[tag] += 1.0);
        }
        let ranked = |values: &[[f32; DIMS]]| {
            let store = store(values);
            let exact = euclidean::<DIMS>(&store);
            let tiles = exact.measure.tiles.unwrap();
            let (control, points) = (Control::default(), (0..POINTS as u32).collect::<Vec<_>>());
            let codes = Codes::new(exact, (tiles, tiles.codes?), false, POINTS, &control).unwrap();
            let draw = |space| pool().run(|| Sample::draw(space, &points, &Random::new(1), &control)).unwrap();
            let by_codes = draw(Space { codes: Some(&codes), ..exact });
            assert!(by_codes.resolved && draw(exact).ranked);
            Some(by_codes.ranked)
        };
        assert!(ranked(&cube::<DIMS>(POINTS, 1)).is_none_or(|ranked| ranked));
        assert!(ranked(&tags).is_none_or(|ranked| !ranked));
        // Without noise, any of the equally near rows will do.
        tags.iter_mut().flatten().for_each(|x| *x = x.round());
        assert!(ranked(&tags).is_none_or(|ranked| ranked));
    }

    #[test]
    fn sparse_values_have_the_recall_of_dense_ones() {
        let points = cube::<4>(POINTS, 1);
        let sparse = points.iter().map(|point| sparse(&(0..).zip(*point).collect::<Vec<_>>()));
        let store = store_of(sparse);
        let measure = Measure::new(Elements::Sparse, Metric::L2, 4).unwrap().for_values(&store, POINTS, POINTS);
        if measure.tiles.is_none() {
            return;
        }
        // A tenth true neighbor counts as found, though sparse queries and kernels round differently.
        let ([of_sparse, _], [of_dense, _]) = (recall_in(Space::exact(measure, &store), 8), recall::<4>(8));
        assert!((of_sparse - of_dense).abs() < 0.01, "{of_sparse} {of_dense}");
    }

    #[test]
    fn one_partition_is_enough_for_points_of_few_dimensions() {
        let [before, after] = recall::<4>(8);
        assert!(before > ENOUGH && after == before, "{before} {after}");
    }
}
