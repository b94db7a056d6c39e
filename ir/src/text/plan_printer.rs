//! Prints a plan.

use std::fmt;

use fornax_bundle::Precision;

use super::lexer::{ValueName, quoted_unless_identifier};
use super::literal::print_elements;
use super::printer::{Printer, put, separator};
use crate::plan::{Phase, Plan, ValueRef};

/// The text of a plan, with a line break at its end.
///
/// Regions' bodies are printed with the plan's source map. The data of a constant that is not among
/// the weights, which the verifier rejects, is left out.
pub fn print_plan(plan: &Plan) -> String {
    let mut printer = Printer::default();
    printer.plan(plan);
    printer.out
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print_plan(self))
    }
}

impl Printer {
    fn plan(&mut self, plan: &Plan) {
        put!(self, "plan @{}(", quoted_unless_identifier(&plan.name));
        for (position, input) in plan.inputs.iter().enumerate() {
            put!(self, "{}{}: {}", separator(position), value(&input.name), input.ty);
        }
        self.out.push(')');
        self.dims(&plan.dims);
        self.results(plan.outputs.iter().map(|output| (&*output.name, plan.try_ty(output.value))));
        self.out.push_str(" {\n");
        for weight in &plan.weights {
            put!(self, "  weight {}: {}", value(&weight.name), weight.ty);
            if let Some(data) = plan.constants.get(&weight.name) {
                put!(self, " = {}", print_elements(data, &mut self.splats));
            }
            self.out.push('\n');
        }
        for shared in &plan.shared {
            put!(self, "  shared {}: {}\n", value(&shared.name), shared.ty);
        }
        for region in &plan.regions {
            put!(self, "  {} = region(", value(&region.name));
            for (position, &operand) in region.operands.iter().enumerate() {
                put!(self, "{}{}", separator(position), reference(plan, operand));
            }
            let phase = match region.phase {
                Phase::Prepare => "prepare",
                Phase::Run => "run",
            };
            put!(self, ")\n    phase {phase}\n");
            for (output, part) in &region.parts {
                let shared = reference(plan, ValueRef::Shared(part.shared));
                put!(
                    self,
                    "    part {output} of {shared} axis {} start [{}]\n",
                    part.axis,
                    part.start
                );
            }
            if region.precision != Precision::Ieee {
                put!(self, "    precision {}\n", region.precision);
            }
            put!(self, "    schedule {}\n", region.schedule);
            self.graph(&region.body, &plan.sources, 2);
        }
        let outputs: Vec<String> =
            plan.outputs.iter().map(|output| reference(plan, output.value)).collect();
        self.indent(1);
        self.returns(outputs.iter().map(String::as_str));
        self.out.push_str("}\n");
    }
}

fn value(name: &str) -> ValueName {
    ValueName::Name(name.to_owned())
}

/// What a value is called in the plan's text.
fn reference(plan: &Plan, of: ValueRef) -> String {
    let name = match of {
        ValueRef::Input(index) => plan.inputs.get(index).map(|input| &input.name),
        ValueRef::Weight(index) => plan.weights.get(index).map(|weight| &weight.name),
        ValueRef::Shared(index) => plan.shared.get(index).map(|shared| &shared.name),
        ValueRef::Region { region, .. } => plan.regions.get(region).map(|region| &region.name),
    };
    match (name, of) {
        (None, _) => "%?".to_owned(),
        (Some(name), ValueRef::Region { output, .. }) => format!("{}#{output}", value(name)),
        (Some(name), _) => value(name).to_string(),
    }
}
