//! What must hold of a plan.

use std::collections::{BTreeMap, BTreeSet};

use super::{ranges, size_fault, verify};
use crate::plan::{Part, Phase, Plan, Region, ValueRef, read_range};
use crate::{Diagnostic, Dim, NodeId, Type};

/// Something that does not hold of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFault {
    /// The region where it does not, an index; none when it is about the whole plan.
    pub region: Option<usize>,
    /// What is wrong.
    pub diagnostic: Diagnostic,
}

/// All faults of a plan; none when it is sound.
pub fn verify_plan(plan: &Plan) -> Vec<Diagnostic> {
    plan_faults(plan).into_iter().map(|fault| fault.diagnostic).collect()
}

/// All faults of a plan, with the regions.
pub fn plan_faults(plan: &Plan) -> Vec<PlanFault> {
    let mut faults = ranges(&plan.dims);
    faults.extend(plan_names(plan));
    faults.extend(weights(plan));
    for output in &plan.outputs {
        if plan.try_ty(output.value).is_none() {
            faults
                .push(fault(format!("the output `{}` is a value that is not there", output.name)));
        } else if is_part(plan, output.value) {
            faults.push(fault(format!("the output `{}` is a part of a shared array", output.name)));
        }
    }
    let mut faults: Vec<PlanFault> =
        faults.into_iter().map(|diagnostic| PlanFault { region: None, diagnostic }).collect();
    for (index, region) in plan.regions.iter().enumerate() {
        let mut found = verify(&region.body);
        if found.is_empty() {
            found.extend(body_faults(plan, region).into_iter().map(fault));
            found.extend(operand_faults(plan, index).into_iter().map(fault));
            found.extend(part_faults(plan, region).into_iter().map(fault));
        }
        let note = format!("in region `{}`", region.name);
        faults.extend(found.into_iter().map(|diagnostic| PlanFault {
            region: Some(index),
            diagnostic: diagnostic.note(note.clone()),
        }));
    }
    faults
}

fn fault(message: String) -> Diagnostic {
    Diagnostic::new("verify-plan", message)
}

/// Names that occur twice where each must be unique.
fn plan_names(plan: &Plan) -> Vec<Diagnostic> {
    let values = plan.inputs.iter().chain(&plan.weights).chain(&plan.shared);
    let values = values.map(|value| &value.name);
    let regions = plan.regions.iter().map(|region| &region.name);
    let outputs = plan.outputs.iter().map(|output| &output.name);
    let mut faults = repeated("inputs, weights or shared arrays", values);
    faults.extend(repeated("regions", regions));
    faults.extend(repeated("outputs", outputs));
    faults
}

fn repeated<'p>(what: &str, names: impl Iterator<Item = &'p String>) -> Vec<Diagnostic> {
    let mut seen = BTreeSet::new();
    names
        .filter(|&name| !seen.insert(name))
        .map(|name| Diagnostic::new("verify-name", format!("two {what} are named `{name}`")))
        .collect()
}

fn weights(plan: &Plan) -> Vec<Diagnostic> {
    let mut faults = Vec::new();
    faults.extend(plan.inputs.iter().filter_map(|input| size_fault(&input.ty, &plan.dims)));
    for weight in &plan.weights {
        faults.extend(size_fault(&weight.ty, &plan.dims));
        if weight.ty.shape.iter().any(|dim| dim.as_const().is_none()) {
            let message =
                format!("the weight `{}` has a symbolic size: {}", weight.name, weight.ty);
            faults.push(Diagnostic::new("verify-weight", message));
        }
    }
    let types: BTreeMap<&str, &Type> =
        plan.weights.iter().map(|weight| (weight.name.as_str(), &weight.ty)).collect();
    for (name, data) in &plan.constants {
        let actual = Type::new(data.dtype(), data.shape());
        let message = match types.get(name.as_str()) {
            Some(ty) if **ty == actual => continue,
            Some(ty) => format!("the data of the constant `{name}` is {actual}, not {ty}"),
            None => format!("the constant `{name}` is not among the weights"),
        };
        faults.push(Diagnostic::new("verify-weight", message));
    }
    faults
}

/// What region bodies may hold, and whether the schedule fits.
fn body_faults(plan: &Plan, region: &Region) -> Vec<String> {
    let body = &region.body;
    let mut faults = Vec::new();
    if body.dims != plan.dims {
        faults.push("the body declares other dimensions than the plan".to_owned());
    }
    if body.sources != plan.sources {
        faults.push("the body has another source map than the plan".to_owned());
    }
    let schedule = &region.schedule;
    match region.structure() {
        Ok(structure) if !schedule.classes().contains(&structure.class()) => {
            faults.push(format!("a {} region cannot be lowered by `{schedule}`", structure.class()))
        }
        Ok(_) => {}
        Err(rejection) => faults.push(match rejection.node {
            Some(node) => format!("`{}`: {rejection}", body.node(node).op),
            None => rejection.to_string(),
        }),
    }
    faults.extend(schedule.check().err().map(|error| error.to_string()));
    faults
}

/// Whether what a region reads exists by then and is what the body takes.
fn operand_faults(plan: &Plan, index: usize) -> Vec<String> {
    let region = &plan.regions[index];
    let mut faults = Vec::new();
    if region.phase == Phase::Prepare
        && plan.regions[..index].iter().any(|before| before.phase == Phase::Run)
    {
        faults.push("a region of the prepare program follows one of the run program".to_owned());
    }
    let inputs = region.body.inputs();
    if inputs.len() != region.operands.len() {
        faults.push(format!(
            "the body has {} inputs, the region {} operands",
            inputs.len(),
            region.operands.len()
        ));
    }
    for (position, (&operand, &input)) in region.operands.iter().zip(inputs).enumerate() {
        let reads_later = matches!(operand, ValueRef::Region { region, .. } if region >= index);
        let message = match plan.try_ty(operand) {
            _ if reads_later => "is computed later".to_owned(),
            None => "is a value that is not there".to_owned(),
            Some(_) if region.phase == Phase::Prepare && !is_prepared(plan, operand) => {
                "is known only when the model runs, the region is of the prepare program".to_owned()
            }
            Some(ty) if ty != region.body.ty(input) => {
                format!("is {ty}, but the body takes {}", region.body.ty(input))
            }
            Some(_) if is_part(plan, operand) => {
                "is a part of a shared array, which must be read itself".to_owned()
            }
            Some(_) if !is_written(plan, index, operand, input) => {
                "is a shared array of which no earlier region has written what is read".to_owned()
            }
            Some(_) => continue,
        };
        faults.push(format!("operand {position} {message}"));
    }
    faults
}

/// Whether a value lies in a shared array.
fn is_part(plan: &Plan, value: ValueRef) -> bool {
    matches!(value, ValueRef::Region { region, output }
        if plan.regions[region].parts.contains_key(&output))
}

/// Whether regions before `index` have written all that one reads of a shared array.
fn is_written(plan: &Plan, index: usize, operand: ValueRef, input: NodeId) -> bool {
    let ValueRef::Shared(shared) = operand else { return true };
    let mut written: Vec<(&Part, Dim)> = Vec::new();
    for region in &plan.regions[..index] {
        for (&output, part) in region.parts.iter().filter(|(_, part)| part.shared == shared) {
            let Some(output) = region.body.outputs().get(output) else { return false };
            let size = region.body.ty(output.value).shape.get(part.axis).cloned();
            written.push((part, &part.start + size.unwrap_or_default()));
        }
    }
    let Some((first, _)) = written.first() else { return false };
    let body = &plan.regions[index].body;
    let (mut at, end) = read_range(body, input, first.axis, &plan.dims);
    // Parts follow one another; the first one may begin earlier than what is read.
    let at_most = |a: &Dim, b: &Dim| (b - a).bounds(&plan.dims).0 >= 0;
    while !at_most(&end, &at) {
        let next = written.iter().find(|(part, end)| {
            part.axis == first.axis && at_most(&part.start, &at) && !at_most(end, &at)
        });
        match next {
            Some((_, end)) => at = end.clone(),
            None => return false,
        }
    }
    true
}

/// Whether what a region writes into shared arrays lies in them, and no other region writes there.
fn part_faults(plan: &Plan, region: &Region) -> Vec<String> {
    let mut faults = Vec::new();
    for (&number, part) in &region.parts {
        let outputs = region.body.outputs();
        let (Some(output), Some(shared)) = (outputs.get(number), plan.shared.get(part.shared))
        else {
            faults.push(format!("part {number} is of an output or array that is not there"));
            continue;
        };
        let ty = region.body.ty(output.value);
        let fits = shared.ty.dtype == ty.dtype
            && shared.ty.shape == part.whole
            && part.axis < ty.rank()
            && ty.rank() == part.whole.rank()
            && (0..ty.rank()).all(|a| a == part.axis || ty.shape[a] == part.whole[a]);
        if !fits {
            faults.push(format!("output {number} of type {ty} is no part of {}", shared.ty));
            continue;
        }
        if region.phase == Phase::Prepare {
            faults.push(format!("output {number} is prepared, shared arrays are of the run"));
        }
        let end = &part.start + &ty.shape[part.axis];
        let lies_in = part.start.bounds(&plan.dims).0 >= 0
            && (&part.whole[part.axis] - &end).bounds(&plan.dims).0 >= 0;
        if !lies_in {
            faults.push(format!("part {number} lies at {} to {end} of {}", part.start, shared.ty));
        }
        let others = plan.regions.iter().flat_map(|of| of.parts.iter().map(move |p| (of, p)));
        let overlaps = others
            .filter(|(of, (n, other))| {
                other.shared == part.shared && !(std::ptr::eq(*of, region) && **n == number)
            })
            .any(|(of, (&n, other))| {
                let Some(output) = of.body.outputs().get(n) else { return false };
                let size = of.body.ty(output.value).shape.get(other.axis).cloned();
                let other_end = &other.start + size.unwrap_or_default();
                let apart = |low: &Dim, high: &Dim| (low - high).bounds(&plan.dims).0 >= 0;
                other.axis != part.axis
                    || !(apart(&other.start, &end) || apart(&part.start, &other_end))
            });
        if overlaps {
            faults.push(format!("another region writes where part {number} lies"));
        }
    }
    faults
}

fn is_prepared(plan: &Plan, value: ValueRef) -> bool {
    match value {
        ValueRef::Input(_) => false,
        ValueRef::Weight(_) => true,
        ValueRef::Shared(_) => false,
        ValueRef::Region { region, .. } => plan.regions[region].phase == Phase::Prepare,
    }
}
