//! Asynchronous copies from global to shared memory (PTX ISA, "cp.async").

use inkwell::values::BasicValueEnum;

use super::emitter::Emitter;
use super::ir::Assembly;
use crate::kernel::{Layout, Memory, ValueId};

impl Emitter<'_, '_> {
    /// See [`crate::kernel::Instruction::Copy`].
    pub fn copy(
        &mut self,
        to: (Memory, ValueId),
        from: (Memory, ValueId),
        masks: [Option<ValueId>; 2],
        vector: u32,
    ) {
        let layout: Option<&Layout> = self.ty(to.1).layout();
        let holder = layout.and_then(|layout| self.first_holder(layout));
        let (target, source) = (self.array(to.0), self.array(from.0));
        let bytes = vector * target.dtype.size() as u32;
        let targets = self.places(to.0, to.1, vector);
        let sources = self.places(from.0, from.1, vector);
        // Only what is 16 bytes long can pass by the L1 cache.
        let cache = if bytes == 16 { "cg" } else { "ca" };
        for (group, (to, from)) in targets.into_iter().zip(sources).enumerate() {
            let to = self.ir.pointer_to_int(self.ir.address(target, to), 32);
            let mut operands: Vec<BasicValueEnum> =
                vec![to.into(), self.ir.address(source, from).into()];
            let mut constraints = "r,l".to_owned();
            let mut text = format!("cp.async.{cache}.shared.global [$0], [$1], {bytes}");
            let holds =
                |mask: ValueId| self.registers(mask)[group * vector as usize].into_int_value();
            if let Some(mask) = masks[0] {
                let holds = holds(mask);
                let all = self.ir.i32(bytes.into());
                operands.push(self.ir.select_int(holds, all, self.ir.i32(0)).into());
                constraints += ",r";
                text += ", $2";
            }
            text += ";";
            let active = match (masks[1].map(holds), holder) {
                (Some(active), Some(holder)) => Some(self.ir.and(active, holder)),
                (active, holder) => active.or(holder),
            };
            if let Some(active) = active {
                text = format!("@${} {text}", operands.len());
                operands.push(active.into());
                constraints += ",b";
            }
            constraints += ",~{memory}";
            self.ir.assembly(Assembly { text, constraints, effects: true }, None, &operands);
        }
    }

    /// See [`crate::kernel::Instruction::CopyCommit`].
    pub fn copy_commit(&self) {
        self.effect("cp.async.commit_group;".to_owned());
    }

    /// See [`crate::kernel::Instruction::CopyWait`].
    pub fn copy_wait(&self, pending: u32) {
        self.effect(format!("cp.async.wait_group {pending};"));
    }
}
