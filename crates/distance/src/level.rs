/// What the processor can do, as far as the kernels care. Each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every processor of the architecture has.
    Portable,
    /// x86-64 with AVX2, FMA, F16C and POPCNT.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VPOPCNTDQ.
    Avx512,
}

impl Level {
    /// The level of this processor. Cheap: the standard library remembers what it found.
    #[must_use]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
                && is_x86_feature_detected!("popcnt");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vpopcntdq");
            match (avx2, avx512) {
                (true, true) => return Self::Avx512,
                (true, false) => return Self::Avx2,
                _ => {}
            }
        }
        Self::Portable
    }

    /// Every level that this processor can run, for tests and benchmarks.
    #[must_use]
    pub fn available() -> Vec<Self> {
        [Self::Portable, Self::Avx2, Self::Avx512].into_iter().filter(|&level| level <= Self::detect()).collect()
    }
}

/// One portable body, compiled for each level: `fn name(level: Level) -> Kernel`.
///
/// The body gets a type that says how to load and multiply at that level, and must be `#[inline(always)]`, so that it is
/// compiled with the features of the function it ends up in.
macro_rules! for_each_level {
    ($name:ident, $body:ident, $portable:ty, $avx:ty) => {
        pub(crate) fn $name(level: $crate::Level) -> $crate::Kernel {
            fn portable(a: &[u8], b: &[u8]) -> f32 {
                $body::<$portable>(a, b)
            }
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c,popcnt")]
                fn avx2(a: &[u8], b: &[u8]) -> f32 {
                    $body::<$avx>(a, b)
                }
                #[target_feature(enable = "avx2,fma,f16c,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq")]
                fn avx512(a: &[u8], b: &[u8]) -> f32 {
                    $body::<$avx>(a, b)
                }
                match level {
                    // SAFETY: `Level::detect` found every feature the function is compiled for.
                    $crate::Level::Avx512 => return |a, b| unsafe { avx512(a, b) },
                    // SAFETY: as above.
                    $crate::Level::Avx2 => return |a, b| unsafe { avx2(a, b) },
                    $crate::Level::Portable => {}
                }
            }
            let _ = level;
            portable
        }
    };
}
pub(crate) use for_each_level;
