//! Integer, logic, shift and bit-field instructions against Rust's integers.

use crate::elementwise::{check, tuples};

const VALUES: &[u64] = &[
    0,
    1,
    2,
    7,
    31,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x1234_5678,
    0x7fff_ffff,
    0x8000_0000,
    0x9abc_def0,
    0xffff_ffff,
];

const WIDE: &[u64] = &[
    0,
    1,
    3,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x0123_4567_89ab_cdef,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_fff0,
    u64::MAX,
];

/// Two operands of one width, and the expected result.
type Binary<'a> = (&'a str, &'a dyn Fn(u64, u64) -> u64);

fn check_binary(width: u32, values: &[u64], cases: &[Binary<'_>]) {
    let rows: Vec<Vec<u64>> = tuples(values, 2)
        .into_iter()
        .map(|row| row.iter().map(|v| if width == 16 { v & 0xffff } else { *v }).collect())
        .collect();
    for (opcode, expected) in cases {
        let instruction = format!("{opcode} %y, %x0, %x1;");
        check(&instruction, &[width, width], width, &rows, |row| expected(row[0], row[1]));
    }
}

#[test]
fn arithmetic_of_32_bits() {
    let s = |v: u64| v as u32 as i32;
    let u = |v: u64| v as u32;
    check_binary(
        32,
        VALUES,
        &[
            ("add.s32", &|a, b| u(a).wrapping_add(u(b)).into()),
            ("sub.u32", &|a, b| u(a).wrapping_sub(u(b)).into()),
            ("add.sat.s32", &|a, b| s(a).saturating_add(s(b)) as u64),
            ("sub.sat.s32", &|a, b| s(a).saturating_sub(s(b)) as u64),
            ("mul.lo.s32", &|a, b| s(a).wrapping_mul(s(b)) as u64),
            ("mul.hi.s32", &|a, b| ((i64::from(s(a)) * i64::from(s(b))) >> 32) as u64),
            ("mul.hi.u32", &|a, b| (u64::from(u(a)) * u64::from(u(b))) >> 32),
            ("min.s32", &|a, b| s(a).min(s(b)) as u64),
            ("max.s32", &|a, b| s(a).max(s(b)) as u64),
            ("min.u32", &|a, b| u(a).min(u(b)).into()),
            ("max.u32", &|a, b| u(a).max(u(b)).into()),
            ("and.b32", &|a, b| a & b),
            ("or.b32", &|a, b| a | b),
            ("xor.b32", &|a, b| a ^ b),
            ("shl.b32", &|a, b| if b > 31 { 0 } else { a << b }),
            ("shr.u32", &|a, b| if b > 31 { 0 } else { a >> b }),
            ("shr.s32", &|a, b| (s(a) >> b.min(31)) as u64),
            ("mul24.lo.s32", &|a, b| {
                (i64::from(s(a) << 8 >> 8) * i64::from(s(b) << 8 >> 8)) as u64
            }),
        ],
    );
    let nonzero: Vec<u64> = VALUES[1..].to_vec();
    check_binary(
        32,
        &nonzero,
        &[
            ("div.u32", &|a, b| (u(a) / u(b)).into()),
            ("rem.u32", &|a, b| (u(a) % u(b)).into()),
            ("div.s32", &|a, b| s(a).wrapping_div(s(b)) as u64),
            ("rem.s32", &|a, b| s(a).wrapping_rem(s(b)) as u64),
        ],
    );
}

#[test]
fn arithmetic_of_16_bits() {
    let s = |v: u64| v as u16 as i16;
    let u = |v: u64| v as u16;
    check_binary(
        16,
        &VALUES[..11],
        &[
            ("add.s16", &|a, b| u(a).wrapping_add(u(b)).into()),
            ("sub.s16", &|a, b| u(a).wrapping_sub(u(b)).into()),
            ("mul.lo.u16", &|a, b| u(a).wrapping_mul(u(b)).into()),
            ("mul.hi.s16", &|a, b| ((i32::from(s(a)) * i32::from(s(b))) >> 16) as u64),
            ("min.s16", &|a, b| s(a).min(s(b)) as u64),
            ("max.u16", &|a, b| u(a).max(u(b)).into()),
            ("xor.b16", &|a, b| a ^ b),
        ],
    );
    let rows = tuples(&VALUES[..11], 2);
    check("mul.wide.s16 %y, %x0, %x1;", &[16, 16], 32, &rows, |row| {
        (i32::from(s(row[0])) * i32::from(s(row[1]))) as u64
    });
}

#[test]
fn arithmetic_of_64_bits() {
    check_binary(
        64,
        WIDE,
        &[
            ("add.s64", &|a, b| a.wrapping_add(b)),
            ("sub.s64", &|a, b| a.wrapping_sub(b)),
            ("mul.lo.s64", &|a, b| a.wrapping_mul(b)),
            ("mul.hi.u64", &|a, b| ((u128::from(a) * u128::from(b)) >> 64) as u64),
            ("mul.hi.s64", &|a, b| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64),
            ("min.s64", &|a, b| (a as i64).min(b as i64) as u64),
            ("max.u64", &|a, b| a.max(b)),
            ("and.b64", &|a, b| a & b),
        ],
    );
    check_binary(
        64,
        &WIDE[1..],
        &[
            ("div.s64", &|a, b| (a as i64).wrapping_div(b as i64) as u64),
            ("rem.s64", &|a, b| (a as i64).wrapping_rem(b as i64) as u64),
            ("div.u64", &|a, b| a / b),
            ("rem.u64", &|a, b| a % b),
        ],
    );
    let rows: Vec<Vec<u64>> =
        tuples(WIDE, 1).into_iter().flat_map(|r| (0..70).map(move |n| vec![r[0], n])).collect();
    check(
        "shl.b64 %y, %x0, %x1;",
        &[64, 32],
        64,
        &rows,
        |r| {
            if r[1] > 63 { 0 } else { r[0] << r[1] }
        },
    );
    check("shr.s64 %y, %x0, %x1;", &[64, 32], 64, &rows, |r| {
        ((r[0] as i64) >> r[1].min(63)) as u64
    });
    check(
        "shr.u64 %y, %x0, %x1;",
        &[64, 32],
        64,
        &rows,
        |r| {
            if r[1] > 63 { 0 } else { r[0] >> r[1] }
        },
    );
}

#[test]
fn carries_through_two_words() {
    let rows = tuples(WIDE, 2);
    let text = "{ .reg .b32 %l<2>, %h<2>; mov.b64 {%l0, %h0}, %x0; mov.b64 {%l1, %h1}, %x1;
        OP.cc.u32 %l0, %l0, %l1; OPc.u32 %h0, %h0, %h1; mov.b64 %y, {%l0, %h0}; }";
    check(&text.replace("OP", "add"), &[64, 64], 64, &rows, |r| r[0].wrapping_add(r[1]));
    check(&text.replace("OP", "sub"), &[64, 64], 64, &rows, |r| r[0].wrapping_sub(r[1]));
}

#[test]
fn single_operands() {
    let rows = tuples(VALUES, 1);
    let s = |v: u64| v as u32 as i32;
    let cases: &[(&str, &dyn Fn(u64) -> u64)] = &[
        ("neg.s32", &|a| s(a).wrapping_neg() as u64),
        ("abs.s32", &|a| s(a).wrapping_abs() as u64),
        ("not.b32", &|a| !a),
        ("cnot.b32", &|a| u64::from(a == 0)),
        ("brev.b32", &|a| (a as u32).reverse_bits().into()),
        ("popc.b32", &|a| (a as u32).count_ones().into()),
        ("clz.b32", &|a| (a as u32).leading_zeros().into()),
        ("bfind.u32", &|a| {
            if a as u32 == 0 { u64::MAX } else { 31 - u64::from((a as u32).leading_zeros()) }
        }),
        ("bfind.s32", &|a| {
            let v = if s(a) < 0 { !s(a) } else { s(a) };
            if v == 0 { u64::MAX } else { 31 - u64::from(v.leading_zeros()) }
        }),
        ("bfind.shiftamt.u32", &|a| {
            if a as u32 == 0 { u64::MAX } else { (a as u32).leading_zeros().into() }
        }),
    ];
    for (opcode, expected) in cases {
        check(&format!("{opcode} %y, %x0;"), &[32], 32, &rows, |row| expected(row[0]));
    }
    let rows = tuples(WIDE, 1);
    check("popc.b64 %y, %x0;", &[64], 32, &rows, |r| r[0].count_ones().into());
    check("clz.b64 %y, %x0;", &[64], 32, &rows, |r| r[0].leading_zeros().into());
    check("brev.b64 %y, %x0;", &[64], 64, &rows, |r| r[0].reverse_bits());
    check("neg.s64 %y, %x0;", &[64], 64, &rows, |r| r[0].wrapping_neg());
    check("abs.s64 %y, %x0;", &[64], 64, &rows, |r| (r[0] as i64).wrapping_abs() as u64);
}

#[test]
fn three_operands() {
    let rows = tuples(&[0, 1, 5, 0x7fff_ffff, 0x8000_0001, 0xffff_ffff], 3);
    let s = |v: u64| i64::from(v as u32 as i32);
    let cases: &[(&str, &dyn Fn(u64, u64, u64) -> u64)] = &[
        ("mad.lo.s32", &|a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("mad.hi.s32", &|a, b, c| ((s(a) * s(b)) >> 32).wrapping_add(s(c)) as u64),
        ("mad.hi.u32", &|a, b, c| ((a * b) >> 32).wrapping_add(c)),
        ("sad.s32", &|a, b, c| ((s(a) - s(b)).unsigned_abs()).wrapping_add(c)),
        ("sad.u32", &|a, b, c| a.abs_diff(b).wrapping_add(c)),
    ];
    for (opcode, expected) in cases {
        let instruction = format!("{opcode} %y, %x0, %x1, %x2;");
        check(&instruction, &[32; 3], 32, &rows, |r| expected(r[0], r[1], r[2]));
    }
    check("mul.wide.s32 %y, %x0, %x1;", &[32, 32], 64, &tuples(VALUES, 2), |r| {
        (s(r[0]) * s(r[1])) as u64
    });
    check("mul.wide.u32 %y, %x0, %x1;", &[32, 32], 64, &tuples(VALUES, 2), |r| r[0] * r[1]);
    let rows: Vec<Vec<u64>> =
        tuples(VALUES, 2).into_iter().map(|r| vec![r[0], r[1], 0xffff_ffff_0000_0001]).collect();
    check("mad.wide.u32 %y, %x0, %x1, %x2;", &[32, 32, 64], 64, &rows, |r| {
        (r[0] * r[1]).wrapping_add(r[2])
    });
}

#[test]
fn bit_fields() {
    let mut rows = Vec::new();
    for &a in VALUES {
        for position in [0, 1, 8, 30, 31, 32, 40] {
            for length in [0, 1, 4, 16, 31, 32, 33, 255] {
                rows.push(vec![a, position, length]);
            }
        }
    }
    // The definition of the PTX ISA, bit by bit.
    let field = |r: &[u64], signed: bool| {
        let (a, position, length) = (r[0], r[1], r[2]);
        let top = (position + length).saturating_sub(1).min(31);
        let sign = if !signed || length == 0 { 0 } else { a >> top & 1 };
        (0..32).fold(0, |d, i| {
            let inside = i < length && position + i <= 31;
            d | (if inside { a >> (position + i) & 1 } else { sign }) << i
        })
    };
    check("bfe.u32 %y, %x0, %x1, %x2;", &[32; 3], 32, &rows, |r| field(r, false));
    check("bfe.s32 %y, %x0, %x1, %x2;", &[32; 3], 32, &rows, |r| field(r, true));
    check("bfi.b32 %y, %x0, 0x5a5a5a5a, %x1, %x2;", &[32; 3], 32, &rows, |r| {
        (0..32).fold(0x5a5a_5a5a, |d: u64, i| {
            let inside = i >= r[1] && i - r[1] < r[2];
            if inside { d & !(1 << i) | (r[0] >> (i - r[1]) & 1) << i } else { d }
        })
    });
    let rows = tuples(VALUES, 3);
    check("lop3.b32 %y, %x0, %x1, %x2, 0xca;", &[32; 3], 32, &rows, |r| {
        (r[0] & r[1]) | (!r[0] & r[2])
    });
    check("lop3.b32 %y, %x0, %x1, %x2, 0x96;", &[32; 3], 32, &rows, |r| r[0] ^ r[1] ^ r[2]);
    check("shf.l.wrap.b32 %y, %x0, %x1, %x2;", &[32; 3], 32, &rows, |r| {
        ((r[1] << 32 | r[0]) << (r[2] & 31)) >> 32
    });
    check("shf.r.clamp.b32 %y, %x0, %x1, %x2;", &[32; 3], 32, &rows, |r| {
        (r[1] << 32 | r[0]) >> r[2].min(32)
    });
}

#[test]
fn byte_permutations_and_dots() {
    let rows: Vec<Vec<u64>> = [0x3210u64, 0x7654, 0x0123, 0xba98, 0x4140, 0xfedc, 0x5410]
        .iter()
        .map(|&selector| vec![0x8182_0304, 0xf506_8708, selector])
        .collect();
    check("prmt.b32 %y, %x0, %x1, %x2;", &[32; 3], 32, &rows, |r| {
        let bytes = r[1] << 32 | r[0];
        (0..4).fold(0, |word, i| {
            let nibble = r[2] >> (4 * i) & 15;
            let byte = bytes >> (8 * (nibble & 7)) & 0xff;
            let byte = if nibble < 8 { byte } else { (byte >> 7) * 0xff };
            word | byte << (8 * i)
        })
    });
    let modes = [
        ("f4e", [0x3210u32, 0x4321, 0x5432, 0x6543]),
        ("b4e", [0x5670, 0x6701, 0x7012, 0x0123]),
        ("rc8", [0x0000, 0x1111, 0x2222, 0x3333]),
        ("ecl", [0x3210, 0x3211, 0x3222, 0x3333]),
        ("ecr", [0x0000, 0x1110, 0x2210, 0x3210]),
        ("rc16", [0x1010, 0x3232, 0x1010, 0x3232]),
    ];
    // The table of the PTX ISA's `prmt`, as selectors of the generic form.
    for (mode, selectors) in modes {
        let rows: Vec<Vec<u64>> = (0..4).map(|c| vec![0x0302_0100, 0x0706_0504, c]).collect();
        check(&format!("prmt.b32.{mode} %y, %x0, %x1, %x2;"), &[32; 3], 32, &rows, |r| {
            let selector = selectors[r[2] as usize];
            (0..4).fold(0, |word, i| word | u64::from(selector >> (4 * i) & 7) << (8 * i))
        });
    }
    let rows = tuples(&[0x8182_0304, 0xff7f_0180, 0x0102_0304], 3);
    check("dp4a.s32.s32 %y, %x0, %x1, %x2;", &[32; 3], 32, &rows, |r| {
        let byte = |v: u64, i: u32| i64::from((v >> (8 * i)) as u8 as i8);
        (0..4).map(|i| byte(r[0], i) * byte(r[1], i)).sum::<i64>().wrapping_add(r[2] as i64) as u64
    });
    check("dp4a.u32.s32 %y, %x0, %x1, %x2;", &[32; 3], 32, &rows, |r| {
        let signed = |i: u32| i64::from((r[1] >> (8 * i)) as u8 as i8);
        let unsigned = |i: u32| (r[0] >> (8 * i) & 0xff) as i64;
        (0..4).map(|i| unsigned(i) * signed(i)).sum::<i64>().wrapping_add(r[2] as i64) as u64
    });
}

#[test]
fn comparisons_and_selections() {
    let rows = tuples(VALUES, 2);
    let s = |v: u64| v as u32 as i32;
    let cases: &[(&str, &dyn Fn(u64, u64) -> bool)] = &[
        ("setp.eq.s32", &|a, b| a == b),
        ("setp.ne.b32", &|a, b| a != b),
        ("setp.lt.s32", &|a, b| s(a) < s(b)),
        ("setp.lt.u32", &|a, b| a < b),
        ("setp.ls.u32", &|a, b| a <= b),
        ("setp.hi.u32", &|a, b| a > b),
        ("setp.ge.s32", &|a, b| s(a) >= s(b)),
    ];
    for (opcode, expected) in cases {
        check(&format!("{opcode} %y, %x0, %x1;"), &[32, 32], 1, &rows, |r| {
            expected(r[0], r[1]).into()
        });
    }
    let combined = "setp.eq.u32 %p, %x0, 1; setp.lt.and.u32 %y|%q, %x0, %x1, !%p;";
    check(combined, &[32, 32], 1, &rows, |r| (r[0] < r[1] && r[0] != 1).into());
    let second = "setp.eq.u32 %p, %x0, 1; setp.lt.and.u32 %q|%y, %x0, %x1, !%p;";
    check(second, &[32, 32], 1, &rows, |r| (r[0] >= r[1] && r[0] != 1).into());
    check("setp.lt.u32 %p, %x0, %x1; selp.b32 %y, %x0, %x1, %p;", &[32, 32], 32, &rows, |r| {
        r[0].min(r[1])
    });
    check("slct.b32.s32 %y, %x0, %x1, %x1;", &[32, 32], 32, &rows, |r| {
        if s(r[1]) >= 0 { r[0] } else { r[1] }
    });
    check("set.lt.u32.s32 %y, %x0, %x1;", &[32, 32], 32, &rows, |r| {
        if s(r[0]) < s(r[1]) { u64::MAX } else { 0 }
    });
    let logic =
        "setp.lt.u32 %p, %x0, %x1; setp.eq.u32 %q, %x0, 0; xor.pred %p, %p, %q; not.pred %y, %p;";
    check(logic, &[32, 32], 1, &rows, |r| (!((r[0] < r[1]) ^ (r[0] == 0))).into());
}

#[test]
fn pairs_of_16_bits_and_relu() {
    // An operation on each half, as signed numbers.
    fn halves(a: u64, b: u64, op: impl Fn(i16, i16) -> i16) -> u64 {
        let half = |shift: u32| u64::from(op((a >> shift) as i16, (b >> shift) as i16) as u16);
        half(16) << 16 | half(0)
    }
    let unsigned = |a: i16, b: i16, least: bool| {
        let (a, b) = (a as u16, b as u16);
        (if (a < b) == least { a } else { b }) as i16
    };
    let s = |v: u64| v as u32 as i32;
    check_binary(
        32,
        VALUES,
        &[
            ("add.s16x2", &|a, b| halves(a, b, |a, b| (i32::from(a) + i32::from(b)) as i16)),
            ("add.u16x2", &|a, b| halves(a, b, |a, b| (i32::from(a) + i32::from(b)) as i16)),
            ("min.s16x2", &|a, b| halves(a, b, |a, b| if a < b { a } else { b })),
            ("max.s16x2", &|a, b| halves(a, b, |a, b| if a < b { b } else { a })),
            ("min.u16x2", &|a, b| halves(a, b, |a, b| unsigned(a, b, true))),
            ("max.u16x2", &|a, b| halves(a, b, |a, b| unsigned(a, b, false))),
            ("min.relu.s16x2", &|a, b| halves(a, b, |a, b| (if a < b { a } else { b }).max(0))),
            ("max.relu.s16x2", &|a, b| halves(a, b, |a, b| (if a < b { b } else { a }).max(0))),
            ("min.relu.s32", &|a, b| s(a).min(s(b)).max(0) as u64),
            ("max.relu.s32", &|a, b| s(a).max(s(b)).max(0) as u64),
        ],
    );
}
