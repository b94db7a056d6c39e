//! A first look at a file's bytes, before anything is allocated for them.
//!
//! A decoder of Protocol Buffers turns an empty message of two bytes into a struct of a few hundred,
//! and trusts nesting up to its own recursion limit. This walk follows the message structure
//! without building it, and finds truncation, nesting that is too deep and counts that are too high,
//! each with its place in the file.

use std::ops::Range;

/// Most messages and texts that a model may consist of. A model of 10,000 nodes has about 200,000.
pub(crate) const MAX_ITEMS: u64 = 4_000_000;

/// Deepest nesting of graphs in graphs, and of their messages. A graph in an attribute of a node
/// is three levels below its parent.
pub(crate) const MAX_DEPTH: u32 = 48;

/// What is wrong with the bytes, and where (offsets are from the start of the file).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireFault {
    /// A field reaches past the end of the message that holds it.
    #[error(
        "the field at byte {offset} claims {claimed} bytes, but {left} are left: \
         the file is truncated or damaged"
    )]
    Truncated {
        /// Where the field begins.
        offset: usize,
        /// How many bytes it says it has.
        claimed: u64,
        /// How many there are.
        left: usize,
    },
    /// The bytes are not a field of a Protocol Buffers message.
    #[error("the bytes at {offset} are not Protocol Buffers, which ONNX files are made of")]
    NotProtobuf {
        /// Where.
        offset: usize,
    },
    /// Graphs are nested too deeply.
    #[error("messages are nested deeper than {MAX_DEPTH} levels at byte {offset}")]
    TooDeep {
        /// Where.
        offset: usize,
    },
    /// The file has too many parts.
    #[error("the file has more than {MAX_ITEMS} nodes, values, attributes and texts")]
    TooMany,
}

/// Messages whose inside is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Sparse,
    Value,
    Type,
    TensorType,
    Shape,
    Function,
    Training,
}

/// What a length-delimited field holds.
enum Content {
    Message(Message),
    /// A small message, a text or a payload: counted, not entered.
    Item,
    /// Numbers or a payload, which take about as much memory as they take bytes in the file.
    Numbers,
}

impl Message {
    /// Field numbers are those in [`super::proto`].
    fn content(self, field: u64) -> Content {
        let message = match (self, field) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) | (Self::Training, 1 | 2) => Self::Graph,
            (Self::Model, 20) => Self::Training,
            (Self::Model, 25) => Self::Function,
            (Self::Graph, 1) | (Self::Function, 7) => Self::Node,
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::Sparse, 1 | 2) => Self::Tensor,
            (Self::Graph, 15) | (Self::Attribute, 22) => Self::Sparse,
            (Self::Graph, 11..=13) => Self::Value,
            (Self::Node, 5) | (Self::Function, 11) => Self::Attribute,
            (Self::Value, 2) => Self::Type,
            (Self::Type, 1 | 8) => Self::TensorType,
            (Self::TensorType, 2) => Self::Shape,
            (Self::Tensor, 1 | 4 | 5 | 7 | 9 | 10 | 11) => return Content::Numbers,
            (Self::Attribute, 7 | 8) => return Content::Numbers,
            _ => return Content::Item,
        };
        Content::Message(message)
    }
}

/// Walks a whole message.
///
/// # Errors
/// The first [`WireFault`] in file order.
pub(crate) fn check(bytes: &[u8], message: Message) -> Result<(), WireFault> {
    Walk { bytes, items: 0 }.message(0..bytes.len(), message, 0)
}

struct Walk<'a> {
    bytes: &'a [u8],
    items: u64,
}

impl Walk<'_> {
    fn message(&mut self, range: Range<usize>, kind: Message, depth: u32) -> Result<(), WireFault> {
        if depth > MAX_DEPTH {
            return Err(WireFault::TooDeep { offset: range.start });
        }
        let mut at = range.start;
        while at < range.end {
            let start = at;
            let key = self.varint(&mut at, range.end, start)?;
            let (field, wire_type) = (key >> 3, key & 7);
            if field == 0 || field > u64::from(u32::MAX >> 3) {
                return Err(WireFault::NotProtobuf { offset: start });
            }
            match wire_type {
                0 => {
                    self.varint(&mut at, range.end, start)?;
                }
                1 => self.skip(&mut at, 8, range.end, start)?,
                5 => self.skip(&mut at, 4, range.end, start)?,
                2 => {
                    let length = self.varint(&mut at, range.end, start)?;
                    let inner = at;
                    self.skip(&mut at, length, range.end, start)?;
                    self.field(inner..at, kind.content(field), depth)?;
                }
                _ => return Err(WireFault::NotProtobuf { offset: start }),
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        range: Range<usize>,
        content: Content,
        depth: u32,
    ) -> Result<(), WireFault> {
        if matches!(content, Content::Numbers) {
            return Ok(());
        }
        self.items += 1;
        if self.items > MAX_ITEMS {
            return Err(WireFault::TooMany);
        }
        match content {
            Content::Message(message) => self.message(range, message, depth + 1),
            Content::Item | Content::Numbers => Ok(()),
        }
    }

    fn varint(&self, at: &mut usize, end: usize, start: usize) -> Result<u64, WireFault> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            if *at >= end {
                return Err(WireFault::Truncated { offset: start, claimed: 1, left: 0 });
            }
            let byte = self.bytes[*at];
            *at += 1;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireFault::NotProtobuf { offset: start })
    }

    fn skip(&self, at: &mut usize, length: u64, end: usize, start: usize) -> Result<(), WireFault> {
        let left = end - *at;
        match usize::try_from(length) {
            Ok(length) if length <= left => {
                *at += length;
                Ok(())
            }
            _ => Err(WireFault::Truncated { offset: start, claimed: length, left }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_of_three_gigabytes_is_truncation() {
        // Field 7 (graph), length 3,000,000,000.
        let bytes = [0x3a, 0x80, 0xbc, 0xc1, 0x96, 0x0b, 1, 2, 3];
        let fault = check(&bytes, Message::Model).unwrap_err();
        assert_eq!(fault, WireFault::Truncated { offset: 0, claimed: 3_000_000_000, left: 3 });
    }

    #[test]
    fn nesting_is_bounded() {
        // Attribute -> graph -> node -> attribute -> ..., each holding the next.
        let keys = [0x32, 0x0a, 0x2a];
        let mut bytes = Vec::new();
        for level in 0..60 {
            let mut outer = vec![keys[(59 - level) % 3]];
            let mut length = bytes.len();
            while length >= 0x80 {
                outer.push((length as u8 & 0x7f) | 0x80);
                length >>= 7;
            }
            outer.push(length as u8);
            outer.extend(&bytes);
            bytes = outer;
        }
        let fault = check(&bytes, Message::Attribute).unwrap_err();
        assert!(matches!(fault, WireFault::TooDeep { .. }), "{fault}");
    }

    #[test]
    fn counts_are_bounded() {
        // A graph of empty nodes, two bytes each.
        let bytes = [0x0a, 0x00].repeat(MAX_ITEMS as usize + 1);
        assert_eq!(check(&bytes, Message::Graph), Err(WireFault::TooMany));
        assert_eq!(check(&bytes[2..], Message::Graph), Ok(()));
    }

    #[test]
    fn texts_and_numbers_are_not_taken_for_messages() {
        use crate::onnx::proto::*;
        use prost::Message as _;
        let dim = |value| DimensionProto { value: Some(value) };
        let dims = vec![dim(DimensionValue::Param("batch".into())), dim(DimensionValue::Value(3))];
        let shape = Some(TensorShapeProto { dim: dims });
        let ty =
            TypeProto { value: Some(TypeValue::Tensor(TensorTypeProto { elem_type: 1, shape })) };
        let input = ValueInfoProto { name: "x".into(), r#type: Some(ty) };
        let attribute = AttributeProto {
            name: "text".into(),
            s: Some("some text".into()),
            ints: vec![1, 300, -1],
            floats: vec![0.5],
            strings: vec!["more".into()],
            ..Default::default()
        };
        let node = NodeProto {
            input: vec!["x".into()],
            name: "a node".into(),
            attribute: vec![attribute],
            ..Default::default()
        };
        let graph = GraphProto { node: vec![node], input: vec![input], ..Default::default() };
        let model = ModelProto {
            producer_name: "a test".into(),
            graph: Some(graph),
            metadata_props: vec![StringStringEntryProto { key: "k".into(), value: "v".into() }],
            ..Default::default()
        };
        assert_eq!(check(&model.encode_to_vec(), Message::Model), Ok(()));
    }

    #[test]
    fn varints_longer_than_64_bits_are_not_protobuf() {
        assert_eq!(check(&[0xff; 12], Message::Model), Err(WireFault::NotProtobuf { offset: 0 }));
    }
}
