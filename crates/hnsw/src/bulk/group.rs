use distance::{BLOCK, Elements, Kernel, Metric, Panel, TileKernel};
use graph::ElementValues;

use crate::values::ValueStore;

/// Dense vectors and their metric, as the tiles need them.
#[derive(Clone, Copy)]
pub(crate) struct Dense<'a> {
    pub(crate) elements: Elements,
    pub(crate) metric: Metric,
    pub(crate) dims: usize,
    pub(crate) store: &'a ValueStore,
    pub(crate) kernel: Kernel,
    pub(crate) tile: TileKernel,
}

/// A group of points in tiles: packed vectors, and the terms that make distances of products.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) panel: Panel,
    /// Added to every distance of a point; infinite for the padding.
    pub(crate) terms: Vec<f32>,
}

impl Dense<'_> {
    /// Factor of the products.
    pub(crate) fn scale(&self) -> f32 {
        if self.metric == Metric::L2 { -2.0 } else { -1.0 }
    }

    /// Whether distances from tiles differ from the kernel's: |a|² + |b|² - 2ab loses what it cancels.
    pub(crate) fn tiles_are_rough(&self) -> bool {
        self.metric == Metric::L2
    }

    pub(crate) fn value(&self, element: u32) -> &[u8] {
        self.store.value(element)
    }

    /// Packs points. Under L2 only differences matter, so they are moved near the origin, where little cancels.
    pub(crate) fn pack(&self, points: &[u32], center: Option<&[f32]>, group: &mut Group) {
        let vectors = points.iter().map(|&point| self.value(point));
        group.panel.fill(self.elements, self.dims, vectors, center.filter(|_| self.metric == Metric::L2));
        self.terms(points.len(), group);
    }

    /// Packs leaders. Under inner product the longest would be nearest to everybody, so only their direction counts.
    pub(crate) fn pack_leaders(&self, leaders: &[u32], center: Option<&[f32]>, group: &mut Group) {
        self.pack(leaders, center, group);
        if self.metric == Metric::InnerProduct {
            group.panel.normalize();
        }
    }

    fn terms(&self, points: usize, group: &mut Group) {
        group.terms.clear();
        for block in 0..group.panel.blocks() {
            let norms = if self.metric == Metric::L2 { group.panel.squared_norms(block) } else { [0.0; BLOCK] };
            group.terms.extend(norms);
        }
        group.terms[points..].fill(f32::INFINITY);
    }

    /// The mean of a sample of points, where the metric has a use for it.
    pub(crate) fn center(&self, points: &[u32]) -> Option<Vec<f32>> {
        const SAMPLE: usize = 64;
        if self.metric != Metric::L2 {
            return None;
        }
        let mut panel = Panel::new();
        let sample: Vec<_> = points.iter().step_by((points.len() / SAMPLE).max(1)).map(|&p| self.value(p)).collect();
        let count = sample.len() as f32;
        panel.fill(self.elements, self.dims, sample.into_iter(), None);
        let mut center = vec![0f32; self.dims];
        for block in 0..panel.blocks() {
            for (sum, lanes) in center.iter_mut().zip(panel.block(block).chunks_exact(BLOCK)) {
                *sum += lanes.iter().sum::<f32>() / count;
            }
        }
        Some(center).filter(|center| center.iter().all(|x| x.is_finite()))
    }
}
