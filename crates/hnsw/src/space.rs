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
        (self.kernel)(self.value(a), self.value(b))
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
