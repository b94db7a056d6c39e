//! The sizes of a model's inputs: names in the file, symbols in the graph, and their specialisation.

use std::collections::{BTreeMap, BTreeSet};

use fornax_ir::{Dim, DimRange, Symbol};

use crate::{ImportError, ImportOptions};

/// A size as an input declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Declared {
    /// A number.
    Fixed(i64),
    /// A name that it shares with equal sizes.
    Named(String),
    /// An expression of names.
    Derived(Dim),
    /// Nothing is said.
    Unknown,
}

/// Name and declared sizes of an input; no sizes when even the rank is unknown.
pub(crate) struct DeclaredInput {
    pub(crate) name: String,
    pub(crate) shape: Option<Vec<Declared>>,
}

/// What each named size is.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    sizes: BTreeMap<String, Dim>,
    taken: BTreeSet<String>,
    /// Ranges that options give.
    ranges: BTreeMap<Symbol, DimRange>,
}

impl Symbols {
    /// The shape of each input, in order, after applying the options.
    ///
    /// # Errors
    /// When an option names no dimension or input of the model, or contradicts it.
    pub(crate) fn resolve(
        inputs: &[DeclaredInput],
        options: &ImportOptions,
    ) -> Result<(Self, Vec<Vec<Dim>>), ImportError> {
        let mut symbols = Self::default();
        symbols.apply_dims(inputs, options)?;
        symbols.apply_shapes(inputs, options)?;
        let shapes = inputs
            .iter()
            .map(|input| symbols.input_shape(input, options))
            .collect::<Result<_, _>>()?;
        symbols.apply_ranges(options)?;
        Ok((symbols, shapes))
    }

    /// The values that a symbol takes: those that an option gives, of those that the model declares.
    ///
    /// # Errors
    /// When the option gives values that the model does not declare.
    pub(crate) fn range(
        &self,
        symbol: &Symbol,
        declared: DimRange,
    ) -> Result<DimRange, ImportError> {
        let Some(&given) = self.ranges.get(symbol) else { return Ok(declared) };
        if given.min < declared.min || given.max > declared.max {
            return Err(ImportError::RangeConflict {
                name: symbol.as_ref().to_owned(),
                given: format!("{}..{}", given.min, given.max),
                declared: format!("{}..{}", declared.min, declared.max),
            });
        }
        Ok(DimRange { divisor: declared.divisor, ..given })
    }

    fn apply_ranges(&mut self, options: &ImportOptions) -> Result<(), ImportError> {
        for (name, range) in &options.ranges {
            let given = format!("{}..{}", range.start(), range.end());
            let Some(size) = self.sizes.get(name) else { continue };
            let conflict = |declared: String| ImportError::RangeConflict {
                name: name.clone(),
                given: given.clone(),
                declared,
            };
            let symbol = size.symbols().into_iter().next();
            let symbol = symbol.filter(|symbol| Dim::symbol(symbol.clone()) == *size);
            let symbol = symbol.ok_or_else(|| conflict(size.to_string()))?;
            let huge = |size: u64| ImportError::HugeSize { name: name.clone(), size };
            let number = |&size: &u64| i64::try_from(size).map_err(|_| huge(size));
            let (min, max) = (number(range.start())?, number(range.end())?);
            self.ranges.insert(symbol, DimRange { min, max, divisor: 1 });
        }
        Ok(())
    }

    /// A declared size, when it is a number or a name that an input has introduced.
    pub(crate) fn size(&self, declared: &Declared) -> Option<Dim> {
        match declared {
            Declared::Fixed(size) => Some(Dim::constant(*size)),
            Declared::Named(name) => self.sizes.get(name).cloned(),
            Declared::Derived(dim) => {
                let value = |symbol: Symbol| {
                    let size = self.sizes.get(symbol.as_ref()).cloned();
                    size.map(|size| (symbol, size))
                };
                let values = dim.symbols().into_iter().map(value).collect::<Option<_>>()?;
                Some(dim.substitute(&values))
            }
            Declared::Unknown => None,
        }
    }

    fn apply_dims(
        &mut self,
        inputs: &[DeclaredInput],
        options: &ImportOptions,
    ) -> Result<(), ImportError> {
        let sizes = inputs.iter().flat_map(|input| input.shape.iter().flatten());
        let names: BTreeSet<String> = sizes
            .flat_map(|size| match size {
                Declared::Named(name) => vec![name.clone()],
                Declared::Derived(dim) => {
                    dim.symbols().iter().map(|symbol| symbol.as_ref().to_owned()).collect()
                }
                _ => Vec::new(),
            })
            .collect();
        if let Some(name) =
            options.dims.keys().chain(options.ranges.keys()).find(|name| !names.contains(*name))
        {
            return Err(ImportError::UnknownDim {
                name: name.clone(),
                known: list(names.iter().map(String::as_str)),
            });
        }
        for (name, &size) in &options.dims {
            let size = i64::try_from(size)
                .map_err(|_| ImportError::HugeSize { name: name.clone(), size })?;
            self.sizes.insert(name.clone(), Dim::constant(size));
        }
        Ok(())
    }

    fn apply_shapes(
        &mut self,
        inputs: &[DeclaredInput],
        options: &ImportOptions,
    ) -> Result<(), ImportError> {
        for (name, given) in &options.shapes {
            let Some(input) = inputs.iter().find(|input| input.name == *name) else {
                let known = list(inputs.iter().map(|input| input.name.as_str()));
                return Err(ImportError::UnknownInput { name: name.clone(), known });
            };
            let Some(declared) = &input.shape else { continue };
            if declared.len() != given.len() {
                return Err(ImportError::Rank {
                    input: name.clone(),
                    given: given.len(),
                    declared: declared.len(),
                });
            }
            for (axis, (declared, given)) in declared.iter().zip(given).enumerate() {
                let expected = match declared {
                    Declared::Unknown => continue,
                    Declared::Fixed(size) => Dim::constant(*size),
                    Declared::Derived(_) => match self.size(declared) {
                        Some(size) => size,
                        None => continue,
                    },
                    Declared::Named(symbol) => {
                        self.sizes.entry(symbol.clone()).or_insert_with(|| given.clone()).clone()
                    }
                };
                if expected != *given {
                    return Err(ImportError::SizeConflict {
                        input: name.clone(),
                        axis,
                        expected: expected.to_string(),
                        given: given.to_string(),
                    });
                }
            }
        }
        Ok(())
    }

    fn input_shape(
        &mut self,
        input: &DeclaredInput,
        options: &ImportOptions,
    ) -> Result<Vec<Dim>, ImportError> {
        if let Some(given) = options.shapes.get(&input.name) {
            return Ok(given.clone());
        }
        let Some(declared) = &input.shape else {
            return Err(ImportError::UnknownRank { input: input.name.clone() });
        };
        let mut shape = Vec::with_capacity(declared.len());
        for (axis, size) in declared.iter().enumerate() {
            if let Declared::Derived(dim) = size {
                for symbol in dim.symbols() {
                    self.introduce(symbol.as_ref());
                }
            }
            shape.push(match (size, self.size(size)) {
                (_, Some(dim)) => dim,
                (Declared::Named(name), None) => self.introduce(name),
                (_, None) => Dim::symbol(self.fresh(&format!("{}.{axis}", input.name))),
            });
        }
        Ok(shape)
    }

    /// The size that a name stands for, a new symbol if it is not known yet.
    fn introduce(&mut self, name: &str) -> Dim {
        if let Some(size) = self.sizes.get(name) {
            return size.clone();
        }
        let dim = Dim::symbol(self.fresh(name));
        self.sizes.insert(name.to_owned(), dim.clone());
        dim
    }

    /// A symbol that the text of sizes can hold, as like `name` as can be, and not yet taken.
    fn fresh(&mut self, name: &str) -> Symbol {
        let allowed = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '$' | '?');
        let mut text: String = name.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
        if text.starts_with(|c: char| c.is_numeric()) {
            text.insert(0, '_');
        }
        let mut unique = text.clone();
        let mut count = 1;
        while !self.taken.insert(unique.clone()) {
            count += 1;
            unique = format!("{text}_{count}");
        }
        unique.into()
    }
}

fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("{name:?}")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs() -> Vec<DeclaredInput> {
        let named = |name: &str| Declared::Named(name.into());
        vec![
            DeclaredInput {
                name: "x".into(),
                shape: Some(vec![named("batch size"), Declared::Fixed(3), Declared::Unknown]),
            },
            DeclaredInput {
                name: "y".into(),
                shape: Some(vec![named("batch size"), named("1st")]),
            },
        ]
    }

    fn resolve(dims: &[(&str, u64)], shapes: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let options = ImportOptions {
            dims: dims.iter().map(|&(name, size)| (name.into(), size)).collect(),
            shapes: shapes
                .iter()
                .map(|&(name, sizes)| {
                    (name.into(), sizes.split(',').map(|size| size.parse().unwrap()).collect())
                })
                .collect(),
            ..ImportOptions::default()
        };
        let text =
            |shape: &Vec<Dim>| shape.iter().map(Dim::to_string).collect::<Vec<_>>().join(",");
        Symbols::resolve(&inputs(), &options)
            .map(|(_, shapes)| shapes.iter().map(text).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn names_become_symbols_and_equal_names_equal_symbols() {
        assert_eq!(resolve(&[], &[]).unwrap(), ["batch_size,3,x.2", "batch_size,_1st"]);
    }

    #[test]
    fn options_specialise_all_uses_of_a_name() {
        assert_eq!(resolve(&[("batch size", 8)], &[]).unwrap(), ["8,3,x.2", "8,_1st"]);
        assert_eq!(resolve(&[], &[("x", "2,3,5")]).unwrap(), ["2,3,5", "2,_1st"]);
        assert_eq!(resolve(&[], &[("x", "N,3,5")]).unwrap(), ["N,3,5", "N,_1st"]);
    }

    #[test]
    fn ranges_narrow_what_the_model_declares() {
        let range = |name: &str, range, shapes: &[(&str, &str)]| {
            let shape = |text: &str| text.split(',').map(|size| size.parse().unwrap()).collect();
            let options = ImportOptions {
                ranges: [(name.to_owned(), range)].into(),
                shapes: shapes.iter().map(|&(name, text)| (name.into(), shape(text))).collect(),
                ..ImportOptions::default()
            };
            let declared = DimRange { min: 1, max: 100, divisor: 2 };
            let (symbols, _) =
                Symbols::resolve(&inputs(), &options).map_err(|error| error.to_string())?;
            let of = |symbol: &str| {
                let range = symbols.range(&symbol.into(), declared);
                range.map_err(|error| error.to_string())
            };
            Ok::<_, String>((of("batch_size")?, of("_1st")?))
        };
        let (batch, other) = range("batch size", 4..=64, &[]).unwrap();
        assert_eq!((batch.min, batch.max, batch.divisor), (4, 64, 2));
        assert_eq!((other.min, other.max, other.divisor), (1, 100, 2));
        let error = range("batch size", 4..=101, &[]).unwrap_err();
        assert!(error.contains("4..101") && error.contains("1..100"), "{error}");
        let error = range("batch", 1..=2, &[]).unwrap_err();
        assert!(error.contains("\"batch\"") && error.contains("\"batch size\""), "{error}");
        let error = range("batch size", 1..=4, &[("x", "2,3,5")]).unwrap_err();
        assert!(error.contains("1..4") && error.contains("is 2"), "{error}");
    }

    #[test]
    fn options_that_do_not_fit_are_refused() {
        let error = resolve(&[("batch", 8)], &[]).unwrap_err();
        assert!(error.contains("\"batch\"") && error.contains("\"batch size\""), "{error}");
        let error = resolve(&[], &[("z", "1")]).unwrap_err();
        assert!(error.contains("\"z\"") && error.contains("\"x\", \"y\""), "{error}");
        assert!(resolve(&[], &[("x", "1,3")]).unwrap_err().contains("rank"));
        let error = resolve(&[], &[("x", "1,4,5")]).unwrap_err();
        assert!(error.contains("axis 1") && error.contains('3') && error.contains('4'), "{error}");
        assert!(resolve(&[("batch size", 8)], &[("x", "2,3,5")]).is_err());
        assert!(resolve(&[], &[("x", "2,3,5"), ("y", "3,1")]).is_err());
        assert!(resolve(&[("1st", u64::MAX)], &[]).is_err());
    }
}
