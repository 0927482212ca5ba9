use distance::{BLOCK, Metric, Panel};

use crate::space::{Products, Space};

/// A group of points in tiles: packed vectors, and the terms that make distances of products.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) panel: Panel,
    /// Added to every distance of a point; infinite for the padding.
    pub(crate) terms: Vec<f32>,
}

impl Group {
    /// Packs points. Under L2 only differences matter, so they are moved near the origin, where little cancels.
    pub(crate) fn pack(&mut self, space: Space<'_>, products: Products, points: &[u32], center: Option<&[f32]>) {
        let vectors = points.iter().map(|&point| space.value(point));
        let center = center.filter(|_| products.metric == Metric::L2);
        self.panel.fill(products.elements, products.dims, vectors, center, &space.lifts_of(points));
        self.terms.clear();
        for block in 0..self.panel.blocks() {
            let norms = if products.metric == Metric::L2 { self.panel.squared_norms(block) } else { [0.0; BLOCK] };
            self.terms.extend(norms);
        }
        self.terms[points.len()..].fill(f32::INFINITY);
    }

    /// The terms of `N` points from `first`.
    pub(crate) fn terms<const N: usize>(&self, first: usize) -> &[f32; N] {
        self.terms[first..].first_chunk().expect("padded to whole tiles")
    }
}

/// The mean of a sample of points, where the metric has a use for it.
pub(crate) fn center(space: Space<'_>, products: Products, points: &[u32]) -> Option<Vec<f32>> {
    const SAMPLE: usize = 64;
    if products.metric != Metric::L2 {
        return None;
    }
    let mut panel = Panel::new();
    let sample: Vec<_> = points.iter().step_by((points.len() / SAMPLE).max(1)).map(|&p| space.value(p)).collect();
    let count = sample.len() as f32;
    panel.fill(products.elements, products.dims, sample.into_iter(), None, &[]);
    let mut center = vec![0f32; products.dims];
    for block in 0..panel.blocks() {
        for (sum, lanes) in center.iter_mut().zip(panel.block(block).chunks_exact(BLOCK)) {
            *sum += lanes.iter().sum::<f32>() / count;
        }
    }
    Some(center).filter(|center| center.iter().all(|x| x.is_finite()))
}
