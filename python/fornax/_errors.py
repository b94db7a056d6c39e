"""What can go wrong."""


class Error(RuntimeError):
    """Fornax cannot do what was asked for: a file, the device or the compiler is at fault."""


class InputError(Error, ValueError):
    """A tensor is not what the model takes: count, name, element type, shape, device, strides, weights."""
