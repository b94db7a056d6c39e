//! Functions on values that are known: numbers, lists, texts, objects.

use fornax_ir::DType;

use crate::aten::{Handle, Item, Number, number};
use crate::build::Value;
use crate::build::known::{Element, Known as KnownTensor};

/// What comes of a call.
pub(super) enum Known {
    /// A value.
    Item(Item),
    /// An operator on tensors, under another name.
    Operator(String),
    /// No function of known values: an operator on tensors.
    No,
    /// A function of known values that cannot be computed.
    Fault(String),
    /// The program stops with an error.
    Raise(String),
}

/// Longest list that a program may make.
const MAX_LIST: i64 = 100_000;

/// Calls a function by its path in the code.
pub(super) fn call(path: &str, positional: &[Item], named: &[(String, Item)]) -> Known {
    let tensors = positional.iter().any(|item| matches!(item, Item::Tensor(_)));
    let name = path.rsplit('.').next().unwrap_or(path);
    match path {
        "ops.prim.RaiseException" => {
            let text = positional.first().and_then(Item::as_text);
            return Known::Raise(text.map_or_else(String::new, |text| text.to_string()));
        }
        "ops.prim.NumToTensor" => return number_to_tensor(positional),
        "torch.device" | "ops.prim.device" => return Known::Item(Item::Placement),
        "ops.prim.is_cuda"
        | "ops.prim.is_quantized"
        | "ops.prim.is_mkldnn"
        | "ops.prim.requires_grad" => {
            return Known::Item(Item::Bool(false));
        }
        "torch.warn" | "torch.warnings.warn" | "ops.prim.Print" => return Known::Item(Item::None),
        "getattr" => return get_attribute(positional),
        "int"
        | "float"
        | "bool"
        | "torch.Int"
        | "torch.IntImplicit"
        | "torch.FloatImplicit"
        | "torch.ScalarImplicit"
        | "torch.Float"
        | "torch.Bool"
            if tensors =>
        {
            return Known::Operator("item".to_owned());
        }
        "ops.prim.dtype" | "ops.prim.shape" if tensors => {
            return Known::Operator(if name == "dtype" { "dtype" } else { "size" }.to_owned());
        }
        "torch.len" | "len" if tensors => return Known::Operator("len".to_owned()),
        "torch.tensor"
            if !tensors && positional.first().is_some_and(|item| item.elements().is_some()) =>
        {
            return list_to_tensor(positional, named);
        }
        "torch.__getitem__" => return index(positional),
        _ => {}
    }
    match name {
        "__is__" => return identity(positional, true),
        "__isnot__" => return identity(positional, false),
        "__contains__" => return contains(positional),
        _ => {}
    }
    if tensors && !matches!(name, "append" | "extend" | "insert" | "list" | "_set_item" | "update")
    {
        return Known::No;
    }
    let changed = on_lists(name, positional);
    // A list may have been put into itself.
    let changes = matches!(name, "append" | "extend" | "insert" | "_set_item");
    if changes && positional.first().is_some_and(Item::is_unwieldy) {
        return Known::Fault("lists are nested too deeply or too long".to_owned());
    }
    changed.or_else(|| on_numbers(name, positional)).unwrap_or(Known::No)
}

fn number_to_tensor(positional: &[Item]) -> Known {
    let (dtype, element) = match positional.first() {
        Some(Item::Int(dim)) => (DType::I64, Element::Int(dim.clone())),
        Some(Item::Bool(value)) => (DType::Bool, Element::from(i64::from(*value))),
        Some(Item::Float(value)) => (DType::F64, Element::Float(*value)),
        _ => return Known::Fault("a number is expected".to_owned()),
    };
    match KnownTensor::new(dtype, vec![], vec![element]) {
        Some(known) => Known::Item(Handle::new(Value::known("number", known)).into()),
        None => Known::Fault("a size is too complicated an expression".to_owned()),
    }
}

/// torch.tensor of a list of numbers.
fn list_to_tensor(positional: &[Item], named: &[(String, Item)]) -> Known {
    let items = positional[0].elements().unwrap_or_default();
    let given = positional
        .get(1)
        .or_else(|| named.iter().find(|(name, _)| name == "dtype").map(|(_, item)| item));
    let dtype = match given {
        Some(Item::Int(number)) => {
            match number.as_const().and_then(crate::aten::dtype::of_number) {
                Some(dtype) => dtype,
                None => return Known::Fault("an element type is not supported".to_owned()),
            }
        }
        _ if items.iter().any(|item| matches!(item, Item::Float(_))) => DType::F32,
        _ if items.iter().all(|item| matches!(item, Item::Bool(_))) && !items.is_empty() => {
            DType::Bool
        }
        _ => DType::I64,
    };
    let element = |item: &Item| match item {
        Item::Int(dim) => Some(Element::Int(dim.clone())),
        Item::Float(value) => Some(Element::Float(*value)),
        Item::Bool(value) => Some(Element::from(i64::from(*value))),
        _ => None,
    };
    let floats = items.iter().any(|item| matches!(item, Item::Float(_)));
    let own = if floats { DType::F64 } else { DType::I64 };
    let elements: Option<Vec<Element>> = items.iter().map(element).collect();
    let known = elements
        .and_then(|elements| KnownTensor::new(own, vec![elements.len()], elements))
        .and_then(|known| known.cast(dtype));
    match known {
        Some(known) => Known::Item(Handle::new(Value::known("list", known)).into()),
        None => {
            Known::Fault("torch.tensor of what is no list of numbers is not supported".to_owned())
        }
    }
}

fn get_attribute(positional: &[Item]) -> Known {
    let [Item::Object(object), Item::Text(name), ..] = positional else {
        return Known::Fault("getattr is for objects of the model".to_owned());
    };
    match object.field(name) {
        Some(item) => Known::Item(item),
        None => Known::Fault(format!("an object has no attribute `{name}`")),
    }
}

/// An element of a list, tuple or dictionary.
fn index(positional: &[Item]) -> Known {
    let [value, index] = positional else { return Known::No };
    if let Item::Dict(pairs) = value {
        let found = pairs.borrow().iter().find(|(key, _)| equal(key, index) == Some(true)).cloned();
        return match found {
            Some((_, item)) => Known::Item(item),
            None => Known::Fault("a dictionary has no such key".to_owned()),
        };
    }
    let items = match value {
        Item::Object(object) => {
            object.fields.borrow().iter().map(|(_, item)| item.clone()).collect()
        }
        _ => match value.elements() {
            Some(items) => items,
            None => return Known::Fault(format!("{} is indexed", value.kind())),
        },
    };
    match place(index, items.len()) {
        Some(at) if at < items.len() => Known::Item(items[at].clone()),
        _ => Known::Fault("an index lies outside of a list".to_owned()),
    }
}

/// A position, from the back if it is negative.
fn place(index: &Item, length: usize) -> Option<usize> {
    let Item::Int(dim) = index else { return None };
    let index = dim.as_const()?;
    usize::try_from(if index < 0 { index + length as i64 } else { index }).ok()
}

fn identity(positional: &[Item], same: bool) -> Known {
    let [a, b] = positional else { return Known::No };
    let known = match (a, b) {
        (Item::None, Item::None) => true,
        (Item::None, _) | (_, Item::None) => false,
        _ => match equal(a, b) {
            Some(known) => known,
            None => return Known::Fault("two values are compared by identity".to_owned()),
        },
    };
    Known::Item(Item::Bool(known == same))
}

/// Whether two values are equal, when that is known.
fn equal(a: &Item, b: &Item) -> Option<bool> {
    match (a, b) {
        (Item::Text(a), Item::Text(b)) => Some(a == b),
        (Item::DType(a), Item::DType(b)) => Some(a == b),
        (Item::None, Item::None) | (Item::Placement, Item::Placement) => Some(true),
        (Item::None, _) | (_, Item::None) => Some(false),
        (Item::List(_) | Item::Tuple(_), Item::List(_) | Item::Tuple(_)) => {
            let (a, b) = (a.elements()?, b.elements()?);
            if a.len() != b.len() {
                return Some(false);
            }
            a.iter().zip(&b).try_fold(true, |all, (a, b)| Some(all && equal(a, b)?))
        }
        _ => match number::binary("eq", &a.as_number()?, &b.as_number()?)? {
            Item::Bool(equal) => Some(equal),
            _ => None,
        },
    }
}

fn contains(positional: &[Item]) -> Known {
    let [container, item] = positional else { return Known::No };
    let keys = match container {
        Item::Dict(pairs) => pairs.borrow().iter().map(|(key, _)| key.clone()).collect(),
        _ => container.elements().unwrap_or_default(),
    };
    let found = keys.iter().map(|key| equal(key, item)).collect::<Option<Vec<bool>>>();
    Known::Item(found.map_or(Item::Unknown, |found| Item::Bool(found.contains(&true))))
}

fn on_lists(name: &str, positional: &[Item]) -> Option<Known> {
    let first = positional.first()?;
    let item = |item: Item| Some(Known::Item(item));
    match (name, first) {
        ("append", Item::List(list)) => {
            list.borrow_mut().push(positional.get(1)?.clone());
            item(first.clone())
        }
        ("extend", Item::List(list)) => {
            let more = positional.get(1)?.elements()?;
            list.borrow_mut().extend(more);
            item(Item::None)
        }
        ("insert", Item::List(list)) => {
            let at = place(positional.get(1)?, list.borrow().len())?.min(list.borrow().len());
            list.borrow_mut().insert(at, positional.get(2)?.clone());
            item(Item::None)
        }
        ("pop", Item::List(list)) => {
            let length = list.borrow().len();
            let at =
                positional.get(1).map_or(length.checked_sub(1), |index| place(index, length))?;
            (at < length).then(|| Known::Item(list.borrow_mut().remove(at)))
        }
        ("_set_item", Item::List(list)) => {
            let at = place(positional.get(1)?, list.borrow().len())?;
            *list.borrow_mut().get_mut(at)? = positional.get(2)?.clone();
            item(first.clone())
        }
        ("_set_item", Item::Dict(pairs)) => {
            let (key, value) = (positional.get(1)?, positional.get(2)?);
            let mut pairs = pairs.borrow_mut();
            match pairs.iter_mut().find(|(known, _)| equal(known, key) == Some(true)) {
                Some((_, slot)) => *slot = value.clone(),
                None => pairs.push((key.clone(), value.clone())),
            }
            item(Item::None)
        }
        ("len", Item::List(_) | Item::Tuple(_)) => item(Item::int(first.elements()?.len() as i64)),
        ("len", Item::Dict(pairs)) => item(Item::int(pairs.borrow().len() as i64)),
        ("len", Item::Text(text)) => item(Item::int(text.chars().count() as i64)),
        ("list" | "copy", Item::List(_) | Item::Tuple(_)) => item(Item::list(first.elements()?)),
        ("keys", Item::Dict(pairs)) => {
            item(Item::list(pairs.borrow().iter().map(|(key, _)| key.clone()).collect()))
        }
        ("values", Item::Dict(pairs)) => {
            item(Item::list(pairs.borrow().iter().map(|(_, value)| value.clone()).collect()))
        }
        ("items", Item::Dict(pairs)) => {
            let pair = |(key, value): &(Item, Item)| Item::tuple(vec![key.clone(), value.clone()]);
            item(Item::list(pairs.borrow().iter().map(pair).collect()))
        }
        ("add", Item::List(_)) => {
            item(Item::list([first.elements()?, positional.get(1)?.elements()?].concat()))
        }
        ("mul", Item::List(_)) => repeated(first, positional.get(1)?),
        ("slice", Item::List(_) | Item::Tuple(_)) => part(first, positional),
        ("eq" | "ne", Item::List(_) | Item::Tuple(_) | Item::Text(_)) => {
            let known = equal(first, positional.get(1)?);
            item(known.map_or(Item::Unknown, |equal| Item::Bool(equal == (name == "eq"))))
        }
        ("min" | "max" | "sum", Item::List(_)) if positional.len() == 1 => {
            let operator = if name == "sum" { "add" } else { name };
            let mut numbers = first.elements()?.into_iter();
            let start = if name == "sum" { Item::int(0) } else { numbers.next()? };
            let result = numbers.try_fold(start, |sum, next| {
                number::binary(operator, &sum.as_number()?, &next.as_number()?)
            });
            result.map(Known::Item)
        }
        ("format", Item::Text(text)) => item(Item::Text(text.clone())),
        ("range", _) | ("__range_length", _) => range(name, positional),
        ("__derive_index", _) => {
            let number = |at: usize| positional.get(at)?.as_number();
            let offset = number::binary("mul", &number(0)?, &number(2)?)?;
            number::binary("add", &number(1)?, &offset.as_number()?).map(Known::Item)
        }
        _ => None,
    }
}

fn repeated(list: &Item, count: &Item) -> Option<Known> {
    let Item::Int(count) = count else { return None };
    let items = list.elements()?;
    let count = count.as_const()?.max(0);
    if count.saturating_mul(items.len() as i64) > MAX_LIST {
        return Some(Known::Fault("a list is too long".to_owned()));
    }
    Some(Known::Item(Item::list(
        items.iter().cloned().cycle().take(items.len() * count as usize).collect(),
    )))
}

fn part(list: &Item, positional: &[Item]) -> Option<Known> {
    let items = list.elements()?;
    let length = items.len() as i64;
    let bound = |at: usize, default: i64| match positional.get(at) {
        None | Some(Item::None) => Some(default),
        Some(Item::Int(dim)) => dim.as_const(),
        Some(_) => None,
    };
    let (start, end, step) = (bound(1, 0)?, bound(2, length)?, bound(3, 1)?);
    let clamp = |at: i64| (if at < 0 { at.saturating_add(length) } else { at }).clamp(0, length);
    let (start, end) = (clamp(start) as usize, clamp(end) as usize);
    let step = usize::try_from(step).ok().filter(|&step| step > 0)?;
    let taken = items.get(start..end.max(start))?.iter().step_by(step).cloned().collect();
    Some(Known::Item(Item::list(taken)))
}

/// `range(stop)`, `range(start, stop)`, `range(start, stop, step)`; a length counts for all.
fn range(name: &str, positional: &[Item]) -> Option<Known> {
    let ints: Option<Vec<i64>> = positional
        .iter()
        .map(|item| match item {
            Item::Int(dim) => dim.as_const(),
            _ => None,
        })
        .collect();
    let Some(ints) = ints else {
        return Some(Known::Fault("how often a loop runs is only known at run time".to_owned()));
    };
    let (start, stop, step) = match ints[..] {
        [stop] => (0, stop, 1),
        [start, stop] => (start, stop, 1),
        [start, stop, step] if step != 0 => (start, stop, step),
        _ => return None,
    };
    let span = i128::from(stop) - i128::from(start);
    let step_wide = i128::from(step);
    let count = if (span > 0) == (step > 0) {
        (span.abs() + step_wide.abs() - 1) / step_wide.abs()
    } else {
        0
    };
    if count > i128::from(MAX_LIST) {
        return Some(Known::Fault("a loop runs too often".to_owned()));
    }
    Some(Known::Item(match name {
        "range" => Item::list((0..count as i64).map(|at| Item::int(start + at * step)).collect()),
        _ => Item::int(count as i64),
    }))
}

/// An operator on numbers by its name in TorchScript.
fn on_numbers(name: &str, positional: &[Item]) -> Option<Known> {
    if positional.iter().any(|item| matches!(item, Item::Unknown)) {
        return Some(Known::Item(Item::Unknown));
    }
    let numbers = positional.iter().map(Item::as_number).collect::<Option<Vec<_>>>()?;
    let operator = match name {
        "div" => "truediv",
        "remainder" => "mod",
        "floor_divide" => "floordiv",
        "__and__" => "and",
        "__or__" => "or",
        "__not__" => "not",
        "__lshift__" => "lshift",
        "__rshift__" => "rshift",
        "Int" | "IntImplicit" => "int",
        "Float" | "FloatImplicit" => "float",
        "Bool" => "bool",
        "ScalarImplicit" => return positional.first().cloned().map(Known::Item),
        other => other,
    };
    let result = match &numbers[..] {
        [one] => number::unary(operator, one),
        [Number::Bool(a), Number::Bool(b)] if operator == "and" => Some(Item::Bool(*a && *b)),
        [Number::Bool(a), Number::Bool(b)] if operator == "or" => Some(Item::Bool(*a || *b)),
        [a, b] => number::binary(operator, a, b),
        _ => None,
    };
    result.map(Known::Item)
}
