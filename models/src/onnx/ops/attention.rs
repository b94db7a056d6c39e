//! Attention and what models put around it.

use fornax_ir::{Attrs, DType, Dim, NodeId, attrs};

use crate::build::attention::{hidden, scores, shared_heads, usual_scale, weights};
use crate::build::contraction::matmul;
use crate::build::movement::{join, permute, take_axis};
use crate::onnx::call::{Build as _, Call, Result, Value};

const KEYS: usize = 3;
const QUERIES: usize = 2;
const PAST: usize = 4;
const LENGTHS: usize = 6;

/// Attention: `softmax(cap(q k' * scale) + mask) v`; rows without a key to be seen give 0. Outputs: the result,
/// keys and values with those of the past in front, and the scores after one of the four steps.
pub(in crate::onnx) fn attention(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (query, key, value) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let rank = call.graph().ty(query).rank();
    let (query_heads, key_heads) = (call.int("q_num_heads")?, call.int("kv_num_heads")?);
    let query = with_heads(call, query, query_heads)?;
    let key = with_heads(call, key, key_heads)?;
    let value = with_heads(call, value, key_heads)?;
    if call.has(PAST) != call.has(PAST + 1) || call.has(PAST) && call.has(LENGTHS) {
        return Err(call.invalid("past keys and values go together, and without lengths"));
    }
    let key = behind(call, PAST, key)?;
    let value = behind(call, PAST + 1, value)?;
    let ty = call.graph().ty(query).clone();
    let shared = [shared_heads(call, key, &ty.shape)?, shared_heads(call, value, &ty.shape)?];
    let scale = match call.float("scale")? {
        Some(scale) => f64::from(scale),
        None => usual_scale(call, &ty.shape)?,
    };
    let mut steps = vec![scores(call, query, shared[0], scale)?];
    steps.push(capped(call, steps[0])?);
    let mask = Mask::of(call, steps[1])?;
    steps.push(mask.applied(call, steps[1])?);
    let precise = call.dtype("softmax_precision")?.unwrap_or(ty.dtype);
    let masked = call.cast(steps[2], precise)?;
    let seen = weights(call, masked)?;
    let seen = call.cast(seen, ty.dtype)?;
    steps.push(mask.emptied(call, seen)?);
    let mode = call.int_or("qk_matmul_output_mode", 0)?;
    let shown = usize::try_from(mode).ok().and_then(|mode| steps.get(mode).copied());
    let shown = shown
        .ok_or_else(|| call.invalid(format!("`qk_matmul_output_mode` {mode} is none of 0 to 3")))?;
    let mut result = matmul(call, steps[3], shared[1])?;
    if rank == 3 {
        result = without_heads(call, result)?;
    }
    Ok([result, key, value, shown].map(Value::from).to_vec())
}

/// Rank 4 with the heads in front of the sequence, from rank 3 with the heads in its last axis.
fn with_heads(call: &mut Call<'_, '_>, node: NodeId, heads: Option<i64>) -> Result<NodeId> {
    let shape = call.graph().ty(node).shape.to_vec();
    let [batch, length, hidden] = &shape[..] else {
        return match shape.len() {
            4 => Ok(node),
            rank => Err(call.invalid(format!("an operand must have rank 3 or 4, not {rank}"))),
        };
    };
    let heads = heads.filter(|&heads| heads > 0).map(Dim::constant);
    let heads = heads.ok_or_else(|| call.invalid("operands of rank 3 need the number of heads"))?;
    let width = hidden
        .divided_exactly(&heads)
        .ok_or_else(|| call.invalid(format!("{hidden} is not divisible by {heads} heads")))?;
    let node = call.reshape(node, &[batch.clone(), length.clone(), heads, width])?;
    permute(call, node, &[0, 2, 1, 3])
}

fn without_heads(call: &mut Call<'_, '_>, node: NodeId) -> Result<NodeId> {
    let node = permute(call, node, &[0, 2, 1, 3])?;
    let shape = call.graph().ty(node).shape.to_vec();
    call.reshape(node, &[shape[0].clone(), shape[1].clone(), &shape[2] * &shape[3]])
}

/// Keys or values behind those of the past.
fn behind(call: &mut Call<'_, '_>, past: usize, node: NodeId) -> Result<NodeId> {
    match call.optional(past)? {
        Some(past) => join(call, &[past, node], QUERIES),
        None => Ok(node),
    }
}

/// `cap * tanh(scores / cap)`, if there is a cap.
fn capped(call: &mut Call<'_, '_>, scores: NodeId) -> Result<NodeId> {
    let cap = call.float_or("softcap", 0.0)?;
    if cap <= 0.0 {
        return Ok(scores);
    }
    let cap = call.scalar_like(cap, scores)?;
    let divided = call.add("div", Attrs::none(), &[scores, cap])?;
    let bent = call.add("tanh", Attrs::none(), &[divided])?;
    call.add("mul", Attrs::none(), &[bent, cap])
}

/// What is not seen, in the shape of the scores.
struct Mask {
    /// Where scores count.
    seen: Option<NodeId>,
    /// What is added to them.
    added: Option<NodeId>,
    /// Whether a row may see nothing.
    may_be_empty: bool,
}

impl Mask {
    fn of(call: &mut Call<'_, '_>, scores: NodeId) -> Result<Self> {
        let ty = call.graph().ty(scores).clone();
        let mut mask = Self { seen: None, added: None, may_be_empty: false };
        if let Some(given) = call.optional(3)? {
            let given = lengthened(call, given, &ty.shape[KEYS])?;
            let given = call.broadcast(given, &ty.shape)?;
            mask.may_be_empty = true;
            match call.graph().ty(given).dtype {
                DType::Bool => mask.seen = Some(given),
                _ => mask.added = Some(call.cast(given, ty.dtype)?),
            }
        }
        let lengths = lengths(call, &ty.shape)?;
        let left = call.int_or("left_window_size", -1)?;
        let right = call.int_or("right_window_size", -1)?;
        let causal = call.flag("is_causal", false)?;
        if causal || left >= 0 || right >= 0 {
            let (row, column) = places(call, lengths, &ty.shape)?;
            if causal {
                mask.restrict(call, column, row)?;
            }
            if left >= 0 {
                let reach = call.scalar_like(left as f64, column)?;
                let reach = call.add("add", Attrs::none(), &[column, reach])?;
                mask.restrict(call, row, reach)?;
            }
            if right >= 0 {
                let reach = call.scalar_like(right as f64, row)?;
                let reach = call.add("add", Attrs::none(), &[row, reach])?;
                mask.restrict(call, column, reach)?;
            }
            mask.may_be_empty |= left >= 0;
        }
        if let Some(lengths) = lengths {
            let column = call.positions(KEYS, &ty.shape)?;
            let within = call.add("lt", Attrs::none(), &[column, lengths])?;
            mask.and(call, within)?;
            mask.may_be_empty = true;
        }
        Ok(mask)
    }

    /// Scores count only where `low <= high`.
    fn restrict(&mut self, call: &mut Call<'_, '_>, low: NodeId, high: NodeId) -> Result<()> {
        let within = call.add("le", Attrs::none(), &[low, high])?;
        self.and(call, within)
    }

    fn and(&mut self, call: &mut Call<'_, '_>, within: NodeId) -> Result<()> {
        self.seen = Some(match self.seen {
            Some(seen) => call.add("and", Attrs::none(), &[seen, within])?,
            None => within,
        });
        Ok(())
    }

    fn applied(&self, call: &mut Call<'_, '_>, mut scores: NodeId) -> Result<NodeId> {
        if let Some(added) = self.added {
            scores = call.add("add", Attrs::none(), &[scores, added])?;
        }
        match self.seen {
            Some(seen) => hidden(call, seen, scores),
            None => Ok(scores),
        }
    }

    /// Weights, with 0 in rows of which the mask leaves nothing: a softmax of nothing is no number.
    fn emptied(&self, call: &mut Call<'_, '_>, weights: NodeId) -> Result<NodeId> {
        if !self.may_be_empty {
            return Ok(weights);
        }
        let shape = call.graph().ty(weights).shape.clone();
        let zero = call.scalar_like(0.0, weights)?;
        let mask = self.applied(call, zero)?;
        let most = attrs! { axes: vec![KEYS as i64], keepdims: true };
        let most = call.add("reduce_max", most, &[mask])?;
        let nothing = call.scalar_like(f64::NEG_INFINITY, most)?;
        let empty = call.add("eq", Attrs::none(), &[most, nothing])?;
        let empty = call.broadcast(empty, &shape)?;
        call.add("where", Attrs::none(), &[empty, zero, weights])
    }
}

/// A mask of all keys: those behind its end are not seen.
fn lengthened(call: &mut Call<'_, '_>, mask: NodeId, keys: &Dim) -> Result<NodeId> {
    let ty = call.graph().ty(mask).clone();
    let Some(last) = ty.rank().checked_sub(1) else { return Ok(mask) };
    let missing = match (keys.as_const(), ty.shape[last].as_const()) {
        (Some(keys), Some(own)) if keys > own => keys - own,
        _ => return Ok(mask),
    };
    let value = if ty.dtype == DType::Bool { 0.0 } else { f64::NEG_INFINITY };
    let fill = call.scalar(ty.dtype, value);
    let mut shape = ty.shape.to_vec();
    shape[last] = Dim::constant(missing);
    let fill = call.broadcast(fill, &shape)?;
    join(call, &[mask, fill], last)
}

/// How many keys each sequence of the batch has, in the shape of the scores.
fn lengths(call: &mut Call<'_, '_>, shape: &[Dim]) -> Result<Option<NodeId>> {
    let Some(lengths) = call.optional(LENGTHS)? else { return Ok(None) };
    let one = Dim::constant(1);
    let lengths = call.reshape(lengths, &[shape[0].clone(), one.clone(), one.clone(), one])?;
    call.broadcast(lengths, shape).map(Some)
}

/// The places of queries and keys; those of queries count from the first key. The last query stands at the
/// last key where lengths are given, and the first one behind the past otherwise.
fn places(
    call: &mut Call<'_, '_>,
    lengths: Option<NodeId>,
    shape: &[Dim],
) -> Result<(NodeId, NodeId)> {
    let Some(lengths) = lengths else {
        let past = match call.has(PAST) {
            true => call.ty(PAST)?.shape[QUERIES].clone(),
            false => Dim::constant(0),
        };
        let row = counted_from(call, QUERIES, past, shape)?;
        return Ok((row, call.positions(KEYS, shape)?));
    };
    let row = call.positions(QUERIES, shape)?;
    let row = call.add("add", Attrs::none(), &[row, lengths])?;
    Ok((row, counted_from(call, KEYS, shape[QUERIES].clone(), shape)?))
}

/// The position along an axis, counted from a size.
fn counted_from(call: &mut Call<'_, '_>, axis: usize, start: Dim, shape: &[Dim]) -> Result<NodeId> {
    let mut longer = shape.to_vec();
    longer[axis] = &shape[axis] + &start;
    let positions = call.positions(axis, &longer)?;
    take_axis(call, positions, axis, start, shape[axis].clone())
}

/// RotaryEmbedding: pairs of the first elements of each head are turned by the angles of their positions.
pub(in crate::onnx) fn rotary_embedding(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let input = call.input(0)?;
    let is_flat = call.graph().ty(input).rank() == 3;
    let heads = call.int("num_heads")?;
    let data = with_heads(call, input, heads)?;
    let ty = call.graph().ty(data).clone();
    let width = ty.shape[3].as_const().filter(|width| width % 2 == 0);
    let width = width.ok_or_else(|| call.unsupported("heads of a width that is not even"))?;
    let turned_width = match call.int_or("rotary_embedding_dim", 0)? {
        0 => width,
        part if part > 0 && part <= width && part % 2 == 0 => part,
        part => return Err(call.invalid(format!("`rotary_embedding_dim` {part} does not fit"))),
    };
    let interleaved = call.flag("interleaved", false)?;
    let half = Dim::constant(turned_width / 2);
    let mut half_shape = ty.shape.to_vec();
    half_shape[3] = half.clone();
    let cos = angles(call, 1, &half_shape)?;
    let sin = angles(call, 2, &half_shape)?;
    let turned = take_axis(call, data, 3, Dim::constant(0), Dim::constant(turned_width))?;
    // Pairs along an axis of their own, last or before the half.
    let pair_axis = if interleaved { 4 } else { 3 };
    let mut paired_shape = half_shape.clone();
    paired_shape.insert(pair_axis, Dim::constant(2));
    let paired = call.reshape(turned, &paired_shape)?;
    let mut part = |at: i64| {
        let part = take_axis(call, paired, pair_axis, Dim::constant(at), Dim::constant(1))?;
        call.reshape(part, &half_shape)
    };
    let (first, second) = (part(0)?, part(1)?);
    let mut product = |a: NodeId, b: NodeId| call.add("mul", Attrs::none(), &[a, b]);
    let (cc, ss) = (product(cos, first)?, product(sin, second)?);
    let (sc, cs) = (product(sin, first)?, product(cos, second)?);
    let real = call.add("sub", Attrs::none(), &[cc, ss])?;
    let imaginary = call.add("add", Attrs::none(), &[sc, cs])?;
    let mut single = half_shape.clone();
    single.insert(pair_axis, Dim::constant(1));
    let parts = [call.reshape(real, &single)?, call.reshape(imaginary, &single)?];
    let joined = join(call, &parts, pair_axis)?;
    let mut turned_shape = ty.shape.to_vec();
    turned_shape[3] = Dim::constant(turned_width);
    let mut result = call.reshape(joined, &turned_shape)?;
    if turned_width < width {
        let (start, count) = (Dim::constant(turned_width), Dim::constant(width - turned_width));
        let kept = take_axis(call, data, 3, start, count)?;
        result = join(call, &[result, kept], 3)?;
    }
    if is_flat { without_heads(call, result) } else { Ok(result) }
}

/// Cosines or sines of the positions, for every head.
fn angles(call: &mut Call<'_, '_>, index: usize, shape: &[Dim]) -> Result<NodeId> {
    let mut cache = call.input(index)?;
    if let Some(positions) = call.optional(3)? {
        cache = call.add("gather", attrs! { axis: 0i64 }, &[cache, positions])?;
    }
    let own = call.graph().ty(cache).shape.to_vec();
    let [batch, length, width] = &own[..] else {
        return Err(call.invalid("the angles must have a batch, a position and a width"));
    };
    let own = [batch.clone(), Dim::constant(1), length.clone(), width.clone()];
    let cache = call.reshape(cache, &own)?;
    call.broadcast(cache, shape)
}

/// SwiGLU: `a * sigmoid(alpha * a) * b`.
pub(in crate::onnx) fn swiglu(call: &mut Call<'_, '_>) -> Result<NodeId> {
    let alpha = call.float_or("alpha", 1.0)?;
    let (gate, value) = (call.input(0)?, call.input(1)?);
    let gate = call.add("swish", attrs! { alpha: alpha }, &[gate])?;
    call.add("mul", Attrs::none(), &[gate, value])
}
