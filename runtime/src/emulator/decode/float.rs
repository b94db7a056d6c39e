//! Floating-point instructions (PTX ISA sections 9.7.3 to 9.7.5).

use super::super::parse::{ParseResult, Type};
use super::super::program::{
    Approx, FloatMode, FloatOp1, FloatOp2, HalfType, Op, Rounding, Slot, Src, TestClass,
};
use super::{Decoder, Opcode};

/// The register file and arithmetic of a floating-point type.
#[derive(Clone, Copy)]
enum Kind {
    F32,
    F64,
    Half(HalfType),
}

fn kind(ty: Type) -> Option<Kind> {
    let half = |bf16, packed| Some(Kind::Half(HalfType { bf16, packed }));
    match ty {
        Type::F32 => Some(Kind::F32),
        Type::F64 => Some(Kind::F64),
        Type::F16 => half(false, false),
        Type::F16x2 => half(false, true),
        Type::Bf16 => half(true, false),
        Type::Bf16x2 => half(true, true),
        _ => None,
    }
}

impl Decoder<'_> {
    pub(super) fn float(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        if opcode.name == "testp" {
            return self.testp(opcode);
        }
        let rounding = opcode.take_rounding();
        let approx = opcode.take("approx");
        let full = opcode.take("full");
        let propagate_nan = opcode.take("NaN");
        let xorsign = opcode.take("xorsign");
        if xorsign && !opcode.take("abs") {
            return self.error("`.xorsign` needs `.abs`");
        }
        let mode = FloatMode {
            rounding: rounding.unwrap_or(Rounding::Nearest),
            ftz: opcode.take("ftz"),
            saturate: opcode.take("sat"),
            relu: opcode.take("relu"),
        };
        let Some((ty, kind)) = opcode.take_type().and_then(|ty| Some((ty, kind(ty)?))) else {
            return self.error(format!("`{}` needs a floating-point type", opcode.name));
        };
        if !matches!(kind, Kind::F32) {
            self.check_mode(opcode, kind, mode)?;
        }
        match opcode.name {
            "fma" | "mad" => {
                if rounding.is_none() {
                    return self.error(format!("`{}` needs a rounding", opcode.name));
                }
                self.fma(opcode, ty, kind, mode)
            }
            "add" | "sub" | "mul" | "div" | "min" | "max" | "copysign" => {
                let op = match (opcode.name, propagate_nan, xorsign) {
                    ("add", false, false) => FloatOp2::Add,
                    ("sub", false, false) => FloatOp2::Sub,
                    ("mul", false, false) => FloatOp2::Mul,
                    ("div", false, false) if approx => FloatOp2::DivApprox,
                    ("div", false, false) if full => FloatOp2::DivFull,
                    ("div", false, false) if rounding.is_some() => FloatOp2::Div,
                    ("div", ..) => return self.error("`div` needs a rounding"),
                    ("copysign", false, false) => FloatOp2::CopySign,
                    ("min", false, false) => FloatOp2::Min,
                    ("max", false, false) => FloatOp2::Max,
                    ("min", true, false) => FloatOp2::MinNan,
                    ("max", true, false) => FloatOp2::MaxNan,
                    ("min", false, true) => FloatOp2::MinXorsign,
                    ("max", false, true) => FloatOp2::MaxXorsign,
                    ("min", true, true) => FloatOp2::MinNanXorsign,
                    ("max", true, true) => FloatOp2::MaxNanXorsign,
                    _ => return self.error("`.NaN` and `.xorsign` go with `min` and `max`"),
                };
                self.float2(opcode, op, ty, kind, mode)
            }
            _ => {
                let op = self.unary(opcode, approx, rounding.is_some())?;
                self.float1(opcode, op, ty, kind, mode)
            }
        }
    }

    fn check_mode(&self, opcode: &Opcode<'_>, kind: Kind, mode: FloatMode) -> ParseResult<()> {
        if mode.rounding != Rounding::Nearest {
            return self.error(format!(
                "`{}` with a directed rounding is supported for `.f32` only",
                opcode.name
            ));
        }
        if matches!(kind, Kind::F64) && (mode.ftz || mode.saturate || mode.relu) {
            return self.error("`.ftz`, `.sat` and `.relu` do not go with `.f64`");
        }
        Ok(())
    }

    fn unary(&self, opcode: &Opcode<'_>, approx: bool, rounded: bool) -> ParseResult<FloatOp1> {
        Ok(match (opcode.name, approx, rounded) {
            ("neg", false, false) => FloatOp1::Neg,
            ("abs", false, false) => FloatOp1::Abs,
            ("rcp", true, false) => FloatOp1::Approx(Approx::Rcp),
            ("rcp", false, true) => FloatOp1::Rcp,
            ("sqrt", true, false) => FloatOp1::Approx(Approx::Sqrt),
            ("sqrt", false, true) => FloatOp1::Sqrt,
            ("rsqrt", true, false) => FloatOp1::Approx(Approx::Rsqrt),
            ("ex2", true, false) => FloatOp1::Approx(Approx::Ex2),
            ("lg2", true, false) => FloatOp1::Approx(Approx::Lg2),
            ("sin", true, false) => FloatOp1::Approx(Approx::Sin),
            ("cos", true, false) => FloatOp1::Approx(Approx::Cos),
            ("tanh", true, false) => FloatOp1::Approx(Approx::Tanh),
            (name, ..) => {
                return self.error(format!("`{name}` needs `.approx` or a rounding"));
            }
        })
    }

    fn float1(
        &mut self,
        opcode: &Opcode<'_>,
        op: FloatOp1,
        ty: Type,
        kind: Kind,
        mode: FloatMode,
    ) -> ParseResult<Op> {
        self.arity(opcode, &[2])?;
        let a = self.src(&opcode.operands[1], ty)?;
        let dst = self.dst(&opcode.operands[0], ty)?;
        match kind {
            Kind::F32 => Ok(Op::F32One { op, mode, dst, a }),
            Kind::F64
                if matches!(op, FloatOp1::Approx(_)) && op != FloatOp1::Approx(Approx::Rsqrt) =>
            {
                self.error(format!("`{}` has no `.f64` form", opcode.name))
            }
            Kind::F64 => Ok(Op::F64One { op, dst, a }),
            Kind::Half(ty) => match op {
                FloatOp1::Neg | FloatOp1::Abs | FloatOp1::Approx(Approx::Ex2 | Approx::Tanh) => {
                    Ok(Op::HalfOne { ty, op, mode, dst, a })
                }
                _ => self.error(format!("`{}` has no half-precision form", opcode.name)),
            },
        }
    }

    fn float2(
        &mut self,
        opcode: &Opcode<'_>,
        op: FloatOp2,
        ty: Type,
        kind: Kind,
        mode: FloatMode,
    ) -> ParseResult<Op> {
        self.arity(opcode, &[3])?;
        let a: Src = self.src(&opcode.operands[1], ty)?;
        let b: Src = self.src(&opcode.operands[2], ty)?;
        let dst: Slot = self.dst(&opcode.operands[0], ty)?;
        match (kind, op) {
            (Kind::F32, _) => Ok(Op::F32Two { op, mode, dst, a, b }),
            (Kind::F64, FloatOp2::DivApprox | FloatOp2::DivFull) => {
                self.error("`div.approx` and `div.full` need the type `.f32`")
            }
            (Kind::F64, _) => Ok(Op::F64Two { op, dst, a, b }),
            (
                Kind::Half(_),
                FloatOp2::Div | FloatOp2::DivApprox | FloatOp2::DivFull | FloatOp2::CopySign,
            ) => self.error(format!("`{}` has no half-precision form", opcode.name)),
            (Kind::Half(ty), _) => Ok(Op::HalfTwo { ty, op, mode, dst, a, b }),
        }
    }

    fn fma(
        &mut self,
        opcode: &Opcode<'_>,
        ty: Type,
        kind: Kind,
        mode: FloatMode,
    ) -> ParseResult<Op> {
        self.arity(opcode, &[4])?;
        let a = self.src(&opcode.operands[1], ty)?;
        let b = self.src(&opcode.operands[2], ty)?;
        let c = self.src(&opcode.operands[3], ty)?;
        let dst = self.dst(&opcode.operands[0], ty)?;
        Ok(match kind {
            Kind::F32 => Op::F32Fma { mode, dst, a, b, c },
            Kind::F64 => Op::F64Fma { dst, a, b, c },
            Kind::Half(ty) => Op::HalfFma { ty, mode, dst, a, b, c },
        })
    }

    fn testp(&mut self, opcode: &mut Opcode<'_>) -> ParseResult<Op> {
        self.arity(opcode, &[2])?;
        let class = opcode.take_map(|part| {
            Some(match part {
                "finite" => TestClass::Finite,
                "infinite" => TestClass::Infinite,
                "number" => TestClass::Number,
                "notanumber" => TestClass::NotANumber,
                "normal" => TestClass::Normal,
                "subnormal" => TestClass::Subnormal,
                _ => return None,
            })
        });
        let (Some(class), Some(ty @ (Type::F32 | Type::F64))) = (class, opcode.take_type()) else {
            return self.error("`testp` needs a class and the type `.f32` or `.f64`");
        };
        let a = self.src(&opcode.operands[1], ty)?;
        let dst = self.dst_predicate(&opcode.operands[0])?;
        Ok(Op::Testp { wide: ty == Type::F64, class, dst, a })
    }
}
