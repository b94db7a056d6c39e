//! Importing small models: what becomes of nodes, sizes and names.

mod support;

use support::Model;

#[test]
fn nodes_keep_their_names_and_broadcasts_are_explicit() {
    let model = Model::new(17)
        .input("x", "f32[N,3]")
        .floats("w", &[3], &[1.0, 2.0, 3.0])
        .node("Add", &["x", "w"], &["sum"])
        .node("Relu", &["sum"], &["y"])
        .output("y");
    assert_eq!(
        model.text(),
        "\
graph @test(%x: f32[N,3]) dims(N: 0..1000000000) -> (y: f32[N,3]) {
  %0 = weight {name = w} : f32[3]
  %1 = broadcast %0 {shape = [N,3]} : f32[N,3] @\"sum\"
  %2 = add %x, %1 : f32[N,3] @\"sum\"
  %3 = relu %2 : f32[N,3] @\"y\"
  return %3
}
"
    );
}
