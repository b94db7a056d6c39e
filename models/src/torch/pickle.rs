//! Pickles as PyTorch writes them.
//!
//! The machine knows the opcodes of plain data, and the few globals that stand for tensors and their containers. It calls
//! nothing: a global it does not know makes the file refused.

use std::cell::RefCell;
use std::rc::Rc;

use super::storage::Strided;
use crate::aten::dtype;

/// What is wrong with a pickle.
#[derive(Debug, thiserror::Error)]
#[error("at byte {at}: {what}")]
pub struct PickleError {
    /// Where.
    pub at: usize,
    /// What.
    pub what: String,
}

/// A value in a pickle.
#[derive(Clone, Debug)]
pub(crate) enum Pickled {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Rc<str>),
    List(Rc<RefCell<Vec<Pickled>>>),
    /// Items, and how deep tuples are nested in it.
    Tuple(Rc<[Pickled]>, u32),
    Dict(Pairs),
    /// A name, such as `torch.FloatStorage`.
    Global(Rc<str>),
    Tensor(Rc<StoredTensor>),
    /// A storage: its element type's name and its key.
    Storage(Rc<str>, Rc<str>),
    /// An object of a class of the model, with its state once that is there.
    Object(Rc<Instance>),
    /// A device.
    Placement,
}

/// The entries of a dictionary.
type Pairs = Rc<RefCell<Vec<(Pickled, Pickled)>>>;

/// A tensor whose elements lie in an entry of the archive.
#[derive(Clone, Debug)]
pub(crate) struct StoredTensor {
    pub(crate) key: Rc<str>,
    pub(crate) layout: Strided,
}

/// An object of a class of the model.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) class: Rc<str>,
    pub(crate) state: RefCell<Pickled>,
}

/// A pickle that has been read.
#[derive(Debug)]
pub(crate) struct Pickle {
    pub(crate) root: Pickled,
    _containers: Containers,
}

/// All lists, dictionaries and objects of a pickle. They may be nested as deep as the file is long: emptied one by one,
/// none is freed within another.
#[derive(Debug, Default)]
struct Containers {
    lists: Vec<Rc<RefCell<Vec<Pickled>>>>,
    dicts: Vec<Pairs>,
    objects: Vec<Rc<Instance>>,
}

impl Drop for Containers {
    fn drop(&mut self) {
        self.lists.iter().for_each(|list| list.borrow_mut().clear());
        self.dicts.iter().for_each(|dict| dict.borrow_mut().clear());
        self.objects.iter().for_each(|object| *object.state.borrow_mut() = Pickled::None);
    }
}

/// Deepest nesting of tuples.
const MAX_TUPLES: u32 = 500;

/// Reads a pickle.
///
/// # Errors
/// [`PickleError`]: it is cut off, malformed, or holds what is no data.
pub(crate) fn read(bytes: &[u8]) -> Result<Pickle, PickleError> {
    let mut machine = Machine {
        bytes,
        at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        containers: Containers::default(),
    };
    loop {
        let start = machine.at;
        match machine.step() {
            Ok(None) => {}
            Ok(Some(root)) => return Ok(Pickle { root, _containers: machine.containers }),
            Err(what) => return Err(PickleError { at: start, what }),
        }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Pickled>,
    /// Heights of the stack at the open marks.
    marks: Vec<usize>,
    memo: Vec<Option<Pickled>>,
    containers: Containers,
}

type Step<T> = Result<T, String>;

impl Machine<'_> {
    fn take(&mut self, count: usize) -> Step<&[u8]> {
        let end = self.at.checked_add(count).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or("the pickle is cut off")?;
        let piece = &self.bytes[self.at..end];
        self.at = end;
        Ok(piece)
    }

    fn number(&mut self, width: usize) -> Step<u64> {
        let mut value = [0; 8];
        value[..width].copy_from_slice(self.take(width)?);
        Ok(u64::from_le_bytes(value))
    }

    fn length(&mut self, width: usize) -> Step<usize> {
        usize::try_from(self.number(width)?).map_err(|_| "a length is too large".to_owned())
    }

    fn text(&mut self, width: usize) -> Step<Pickled> {
        let length = self.length(width)?;
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| "a text is not UTF-8")?;
        Ok(Pickled::Text(text.into()))
    }

    fn line(&mut self) -> Step<String> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|&byte| byte == b'\n').ok_or("the pickle is cut off")?;
        let line = std::str::from_utf8(&rest[..end]).map_err(|_| "a name is not UTF-8")?.to_owned();
        self.at += end + 1;
        Ok(line)
    }

    fn pop(&mut self) -> Step<Pickled> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err("the stack is empty".to_owned());
        }
        self.stack.pop().ok_or_else(|| "the stack is empty".to_owned())
    }

    /// What lies above the last mark, which goes.
    fn pop_mark(&mut self) -> Step<Vec<Pickled>> {
        let mark = self.marks.pop().ok_or("a mark is missing")?;
        Ok(self.stack.split_off(mark))
    }

    fn top(&self) -> Step<&Pickled> {
        self.stack.last().ok_or_else(|| "the stack is empty".to_owned())
    }

    fn push(&mut self, value: Pickled) -> Step<Option<Pickled>> {
        self.stack.push(value);
        Ok(None)
    }

    fn remember(&mut self, place: usize) -> Step<Option<Pickled>> {
        // Places are given out one after the other: none can be beyond the number of bytes read.
        if place > self.at {
            return Err(format!("the place {place} is out of order"));
        }
        if self.memo.len() <= place {
            self.memo.resize(place + 1, None);
        }
        self.memo[place] = Some(self.top()?.clone());
        Ok(None)
    }

    fn recall(&mut self, place: usize) -> Step<Option<Pickled>> {
        let value = self.memo.get(place).cloned().flatten();
        self.push(value.ok_or_else(|| format!("nothing was stored at place {place}"))?)
    }

    fn tuple(&mut self, count: usize) -> Step<Option<Pickled>> {
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(self.pop()?);
        }
        items.reverse();
        self.push_tuple(items)
    }

    fn push_tuple(&mut self, items: Vec<Pickled>) -> Step<Option<Pickled>> {
        let depth = |item: &Pickled| if let Pickled::Tuple(_, depth) = item { *depth } else { 0 };
        let depth = items.iter().map(depth).max().unwrap_or(0) + 1;
        if depth > MAX_TUPLES {
            return Err("tuples are nested too deeply".to_owned());
        }
        self.push(Pickled::Tuple(items.into(), depth))
    }

    fn push_dict(&mut self) -> Step<Option<Pickled>> {
        let dict = Rc::default();
        self.containers.dicts.push(Rc::clone(&dict));
        self.push(Pickled::Dict(dict))
    }

    /// One opcode; the result at the end.
    fn step(&mut self) -> Step<Option<Pickled>> {
        let opcode = self.take(1)?[0];
        match opcode {
            0x80 => match self.take(1)?[0] {
                0..=5 => Ok(None),
                version => Err(format!("protocol {version} is not known")),
            },
            0x95 => self.take(8).map(|_| None),
            b'.' => self.pop().map(Some),
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(None)
            }
            b'0' => self.pop().map(|_| None),
            b'N' => self.push(Pickled::None),
            0x88 => self.push(Pickled::Bool(true)),
            0x89 => self.push(Pickled::Bool(false)),
            b'J' => {
                let value = self.number(4)? as u32;
                self.push(Pickled::Int(i64::from(value.cast_signed())))
            }
            b'K' | b'M' => {
                let value = self.number(if opcode == b'K' { 1 } else { 2 })?;
                self.push(Pickled::Int(value as i64))
            }
            0x8a => {
                let value = self.long()?;
                self.push(Pickled::Int(value))
            }
            b'G' => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(self.take(8)?);
                self.push(Pickled::Float(f64::from_be_bytes(bytes)))
            }
            b'X' | b'T' | 0x8c | b'U' => {
                let text = self.text(if matches!(opcode, b'X' | b'T') { 4 } else { 1 })?;
                self.push(text)
            }
            b'h' | b'j' => {
                let place = self.length(if opcode == b'h' { 1 } else { 4 })?;
                self.recall(place)
            }
            b'q' | b'r' => {
                let place = self.length(if opcode == b'q' { 1 } else { 4 })?;
                self.remember(place)
            }
            0x94 => self.remember(self.memo.len()),
            b']' => {
                let list = Rc::default();
                self.containers.lists.push(Rc::clone(&list));
                self.push(Pickled::List(list))
            }
            b'}' => self.push_dict(),
            b')' => self.push_tuple(Vec::new()),
            b't' => {
                let items = self.pop_mark()?;
                self.push_tuple(items)
            }
            0x85..=0x87 => self.tuple(usize::from(opcode - 0x84)),
            b'a' | b'e' => self.append(opcode == b'e'),
            b's' | b'u' => self.set_items(opcode == b'u'),
            b'c' => {
                let name = format!("{}.{}", self.line()?, self.line()?);
                self.push(Pickled::Global(name.into()))
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                match (module, name) {
                    (Pickled::Text(module), Pickled::Text(name)) => {
                        self.push(Pickled::Global(format!("{module}.{name}").into()))
                    }
                    _ => Err("a global's name is not a text".to_owned()),
                }
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = storage(&id)?;
                self.push(storage)
            }
            b'R' => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                match reduce(&function, &arguments)? {
                    Some(value) => self.push(value),
                    None => self.push_dict(),
                }
            }
            0x81 => {
                let (_, class) = (self.pop()?, self.pop()?);
                match class {
                    Pickled::Global(class) if class.starts_with("__torch__.") => {
                        let state = RefCell::new(Pickled::None);
                        let object = Rc::new(Instance { class, state });
                        self.containers.objects.push(object.clone());
                        self.push(Pickled::Object(object))
                    }
                    Pickled::Global(class) => Err(refused(&class)),
                    _ => Err("an object is made of what is no class".to_owned()),
                }
            }
            b'b' => {
                let state = self.pop()?;
                match self.top()? {
                    Pickled::Object(object) => {
                        *object.state.borrow_mut() = state;
                        Ok(None)
                    }
                    _ => Err("a state is given to what is no object of the model".to_owned()),
                }
            }
            other => Err(format!("the opcode {other:#04x} is not one of plain data")),
        }
    }

    fn long(&mut self) -> Step<i64> {
        let length = self.length(1)?;
        let bytes = self.take(length)?;
        if length > 8 {
            return Err("an integer has more than 64 bits".to_owned());
        }
        let fill = if bytes.last().is_some_and(|&byte| byte >= 0x80) { 0xff } else { 0 };
        let mut value = [fill; 8];
        value[..length].copy_from_slice(bytes);
        Ok(i64::from_le_bytes(value))
    }

    fn append(&mut self, many: bool) -> Step<Option<Pickled>> {
        let items = if many { self.pop_mark()? } else { vec![self.pop()?] };
        match self.top()? {
            Pickled::List(list) => {
                list.borrow_mut().extend(items);
                Ok(None)
            }
            _ => Err("elements are added to what is no list".to_owned()),
        }
    }

    fn set_items(&mut self, many: bool) -> Step<Option<Pickled>> {
        let items = match many {
            true => self.pop_mark()?,
            false => {
                let (value, key) = (self.pop()?, self.pop()?);
                vec![key, value]
            }
        };
        if !items.len().is_multiple_of(2) {
            return Err("a key has no value".to_owned());
        }
        match self.top()? {
            Pickled::Dict(dict) => {
                let pairs = items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
                dict.borrow_mut().extend(pairs);
                Ok(None)
            }
            _ => Err("entries are added to what is no dictionary".to_owned()),
        }
    }
}

fn refused(name: &str) -> String {
    format!(
        "it refers to `{name}`, which is neither a tensor nor plain data; Fornax runs no code of a file"
    )
}

/// `("storage", class, key, device, count)`
fn storage(id: &Pickled) -> Step<Pickled> {
    match id {
        Pickled::Tuple(items, _) => match &items[..] {
            [Pickled::Text(kind), Pickled::Global(class), Pickled::Text(key), _, _]
                if &**kind == "storage" =>
            {
                Ok(Pickled::Storage(class.clone(), key.clone()))
            }
            _ => Err("a persistent id is not one of a storage".to_owned()),
        },
        _ => Err("a persistent id is not a tuple".to_owned()),
    }
}

/// What the known functions give; nothing for an empty dictionary.
fn reduce(function: &Pickled, arguments: &Pickled) -> Step<Option<Pickled>> {
    let (Pickled::Global(name), Pickled::Tuple(arguments, _)) = (function, arguments) else {
        return Err("what is called is no global".to_owned());
    };
    let first = || arguments.first().cloned().ok_or_else(|| format!("`{name}` lacks arguments"));
    match &**name {
        "torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor" => {
            tensor(arguments).map(Some)
        }
        "torch._utils._rebuild_parameter"
        | "torch.jit._pickle.restore_type_tag"
        | "torch.jit._pickle.build_intlist"
        | "torch.jit._pickle.build_doublelist"
        | "torch.jit._pickle.build_boollist"
        | "torch.jit._pickle.build_tensorlist" => first().map(Some),
        "collections.OrderedDict" => Ok(None),
        "torch.device" => Ok(Some(Pickled::Placement)),
        other => Err(refused(other)),
    }
}

/// `(storage, offset, sizes, strides, …)`
fn tensor(arguments: &[Pickled]) -> Step<Pickled> {
    let [
        Pickled::Storage(class, key),
        Pickled::Int(offset),
        Pickled::Tuple(sizes, _),
        Pickled::Tuple(strides, _),
        ..,
    ] = arguments
    else {
        return Err("a tensor's description is malformed".to_owned());
    };
    let class = class.strip_prefix("torch.").unwrap_or(class);
    let dtype = dtype::of_storage(class).ok_or_else(|| format!("`{class}` is not supported"))?;
    let ints = |items: &[Pickled]| {
        let int = |item: &Pickled| match item {
            Pickled::Int(value) => Ok(*value),
            _ => Err("a size is not an integer".to_owned()),
        };
        items.iter().map(int).collect::<Step<Vec<i64>>>()
    };
    let layout = Strided { dtype, offset: *offset, sizes: ints(sizes)?, strides: ints(strides)? };
    Ok(Pickled::Tensor(Rc::new(StoredTensor { key: key.clone(), layout })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_data_is_read() {
        // {'a': [1, -2, 3.5], 'b': (None, True)} by protocol 2.
        let bytes = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffG@\x0c\x00\x00\x00\x00\x00\x00e\
                      X\x01\x00\x00\x00bq\x03N\x88\x86q\x04u.";
        let pickle = read(bytes).unwrap();
        let Pickled::Dict(dict) = &pickle.root else { panic!("no dictionary") };
        let dict = dict.borrow();
        let (Pickled::Text(name), Pickled::List(list)) = &dict[0] else { panic!("{dict:?}") };
        assert_eq!(&**name, "a");
        assert!(matches!(
            list.borrow()[..],
            [Pickled::Int(1), Pickled::Int(-2), Pickled::Float(3.5)]
        ));
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn nothing_is_called() {
        let error = read(b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR.").unwrap_err().to_string();
        assert!(error.contains("`os.system`"), "{error}");
        let error = read(b"cbuiltins\nobject\n)\x81.").unwrap_err().to_string();
        assert!(error.contains("`builtins.object`"), "{error}");
        assert!(read(b"ibuiltins\neval\n.").is_err());
        assert!(read(b"Nr\xff\xff\xff\x7f.").is_err());
        assert!(read(b"(((0.").is_err());
        // Nested a million times, freed without one within another.
        let lists = ["]".repeat(1_000_000), "a".repeat(999_999), ".".to_owned()].concat();
        assert!(read(lists.as_bytes()).is_ok());
        let tuples = [b"N".to_vec(), vec![0x85; 1_000_000], b".".to_vec()].concat();
        assert!(read(&tuples).unwrap_err().to_string().contains("nested"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = read(&bytes);
        }
    }
}
