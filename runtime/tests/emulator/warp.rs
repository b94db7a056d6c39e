//! Divergence, barriers and exchanges between lanes.

use crate::elementwise::{check, each};
use crate::harness::{Arg, run, words};
use fornax_runtime::device::LaunchConfig;

/// Runs a block of `n` threads; `body` computes `%y` from `%me`, its thread's index.
fn block(n: u32, body: &str) -> Vec<u32> {
    let text = format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p0)\n{{\n\
         .reg .pred %p<4>; .reg .b32 %me, %y, %r<16>; .reg .b64 %d<8>; .shared .align 4 .b8 s[4096];\n\
         mov.u32 %me, %tid.x; ld.param.u64 %d0, [p0]; mul.wide.u32 %d1, %me, 4;\n\
         add.s64 %d0, %d0, %d1; mov.u32 %y, 0;\n{body}\nst.global.u32 [%d0], %y; ret;\n}}\n"
    );
    let args = [Arg::Output(u64::from(n) * 4)];
    match run(&text, "k", LaunchConfig::linear(1, n), &args) {
        Ok(outputs) => words(&outputs[0]),
        Err(error) => panic!("{error}\n{text}"),
    }
}

#[test]
fn shuffles() {
    let all = |body: &str| block(32, body);
    let lanes: Vec<u32> = (0..32).collect();
    let map = |f: &dyn Fn(u32) -> u32| lanes.iter().map(|&lane| f(lane)).collect::<Vec<u32>>();
    assert_eq!(all("shfl.sync.bfly.b32 %y, %me, 5, 31, -1;"), map(&|l| l ^ 5));
    assert_eq!(
        all("shfl.sync.down.b32 %y|%p0, %me, 3, 31, -1; @!%p0 add.u32 %y, %y, 100;"),
        map(&|l| if l + 3 < 32 { l + 3 } else { l + 100 })
    );
    assert_eq!(
        all("shfl.sync.up.b32 %y|%p0, %me, 3, 0, -1; @!%p0 add.u32 %y, %y, 100;"),
        map(&|l| if l >= 3 { l - 3 } else { l + 100 })
    );
    assert_eq!(all("shfl.sync.idx.b32 %y, %me, 7, 31, -1;"), map(&|_| 7));
    // Segments of eight lanes: the mask in bits 8 to 12 is 0x18.
    assert_eq!(all("shfl.sync.idx.b32 %y, %me, 2, 0x181f, -1;"), map(&|l| l / 8 * 8 + 2));
    assert_eq!(
        all("shfl.sync.down.b32 %y, %me, 1, 0x181f, -1;"),
        map(&|l| if l % 8 == 7 { l } else { l + 1 })
    );
    assert_eq!(
        all("setp.lt.u32 %p0, %me, 16; @!%p0 bra B; shfl.sync.bfly.b32 %y, %me, 1, 31, 0xffff; B:"),
        map(&|l| if l < 16 { l ^ 1 } else { 0 })
    );
}

#[test]
fn votes_and_matches() {
    let ballot = block(32, "setp.gt.u32 %p0, %me, 9; vote.sync.ballot.b32 %y, %p0, -1;");
    assert_eq!(ballot, vec![0xffff_fc00; 32]);
    let votes = "setp.lt.u32 %p0, %me, 40; setp.eq.u32 %p1, %me, 3;
        vote.sync.all.pred %p2, %p0, -1; selp.b32 %r0, 1, 0, %p2;
        vote.sync.any.pred %p2, %p1, -1; selp.b32 %r1, 2, 0, %p2;
        vote.sync.all.pred %p2, %p1, -1; selp.b32 %r2, 4, 0, %p2;
        vote.sync.uni.pred %p2, %p1, -1; selp.b32 %r3, 8, 0, %p2;
        or.b32 %y, %r0, %r1; or.b32 %y, %y, %r2; or.b32 %y, %y, %r3;";
    assert_eq!(block(32, votes), vec![3; 32]);
    let matches = block(32, "shr.u32 %r0, %me, 3; match.any.sync.b32 %y, %r0, -1;");
    assert!(matches.iter().enumerate().all(|(l, &m)| m == 0xff << (l / 8 * 8)));
    let agree = "mov.u32 %r0, 5; match.all.sync.b32 %y|%p0, %r0, -1; @!%p0 mov.u32 %y, 1;";
    assert_eq!(block(32, agree), vec![u32::MAX; 32]);
    let active = "setp.lt.u32 %p0, %me, 4; @!%p0 bra B; activemask.b32 %y; B:";
    assert!(block(32, active).iter().enumerate().all(|(l, &m)| m == if l < 4 { 15 } else { 0 }));
    let elect = "elect.sync %r0|%p0, -1; selp.b32 %y, 7, %r0, %p0;";
    assert!(block(32, elect).iter().enumerate().all(|(l, &y)| y == if l == 0 { 7 } else { 0 }));
}

#[test]
fn reductions_of_a_warp() {
    let rows: Vec<Vec<u64>> = (0..32u64).map(|i| vec![(i * 7919) ^ 0xffff_f000]).collect();
    let fold = |f: &dyn Fn(u32, u32) -> u32| {
        u64::from(rows.iter().map(|r| r[0] as u32).reduce(f).unwrap())
    };
    let signed = |f: fn(i32, i32) -> i32| move |a: u32, b: u32| f(a as i32, b as i32) as u32;
    let cases: &[(&str, &dyn Fn(u32, u32) -> u32)] = &[
        ("add.s32", &u32::wrapping_add),
        ("min.u32", &Ord::min),
        ("max.u32", &Ord::max),
        ("min.s32", &signed(Ord::min)),
        ("max.s32", &signed(Ord::max)),
        ("and.b32", &|a, b| a & b),
        ("or.b32", &|a, b| a | b),
        ("xor.b32", &|a, b| a ^ b),
    ];
    for (operation, f) in cases {
        check(&format!("redux.sync.{operation} %y, %x0, -1;"), &[32], 32, &rows, |_| fold(f));
    }
}

#[test]
fn lanes_meet_again_after_divergence() {
    // Each lane loops as often as its number says; then all must be together for the shuffle.
    let body = "mov.u32 %r0, 0; LOOP: setp.ge.u32 %p0, %r0, %me; @%p0 bra AFTER;
        add.u32 %r0, %r0, 1; add.u32 %y, %y, %r0; bra LOOP;
        AFTER: shfl.sync.bfly.b32 %y, %y, 31, 31, -1;";
    let triangle = |n: u32| n * (n + 1) / 2;
    let expected: Vec<u32> = (0..32).map(|lane| triangle(31 - lane)).collect();
    assert_eq!(block(32, body), expected);
    // An if with both arms, one behind the join in the text.
    let body = "and.b32 %r0, %me, 1; setp.eq.u32 %p0, %r0, 0; @%p0 bra EVEN; mov.u32 %y, 1;
        JOIN: vote.sync.ballot.b32 %r1, %p0, -1; add.u32 %y, %y, %r1; bra END;
        EVEN: mov.u32 %y, 2; bra JOIN; END:";
    let expected: Vec<u32> = (0..32).map(|l| 0x5555_5555 + 2 - l % 2).collect();
    assert_eq!(block(32, body), expected);
}

#[test]
fn indexed_branches() {
    let body = "and.b32 %r0, %me, 3; T: .branchtargets L0, L1, L2, L1; brx.idx %r0, T;
        L0: mov.u32 %y, 10; bra END; L1: mov.u32 %y, 11; bra END; L2: mov.u32 %y, 12; END:";
    let expected: Vec<u32> = (0..32).map(|l| [10, 11, 12, 11][l % 4]).collect();
    assert_eq!(block(32, body), expected);
}

#[test]
fn barriers_of_a_block() {
    // Thread i reads what thread n - 1 - i wrote.
    let body = "mov.u64 %d2, s; add.s64 %d3, %d2, %d1; st.shared.u32 [%d3], %me; bar.sync 0;
        sub.u32 %r0, 95, %me; mul.wide.u32 %d4, %r0, 4; add.s64 %d4, %d2, %d4; ld.shared.u32 %y, [%d4];";
    assert_eq!(block(96, body), (0..96).rev().collect::<Vec<u32>>());
    let body = "setp.lt.u32 %p0, %me, 50; bar.red.popc.u32 %y, 0, %p0;
        bar.red.and.pred %p1, 0, %p0; @%p1 add.u32 %y, %y, 1000;
        barrier.cta.red.or.pred %p1, 0, %p0; @%p1 add.u32 %y, %y, 2000;";
    assert_eq!(block(96, body), vec![2050; 96]);
    // Predicated lanes take part in a warp barrier of their own.
    let body = "setp.lt.u32 %p0, %me, 8; @%p0 bar.warp.sync 255; mov.u32 %y, 1;";
    assert_eq!(block(32, body), vec![1; 32]);
}

#[test]
fn warps_wait_for_each_other_through_memory() {
    // The second warp spins on a flag that the first one sets.
    let body = "setp.eq.u32 %p0, %me, 0; @%p0 st.shared.u32 [s], 0; bar.sync 0;
        setp.lt.u32 %p1, %me, 32; @!%p1 bra WAIT; mov.u32 %r1, 0;
        WORK: add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 50000; @%p2 bra WORK;
        @%p0 st.release.cta.shared.u32 [s], 1; bra END;
        WAIT: ld.acquire.cta.shared.u32 %r2, [s]; setp.eq.u32 %p3, %r2, 0; @%p3 bra WAIT; mov.u32 %y, 1; END:";
    let expected: Vec<u32> = (0..64).map(|i| u32::from(i >= 32)).collect();
    assert_eq!(block(64, body), expected);
}

#[test]
fn blocks_are_independent_of_the_number_of_threads() {
    let text =
        "mad.lo.s32 %t1, %x0, 7, 3; { .reg .pred %e; rem.u32 %t2, %t1, 5; setp.eq.u32 %e, %t2, 0;
        @%e bra A; mul.lo.u32 %y, %t1, %t1; bra B; A: neg.s32 %y, %t1; B: }";
    let rows: Vec<Vec<u64>> = (0..5000).map(|i| vec![i]).collect();
    let expected: Vec<u64> = (0..5000u64)
        .map(|i| {
            let t = i * 7 + 3;
            if t % 5 == 0 { u64::from((t as u32).wrapping_neg()) } else { (t * t) & 0xffff_ffff }
        })
        .collect();
    assert_eq!(each(text, &[32], 32, &rows), expected);
}
