//! The signatures of ATen operators, and how the arguments of a call are bound to them.

use fornax_ir::Dim;

use super::item::Item;

/// What a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A tensor, or a number that stands for one of rank 0.
    Tensor,
    /// A list of tensors; `None` elements where the signature says `Tensor?[]`.
    Tensors,
    Int,
    Ints,
    Float,
    Floats,
    Bool,
    /// A number of any kind.
    Scalar,
    Text,
    DType,
    /// What has no effect on results.
    Placement,
}

/// A parameter of an operator.
#[derive(Clone)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) optional: bool,
    pub(crate) default: Option<Plain>,
}

/// A default value.
#[derive(Clone)]
pub(crate) enum Plain {
    None,
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Empty,
}

/// The name, overload and parameters of an operator, as PyTorch's `native_functions.yaml` writes them, without
/// result and aliases.
pub(crate) struct Schema {
    /// As in `add`.
    pub(crate) name: String,
    /// As in `Tensor`; `default` where there is none.
    pub(crate) overload: String,
    pub(crate) parameters: Vec<Parameter>,
    /// How many of them may be given by place.
    by_place: usize,
}

/// What a tensor parameter takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Numbers too: where the program names the overload.
    Allowed,
    /// Tensors alone: where the overload is found by what the arguments are.
    Refused,
}

impl Schema {
    /// Parses `add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1)`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (full, rest) = text.split_once('(')?;
        let (name, overload) = full.split_once('.').unwrap_or((full, "default"));
        let inside = rest.strip_suffix(')')?;
        let pieces: Vec<&str> = inside.split(", ").filter(|piece| !piece.is_empty()).collect();
        let by_place = pieces.iter().position(|piece| *piece == "*").unwrap_or(pieces.len());
        let named = pieces.into_iter().filter(|piece| *piece != "*");
        let parameters = named.map(parameter).collect::<Option<_>>()?;
        Some(Self { name: name.to_owned(), overload: overload.to_owned(), parameters, by_place })
    }

    /// The arguments in the order of the parameters, defaults filled in.
    ///
    /// # Errors
    /// Which argument does not fit, and why.
    pub(crate) fn bind(
        &self,
        positional: &[Item],
        named: &[(String, Item)],
        numbers: Numbers,
    ) -> Result<Vec<Item>, String> {
        if positional.len() > self.by_place {
            let (given, known) = (positional.len(), self.by_place);
            return Err(format!("{given} arguments are given, {known} are known"));
        }
        if let Some((name, _)) =
            named.iter().find(|(name, _)| self.parameters.iter().all(|known| known.name != *name))
        {
            return Err(format!("the argument `{name}` is not known"));
        }
        let mut bound = Vec::with_capacity(self.parameters.len());
        for (index, parameter) in self.parameters.iter().enumerate() {
            let given = positional.get(index).or_else(|| {
                named.iter().find(|(name, _)| *name == parameter.name).map(|(_, item)| item)
            });
            bound.push(match (given, &parameter.default) {
                (Some(item), _) => parameter.convert(item, numbers).ok_or_else(|| {
                    format!("the argument `{}` is {}", parameter.name, item.kind())
                })?,
                (None, Some(default)) => default.item(),
                (None, None) if parameter.optional => Item::None,
                (None, None) if parameter.kind == Kind::Placement => Item::None,
                (None, None) => {
                    return Err(format!("the argument `{}` is missing", parameter.name));
                }
            });
        }
        Ok(bound)
    }
}

impl Parameter {
    /// The item as the parameter takes it.
    fn convert(&self, item: &Item, numbers: Numbers) -> Option<Item> {
        let every =
            |fits: fn(&Item) -> bool| item.elements().is_some_and(|all| all.iter().all(fits));
        let fits = match (self.kind, item) {
            (_, Item::None) => self.optional || self.kind == Kind::Placement,
            (Kind::Placement, _) => true,
            (Kind::Tensor, Item::Tensor(_)) => true,
            (Kind::Tensor, Item::Int(_) | Item::Float(_) | Item::Bool(_)) => {
                numbers == Numbers::Allowed
            }
            (Kind::Tensors, Item::List(_) | Item::Tuple(_)) => {
                every(|item| matches!(item, Item::Tensor(_) | Item::None))
            }
            (Kind::Int, Item::Int(_)) => true,
            (Kind::Int, Item::Bool(value)) => return Some(Item::int(i64::from(*value))),
            (Kind::Ints, Item::List(_) | Item::Tuple(_)) => {
                every(|item| matches!(item, Item::Int(_)))
            }
            (Kind::Ints, Item::Int(_)) => return Some(Item::list(vec![item.clone()])),
            (Kind::Float, Item::Float(_) | Item::Int(_)) => true,
            (Kind::Floats, Item::List(_) | Item::Tuple(_)) => {
                every(|item| matches!(item, Item::Int(_) | Item::Float(_)))
            }
            (Kind::Bool, Item::Bool(_)) => true,
            (Kind::Bool, Item::Int(dim)) => {
                return dim.as_const().map(|value| Item::Bool(value != 0));
            }
            (Kind::Scalar, Item::Int(_) | Item::Float(_) | Item::Bool(_)) => true,
            (Kind::Text, Item::Text(_)) => true,
            (Kind::DType, Item::DType(_) | Item::Int(_)) => true,
            _ => false,
        };
        fits.then(|| item.clone())
    }
}

impl Plain {
    fn item(&self) -> Item {
        match self {
            Self::None => Item::None,
            Self::Int(value) => Item::Int(Dim::constant(*value)),
            Self::Float(value) => Item::Float(*value),
            Self::Bool(value) => Item::Bool(*value),
            Self::Text(text) => Item::from(text.as_str()),
            Self::Empty => Item::list(Vec::new()),
        }
    }
}

fn parameter(text: &str) -> Option<Parameter> {
    let (kind, rest) = text.split_once(' ')?;
    let (name, default) = match rest.split_once('=') {
        Some((name, default)) => (name, Some(plain(default)?)),
        None => (rest, None),
    };
    let (kind, optional) = match kind.strip_suffix('?') {
        Some(kind) => (kind, true),
        None => (kind, false),
    };
    let kind = match kind {
        "Tensor" => Kind::Tensor,
        "Tensor[]" | "Tensor?[]" => Kind::Tensors,
        "int" => Kind::Int,
        "float" => Kind::Float,
        "float[]" => Kind::Floats,
        "bool" => Kind::Bool,
        "Scalar" => Kind::Scalar,
        "str" => Kind::Text,
        "ScalarType" => Kind::DType,
        "Layout" | "Device" | "MemoryFormat" | "Generator" => Kind::Placement,
        other if other.starts_with("int[") => Kind::Ints,
        _ => return None,
    };
    Some(Parameter { name: name.to_owned(), kind, optional, default })
}

fn plain(text: &str) -> Option<Plain> {
    Some(match text {
        "None" => Plain::None,
        "True" => Plain::Bool(true),
        "False" => Plain::Bool(false),
        "[]" => Plain::Empty,
        // Of `int reduction`.
        "Mean" => Plain::Int(1),
        _ if text.starts_with('"') => Plain::Text(text.trim_matches('"').to_owned()),
        _ => match text.parse() {
            Ok(value) => Plain::Int(value),
            Err(_) => Plain::Float(text.parse().ok()?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_bound_by_place_and_name() {
        let text =
            "conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, int groups=1)";
        let schema = Schema::parse(text).unwrap();
        assert_eq!((schema.name.as_str(), schema.overload.as_str()), ("conv2d", "default"));
        let (float, all) = (|value| Item::Float(value), Numbers::Allowed);
        let bound = schema
            .bind(&[float(1.0), float(2.0)], &[("groups".to_owned(), Item::int(4))], all)
            .unwrap();
        assert!(bound[2].is_none());
        assert!(matches!(&bound[3], Item::Int(dim) if dim.is(1)));
        assert!(matches!(&bound[4], Item::Int(dim) if dim.is(4)));
        assert!(schema.bind(&[float(1.0)], &[], all).unwrap_err().contains("`weight` is missing"));
        let unknown = [("x".to_owned(), Item::None)];
        assert!(
            schema.bind(&[float(1.0)], &unknown, all).unwrap_err().contains("`x` is not known")
        );
        let wrong = [float(1.0), float(2.0), Item::None, float(0.5)];
        let strict = schema.bind(&[float(1.0)], &[], Numbers::Refused);
        assert!(strict.unwrap_err().contains("`input` is a float"));
        assert!(schema.bind(&wrong, &[], all).unwrap_err().contains("`stride` is a float"));
    }
}
