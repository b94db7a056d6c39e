//! Reads a plan.

use std::collections::BTreeMap;

use fornax_bundle::Precision;

use super::TextError;
use super::lexer::{Token, ValueName};
use super::parser::{Failed, Parse, Parser};
use crate::plan::{Part, Phase, Plan, PlanOutput, Region, Schedule, Value, ValueRef};
use crate::{Diagnostic, Dim, SourceMap, Type};

/// Reads a text that holds one plan.
pub(super) fn plan(text: &str) -> Result<Plan, Vec<TextError>> {
    let mut parser = Parser::new(text);
    let parsed = parser.plan().and_then(|plan| parser.end().map(|()| plan));
    match parsed {
        Ok(mut plan) if parser.errors.is_empty() => {
            for region in &mut plan.regions {
                region.body.sources = parser.sources.clone();
            }
            plan.sources = parser.sources;
            Ok(plan)
        }
        _ => Err(parser.errors),
    }
}

/// Names of inputs and weights, and of regions.
#[derive(Default)]
struct Names {
    values: BTreeMap<String, ValueRef>,
    regions: BTreeMap<String, usize>,
}

impl Parser<'_> {
    /// `plan @name(inputs) dims(...) -> (outputs) { weights regions return }`
    fn plan(&mut self) -> Parse<Plan> {
        self.expect_word("plan")?;
        let mut plan = Plan {
            name: self.title()?,
            dims: BTreeMap::new(),
            sources: SourceMap::default(),
            inputs: Vec::new(),
            weights: Vec::new(),
            constants: BTreeMap::new(),
            shared: Vec::new(),
            regions: Vec::new(),
            outputs: Vec::new(),
        };
        let mut names = Names::default();
        for (name, ty, _, start) in self.inputs()? {
            let value = ValueRef::Input(plan.inputs.len());
            self.declare(&mut names.values, &name, value, start);
            plan.inputs.push(Value { name, ty });
        }
        plan.dims = self.dims()?;
        let results = self.results()?;
        self.expect("{")?;
        while self.at_word("weight") {
            self.weight(&mut plan, &mut names)?;
        }
        while self.at_word("shared") {
            self.shared(&mut plan, &mut names)?;
        }
        while matches!(self.token, Token::Value(_)) && !self.is_full() {
            self.region(&mut plan, &mut names)?;
        }
        self.plan_returns(&mut plan, &names, results)?;
        self.expect("}")?;
        Ok(plan)
    }

    fn declare<T>(&mut self, names: &mut BTreeMap<String, T>, name: &str, value: T, start: usize) {
        if names.insert(name.to_owned(), value).is_some() {
            let shown = ValueName::Name(name.to_owned());
            self.fault(start, Diagnostic::new("text-name", format!("`{shown}` is defined twice")));
        }
    }

    fn proper_name(&mut self) -> Parse<String> {
        let start = self.start;
        match self.value_name()? {
            ValueName::Name(name) => Ok(name),
            ValueName::Number(number) => {
                self.fail(start, "text-name", format!("`%{number}` is a number; quote it"))
            }
        }
    }

    /// `weight %w: f32[64,128]`, `weight %c: f32[2] = [1.0, 2.0]`
    fn weight(&mut self, plan: &mut Plan, names: &mut Names) -> Parse<()> {
        self.expect_word("weight")?;
        let start = self.start;
        let name = self.proper_name()?;
        self.expect(":")?;
        let ty = self.ty()?;
        if self.eat("=") {
            let data = self.elements(&ty)?;
            plan.constants.insert(name.clone(), data);
        }
        self.declare(&mut names.values, &name, ValueRef::Weight(plan.weights.len()), start);
        plan.weights.push(Value { name, ty });
        Ok(())
    }

    /// `shared %c0: f32[4,64]`
    fn shared(&mut self, plan: &mut Plan, names: &mut Names) -> Parse<()> {
        self.expect_word("shared")?;
        let start = self.start;
        let name = self.proper_name()?;
        self.expect(":")?;
        let ty = self.ty()?;
        self.declare(&mut names.values, &name, ValueRef::Shared(plan.shared.len()), start);
        plan.shared.push(Value { name, ty });
        Ok(())
    }

    /// `part 0 of %c0 axis 1 start [32]`
    fn part(&mut self, plan: &Plan, names: &Names) -> Parse<(usize, Part)> {
        self.expect_word("part")?;
        let output = self.small_number()?;
        self.expect_word("of")?;
        let start = self.start;
        let ValueRef::Shared(shared) = self.reference(plan, names)? else {
            return self.fail(start, "text-name", "parts lie in shared arrays".to_owned());
        };
        self.expect_word("axis")?;
        let axis = self.small_number()?;
        self.expect_word("start")?;
        let place = self.start;
        let Ok([start]) = <[Dim; 1]>::try_from(self.sizes()?) else {
            return self.fail(
                place,
                "text-syntax",
                "a part has one start, such as `[32]`".to_owned(),
            );
        };
        let whole = plan.shared[shared].ty.shape.clone();
        Ok((output, Part { shared, axis, start, whole }))
    }

    /// A number of an output or an axis.
    fn small_number(&mut self) -> Parse<usize> {
        let start = self.start;
        let number = self.integer()?;
        usize::try_from(number)
            .or_else(|_| self.fail(start, "text-syntax", format!("{number} is negative")))
    }

    /// `%r0 = region(%x, %w) phase run precision tf32 schedule tile(...) graph ...`
    fn region(&mut self, plan: &mut Plan, names: &mut Names) -> Parse<()> {
        let start = self.start;
        let name = self.proper_name()?;
        self.expect("=")?;
        self.expect_word("region")?;
        let operands = self.list("(", ")", |parser| parser.reference(plan, names))?;
        self.expect_word("phase")?;
        let phase = if self.eat_word("prepare") {
            Phase::Prepare
        } else if self.eat_word("run") {
            Phase::Run
        } else {
            return self.unexpected("`prepare` or `run`");
        };
        let mut parts = BTreeMap::new();
        while self.at_word("part") {
            let (output, part) = self.part(plan, names)?;
            parts.insert(output, part);
        }
        let precision = if self.eat_word("precision") {
            let start = self.start;
            let name = self.word("a precision")?;
            name.parse().or_else(|error: String| self.fail(start, "text-syntax", error))?
        } else {
            Precision::Ieee
        };
        self.expect_word("schedule")?;
        let schedule = self.schedule()?;
        let body = self.graph()?.graph;
        self.declare(&mut names.regions, &name, plan.regions.len(), start);
        plan.regions.push(Region { name, phase, body, operands, parts, precision, schedule });
        Ok(())
    }

    /// `%x` or `%r0#0`
    fn reference(&mut self, plan: &Plan, names: &Names) -> Parse<ValueRef> {
        let start = self.start;
        let name = self.proper_name()?;
        let shown = ValueName::Name(name.clone());
        if !self.eat("#") {
            return match names.values.get(&name) {
                Some(&value) => Ok(value),
                None => self.fail(start, "text-name", format!("`{shown}` is not defined above")),
            };
        }
        let number = self.integer()?;
        let Some(&region) = names.regions.get(&name) else {
            return self.fail(
                start,
                "text-name",
                format!("the region `{shown}` is not defined above"),
            );
        };
        let outputs = plan.regions[region].body.outputs().len();
        match usize::try_from(number) {
            Ok(output) if output < outputs => Ok(ValueRef::Region { region, output }),
            _ => {
                let message =
                    format!("the region `{shown}` has {outputs} outputs, no number {number}");
                self.fail(start, "text-name", message)
            }
        }
    }

    /// `tile(block_m = 64, ...)`
    fn schedule(&mut self) -> Parse<Schedule> {
        let start = self.start;
        let family = self.word("a schedule")?;
        let mut fields = BTreeMap::new();
        self.list("(", ")", |parser| {
            let start = parser.start;
            let field = parser.word("a field")?;
            parser.expect("=")?;
            let number = parser.integer()?;
            let Ok(value) = u32::try_from(number) else {
                let message = format!("{number} is not a 32-bit number");
                return parser.fail(start, "text-syntax", message);
            };
            if fields.insert(field, value).is_some() {
                return parser.fail(start, "text-name", format!("`{field}` is there twice"));
            }
            Ok(())
        })?;
        Schedule::from_fields(family, &fields)
            .or_else(|error| self.fail(start, "text-syntax", error.to_string()))
    }

    /// `return %r0#0, %x`
    fn plan_returns(
        &mut self,
        plan: &mut Plan,
        names: &Names,
        results: Vec<(String, Type, usize)>,
    ) -> Parse<()> {
        let start = self.start;
        self.expect_word("return")?;
        let mut returned = Vec::new();
        while matches!(self.token, Token::Value(_)) {
            let start = self.start;
            returned.push((self.reference(plan, names)?, start));
            if !self.eat(",") {
                break;
            }
        }
        if returned.len() != results.len() {
            let message =
                format!("{} values are returned, {} declared", returned.len(), results.len());
            return self.fail(start, "text-type", message);
        }
        for ((name, ty, _), (value, start)) in results.into_iter().zip(returned) {
            match plan.try_ty(value) {
                Some(actual) if *actual != ty => {
                    let message = format!("`{name}` is {actual}, declared as {ty}");
                    let Failed = self.fault(start, Diagnostic::new("text-type", message));
                }
                _ => plan.outputs.push(PlanOutput { name, value }),
            }
        }
        Ok(())
    }
}
