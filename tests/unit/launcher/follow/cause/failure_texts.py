"""What ranks and engines printed when they failed, in public threads, and what is to be made of it.

The lines are shortened to those that decide.
"""

from dataclasses import dataclass

from launcher.follow.cause.peer_texts import Says

OWN, MAYBE, PEER = Says.OWN, Says.MAYBE_PEER, Says.PEER
GITHUB = "https://github.com/"


@dataclass(frozen=True, kw_only=True)
class Text:
    """One of them."""

    source: str
    """The thread."""
    lines: str
    """Of a traceback, what follows its frames."""
    says: Says
    """Whose fault it says that it is."""
    reason: str
    """Words of the reason."""
    hint: str = ""
    """Words of the hint."""
    signal: str | None = None
    ranks: tuple[int, ...] = ()
    """The ranks that it accuses."""
    addresses: tuple[str, ...] = ()
    """The addresses that it accuses."""


def text(source: str, lines: str, says: Says, reason: str, hint: str = "", **more: object) -> Text:
    return Text(source=GITHUB + source, lines=lines, says=says, reason=reason, hint=hint, **more)  # type: ignore[arg-type]


_NCCL = "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1275, "
_SYSTEM = (
    f"{_NCCL}unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\n"
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. "
    "\nLast error:\n"
)
_REMOTE = (
    f"{_NCCL}remote process exited or there was a network error, NCCL version 2.21.5\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
)
_INTERNAL = f"{_NCCL}internal error, NCCL version 2.14.3\nncclInternalError: Internal check failed.\nLast error:\n"
_INVALID = (
    f"{_NCCL}invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.19.3\n"
    "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
)
_WATCHDOG = (
    "[rank1]:[E424 01:11:21.160832730 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=4, OpType=BROADCAST, NumelIn=112, NumelOut=112, Timeout(ms)=1800000) ran for 1800010 milliseconds "
    "before timing out."
)
_DOWN = "To avoid data inconsistency, we are taking the entire process down."
_LAUNCH = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1.\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
)
_THROWN = "terminate called after throwing an instance of"
_GLOO = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/"

TEXTS = [
    # Others are gone, late or missing: effects
    text("huggingface/open-r1/issues/620", _WATCHDOG, PEER, "SIGABRT", "message is in the log", signal="SIGABRT"),
    text(
        "hiyouga/LlamaFactory/issues/6269",
        "[rank0]:[E1206 18:44:16.9 ProcessGroupNCCL.cpp:1709] [PG 1 Rank 0] Timeout at NCCL work: 7753, last enqueued "
        f"NCCL work: 7755, last completed NCCL work: 7752.\n[rank0]:[E1206 18:44:16.9] [Rank 0] {_DOWN}",
        PEER,
        "SIGABRT",
        signal="SIGABRT",
    ),
    text(
        "huggingface/accelerate/issues/2174",
        f"[E ProcessGroupNCCL.cpp:495] {_DOWN}\n{_THROWN} 'std::runtime_error'\n  what():  [Rank 2] NCCL "
        f"watchdog thread "
        "terminated with exception: [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=48490, "
        "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800781 milliseconds before timing out.",
        PEER,
        "killed by SIGABRT: [Rank 2] NCCL watchdog thread terminated",
        signal="SIGABRT",
    ),
    text(
        "tatsu-lab/stanford_alpaca/issues/207",
        f"{_DOWN}\n{_THROWN} 'std::runtime_error'\n  what():  NCCL error: remote process exited or there was a network "
        "error, NCCL version 2.14.3",
        PEER,
        "remote process exited",
        signal="SIGABRT",
    ),
    text(
        "pytorch/pytorch/pull/112518",
        "[rank0]:[E ProcessGroupNCCL.cpp:1183] [Rank 0] NCCL monitor thread: terminating the process after attempting "
        "to dump debug info, due to watchdog hang.",
        PEER,
        "SIGABRT",
        signal="SIGABRT",
    ),
    text(
        "CGCL-codes/pFedSD/issues/3",
        f"{_GLOO}pair.cc:598] Connection closed by peer [10.0.0.2]:14004",
        PEER,
        "Connection closed by peer",
        addresses=("10.0.0.2",),
    ),
    text(
        "RVC-Project/Retrieval-based-Voice-Conversion-WebUI/issues/1882",
        f"{_GLOO}pair.cc:589] Read error [192.168.70.92]:25266: Connection reset by peer",
        PEER,
        "Read error",
    ),
    text(
        "HorizonRobotics/RoboOrchardLab/issues/33",
        "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv "
        "from rank 0. Please check rank 0 logs for faulty rank.\nOriginal exception: \n"
        "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:129]\nTimed out waiting 600000ms for send "
        "operation to complete",
        PEER,
        "successfully reached monitoredBarrier",
    ),
    text(
        "NVIDIA/nccl/issues/849",
        "RuntimeError: [Rank 0]: Ranks 4, 5, 6, 7 failed to pass monitoredBarrier in 2000000 ms",
        PEER,
        "failed to pass monitoredBarrier",
        ranks=(4, 5, 6, 7),
    ),
    text(
        "ray-project/ray/issues/36317",
        f"{_GLOO}unbound_buffer.cc:132] Timed out waiting 30000ms for recv operation to complete",
        PEER,
        "Timed out waiting",
    ),
    text(
        "sgl-project/sglang/issues/3226",
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
        PEER,
        "connectFullMesh failed",
    ),
    text(
        "NVIDIA/nccl/issues/845",
        "RuntimeError: [3] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via c10d key-value "
        "store by key '1', but store->get('1') got error: Socket Timeout",
        PEER,
        "is setting up NCCL communicator",
        ranks=(0,),
    ),
    text(
        "bytedance/HLLM/issues/20",
        "torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] "
        "via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout",
        PEER,
        "is setting up NCCL communicator",
        ranks=(0,),
    ),
    text(
        "pytorch/pytorch/issues/82091",
        "RuntimeError: [1] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via c10d key-value "
        "store by key '0', but store->get('0') got error: Timeout waiting for key: default_pg/0/0 after 1800000 ms",
        PEER,
        "Timeout waiting for key",
        ranks=(0,),
    ),
    text(
        "OpenRLHF/OpenRLHF/issues/1040",
        "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 1/3 clients joined.",
        PEER,
        "1/3 clients joined",
    ),
    text("alibaba/Pai-Megatron-Patch/issues/468", "torch.distributed.DistStoreError: Socket Timeout", PEER, "Socket"),
    text("pytorch/pytorch/issues/55571", "RuntimeError: Socket Timeout", PEER, "Socket Timeout"),
    text(
        "vllm-project/vllm/issues/19670",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to "
        "(172.17.0.9, 46229).",
        PEER,
        "timed out after 600000ms",
        addresses=("172.17.0.9",),
    ),
    text(
        "lllyasviel/ControlNet/issues/382",
        "TimeoutError: The client socket has timed out after 1800s while trying to connect to (127.0.0.1, 48391).",
        PEER,
        "timed out after 1800s",
        addresses=("127.0.0.1",),
    ),
    text(
        "NVIDIA/nccl/issues/2076",
        f"{_REMOTE}Last error:\nsocketProgressOpt: Call to recv from 172.17.0.3<33759> failed : Connection "
        f"reset by peer",
        PEER,
        "Call to recv from 172.17.0.3<33759> failed",
        addresses=("172.17.0.3",),
    ),
    text("NVIDIA/nccl/issues/934", _REMOTE, PEER, "remote process exited"),
    text(
        "NVIDIA/nccl/issues/1514",
        f"{_INTERNAL}Net : Connection closed by remote peer user<50260>",
        PEER,
        "Connection closed by remote peer",
        addresses=("user",),
    ),
    text(
        "NVIDIA/nccl/issues/1928",
        f"{_REMOTE}Last error:\nNET/OFI Request 0x7f14cc5b60c0 completed with error. RC: 113. Error: 2 (UNDELIVERABLE)",
        PEER,
        "NET/OFI Request",
    ),
    text(
        "awslabs/awsome-distributed-ai/issues/192",
        f"{_SYSTEM}socketStartConnect: Connect to 10.0.0.1<45069> failed : Software caused connection abort",
        PEER,
        "Software caused connection abort",
        addresses=("10.0.0.1",),
    ),
    # Of its own, or because of another one
    text(
        "NVIDIA/nccl/issues/975", _SYSTEM.removesuffix("Last error:\n"), MAYBE, "unhandled system error", "NCCL_DEBUG"
    ),
    # Of its own
    text(
        "hiyouga/LlamaFactory/issues/7233",
        f"{_SYSTEM}Error while creating shared memory segment /dev/shm/nccl-LeXlEJ (size 9637888)",
        OWN,
        "Error while creating shared memory segment",
        "df -h /dev/shm",
    ),
    text(
        "EvolvingLMMs-Lab/open-r1-multimodal/issues/7",
        f"{_INTERNAL}Bootstrap : no socket interface found",
        OWN,
        "no socket interface found",
        "ringmaster_interface",
    ),
    text(
        "Peterande/D-FINE/issues/289",
        f"{_INVALID}Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000",
        OWN,
        "Duplicate GPU detected",
        "ringmaster_backend",
    ),
    text(
        "meta-pytorch/torchtune/issues/1025",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. The "
        "server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        OWN,
        "failed to listen",
        "ss -ltnp",
    ),
    text(
        "KimMeen/Time-LLM/issues/158",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. The "
        "server socket has failed to bind to [::]:98 (errno: 13 - Permission denied).",
        OWN,
        "failed to listen",
        "who owns it",
    ),
    text(
        "vllm-project/vllm/issues/4108",
        "[E ProcessGroupNCCL.cpp:916] [Rank 0] NCCL watchdog thread terminated with exception: CUDA error: an illegal "
        f"memory access was encountered{_LAUNCH}\n{_THROWN} 'std::runtime_error'\n  what():  [Rank 0] NCCL watchdog "
        "thread terminated with exception: CUDA error: an illegal memory access was encountered",
        OWN,
        "an illegal memory access was encountered",
        "Xid",
        signal="SIGABRT",
    ),
    text(
        "sgl-project/sglang/issues/9151",
        f"{_THROWN} 'c10::AcceleratorError'\n  what():  CUDA error: uncorrectable ECC error encountered",
        OWN,
        "killed by SIGABRT: CUDA error: uncorrectable ECC error encountered",
        "the GPU itself has failed",
        signal="SIGABRT",
    ),
    text(
        "huggingface/accelerate/issues/1192",
        f"RuntimeError: CUDA error: uncorrectable ECC error encountered{_LAUNCH}",
        OWN,
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "the GPU itself has failed",
    ),
    text(
        "layumi/Person_reID_baseline_pytorch/issues/372",
        f"RuntimeError: CUDA error: device-side assert triggered{_LAUNCH}",
        OWN,
        "device-side assert triggered",
        "label or index out of range",
    ),
    text(
        "hpcaitech/Open-Sora/issues/40",
        f"RuntimeError: CUDA error: invalid device ordinal{_LAUNCH}",
        OWN,
        "invalid device ordinal",
        "LOCAL_RANK",
    ),
    text(
        "nv-tlabs/SCube/issues/7",
        f"RuntimeError: CUDA error: no kernel image is available for execution on the device{_LAUNCH}",
        OWN,
        "no kernel image is available",
        "supports it",
    ),
    text(
        "nagadomi/nunif/issues/702",
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        OWN,
        "driver version is insufficient",
        "update the NVIDIA driver",
    ),
    text(
        "lllyasviel/Fooocus/issues/1313",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your "
        "GPU driver",
        OWN,
        "driver on your system is too old",
        "update the NVIDIA driver",
    ),
    text(
        "pytorch/pytorch/issues/32881",
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        OWN,
        "CUDNN_STATUS_EXECUTION_FAILED",
        "GPU memory",
    ),
    text(
        "YingqianWang/iPASSR/issues/9",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 10.73 GiB (GPU 0; 8.00 GiB total capacity)",
        OWN,
        "CUDA out of memory. Tried to allocate 10.73 GiB",
        "a smaller batch",
    ),
    text(
        "pytorch/pytorch/issues/108861",
        "RuntimeError: DataLoader worker (pid 11011) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.",
        OWN,
        "is killed by signal: Bus error",
        "df -h /dev/shm",
    ),
    text(
        "Suanmd/TR-MISR/issues/7",
        "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent "
        "call last):\n"
        '  File "worker.py", line 287, in _worker_loop\n    data = fetcher.fetch(index)\n'
        "RuntimeError: stack expects each tensor to be equal size, but got [24, 32, 32] at entry 0",
        OWN,
        "RuntimeError: stack expects each tensor to be equal size, but got [24, 32, 32] at entry 0 (in "
        "DataLoader worker "
        "process 0)",
    ),
    text(
        "lzccccc/SMOKE/issues/21",
        "RuntimeError: received 0 items of ancdata",
        OWN,
        "received 0 items of ancdata",
        "open files",
    ),
    text(
        "ZhengYinan-AIR/Diffusion-Planner/issues/65",
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. "
        "This error "
        "indicates that your module has parameters that were not used in producing loss.",
        OWN,
        "Expected to have finished reduction",
        "find_unused_parameters",
    ),
    text(
        "hiyouga/LlamaFactory/issues/5155",
        "safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, kind: "
        'StorageFull, message: "No '
        'space left on device" })',
        OWN,
        "No space left on device",
        "df -h",
    ),
    text(
        "h2oai/h2o-llmstudio/issues/214",
        "RuntimeError: [enforce fail at inline_container.cc:471] . PytorchStreamWriter failed writing file "
        "data/228: file "
        "write failed",
        OWN,
        "PytorchStreamWriter failed",
        "df -h",
    ),
    text(
        "hustvl/BoxTeacher/issues/13",
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL",
        OWN,
        "process 0 terminated with signal SIGKILL",
        "dmesg",
    ),
]
