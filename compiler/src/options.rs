//! Options of a compilation.

use std::fmt;
use std::str::FromStr;

use fornax_bundle::PrecisionPolicy;
use fornax_models::ImportOptions;
pub use fornax_passes::egraph::Rewrites;
pub use fornax_passes::regions::Steering;

/// Where the weights go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeightsMode {
    /// Into the bundle.
    #[default]
    Embed,
    /// Nowhere: they are bound by name at load.
    External,
    /// Into the bundle, those whose data the model has; the others, whose data file does not exist, are
    /// bound by name at load.
    Present,
}

/// What to compile for, and how.
#[derive(Debug, Clone)]
pub struct CompileOptions {
    /// Sizes that specialise the model.
    pub import: ImportOptions,
    /// Targets, best first.
    pub targets: Vec<String>,
    /// How accurately contractions multiply.
    pub precision: PrecisionPolicy,
    /// Rewrites allowed.
    pub rewrites: Rewrites,
    /// What fusion must and must not do.
    pub steering: Steering,
    /// Where the weights go.
    pub weights: WeightsMode,
    /// Whether each stage's result is verified (always so in debug builds).
    pub verify: bool,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        CompileOptions {
            import: ImportOptions::default(),
            targets: vec!["sm_90a".to_owned(), "sm_80".to_owned()],
            precision: PrecisionPolicy::default(),
            rewrites: Rewrites::default(),
            steering: Steering::default(),
            weights: WeightsMode::default(),
            verify: cfg!(debug_assertions),
        }
    }
}

/// Text names of an option's values; the text of an unknown one lists those that there are.
macro_rules! named_values {
    ($ty:ident { $($name:literal => $value:ident),* } refused { $($later:literal),* }) => {
        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($ty::$value => $name),* })
            }
        }

        impl FromStr for $ty {
            type Err = String;
            fn from_str(text: &str) -> Result<$ty, String> {
                let known = [$($name),*].join(", ");
                match text {
                    $($name => Ok($ty::$value),)*
                    $($later => Err(format!("`{text}` is not supported yet; use {known}")),)*
                    _ => Err(format!("there is no `{text}`; use {known}")),
                }
            }
        }
    };
}
named_values!(WeightsMode { "embed" => Embed, "external" => External, "present" => Present } refused {});
