"""What to do about a failure, from the words of its cause. Pure."""

import re

_KILLED = "something killed it; the kernel does so when memory runs out: see dmesg, or use a smaller batch"
_HINTS = (
    (
        r"shared memory segment|out of shared memory|insufficient shared memory|/dev/shm|bus error|Bus error",
        "too little shared memory: see df -h /dev/shm, or use fewer data workers",
    ),
    (
        r"CUDA out of memory|OutOfMemoryError|Cuda failure.*out of memory|CUBLAS_STATUS_ALLOC_FAILED"
        r"|CUDA error: out of memory",
        "a smaller batch, accumulation or a lower precision needs less memory",
    ),
    (r"DefaultCPUAllocator: can't allocate|^MemoryError", "a smaller batch, fewer data workers or more memory"),
    (r"unrecognized arguments: --local[-_]rank", "the script does not take --local-rank: LAUNCH_STYLE=0"),
    (r"required:.*--local_rank", "the script uses the older launch style: LAUNCH_STYLE=--local_rank"),
    (r"required:.*--local-rank", "the script uses the older launch style: LAUNCH_STYLE=1"),
    (r"[Aa]ddress already in use|EADDRINUSE", "another process took the port: try again, or see which one: ss -ltnp"),
    (
        r"No space left on device|Disk quota exceeded|StorageFull|PytorchStreamWriter failed writing",
        "free some disk space: df -h",
    ),
    (r"Duplicate GPU detected", "two NCCL ranks had one GPU: set ringmaster_backend: gloo, or ask for fewer ranks"),
    (
        r"device-side assert",
        "a GPU kernel refused its input, often a label or index out of range: CUDA_LAUNCH_BLOCKING=1 names the line",
    ),
    (
        r"illegal memory access|misaligned address|unspecified launch failure",
        "a GPU kernel went astray: CUDA_LAUNCH_BLOCKING=1 names the line; dmesg (Xid) says if the GPU is at fault",
    ),
    (
        r"uncorrectable ECC|fallen off the bus|\bXid\b|GPU is lost|CUDA error: hardware",
        "the GPU itself has failed: see nvidia-smi -q and dmesg (Xid) on the node; leave it out until it is repaired",
    ),
    (
        r"invalid device ordinal",
        "the script chose a GPU that it wasn't given: use LOCAL_RANK, and count with torch.cuda.device_count()",
    ),
    (
        r"no kernel image is available|not compatible with the current PyTorch installation",
        "this PyTorch wasn't built for this GPU: use an image whose PyTorch supports it",
    ),
    (
        r"CUDA driver version is insufficient|driver on your system is too old|forward compatibility was attempted",
        "update the NVIDIA driver on the node, or make the image for an older CUDA",
    ),
    (
        r"Found no NVIDIA driver|no CUDA-capable device|No CUDA GPUs are available",
        "no GPU can be used there: check nvidia-smi on the node, and make verify",
    ),
    (
        r"CUDNN_STATUS_\w+|cuDNN error|CUBLAS_STATUS_\w+",
        "often too little GPU memory, or an input of the wrong shape: try a smaller batch, then CUDA_LAUNCH_BLOCKING=1",
    ),
    (
        r"no socket interface found|unable to find address for|Unable to resolve hostname to a \(local\) address",
        "the network interface isn't there: see ringmaster_interface, NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME",
    ),
    (
        r"ibv_\w+ failed|NET/IB.*(?:error|failed)",
        "InfiniBand refuses: try NCCL_IB_DISABLE=1, and check ibstat and the memlock limit",
    ),
    (r"ncclSystemError|unhandled system error|ncclInternalError", "make train NCCL_DEBUG=INFO says more"),
    (
        r"Expected to have finished reduction in the prior iteration|parameters that were not used in producing loss",
        "a parameter got no gradient: DistributedDataParallel(…, find_unused_parameters=True), or leave it out",
    ),
    (
        r"Detected mismatch between collectives",
        "the ranks called different collective operations: look for `if rank ==`",
    ),
    (r"Default process group has not been initialized", "the script must call torch.distributed.init_process_group()"),
    (
        r"[Tt]oo many open files|received 0 items of ancdata",
        "raise the limit of open files (ulimit -n), or use fewer data workers",
    ),
    (r"^PermissionError|[Pp]ermission denied", "check who owns it, and as which user the job runs (docs/jobs.md)"),
    (
        r"could not select device driver|nvidia-container-cli|nvidia-container-runtime|unresolvable CDI devices",
        "the node's GPUs can't be given to containers: nvidia-smi on the node, then make provision and make verify",
    ),
    (r"terminated with signal SIGKILL", _KILLED),
    (
        r"[Nn]o such image|pull access denied|manifest unknown",
        "make train brings it to the nodes that lack it: start the job again",
    ),
    (r"[Cc]annot connect to the Docker daemon", "start the engine on the node: systemctl start docker"),
)
_SIGNAL_HINTS = {
    "SIGKILL": _KILLED,
    "SIGSEGV": "a native library crashed; the stack is in the log",
    "SIGBUS": "often too little shared memory: see df -h /dev/shm",
    "SIGABRT": "a native library gave up; its message is in the log",
    "SIGTERM": "somebody or something on the node sent it SIGTERM",
}


def of_text(text: str) -> str | None:
    """Return what helps against what an error says; None if nothing is known."""
    for pattern, hint in _HINTS:
        if re.search(pattern, text, re.MULTILINE):
            return hint
    return None


def of_signal(name: str) -> str | None:
    """Return what helps against a death by that signal."""
    return _SIGNAL_HINTS.get(name)
