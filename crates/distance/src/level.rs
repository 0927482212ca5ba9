use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use crate::amx;

/// What the processor can do, as far as the kernels care. On each architecture, each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every processor of the architecture has.
    Portable,
    /// x86-64 with AVX2, FMA, F16C and POPCNT.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ, VL, VPOPCNTDQ and VNNI.
    Avx512,
    /// The same with AMX for int8, which the system lets this process use.
    Amx,
    /// aarch64, all of which have NEON with fused multiply-add and conversion of f16.
    Neon,
    /// aarch64 with dot products of int8.
    NeonDot,
}

impl Level {
    /// The level of this processor, looked for once.
    #[must_use]
    pub fn detect() -> Self {
        static FOUND: OnceLock<Level> = OnceLock::new();
        let find = || Self::of_architecture().iter().rev().copied().find(|level| level.is_here());
        *FOUND.get_or_init(|| find().unwrap_or(Self::Portable))
    }

    /// Every level that this processor can run, for tests and benchmarks.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut levels = vec![Self::Portable];
        levels.extend(Self::of_architecture().iter().filter(|level| level.is_here()));
        levels
    }

    /// Those that this architecture knows beyond the portable one, lowest first.
    fn of_architecture() -> &'static [Self] {
        if cfg!(target_arch = "aarch64") {
            &[Self::Neon, Self::NeonDot]
        } else {
            &[Self::Avx2, Self::Avx512, Self::Amx]
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn is_here(self) -> bool {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("popcnt");
        match self {
            Self::Amx => Self::Avx512.is_here() && amx::is_here(),
            Self::Avx512 => {
                avx2 && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vpopcntdq")
                    && is_x86_feature_detected!("avx512vnni")
            }
            level => level == Self::Avx2 && avx2,
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn is_here(self) -> bool {
        match self {
            Self::NeonDot => std::arch::is_aarch64_feature_detected!("dotprod"),
            level => level == Self::Neon,
        }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn is_here(self) -> bool {
        false
    }
}

/// One portable body, compiled for each level: `fn name(level: Level) -> Kernel`.
///
/// The body gets a type that says how to load and multiply at that level, and must be `#[inline(always)]`, so that it is
/// compiled with the features of the function it ends up in.
macro_rules! for_each_level {
    ($name:ident, $body:ident, $portable:ty, $fused:ty) => {
        pub(crate) fn $name(level: $crate::Level) -> $crate::Kernel {
            fn portable(a: &[u8], b: &[u8]) -> f32 {
                $body::<$portable>(a, b)
            }
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c,popcnt")]
                fn avx2(a: &[u8], b: &[u8]) -> f32 {
                    $body::<$fused>(a, b)
                }
                #[target_feature(enable = "avx2,fma,f16c,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq")]
                fn avx512(a: &[u8], b: &[u8]) -> f32 {
                    $body::<$fused>(a, b)
                }
                match level {
                    // SAFETY: `Level::detect` found every feature the function is compiled for.
                    $crate::Level::Avx512 | $crate::Level::Amx => return |a, b| unsafe { avx512(a, b) },
                    // SAFETY: as above.
                    $crate::Level::Avx2 => return |a, b| unsafe { avx2(a, b) },
                    _ => {}
                }
            }
            #[cfg(target_arch = "aarch64")]
            if level != $crate::Level::Portable {
                // Everything that the bodies use belongs to the architecture.
                return |a, b| $body::<$fused>(a, b);
            }
            let _ = level;
            portable
        }
    };
}
pub(crate) use for_each_level;

/// One portable function, compiled for each level: `fn name(level: Level) -> fn(...) -> ...`. The body must be
/// `#[inline(always)]` and give the same result whatever it is compiled for.
macro_rules! compiled_for_each_level {
    ($name:ident, $body:ident, ($($argument:ident: $type:ty),*) -> $result:ty) => {
        fn $name(level: $crate::Level) -> fn($($argument: $type),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2($($argument: $type),*) -> $result {
                    $body($($argument),*)
                }
                #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512($($argument: $type),*) -> $result {
                    $body($($argument),*)
                }
                match level {
                    // SAFETY: `Level::detect` found every feature the function is compiled for.
                    $crate::Level::Avx512 | $crate::Level::Amx => return |$($argument),*| unsafe { avx512($($argument),*) },
                    // SAFETY: as above.
                    $crate::Level::Avx2 => return |$($argument),*| unsafe { avx2($($argument),*) },
                    _ => {}
                }
            }
            let _ = level;
            |$($argument),*| $body($($argument),*)
        }
    };
}
pub(crate) use compiled_for_each_level;
