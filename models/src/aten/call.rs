//! One call of an ATen operator: what its handler in [`super::ops`] works with.

use std::rc::Rc;

use fornax_ir::{DType, Diagnostic, Dim, Loc, NodeId, Type};

use super::handle::Handle;
use super::item::{Item, Number};
use super::promote::{self, Category};
use super::schema::Schema;
use crate::build::known::{Element, Known};
pub(super) use crate::build::{Build, Builder, Result, Value};

/// A call with its arguments bound to parameters.
pub(crate) struct Call<'a> {
    builder: &'a mut Builder,
    loc: Loc,
    /// Name of the result, for what it is called when it becomes a constant.
    pub(super) result: &'a str,
    schema: &'static Schema,
    arguments: Vec<Item>,
}

impl Build for Call<'_> {
    const FORMAT: &'static str = "aten";

    fn builder(&self) -> &Builder {
        self.builder
    }

    fn builder_mut(&mut self) -> &mut Builder {
        self.builder
    }

    fn loc(&self) -> Loc {
        self.loc
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(
        builder: &'a mut Builder,
        loc: Loc,
        result: &'a str,
        schema: &'static Schema,
        arguments: Vec<Item>,
    ) -> Self {
        Self { builder, loc, result, schema, arguments }
    }

    /// The argument for a parameter; `None` where the overload has no such parameter.
    pub(super) fn argument(&self, name: &str) -> Item {
        let place = self.schema.parameters.iter().position(|parameter| parameter.name == name);
        place.map_or(Item::None, |place| self.arguments[place].clone())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        !self.argument(name).is_none()
    }

    fn wrong(&self, name: &str, wanted: &str) -> Diagnostic {
        let found = self.argument(name).kind();
        self.invalid(format!("the argument `{name}` must be {wanted}, but is {found}"))
    }

    fn symbolic(&self, name: &str) -> Diagnostic {
        self.fault("not-constant", format!("the argument `{name}` must be known at compile time"))
            .note("it depends on the model's inputs, or on sizes that are not specialised")
    }
}

/// Tensors.
impl Call<'_> {
    /// The tensor that an argument is.
    pub(super) fn handle(&self, name: &str) -> Result<Handle> {
        match self.argument(name) {
            Item::Tensor(handle) => Ok(handle),
            _ => Err(self.wrong(name, "a tensor")),
        }
    }

    /// The value of a tensor argument; a number stands for a tensor of rank 0.
    pub(super) fn value(&mut self, name: &str) -> Result<Value> {
        let item = self.argument(name);
        self.value_of(&item).and_then(|value| value.ok_or_else(|| self.wrong(name, "a tensor")))
    }

    fn value_of(&mut self, item: &Item) -> Result<Option<Value>> {
        if let Item::Tensor(handle) = item {
            return handle.read(self).map(Some);
        }
        let Some(number) = item.as_number() else { return Ok(None) };
        let (dtype, element) = match number {
            Number::Bool(value) => (DType::Bool, Element::from(i64::from(value))),
            Number::Int(dim) => (DType::I64, Element::Int(dim)),
            Number::Float(value) => (DType::F32, Element::Float(f64::from(value as f32))),
        };
        let known = Known::new(dtype, vec![], vec![element])
            .ok_or_else(|| self.unsupported("a size is too complicated an expression"))?;
        Ok(Some(Value::known(self.result, known)))
    }

    /// A tensor argument as a node of the graph.
    pub(super) fn input(&mut self, name: &str) -> Result<NodeId> {
        let value = self.value(name)?;
        self.materialize(&value)
    }

    pub(super) fn optional(&mut self, name: &str) -> Result<Option<NodeId>> {
        if self.has(name) { self.input(name).map(Some) } else { Ok(None) }
    }

    /// The type of a tensor argument.
    pub(super) fn ty(&mut self, name: &str) -> Result<Type> {
        let value = self.value(name)?;
        Ok(self.type_of(&value))
    }

    /// The elements of a list of tensors; absent ones are `None`.
    pub(super) fn optionals(&mut self, name: &str) -> Result<Vec<Option<NodeId>>> {
        let items =
            self.argument(name).elements().ok_or_else(|| self.wrong(name, "a list of tensors"))?;
        let mut nodes = Vec::with_capacity(items.len());
        for item in items {
            nodes.push(match self.value_of(&item)? {
                Some(value) => Some(self.materialize(&value)?),
                None => None,
            });
        }
        Ok(nodes)
    }

    /// The elements of a list of tensors.
    pub(super) fn inputs(&mut self, name: &str) -> Result<Vec<NodeId>> {
        let nodes: Option<Vec<NodeId>> = self.optionals(name)?.into_iter().collect();
        nodes.ok_or_else(|| self.invalid(format!("an element of `{name}` is missing")))
    }

    /// The elements of a tensor that are known while importing.
    pub(super) fn known(&mut self, name: &str) -> Option<Known> {
        match self.value(name).ok()? {
            Value::Literal(literal) => literal.as_known(),
            Value::Node(_) => None,
        }
    }

    /// How an argument takes part in type promotion.
    fn category(&mut self, item: &Item) -> Result<Option<(DType, Category)>> {
        let Item::Tensor(handle) = item else {
            return Ok(item.as_number().map(|number| match number {
                Number::Bool(_) => (DType::Bool, Category::Number),
                Number::Int(_) => (DType::I64, Category::Number),
                Number::Float(_) => (DType::F32, Category::Number),
            }));
        };
        let ty = self.type_of(&handle.peek());
        let category = if ty.rank() == 0 { Category::Scalar } else { Category::Tensor };
        Ok(Some((ty.dtype, category)))
    }

    /// The element type that arguments are brought to before they are combined.
    pub(super) fn common_dtype(&mut self, names: &[&str]) -> Result<DType> {
        let mut operands = Vec::with_capacity(names.len());
        for name in names {
            let item = self.argument(name);
            operands.extend(self.category(&item)?);
        }
        self.promoted(&operands)
    }

    /// As [`Self::common_dtype`], for the elements of a list.
    pub(super) fn common_dtype_of(&mut self, nodes: &[NodeId]) -> Result<DType> {
        let operands: Vec<(DType, Category)> = nodes
            .iter()
            .map(|&node| {
                let ty = self.graph().ty(node);
                (ty.dtype, if ty.rank() == 0 { Category::Scalar } else { Category::Tensor })
            })
            .collect();
        self.promoted(&operands)
    }

    fn promoted(&self, operands: &[(DType, Category)]) -> Result<DType> {
        promote::result(operands)
            .ok_or_else(|| self.unsupported("8-bit floats and integers cannot be combined"))
    }

    /// An argument as a node of that element type; numbers keep all their digits.
    pub(super) fn input_as(&mut self, name: &str, dtype: DType) -> Result<NodeId> {
        match self.argument(name).as_number() {
            Some(number) => self.number(&number, dtype),
            None => {
                let node = self.input(name)?;
                self.cast(node, dtype)
            }
        }
    }

    /// A number as a node of rank 0.
    pub(super) fn number(&mut self, number: &Number, dtype: DType) -> Result<NodeId> {
        match number.as_f64() {
            Some(value) => Ok(self.scalar(dtype, value)),
            None => Err(self
                .fault("shape-as-data", "a size that is only known at run time is used as data")
                .note("specialise the sizes, as in --dim batch=1")),
        }
    }

    /// Arguments in their common element type and shape.
    pub(super) fn operands(&mut self, names: &[&str]) -> Result<Vec<NodeId>> {
        let dtype = self.common_dtype(names)?;
        self.operands_as(names, dtype)
    }

    /// Arguments in an element type and their common shape.
    pub(super) fn operands_as(&mut self, names: &[&str], dtype: DType) -> Result<Vec<NodeId>> {
        let nodes =
            names.iter().map(|name| self.input_as(name, dtype)).collect::<Result<Vec<_>>>()?;
        self.broadcast_all(&nodes)
    }
}

/// Other arguments.
impl Call<'_> {
    /// A number that must be known.
    pub(super) fn float(&self, name: &str) -> Result<f64> {
        let number = self.argument(name).as_number().ok_or_else(|| self.wrong(name, "a number"))?;
        number.as_f64().ok_or_else(|| self.symbolic(name))
    }

    pub(super) fn float_or(&self, name: &str, default: f64) -> Result<f64> {
        if self.has(name) { self.float(name) } else { Ok(default) }
    }

    /// An integer, perhaps symbolic.
    pub(super) fn dim(&self, name: &str) -> Result<Dim> {
        match self.argument(name) {
            Item::Int(dim) => Ok(dim),
            _ => Err(self.wrong(name, "an integer")),
        }
    }

    pub(super) fn int(&self, name: &str) -> Result<i64> {
        self.dim(name)?.as_const().ok_or_else(|| self.symbolic(name))
    }

    /// Integers, perhaps symbolic; one integer counts as a list of it. `None` gives an empty list.
    pub(super) fn dims(&self, name: &str) -> Result<Vec<Dim>> {
        match self.argument(name) {
            Item::None => Ok(Vec::new()),
            Item::Int(dim) => Ok(vec![dim]),
            item => {
                let sizes =
                    item.elements().unwrap_or_default().into_iter().map(|item| match item {
                        Item::Int(dim) => Ok(dim),
                        _ => Err(self.wrong(name, "a list of integers")),
                    });
                sizes.collect()
            }
        }
    }

    pub(super) fn ints(&self, name: &str) -> Result<Vec<i64>> {
        let sizes = self.dims(name)?;
        sizes.iter().map(|dim| dim.as_const().ok_or_else(|| self.symbolic(name))).collect()
    }

    /// As many integers as there are spatial axes: one number stands for all, none for `default`.
    pub(super) fn spatial(&self, name: &str, rank: usize, default: &[i64]) -> Result<Vec<i64>> {
        match &self.ints(name)?[..] {
            [] => Ok(default.to_vec()),
            [one] => Ok(vec![*one; rank]),
            all if all.len() == rank => Ok(all.to_vec()),
            all => {
                let message = format!("`{name}` has {} entries for {rank} axes", all.len());
                Err(self.invalid(message))
            }
        }
    }

    /// Numbers that must be known; `None` gives an empty list.
    pub(super) fn floats(&self, name: &str) -> Result<Vec<f64>> {
        let items = self.argument(name).elements().unwrap_or_default();
        let number = |item: Item| item.as_number().and_then(|number| number.as_f64());
        items.into_iter().map(|item| number(item).ok_or_else(|| self.symbolic(name))).collect()
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool> {
        match self.argument(name) {
            Item::Bool(value) => Ok(value),
            Item::None => Ok(false),
            _ => Err(self.wrong(name, "true or false")),
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<Rc<str>> {
        match self.argument(name) {
            Item::Text(text) => Ok(text),
            _ => Err(self.wrong(name, "a text")),
        }
    }

    /// An element type, if one is given.
    pub(super) fn dtype(&self, name: &str) -> Result<Option<DType>> {
        match self.argument(name) {
            Item::None => Ok(None),
            Item::DType(dtype) => Ok(Some(dtype)),
            Item::Int(dim) => {
                let number = dim.as_const().ok_or_else(|| self.symbolic(name))?;
                super::dtype::of_number(number).map(Some).ok_or_else(|| {
                    self.unsupported(format!("the element type number {number} is not supported"))
                })
            }
            _ => Err(self.wrong(name, "an element type")),
        }
    }

    /// An axis of a tensor, counted from the front. A tensor of rank 0 counts as one of rank 1.
    pub(super) fn axis_of(&self, name: &str, rank: usize) -> Result<usize> {
        self.axis(self.int(name)?, rank.max(1))
    }

    /// Axes of a tensor; none given means all of them.
    pub(super) fn axes_or_all(&self, name: &str, rank: usize) -> Result<Vec<usize>> {
        let axes = self.ints(name)?;
        if axes.is_empty() { Ok((0..rank).collect()) } else { self.axes(&axes, rank.max(1)) }
            .map(|axes| axes.into_iter().filter(|&axis| axis < rank).collect())
    }

    /// Positions from an argument that may be absent.
    pub(super) fn optional_dim(&self, name: &str) -> Result<Option<Dim>> {
        if self.has(name) { self.dim(name).map(Some) } else { Ok(None) }
    }
}
