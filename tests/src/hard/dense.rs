//! Families of dense vectors.

use super::Place;
use crate::Random;

pub(super) type Draw = Box<dyn FnMut(&mut Random, Place) -> Vec<f32>>;

/// How rows are drawn, and how queries are, if these have another distribution.
pub(super) struct World {
    pub(super) row: Draw,
    pub(super) query: Option<Draw>,
}

fn world(row: impl FnMut(&mut Random, Place) -> Vec<f32> + 'static) -> World {
    World { row: Box::new(row), query: None }
}

/// A point whose offsets from `center` are normally distributed with this standard deviation.
fn around(random: &mut Random, center: &[f32], spread: f32) -> Vec<f32> {
    center.iter().map(|c| c + spread * random.normal()).collect()
}

/// A point near a random center.
fn near_one(random: &mut Random, centers: &[Vec<f32>], spread: f32) -> Vec<f32> {
    let at = random.below(centers.len());
    around(random, &centers[at], spread)
}

fn centers(random: &mut Random, count: usize, dims: usize) -> Vec<Vec<f32>> {
    (0..count).map(|_| random.normals(dims)).collect()
}

/// Half of the rows are in groups, each within `spread` of a center; the others are spread out.
fn in_groups(random: &mut Random, dims: usize, spread: f32) -> World {
    let centers = centers(random, 40, dims);
    world(move |random, _| match random.below(2) {
        0 => near_one(random, &centers, spread),
        _ => random.normals(dims),
    })
}

pub(super) fn boilerplate(random: &mut Random, dims: usize) -> World {
    in_groups(random, dims, 3e-3)
}

/// Half of the rows are in groups, each an island; queries are near the groups only.
pub(super) fn islands(random: &mut Random, dims: usize) -> World {
    let centers = centers(random, 40, dims);
    let of_queries = centers.clone();
    World {
        row: Box::new(move |random, _| match random.below(2) {
            0 => near_one(random, &centers, 3e-3),
            _ => random.normals(dims),
        }),
        query: Some(Box::new(move |random, _| near_one(random, &of_queries, 3e-3))),
    }
}

pub(super) fn boilerplate_fine(random: &mut Random, dims: usize) -> World {
    in_groups(random, dims, 1e-5)
}

/// Groups of 2 to thousands of rows, each with a spread of its own.
pub(super) fn groups(random: &mut Random, dims: usize) -> World {
    let centers: Vec<(Vec<f32>, f32)> =
        (0..2000).map(|_| (random.normals(dims), 10f32.powf(-7.0 + 6.0 * random.unit()))).collect();
    world(move |random, _| {
        if random.below(3) == 0 {
            return random.normals(dims);
        }
        let (center, spread) = &centers[random.power_law(centers.len(), 1.1)];
        around(random, center, *spread)
    })
}

/// Nine of ten rows within 1e-4 of one point; most queries are elsewhere.
pub(super) fn crowd(random: &mut Random, dims: usize) -> World {
    let center = random.normals(dims);
    let near = center.clone();
    World {
        row: Box::new(move |random, _| match random.below(10) {
            0 => random.normals(dims),
            _ => around(random, &center, 1e-4),
        }),
        query: Some(Box::new(move |random, _| match random.below(10) {
            0 => around(random, &near, 1e-4),
            _ => random.normals(dims),
        })),
    }
}

/// A tight cluster away from the origin; one row in fifty is a hundred times as far out.
pub(super) fn tight_and_far(random: &mut Random, dims: usize) -> World {
    let center = random.normals(dims);
    world(move |random, _| match random.below(50) {
        0 => random.normals(dims).iter().map(|x| 100.0 * x).collect(),
        _ => around(random, &center, 0.1),
    })
}

pub(super) fn far_clusters(random: &mut Random, dims: usize) -> World {
    let centers = centers(random, 12, dims);
    world(move |random, _| {
        let center: Vec<f32> = centers[random.below(centers.len())].iter().map(|c| 50.0 * c).collect();
        around(random, &center, 1.0)
    })
}

pub(super) fn many_clusters(random: &mut Random, dims: usize) -> World {
    let centers = centers(random, 1000, dims);
    world(move |random, _| near_one(random, &centers, 0.1))
}

pub(super) fn clusters_in_order(random: &mut Random, dims: usize) -> World {
    let centers = centers(random, 200, dims);
    world(move |random, Place { at, of }| {
        let center: Vec<f32> = centers[at * centers.len() / of].iter().map(|c| 6.0 * c).collect();
        around(random, &center, 1.0)
    })
}

/// Groups that each vary in a few directions of their own, so that all rows of other groups are about equally far.
pub(super) fn subspaces(random: &mut Random, dims: usize) -> World {
    const VARY: usize = 40;
    let centers = centers(random, 60, dims);
    let directions: Vec<Vec<f32>> = (0..centers.len() * VARY).map(|_| random.normals(dims)).collect();
    world(move |random, _| {
        let group = random.below(centers.len());
        let mut row: Vec<f32> = centers[group].iter().map(|c| 0.6 * c).collect();
        for direction in &directions[group * VARY..][..VARY] {
            let factor = 0.14 * random.normal();
            row.iter_mut().zip(direction).for_each(|(x, direction)| *x += factor * direction);
        }
        around(random, &row, 0.15)
    })
}

fn with_mean(random: &mut Random, dims: usize, spread: f32) -> World {
    let mean = random.normals(dims);
    world(move |random, _| around(random, &mean, spread))
}

pub(super) fn shifted(random: &mut Random, dims: usize) -> World {
    with_mean(random, dims, 1.0)
}

pub(super) fn shifted_far(random: &mut Random, dims: usize) -> World {
    with_mean(random, dims, 0.1)
}

pub(super) fn positive(_: &mut Random, dims: usize) -> World {
    world(move |random, _| random.normals(dims).iter().map(|x| x.abs()).collect())
}

fn scaled(row: Vec<f32>, factor: f32) -> Vec<f32> {
    row.into_iter().map(|x| factor * x).collect()
}

pub(super) fn positive_lognormal(_: &mut Random, dims: usize) -> World {
    world(move |random, _| {
        let length = random.normal().exp();
        scaled((0..dims).map(|_| random.unit()).collect(), length)
    })
}

pub(super) fn lognormal(random: &mut Random, dims: usize) -> World {
    let centers = centers(random, 60, dims);
    world(move |random, _| {
        let length = (0.7 * random.normal()).exp();
        scaled(near_one(random, &centers, 0.6), length)
    })
}

pub(super) fn pareto(_: &mut Random, dims: usize) -> World {
    world(move |random, _| {
        let length = random.unit().powf(-0.5);
        scaled(random.normals(dims), length)
    })
}

pub(super) fn unit(random: &mut Random, dims: usize) -> World {
    let centers = centers(random, 60, dims);
    world(move |random, _| {
        let row = near_one(random, &centers, 0.6);
        let length = row.iter().map(|x| x * x).sum::<f32>().sqrt();
        scaled(row, length.recip())
    })
}

pub(super) fn products(_: &mut Random, dims: usize) -> World {
    world(move |random, _| (0..dims).map(|_| random.unit() * random.unit()).collect())
}

pub(super) fn uniform(_: &mut Random, dims: usize) -> World {
    world(move |random, _| (0..dims).map(|_| 2.0 * random.unit() - 1.0).collect())
}

pub(super) fn sorted(_: &mut Random, dims: usize) -> World {
    let query = move |random: &mut Random, _: Place| vec![random.unit(); dims];
    World { row: Box::new(move |_, Place { at, of }| vec![at as f32 / of as f32; dims]), query: Some(Box::new(query)) }
}

pub(super) fn spiral(_: &mut Random, _: usize) -> World {
    world(|random, _| {
        let turn = 40.0 * random.unit();
        vec![turn * turn.cos(), turn * turn.sin()]
    })
}

pub(super) fn grid(_: &mut Random, dims: usize) -> World {
    World {
        row: Box::new(|_, Place { at, of }| {
            let side = (of as f32).sqrt().ceil() as usize;
            vec![(at % side) as f32, (at / side) as f32]
        }),
        query: Some(Box::new(move |random, Place { .. }| (0..dims).map(|_| 100.0 * random.unit()).collect())),
    }
}

pub(super) fn integers(_: &mut Random, dims: usize) -> World {
    world(move |random, _| (0..dims).map(|_| random.below(6) as f32).collect())
}

/// Two of as many tags as there are dimensions: 1 for each, 0 for the others.
pub(super) fn tags(_: &mut Random, dims: usize) -> World {
    world(move |random, _| {
        let mut row = vec![0.0; dims];
        (0..2).for_each(|_| row[random.below(dims)] = 1.0);
        row
    })
}

/// Tags with a little noise, which decides between the rows of a tag.
pub(super) fn blurred_tags(random: &mut Random, dims: usize) -> World {
    let mut sharp = tags(random, dims);
    world(move |random, place| (sharp.row)(random, place).iter().map(|x| x + 0.002 * random.normal()).collect())
}

/// Answers of yes or no; each question has a share of yes of its own.
pub(super) fn answers(random: &mut Random, dims: usize) -> World {
    let shares: Vec<f32> = (0..dims).map(|_| random.unit()).collect();
    world(move |random, _| shares.iter().map(|&share| f32::from(u8::from(random.unit() < share))).collect())
}

pub(super) fn normal(_: &mut Random, dims: usize) -> World {
    world(move |random, _| random.normals(dims))
}

/// Student's t distribution with about two degrees of freedom.
pub(super) fn heavy_tails(_: &mut Random, dims: usize) -> World {
    world(move |random, _| {
        (0..dims)
            .map(|_| random.normal() / (0.5 * (random.normal().powi(2) + random.normal().powi(2))).sqrt().max(1e-3))
            .collect()
    })
}

/// Three dimensions have forty times the range of the others, but hardly affect the order of neighbors.
pub(super) fn outlier_dimensions(random: &mut Random, dims: usize) -> World {
    let centers = centers(random, 100, dims);
    world(move |random, _| {
        let mut row = near_one(random, &centers, 0.8);
        [(3, 40.0), (17, -25.0), (90, 30.0)].iter().for_each(|&(dim, size)| row[dim] = size * (1.0 + 0.02 * row[dim]));
        row
    })
}

/// Norms from small to large: rows of small norm become hubs.
pub(super) fn hubs(_: &mut Random, dims: usize) -> World {
    world(move |random, _| {
        let length = 0.3 + random.unit();
        scaled(random.normals(dims), length)
    })
}

/// Rows and queries in different subspaces that overlap a little, as with two encoders.
pub(super) fn text_to_image(random: &mut Random, dims: usize) -> World {
    let (of_rows, of_queries) = (centers(random, 150, dims), centers(random, 150, dims));
    let (gap, bridge) = (random.normals(dims), of_rows.clone());
    World {
        row: Box::new(move |random, _| {
            let row = near_one(random, &of_rows, 0.7);
            row.iter().zip(&gap).map(|(x, gap)| x + gap).collect()
        }),
        query: Some(Box::new(move |random, _| {
            let at = random.below(bridge.len());
            let own = around(random, &of_queries[at], 0.5);
            own.iter().zip(&bridge[at]).map(|(own, shared)| 0.7 * own + 0.5 * shared).collect()
        })),
    }
}

/// Two distant clusters with different spectra, as of two embedding models in one column.
pub(super) fn two_models(random: &mut Random, dims: usize) -> World {
    let middles = centers(random, 2, dims);
    let centers = centers(random, 100, dims);
    world(move |random, _| {
        let model = random.below(2);
        let own = near_one(random, &centers, 0.8);
        let size =
            |dim: usize| if model == 0 { (1.0 + dim as f32).powf(-0.3) } else { (dims as f32 - dim as f32).powf(-0.3) };
        (0..dims).map(|dim| 2.0 * middles[model][dim] + size(dim) * own[dim]).collect()
    })
}

/// The distribution drifts along a line while rows arrive; queries resemble the last rows.
pub(super) fn drift(random: &mut Random, dims: usize) -> World {
    let direction = random.normals(dims);
    let end = direction.clone();
    let at_time = |random: &mut Random, direction: &[f32], time: f32| -> Vec<f32> {
        direction.iter().map(|d| 6.0 * time * d + random.normal()).collect()
    };
    World {
        row: Box::new(move |random, Place { at, of }| at_time(random, &direction, at as f32 / of as f32)),
        query: Some(Box::new(move |random, _| {
            let time = 0.8 + 0.25 * random.unit();
            at_time(random, &end, time)
        })),
    }
}

/// Clusters of uneven sizes, with different principal directions.
pub(super) fn embeddings(random: &mut Random, dims: usize) -> World {
    let centers = centers(random, 200, dims);
    world(move |random, _| {
        let cluster = random.power_law(centers.len(), 0.7);
        let spread = |dim: usize| 2.0 * (1.0 + ((dim * 7 + cluster * 13) % dims) as f32).powf(-0.3);
        (0..dims).map(|dim| 0.5 * centers[cluster][dim] + spread(dim) * random.normal()).collect()
    })
}

/// Rank 40 in all dimensions, with a little noise.
pub(super) fn low_rank(random: &mut Random, dims: usize) -> World {
    const RANK: usize = 40;
    let directions = centers(random, RANK, dims);
    let centers = centers(random, 100, RANK);
    world(move |random, _| {
        let latent = near_one(random, &centers, 0.8);
        let mut row: Vec<f32> = (0..dims).map(|_| 0.2 * random.normal()).collect();
        for (along, direction) in latent.iter().zip(&directions) {
            row.iter_mut().zip(direction).for_each(|(x, d)| *x += along * d);
        }
        row
    })
}

/// Values up to 60,000; half precision ends at 65,504.
pub(super) fn large(random: &mut Random, dims: usize) -> World {
    let centers = centers(random, 50, dims);
    world(move |random, _| {
        let row = near_one(random, &centers, 0.5);
        row.iter().map(|x| (14_000.0 * x).clamp(-60_000.0, 60_000.0)).collect()
    })
}

/// Values around 1e-5, where half precision is subnormal and has few bits.
pub(super) fn tiny(random: &mut Random, dims: usize) -> World {
    let centers = centers(random, 50, dims);
    world(move |random, _| scaled(near_one(random, &centers, 0.5), 1e-5))
}
