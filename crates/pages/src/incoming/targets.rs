use crate::format::MAX_ELEMENTS_PER_PAGE;
use crate::{IncomingError, Tid};

/// Checks that every link leads to an element tuple, without keeping links or elements. The element tuples of a page have its
/// first offsets: for blocks that have come, their number of elements decides; for later ones, the highest linked offset is
/// kept and checked on arrival.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// The number of elements of each block that has come, up to the last with elements.
    counts: Vec<u8>,
    /// By block: the highest offset linked to before the block came.
    wanted: Vec<u8>,
    /// Whether the blocks with elements have ended.
    closed: bool,
}

impl Targets {
    /// One entry of each of the two arrays.
    pub(super) const BYTES_PER_BLOCK: u64 = 2;

    pub(super) fn new(blocks: u32) -> Result<Self, IncomingError> {
        let mut wanted = Vec::new();
        wanted.try_reserve_exact(blocks as usize).map_err(|_| IncomingError::Memory)?;
        wanted.resize(blocks as usize, 0);
        // The meta page has no elements.
        Ok(Self { counts: vec![0], wanted, closed: false })
    }

    /// Records a link; `false` if it cannot lead to an element.
    pub(super) fn link(&mut self, to: Tid) -> bool {
        let Some(offset) = u8::try_from(to.offset).ok().filter(|&at| usize::from(at) <= MAX_ELEMENTS_PER_PAGE) else {
            return false;
        };
        if let Some(&count) = self.counts.get(to.block as usize) {
            return offset <= count;
        }
        match self.wanted.get_mut(to.block as usize) {
            Some(wanted) if !self.closed => {
                *wanted = offset.max(*wanted);
                true
            }
            _ => false,
        }
    }

    /// Ends the next block, which has this many elements.
    pub(super) fn end_block(&mut self, elements: u8) -> Result<(), IncomingError> {
        let block = self.counts.len();
        let offset = self.wanted[block];
        if offset > elements {
            return Err(IncomingError::Targets { block: block as u32, elements, offset });
        }
        self.counts.try_reserve(1).map_err(|_| IncomingError::Memory)?;
        self.counts.push(elements);
        Ok(())
    }

    /// No later block has elements.
    pub(super) fn close(&mut self) -> Result<(), IncomingError> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let rest = self.wanted.iter().enumerate().skip(self.counts.len());
        match rest.filter(|&(_, &offset)| offset > 0).map(|(block, &offset)| (block as u32, offset)).next() {
            Some((block, offset)) => Err(IncomingError::Targets { block, elements: 0, offset }),
            None => Ok(()),
        }
    }

    pub(super) fn closed(&self) -> bool {
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::Targets;
    use crate::{IncomingError, Tid};

    #[test]
    fn links_back_and_ahead_are_checked() {
        let mut targets = Targets::new(5).unwrap();
        assert!(targets.link(Tid::new(1, 3)) && targets.link(Tid::new(3, 1)));
        for nowhere in [Tid::new(0, 1), Tid::new(5, 1), Tid::new(2, 89), Tid::new(2, 0x0101)] {
            assert!(!targets.link(nowhere), "{nowhere}");
        }
        targets.end_block(3).unwrap();
        assert!(targets.link(Tid::new(1, 3)) && !targets.link(Tid::new(1, 4)));
        targets.end_block(1).unwrap();
        assert_eq!(targets.close(), Err(IncomingError::Targets { block: 3, elements: 0, offset: 1 }));
        assert!(!targets.link(Tid::new(4, 1)));
    }
}
