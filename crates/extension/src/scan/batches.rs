//! Batches of rows for the builder, in shared memory.
//!
//! The backend and parallel workers fill them, and the backend's thread sends them. Each batch is empty, being filled, full or being sent;
//! atomic changes of this state pass its ownership on, so no locks are needed. This file calls no function of PostgreSQL.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use protocol::{HEAP_TID_BYTES, LENGTH_BYTES, MAX_VALUE_BYTES, TUPLES_BATCH_BYTES, TuplesBatch};

use crate::value::IndexValue;

/// The most rows of a batch if values vary in length.
const VARYING_ROWS: usize = 8192;
/// Alignment of each part of the memory: a cache line.
const LINE: usize = 64;

const EMPTY: u32 = 0;
const FILLING: u32 = 1;
const FULL: u32 = 2;
const SENDING: u32 = 3;

/// How many batches, and how large.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Shape {
    batches: usize,
    /// The most rows of a batch.
    rows: usize,
    /// The most bytes of a batch's values.
    values: usize,
    varying: bool,
}

impl Shape {
    /// Batches for values of `value_len` bytes, or of varying length for `None`.
    pub(super) fn new(batches: usize, value_len: Option<usize>) -> Self {
        let varying = value_len.is_none();
        let (rows, values) = match value_len {
            Some(len) => {
                let head = TuplesBatch::payload_bytes(0, false, 0);
                let rows = (TUPLES_BATCH_BYTES - head).div_ceil(HEAP_TID_BYTES + len);
                (rows, rows * len)
            }
            None => (VARYING_ROWS, TUPLES_BATCH_BYTES + MAX_VALUE_BYTES),
        };
        Self { batches, rows, values, varying }
    }

    /// Bytes of memory for all batches.
    pub(super) fn bytes(self) -> usize {
        self.data_at() + self.batches * self.batch_bytes()
    }

    fn data_at(self) -> usize {
        (size_of::<Head>() + self.batches * size_of::<Slot>()).next_multiple_of(LINE)
    }

    fn batch_bytes(self) -> usize {
        (self.values_at() + self.values).next_multiple_of(LINE)
    }

    fn lengths_at(self) -> usize {
        (self.rows * HEAP_TID_BYTES).next_multiple_of(LINE)
    }

    fn values_at(self) -> usize {
        let lengths = if self.varying { self.rows * LENGTH_BYTES } else { 0 };
        (self.lengths_at() + lengths).next_multiple_of(LINE)
    }
}

/// The beginning of the memory; the slots follow, then the batches.
#[repr(C)]
struct Head {
    shape: Shape,
    /// Batches that were filled so far.
    filled: AtomicU64,
    /// Rows in them.
    rows: AtomicU64,
}

#[repr(C)]
struct Slot {
    state: AtomicU32,
    rows: AtomicU32,
    values: AtomicU64,
    /// The batch's number in the order of filling.
    number: AtomicU64,
}

/// The batches that lie in a piece of memory.
#[derive(Clone, Copy)]
pub(super) struct Batches<'a> {
    memory: *mut u8,
    shape: Shape,
    lives: PhantomData<&'a ()>,
}

// SAFETY: shared fields are atomic; the memory of a batch belongs to its holder.
unsafe impl Send for Batches<'_> {}
// SAFETY: as above.
unsafe impl Sync for Batches<'_> {}

impl<'a> Batches<'a> {
    /// Makes empty batches.
    ///
    /// # Safety
    /// `memory` must be the beginning of `shape.bytes()` bytes, aligned as a `u64`, which live as long as the result and which nobody else
    /// uses in another way.
    pub(super) unsafe fn create(memory: *mut u8, shape: Shape) -> Self {
        let batches = Self { memory, shape, lives: PhantomData };
        // SAFETY: as promised by the caller.
        unsafe {
            let (filled, rows) = (AtomicU64::new(0), AtomicU64::new(0));
            memory.cast::<Head>().write(Head { shape, filled, rows });
            for at in 0..shape.batches {
                let slot = batches.slots_at().add(at);
                let number = || AtomicU64::new(0);
                slot.write(Slot {
                    state: AtomicU32::new(EMPTY),
                    rows: AtomicU32::new(0),
                    values: number(),
                    number: number(),
                });
            }
        }
        batches
    }

    /// No batches at all.
    pub(super) fn none() -> Self {
        let shape = Shape { batches: 0, rows: 0, values: 0, varying: false };
        Self { memory: std::ptr::null_mut(), shape, lives: PhantomData }
    }

    /// The batches that another process has created.
    ///
    /// # Safety
    /// [`create`](Self::create) must have been called with this memory, maybe at another address.
    pub(super) unsafe fn attach(memory: *mut u8) -> Self {
        // SAFETY: as promised by the caller.
        let shape = unsafe { (*memory.cast::<Head>()).shape };
        Self { memory, shape, lives: PhantomData }
    }

    /// An empty batch, to be filled.
    pub(super) fn empty(&self) -> Option<Filling<'a>> {
        let at = self.slots().iter().position(|slot| slot.change(EMPTY, FILLING))?;
        Some(Filling { batches: *self, at, rows: 0, values: 0 })
    }

    /// The full batch that was filled first.
    pub(super) fn full(&self) -> Option<Full<'a>> {
        let slots = self.slots().iter().enumerate();
        let full = slots.filter(|(_, slot)| slot.state.load(Ordering::Acquire) == FULL);
        let (at, slot) = full.min_by_key(|(_, slot)| slot.number.load(Ordering::Relaxed))?;
        slot.change(FULL, SENDING).then_some(Full { batches: *self, at })
    }

    pub(super) fn has_empty(&self) -> bool {
        self.has(EMPTY)
    }

    pub(super) fn has_full(&self) -> bool {
        self.has(FULL)
    }

    /// Rows in all batches that were filled so far.
    pub(super) fn rows(&self) -> u64 {
        self.head().rows.load(Ordering::Relaxed)
    }

    fn has(&self, state: u32) -> bool {
        self.slots().iter().any(|slot| slot.state.load(Ordering::SeqCst) == state)
    }

    fn head(&self) -> &'a Head {
        // SAFETY: written by `create`; what changes is atomic.
        unsafe { &*self.memory.cast::<Head>() }
    }

    fn slots_at(&self) -> *mut Slot {
        // SAFETY: the slots follow the head.
        unsafe { self.memory.add(size_of::<Head>()).cast() }
    }

    fn slots(&self) -> &'a [Slot] {
        // SAFETY: written by `create`; all of a slot is atomic.
        unsafe { slice::from_raw_parts(self.slots_at(), self.shape.batches) }
    }

    /// Pointers to a batch's TIDs, lengths and values.
    fn parts(&self, at: usize) -> [*mut u8; 3] {
        let shape = self.shape;
        // SAFETY: in the memory, as `Shape::bytes` counts it.
        unsafe {
            let data = self.memory.add(shape.data_at() + at * shape.batch_bytes());
            [data, data.add(shape.lengths_at()), data.add(shape.values_at())]
        }
    }
}

impl Slot {
    /// Changes the state if it is `from`, and returns whether it was.
    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

/// A batch that the holder fills. It is empty again when it is dropped.
pub(super) struct Filling<'a> {
    batches: Batches<'a>,
    at: usize,
    rows: usize,
    values: usize,
}

impl Filling<'_> {
    /// Adds a row. Check [`is_full`](Self::is_full) after each; a value has at most `MAX_VALUE_BYTES` bytes.
    pub(super) fn push(&mut self, tid: [u8; HEAP_TID_BYTES], value: &IndexValue<'_>) {
        let (shape, len) = (self.batches.shape, value.len());
        assert!(self.rows < shape.rows && self.values + len <= shape.values, "no room for a row");
        let [tids, lengths, values] = self.batches.parts(self.at);
        // SAFETY: there is room, as was just checked, and nobody else uses a batch that is being filled.
        unsafe {
            tids.add(self.rows * HEAP_TID_BYTES).cast::<[u8; HEAP_TID_BYTES]>().write(tid);
            if shape.varying {
                lengths.add(self.rows * LENGTH_BYTES).cast::<[u8; LENGTH_BYTES]>().write((len as u32).to_le_bytes());
            }
            value.write(slice::from_raw_parts_mut(values.add(self.values), len));
        }
        self.rows += 1;
        self.values += len;
    }

    /// Whether the batch is large enough to be sent.
    pub(super) fn is_full(&self) -> bool {
        let shape = self.batches.shape;
        let bytes = TuplesBatch::payload_bytes(self.rows, shape.varying, self.values);
        bytes >= TUPLES_BATCH_BYTES || self.rows == shape.rows
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Marks the batch as full, for the thread that sends it.
    pub(super) fn hand_over(self) {
        let filled = ManuallyDrop::new(self);
        let (head, slot) = (filled.batches.head(), &filled.batches.slots()[filled.at]);
        slot.rows.store(filled.rows as u32, Ordering::Relaxed);
        slot.values.store(filled.values as u64, Ordering::Relaxed);
        slot.number.store(head.filled.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        head.rows.fetch_add(filled.rows as u64, Ordering::Relaxed);
        slot.state.store(FULL, Ordering::SeqCst);
    }
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.batches.slots()[self.at].state.store(EMPTY, Ordering::SeqCst);
    }
}

/// A full batch that the holder sends. It is empty when it is dropped.
pub(super) struct Full<'a> {
    batches: Batches<'a>,
    at: usize,
}

impl Full<'_> {
    pub(super) fn rows(&self) -> TuplesBatch<'_> {
        let (slot, shape) = (&self.batches.slots()[self.at], self.batches.shape);
        let rows = slot.rows.load(Ordering::Relaxed) as usize;
        let [tids, lengths, values] = self.batches.parts(self.at);
        // SAFETY: each part begins with this number of bytes, which were written before the batch became full; nobody writes to a batch that
        // is not empty.
        let bytes = |part: *mut u8, len: usize| unsafe { slice::from_raw_parts(part.cast_const(), len) };
        TuplesBatch {
            tids: bytes(tids, rows * HEAP_TID_BYTES),
            lengths: shape.varying.then(|| bytes(lengths, rows * LENGTH_BYTES)),
            values: bytes(values, slot.values.load(Ordering::Relaxed) as usize),
        }
    }
}

impl Drop for Full<'_> {
    fn drop(&mut self) {
        self.batches.slots()[self.at].state.store(EMPTY, Ordering::SeqCst);
    }
}
