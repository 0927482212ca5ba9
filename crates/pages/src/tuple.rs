use graph::HeapTid;
use pgvector::HEAP_TIDS_PER_ELEMENT;

use crate::format::{
    ELEMENT_DATUM, ELEMENT_HEAP_TIDS, ELEMENT_NEIGHBOR_TID, ELEMENT_TYPE, NEIGHBOR_TIDS, NEIGHBOR_TYPE, TID_LEN,
    layer_slots, read_u16,
};
use crate::{Item, PageError, Tid};

/// A tuple of a data page.
#[derive(Clone, Copy, Debug)]
pub enum Tuple<'a> {
    /// An element of the graph.
    Element(ElementTuple<'a>),
    /// The neighbors of an element.
    Neighbor(NeighborTuple<'a>),
}

impl<'a> Tuple<'a> {
    /// Determines the kind of a tuple, and checks that it is long enough for its fixed fields.
    ///
    /// # Errors
    /// An unknown type, or a tuple too short for its type or its number of slots.
    pub fn parse(item: &Item<'a>) -> Result<Self, PageError> {
        let &Item { tid, bytes, .. } = item;
        match bytes.first() {
            Some(&ELEMENT_TYPE) => {
                long_enough(tid, bytes.len(), ELEMENT_DATUM + 4)?;
                Ok(Self::Element(ElementTuple { tid, bytes }))
            }
            Some(&NEIGHBOR_TYPE) => {
                long_enough(tid, bytes.len(), NEIGHBOR_TIDS)?;
                let neighbor = NeighborTuple { tid, bytes };
                long_enough(tid, bytes.len(), NEIGHBOR_TIDS + TID_LEN * usize::from(neighbor.count()))?;
                Ok(Self::Neighbor(neighbor))
            }
            other => Err(PageError::TupleType { tid, found: other.copied().unwrap_or_default() }),
        }
    }
}

/// Checks that the tuple `tid` has at least `expected` bytes.
pub(crate) fn long_enough(tid: Tid, found: usize, expected: usize) -> Result<(), PageError> {
    if found >= expected { Ok(()) } else { Err(PageError::TupleLen { tid, found, expected }) }
}

/// An element of the graph: its level, heap TIDs and value, and the place of its neighbor tuple.
#[derive(Clone, Copy, Debug)]
pub struct ElementTuple<'a> {
    tid: Tid,
    bytes: &'a [u8],
}

impl<'a> ElementTuple<'a> {
    /// The place of the tuple.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// The highest layer of the element.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.bytes[1]
    }

    /// 0 for a live element, 1 for one that VACUUM has deleted, whose slot inserts may reuse.
    #[must_use]
    pub fn deleted(&self) -> u8 {
        self.bytes[2]
    }

    /// The version byte, which must equal that of the neighbor tuple.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.bytes[3]
    }

    /// All ten slots for heap TIDs; used ones come first.
    #[must_use]
    pub fn heap_tids(&self) -> [HeapTid; HEAP_TIDS_PER_ELEMENT] {
        let (tids, _) = self.bytes[ELEMENT_HEAP_TIDS..].as_chunks();
        std::array::from_fn(|slot| HeapTid(tids[slot]))
    }

    /// The place of the neighbor tuple.
    #[must_use]
    pub fn neighbor_tid(&self) -> Tid {
        Tid::from_bytes(self.bytes[ELEMENT_NEIGHBOR_TID..].as_chunks().0[0])
    }

    /// The unused field before the value.
    pub(crate) fn unused(&self) -> u16 {
        read_u16(self.bytes, ELEMENT_NEIGHBOR_TID + TID_LEN)
    }

    /// The bytes from the start of the datum to the end of the tuple; see [`crate::Datum`].
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        &self.bytes[ELEMENT_DATUM..]
    }
}

/// The neighbors of an element on all its layers.
#[derive(Clone, Copy, Debug)]
pub struct NeighborTuple<'a> {
    tid: Tid,
    bytes: &'a [u8],
}

impl<'a> NeighborTuple<'a> {
    /// The place of the tuple.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// The version byte, which must equal that of the element tuple.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.bytes[1]
    }

    /// The number of slots: `(level + 2) * m`.
    #[must_use]
    pub fn count(&self) -> u16 {
        read_u16(self.bytes, 2)
    }

    /// The whole tuple, padding included.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// All slots: `m` for each layer from the element's level down to 1, then `2 * m` for layer 0.
    pub fn slots(&self) -> impl ExactSizeIterator<Item = Tid> + Clone + use<'a> {
        self.tids().iter().copied().map(Tid::from_bytes)
    }

    /// The slots of a layer, if the tuple is that of an element of this `level`; fewer if it is too short for that.
    pub(crate) fn on_layer(&self, layer: u8, level: u8, m: u16) -> impl Iterator<Item = Tid> + use<'a> {
        let before = usize::from(level - layer) * usize::from(m);
        let rest = self.tids().get(before..).unwrap_or_default();
        rest.iter().take(layer_slots(layer, m)).copied().map(Tid::from_bytes)
    }

    fn tids(&self) -> &'a [[u8; TID_LEN]] {
        &self.bytes[NEIGHBOR_TIDS..].as_chunks().0[..usize::from(self.count())]
    }

    /// The bytes after the slots.
    #[must_use]
    pub fn padding(&self) -> &'a [u8] {
        &self.bytes[NEIGHBOR_TIDS + TID_LEN * usize::from(self.count())..]
    }
}
