/// Fixed seed: the same index gives the same sample.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stratified sample: one random number from each of `count` equal parts of `0..of`, where `count` is at most `of`. A fixed
/// step could coincide with a period of the pages or elements.
pub fn one_of_each_part(count: u64, of: u64) -> impl Iterator<Item = u64> {
    let mut random = SEED;
    (0..count).map(move |number| {
        let (from, to) = (number * of / count, (number + 1) * of / count);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + (random >> 33) % (to - from)
    })
}

#[cfg(test)]
mod tests {
    use super::one_of_each_part;

    #[test]
    fn each_part_gives_one() {
        for (count, of) in [(0, 0), (0, 5), (1, 1), (5, 5), (48, 1000), (7, u64::from(u32::MAX))] {
            let drawn: Vec<u64> = one_of_each_part(count, of).collect();
            assert_eq!(drawn.len() as u64, count);
            for (number, at) in (0..count).zip(drawn) {
                assert!((number * of / count..(number + 1) * of / count).contains(&at), "{at} of {of}");
            }
        }
    }
}
