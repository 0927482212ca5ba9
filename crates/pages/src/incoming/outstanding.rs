use std::collections::VecDeque;

use crate::{IncomingError, Tid};

/// An element whose neighbor tuple is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub tid: Tid,
    pub level: u8,
}

/// Elements whose neighbor tuples come on later pages: in the order of the elements, without gaps.
///
/// So the place of a neighbor tuple follows from the one before and from whether it is the first of its page: eight
/// bytes hold an element's own place, its level and that bit.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    /// For each element: block, offset, level and first-of-page bit, from the highest bits down.
    queue: VecDeque<u64>,
    /// The block of the first neighbor tuple, and the place of the last one announced.
    places: Option<(u32, Tid)>,
}

impl Outstanding {
    pub(super) const BYTES_PER_ELEMENT: u64 = size_of::<u64>() as u64;

    /// Adds an element that names the place of its neighbor tuple; an error unless that follows the place announced before.
    pub(super) fn announce(&mut self, owner: Owner, neighbor: Tid) -> Result<(), IncomingError> {
        let Owner { tid, level } = owner;
        let (starts_page, follows) = match self.places {
            None => (true, neighbor.offset == 1 && neighbor.block > tid.block),
            Some((_, last)) if last.block == neighbor.block => {
                (false, last.offset.checked_add(1) == Some(neighbor.offset))
            }
            Some((_, last)) => (true, neighbor.offset == 1 && last.block.checked_add(1) == Some(neighbor.block)),
        };
        if !follows {
            return Err(IncomingError::Tuple { tid, problem: "neighbor tuple is not next to the one before" });
        }
        let first = self.places.map_or(neighbor.block, |(first, _)| first);
        self.places = Some((first, neighbor));
        self.queue.try_reserve(1).map_err(|_| IncomingError::Memory)?;
        let place = u64::from(tid.block) << 32 | u64::from(tid.offset) << 16;
        self.queue.push_back(place | u64::from(level) << 8 | u64::from(starts_page));
        Ok(())
    }

    /// The block where neighbor tuples of earlier elements begin.
    pub(super) fn first_block(&self) -> Option<u32> {
        self.places.map(|(first, _)| first)
    }

    /// The element that the next neighbor tuple belongs to.
    pub(super) fn take(&mut self, tid: Tid) -> Result<Owner, IncomingError> {
        let owner = self.queue.pop_front().ok_or(IncomingError::Tuple { tid, problem: "belongs to no element" })?;
        if (owner & 1 == 1) != (tid.offset == 1) {
            return Err(IncomingError::Tuple { tid, problem: "is not where its element says" });
        }
        Ok(Owner { tid: Tid::new((owner >> 32) as u32, (owner >> 16) as u16), level: (owner >> 8) as u8 })
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Outstanding, Owner};
    use crate::{IncomingVerifier, Tid};

    fn owner(block: u32, offset: u16, level: u8) -> Owner {
        Owner { tid: Tid::new(block, offset), level }
    }

    #[test]
    fn tuples_come_back_in_order() {
        let mut outstanding = Outstanding::default();
        let elements =
            [(owner(1, 1, 7), Tid::new(9, 1)), (owner(1, 3, 0), Tid::new(9, 2)), (owner(4, 88, 63), Tid::new(10, 1))];
        for (owner, neighbor) in elements {
            outstanding.announce(owner, neighbor).unwrap();
        }
        assert_eq!((outstanding.first_block(), outstanding.len()), (Some(9), 3));
        for (owner, neighbor) in elements {
            assert_eq!(outstanding.take(neighbor), Ok(owner));
        }
        assert!(outstanding.take(Tid::new(10, 2)).is_err());
    }

    #[test]
    fn memory_is_within_the_estimate() {
        for elements in [1000u64, 70_000] {
            let mut outstanding = Outstanding::default();
            for at in 0..elements as u32 {
                // Twenty neighbor tuples to a page, behind all elements.
                let neighbor = Tid::new(10_000_000 + at / 20, (at % 20 + 1) as u16);
                outstanding.announce(owner(1 + at / 100, (at % 100 + 1) as u16, 0), neighbor).unwrap();
            }
            let bytes = (outstanding.queue.capacity() * size_of::<u64>()) as u64;
            assert!(bytes <= IncomingVerifier::most_memory_bytes(elements, 0), "{elements}: {bytes}");
            assert!(2 * bytes >= IncomingVerifier::most_memory_bytes(elements, 0), "{elements}: {bytes}");
        }
    }

    #[test]
    fn gaps_and_other_places_are_refused() {
        let mut outstanding = Outstanding::default();
        assert!(outstanding.announce(owner(3, 1, 0), Tid::new(2, 1)).is_err());
        assert!(outstanding.announce(owner(3, 1, 0), Tid::new(9, 2)).is_err());
        outstanding.announce(owner(3, 1, 0), Tid::new(9, 1)).unwrap();
        for neighbor in [Tid::new(9, 1), Tid::new(9, 3), Tid::new(10, 2), Tid::new(11, 1), Tid::new(8, 1)] {
            assert!(outstanding.announce(owner(3, 2, 0), neighbor).is_err(), "{neighbor}");
        }
        outstanding.announce(owner(3, 2, 0), Tid::new(9, 2)).unwrap();
        outstanding.take(Tid::new(9, 1)).unwrap();
        assert!(outstanding.take(Tid::new(10, 1)).is_err());
    }
}
