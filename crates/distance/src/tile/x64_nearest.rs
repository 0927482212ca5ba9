//! Sorted lists of candidates in AVX-512 registers.

use std::arch::x86_64::*;

use super::nearest::{LANES, Nearest};
use super::{COLS, ROWS, Tile};
use crate::Candidate;

/// [`Nearest::offer_pairs_portably`] for `PAIRS`, else [`Nearest::offer_rows_portably`], on lists of at most two registers.
///
/// # Panics
/// If there are no such points, or lists are longer than two registers.
pub(super) fn offer<const PAIRS: bool>(nearest: &mut Nearest, tile: &Tile, first_row: usize, first_col: usize) {
    let points = nearest.limits.len();
    assert!(first_row + ROWS <= points && (!PAIRS || first_col + COLS <= points));
    assert!(nearest.lists.len() == points * nearest.places && (1..=nearest.places).contains(&nearest.k));
    match nearest.places {
        // SAFETY: this is called where the level includes AVX-512; lists and limits are as long as asserted.
        LANES => unsafe { offer_512::<1, PAIRS>(nearest, tile, first_row, first_col) },
        // SAFETY: as above.
        16 => unsafe { offer_512::<2, PAIRS>(nearest, tile, first_row, first_col) },
        places => panic!("lists of {places} places"),
    }
}

/// # Safety
/// There must be lists of `8 * N` places, and limits, for [`ROWS`] points from `first_row` and, with `PAIRS`, for [`COLS`]
/// points from `first_col`.
#[target_feature(enable = "avx512f")]
unsafe fn offer_512<const N: usize, const PAIRS: bool>(
    nearest: &mut Nearest,
    tile: &Tile,
    first_row: usize,
    first_col: usize,
) {
    let (lists, limits) = (nearest.lists.as_mut_ptr().cast::<u64>(), nearest.limits.as_mut_ptr());
    let last = nearest.k - 1;
    // Limits are updated after all insertions: loading a list's last candidate right after its store would stall each time.
    let mut cols = 0;
    for row in 0..ROWS {
        let a = first_row + row;
        // Mask out columns that are not after the row.
        let not = if PAIRS { (a + 1).saturating_sub(first_col).min(COLS) } else { 0 };
        let mut hits = tile.hits[row] & (u64::from(u32::MAX) << not) as u32;
        if hits == 0 {
            continue;
        }
        // SAFETY: as promised, there is such a list.
        let row_list = unsafe { lists.add(a * N * LANES) };
        // SAFETY: as promised, it has `8 * N` places.
        let mut of_row = unsafe { load::<N>(row_list) };
        cols |= hits;
        while hits != 0 {
            let col = hits.trailing_zeros() as usize;
            hits &= hits - 1;
            let (b, distance) = (first_col + col, tile.distances[row][col]);
            of_row = with(of_row, Candidate::new(distance, b as u32));
            if PAIRS {
                // SAFETY: as promised, there is such a list.
                unsafe {
                    let col_list = lists.add(b * N * LANES);
                    store(col_list, with(load::<N>(col_list), Candidate::new(distance, a as u32)));
                }
            }
        }
        // SAFETY: as above.
        unsafe { store(row_list, of_row) };
    }
    let limit = |point: usize| {
        // SAFETY: as promised, there are such a list and such a limit.
        unsafe { *limits.add(point) = Candidate::from_bits(*lists.add(point * N * LANES + last)).distance() };
    };
    (0..ROWS).filter(|&row| tile.hits[row] != 0).for_each(|row| limit(first_row + row));
    while PAIRS && cols != 0 {
        limit(first_col + cols.trailing_zeros() as usize);
        cols &= cols - 1;
    }
}

/// Inserts into a sorted list, whose last candidate drops out.
#[inline]
#[target_feature(enable = "avx512f")]
fn with<const N: usize>(list: [__m512i; N], new: Candidate) -> [__m512i; N] {
    let new = _mm512_set1_epi64(new.to_bits().cast_signed());
    let mut before = _mm512_setzero_si512();
    list.map(|places| {
        // Shifted by one place: each place's predecessor.
        let shifted = _mm512_alignr_epi64::<7>(places, before);
        before = places;
        _mm512_max_epu64(shifted, _mm512_min_epu64(places, new))
    })
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load<const N: usize>(list: *const u64) -> [__m512i; N] {
    // SAFETY: the caller promises a list of `8 * N` places.
    std::array::from_fn(|at| unsafe { _mm512_loadu_si512(list.add(at * LANES).cast()) })
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store<const N: usize>(list: *mut u64, places: [__m512i; N]) {
    for (at, places) in places.into_iter().enumerate() {
        // SAFETY: the caller promises a list of `8 * N` places.
        unsafe { _mm512_storeu_si512(list.add(at * LANES).cast(), places) };
    }
}
