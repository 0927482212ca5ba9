use distance::{Elements, Kernel, Metric, TileKernel};
use graph::ElementValues;

use crate::values::ValueStore;

/// Values and how far they are apart.
#[derive(Clone, Copy)]
pub(crate) struct Space<'a> {
    pub(crate) kernel: Kernel,
    pub(crate) store: &'a ValueStore,
    /// For dense vectors whose distances can be made of products.
    pub(crate) products: Option<Products>,
    /// Under inner product, one more coordinate for each element; else none. See [`lifts`].
    pub(crate) lifts: &'a [f32],
}

/// What tiles need to know.
#[derive(Clone, Copy)]
pub(crate) struct Products {
    pub(crate) elements: Elements,
    pub(crate) metric: Metric,
    pub(crate) dims: usize,
    pub(crate) tile: TileKernel,
}

impl Space<'_> {
    pub(crate) fn value(&self, element: u32) -> &[u8] {
        self.store.value(element)
    }

    pub(crate) fn distance(&self, a: u32, b: u32) -> f32 {
        let distance = (self.kernel)(self.value(a), self.value(b));
        match (self.lifts.get(a as usize), self.lifts.get(b as usize)) {
            (Some(a), Some(b)) => distance - a * b,
            _ => distance,
        }
    }

    /// The lifts of some elements, in order.
    pub(crate) fn lifts_of(&self, elements: &[u32]) -> Vec<f32> {
        let lift = |&element: &u32| self.lifts.get(element as usize).copied();
        elements.iter().map_while(lift).collect()
    }
}

impl Products {
    /// Products for a type and metric that have them.
    pub(crate) fn of(elements: Elements, metric: Metric, dims: u32) -> Option<Self> {
        let dense = matches!(elements, Elements::F32 | Elements::F16);
        let products = matches!(metric, Metric::L2 | Metric::InnerProduct | Metric::Cosine);
        (dense && products).then(|| Self { elements, metric, dims: dims as usize, tile: distance::tile_kernel() })
    }

    /// Factor of the products.
    pub(crate) fn scale(&self) -> f32 {
        if self.metric == Metric::L2 { -2.0 } else { -1.0 }
    }

    /// Whether distances from tiles differ from the kernel's: |a|² + |b|² - 2ab loses what it cancels.
    pub(crate) fn are_rough(&self) -> bool {
        self.metric == Metric::L2
    }
}

/// One more coordinate for each of `elements` elements under inner product.
///
/// Inner product is no metric: the longest vectors are nearest to everybody, and a graph of nearest neighbors leads nowhere else.
/// With a coordinate `sqrt(l² - |x|²)` all vectors up to length `l` are equally long, so that being near is mutual, while a query,
/// whose own coordinate is 0, sees the same order as before. With the greatest length for `l` the coordinate outweighs
/// all others where lengths differ much; the median measured best, from 3 dimensions to word vectors.
pub(crate) fn lifts(space: Space<'_>, elements: u32) -> Vec<f32> {
    let squares: Vec<f32> = (0..elements).map(|element| -space.distance(element, element)).collect();
    let mut sorted = squares.clone();
    sorted.sort_unstable_by(f32::total_cmp);
    let median = sorted.get(sorted.len() / 2).copied().filter(|median| median.is_finite()).unwrap_or_default();
    squares.into_iter().map(|square| (median - square).max(0.0).sqrt()).collect()
}
