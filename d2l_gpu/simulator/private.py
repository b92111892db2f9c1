"""The private names of torch that the simulator rests on, each with what it is for.

They are checked when a simulation starts, so that a torch release without one of them gets one
clear error and an untested release one warning.
"""

from __future__ import annotations

import operator
import sys
import warnings

import torch
import torch.jit._builtins
import torch.utils._device

from .errors import SimulatorUnavailable

TESTED = ("2.9", "2.13", "2.14")

NAMES = {
    # The tensor and its dispatch
    "torch.Tensor._make_wrapper_subclass": "a tensor without memory of its own",
    "torch.Tensor._is_zerotensor": "find tensors without numbers",
    "torch._C._disabled_torch_function_impl": "leave every decision to dispatch",
    "torch._C.DispatchKeySet": "make the wrapper known to autocast",
    "torch._C.DispatchKey": "the same",
    "torch._C._ExcludeDispatchKeyGuard": "leave autocast inside its own kernels",
    "torch._C._dispatch_has_kernel_for_dispatch_key": "tell composite operators",
    "torch._C._dispatch_get_all_op_names": "find the factory operators",
    "torch._C._set_only_lift_cpu_tensors": "let torch.tensor make a host tensor, then copy it",
    "torch._C._only_lift_cpu_tensors": "the same",
    "torch._C._swap_tensor_impl": "move a parameter that keeps its identity",
    "torch._C._nn._parse_to": "read the arguments of Tensor.to",
    "torch._C._accelerator_getAccelerator": "answer for torch.accelerator",
    "torch._dynamo.callback.callback_handler": "know when PyTorch compiles",
    "torch._C.Generator": "random numbers per device",
    "torch._ops.OpOverload": "what dispatch is given",
    "torch.library._scoped_library": "register kernels until the simulation stops",
    "torch.autograd.forward_ad._current_level": "run RNNs in parts for forward-mode AD",
    "torch._tensor_str._tensor_str": "print",
    "torch._tensor_str._add_suffixes": "print",
    # What is replaced while a simulation runs
    "torch._has_compatible_shallow_copy_type": "Module.to moves parameters by .data",
    "torch._utils._rebuild_parameter": "pickle",
    "torch._utils._rebuild_tensor": "unpickle",
    "torch.serialization._validate_device": "torch.load's checks of a location",
    "torch.autograd.graph._engine_run_backward": "check the devices of gradients",
    "torch.cuda._utils._get_device_index": "read a device argument",
    "torch.cuda._exchange_device": "torch.cuda.device",
    "torch.cuda._maybe_exchange_device": "torch.cuda.device",
    "torch.cuda._initialized": "nothing is left to initialize",
    "torch.cuda._is_in_bad_fork": "forked children",
    "torch.cuda._sleep": "a no-op",
    "torch._cufft_get_plan_cache_size": "a refusal",
    "torch.nn.parallel._functions.Scatter": "DataParallel",
    "torch.optim.optimizer._foreach_supported_types": "optimizers over lists",
    "torch.jit._builtins._get_builtin_table": "keep replaced functions known to TorchScript",
    "torch.utils._device._device_constructors": "PyTorch's list of constructors",
    "torch.utils._device.DeviceContext": "the default device",
}


def check():
    """Raise SimulatorUnavailable if a name is missing; warn of an untested release of torch."""
    for name, purpose in NAMES.items():
        home, _, attribute = name.rpartition(".")
        try:
            getattr(sys.modules.get(home) or operator.attrgetter(home[6:])(torch), attribute)
        except AttributeError:
            raise SimulatorUnavailable(
                f"simulate_gpus: torch {torch.__version__} has no {name} (needed for: {purpose}). "
                f"The simulator was tested with torch {', '.join(TESTED)}."
            ) from None
    release = ".".join(torch.__version__.split(".")[:2])
    if release not in TESTED:
        warnings.warn(
            f"simulate_gpus was tested with torch {', '.join(TESTED)}; this is "
            f"{torch.__version__}, where details may differ.", stacklevel=3,
        )
