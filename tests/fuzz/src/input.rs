//! Decodes numbers and choices from the input's bytes; returns zeros once they are used up.

pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let taken = self.take(N);
        let mut array = [0; N];
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::from(self.u16()) % limit.max(1)
    }
}
