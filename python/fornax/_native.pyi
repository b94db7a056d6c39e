"""The native half: see `fornax`."""

from typing import Any, final

from fornax._types import Kernel, Memory, TensorSpec

@final
class Model:
    """A bundle on a device, ready to be called. It may be called from several threads."""

    def __new__(
        cls,
        path: str,
        weights: dict[str, Any] | str | None = None,
        device: str = "cuda:0",
        target: str | None = None,
    ) -> Model: ...
    def __call__(self, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """Run the model.

        Inputs are given in order or by name. On a GPU they are contiguous torch tensors of that GPU; the
        work goes to torch's current stream, and the call returns without waiting for it. On the emulator they
        are numpy arrays or torch tensors in host memory, and the outputs are ready on return.

        Returns a tensor, or a tuple of them when the model has several outputs (or none). With `out`, a
        tensor or a tuple of them of the right types and shapes, outputs are written there, and these are returned.

        A call can be captured into a CUDA graph. Raises `fornax.InputError` when an input is not what the
        model takes.
        """

    def refresh(self, weights: dict[str, Any] | None = None) -> None:
        """Bring what was computed from the weights up to date, after they were changed in place.

        Weights that were copied to the device are read again from the tensors or arrays that they came from, or from
        those in `weights`, by name. Waits for all work of the device first; not for use in a capture.
        """

    @property
    def inputs(self) -> list[TensorSpec]: ...
    @property
    def outputs(self) -> list[TensorSpec]: ...
    @property
    def weights(self) -> list[TensorSpec]: ...
    @property
    def kernels(self) -> list[Kernel]: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def device(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def precision(self) -> str: ...
