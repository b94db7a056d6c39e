//! The modules of a file: attributes from its pickle, code from its texts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::parser;
use super::syntax::{Class, Function, Unit};
use crate::aten::{Handle, Item, Object};
use crate::build::Value;
use crate::torch::archive::Archive;
use crate::torch::pickle::{self, Pickled, StoredTensor};

/// Deepest nesting of modules and containers.
const MAX_DEPTH: usize = 200;

/// The code of a model; files are parsed when they are needed.
pub(super) struct Code {
    archive: RefCell<Archive>,
    units: RefCell<BTreeMap<String, Rc<Unit>>>,
}

impl Code {
    pub(super) fn new(archive: Archive) -> Self {
        Self { archive: archive.into(), units: RefCell::default() }
    }

    /// A class by its full name, such as `__torch__.torch.nn.modules.linear.Linear`.
    ///
    /// # Errors
    /// When its file is missing or malformed, or does not have it.
    pub(super) fn class(&self, full: &str) -> Result<Option<Rc<Class>>, String> {
        let (unit, name) = self.unit_of(full)?;
        Ok(unit.classes.iter().find(|class| &*class.name == name).cloned())
    }

    /// A function by its full name.
    ///
    /// # Errors
    /// As [`Self::class`].
    pub(super) fn function(&self, full: &str) -> Result<Option<Rc<Function>>, String> {
        let (unit, name) = self.unit_of(full)?;
        Ok(unit.functions.iter().find(|function| &*function.name == name).cloned())
    }

    fn unit_of<'n>(&self, full: &'n str) -> Result<(Rc<Unit>, &'n str), String> {
        let (module, name) = full.rsplit_once('.').unwrap_or(("", full));
        let entry = format!("code/{}.py", module.replace('.', "/"));
        if let Some(unit) = self.units.borrow().get(&entry) {
            return Ok((unit.clone(), name));
        }
        let text = self.archive.borrow_mut().text(&entry).map_err(|error| error.to_string())?;
        let unit = parser::parse(&text)
            .map_err(|(line, reason)| format!("its code {entry:?}, line {line}: {reason}"))?;
        let unit = Rc::new(unit);
        self.units.borrow_mut().insert(entry, unit.clone());
        Ok((unit, name))
    }

    /// The module with its attributes.
    ///
    /// # Errors
    /// What is wrong with the pickle or a tensor.
    pub(super) fn root(&self) -> Result<Rc<Object>, String> {
        match self.items("data.pkl", "data", "")? {
            Item::Object(object) => Ok(object),
            other => Err(format!("its entry \"data.pkl\" holds {}, not a module", other.kind())),
        }
    }

    /// The constants that code calls `CONSTANTS.c0` and so on.
    ///
    /// # Errors
    /// As [`Self::root`].
    pub(super) fn constants(&self) -> Result<Vec<Item>, String> {
        if !self.archive.borrow().contains("constants.pkl") {
            return Ok(Vec::new());
        }
        Ok(self.items("constants.pkl", "constants", "constants")?.elements().unwrap_or_default())
    }

    /// The inputs that a method was traced with, as far as they are tensors.
    pub(super) fn traced_inputs(&self, method: &str) -> Vec<StoredTensor> {
        let Ok(data) = self.archive.borrow_mut().read("traced_inputs.pkl") else {
            return Vec::new();
        };
        let Ok(pickle) = pickle::read(&data) else { return Vec::new() };
        let Pickled::Dict(methods) = &pickle.root else { return Vec::new() };
        let inputs = methods.borrow().iter().find_map(|(name, inputs)| match (name, inputs) {
            (Pickled::Text(name), Pickled::List(inputs)) if &**name == method => {
                Some(inputs.borrow().clone())
            }
            _ => None,
        });
        let tensor = |input| match input {
            Pickled::Tensor(tensor) => Some(StoredTensor::clone(&tensor)),
            _ => None,
        };
        inputs.unwrap_or_default().into_iter().map_while(tensor).collect()
    }

    fn items(&self, entry: &str, folder: &str, path: &str) -> Result<Item, String> {
        let data = self.archive.borrow_mut().read(entry).map_err(|error| error.to_string())?;
        let pickled =
            pickle::read(&data).map_err(|error| format!("its entry {entry:?} {error}"))?;
        let mut loader =
            Loader { code: self, folder, tensors: BTreeMap::new(), objects: BTreeMap::new() };
        loader.item(&pickled.root, path, 0)
    }
}

struct Loader<'a> {
    code: &'a Code,
    folder: &'a str,
    /// What tensors and objects of the pickle have become, by their addresses: shared ones stay shared.
    tensors: BTreeMap<usize, Item>,
    objects: BTreeMap<usize, Item>,
}

impl Loader<'_> {
    fn item(&mut self, pickled: &Pickled, path: &str, depth: usize) -> Result<Item, String> {
        if depth > MAX_DEPTH {
            return Err("its modules are nested too deeply".to_owned());
        }
        let mut each = |items: &[Pickled]| {
            let items = items.iter().enumerate();
            items
                .map(|(at, item)| self.item(item, &format!("{path}.{at}"), depth + 1))
                .collect::<Result<Vec<_>, _>>()
        };
        match pickled {
            Pickled::None => Ok(Item::None),
            Pickled::Bool(value) => Ok(Item::Bool(*value)),
            Pickled::Int(value) => Ok(Item::int(*value)),
            Pickled::Float(value) => Ok(Item::Float(*value)),
            Pickled::Text(text) => Ok(Item::Text(text.clone())),
            Pickled::List(items) => {
                let items = items.borrow().clone();
                Ok(Item::list(each(&items)?))
            }
            Pickled::Tuple(items, _) => Ok(Item::tuple(each(items)?)),
            Pickled::Dict(pairs) => {
                let mut items = Vec::new();
                for (key, value) in pairs.borrow().clone() {
                    let key = self.item(&key, path, depth + 1)?;
                    items.push((key, self.item(&value, path, depth + 1)?));
                }
                Ok(Item::Dict(Rc::new(items.into())))
            }
            Pickled::Tensor(stored) => self.tensor(stored, path),
            Pickled::Object(object) => {
                let address = Rc::as_ptr(object) as usize;
                if let Some(item) = self.objects.get(&address) {
                    return Ok(item.clone());
                }
                let fields = match &*object.state.borrow() {
                    Pickled::Dict(pairs) => pairs.borrow().clone(),
                    Pickled::None => Vec::new(),
                    _ => return Err(format!("the state of the module {path:?} is no dictionary")),
                };
                let made = Rc::new(Object {
                    class: object.class.clone(),
                    path: path.into(),
                    fields: RefCell::default(),
                });
                self.objects.insert(address, Item::Object(made.clone()));
                for (name, value) in fields {
                    let Pickled::Text(name) = name else { continue };
                    let inner =
                        if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
                    let item = self.item(&value, &inner, depth + 1)?;
                    made.fields.borrow_mut().push((name, item));
                }
                Ok(Item::Object(made))
            }
            Pickled::Placement => Ok(Item::Placement),
            Pickled::Global(name) => Err(format!("{path:?} is `{name}`, which is not plain data")),
            Pickled::Storage(..) => Err(format!("{path:?} is a storage, not a tensor")),
        }
    }

    fn tensor(&mut self, stored: &Rc<StoredTensor>, path: &str) -> Result<Item, String> {
        let address = Rc::as_ptr(stored) as usize;
        if let Some(item) = self.tensors.get(&address) {
            return Ok(item.clone());
        }
        let entry = format!("{}/{}", self.folder, stored.key);
        let storage =
            self.code.archive.borrow_mut().read(&entry).map_err(|error| error.to_string())?;
        let tensor = stored
            .layout
            .tensor(&storage)
            .map_err(|what| format!("the tensor {path:?}: {what}"))?;
        let name = path.trim_start_matches('.');
        let item = Item::Tensor(Handle::fixed(
            Value::tensor(name, tensor),
            format!("its tensor {name:?}"),
        ));
        self.tensors.insert(address, item.clone());
        Ok(item)
    }
}
