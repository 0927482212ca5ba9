use pages::Estimate;
use protocol::Hello;

use crate::admission::Need;
use crate::advising::SampleNeed;
use crate::checking::CheckNeed;
use crate::hello;

/// Memory in bytes that a builder reserves for the build, from the client's estimate of rows. `u64::MAX` without an estimate, 0 for a build
/// that every builder refuses.
#[must_use]
pub fn need_of(hello: &Hello) -> u64 {
    match hello::check(hello, 0) {
        Ok(spec) if let Some(check) = hello.check => CheckNeed::new(&spec, &check).bytes(),
        Ok(spec) if hello.ask.is_some() => {
            SampleNeed::new(&spec, hello.estimated_rows, Estimate::ASSUMED_THREADS).at_first()
        }
        Ok(_) if hello.estimated_rows == 0 => u64::MAX,
        Ok(spec) => Need::new(&spec, Estimate::ASSUMED_THREADS).at_first(hello.estimated_rows),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use protocol::{Hello, ValueType};

    use super::need_of;
    use crate::admission::machine_for;
    use crate::hello::tests::hello;

    #[test]
    fn need_depends_on_rows_and_is_unbounded_without_an_estimate() {
        let hello = |value_type, dims, estimated_rows| Hello { value_type, dims, estimated_rows, ..hello() };
        let of = |rows| machine_for(need_of(&hello(ValueType::Vector, 1536, rows)));
        assert!((7..10).contains(&(of(1_000_000) >> 30)));
        assert!(of(10) < 1 << 30);
        assert_eq!((of(0), of(u64::MAX)), (u64::MAX, u64::MAX));
        assert!(machine_for(need_of(&hello(ValueType::SparseVec, 1_000_000_000, 1_000_000))) >> 30 < 4);
        assert_eq!(need_of(&hello(ValueType::Vector, 3000, 10)), 0, "no builder takes it");
    }
}
