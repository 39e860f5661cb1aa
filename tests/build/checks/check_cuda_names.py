"""check_cuda_names.py <checkout>: the sources use what CUDA 12.8 and CUDA 13 both have, in the same form.

Names that came after 12.8, that 13.0 removed, or whose parameters 13.0 changed are allowed in one header alone, which
picks by version. There is none as long as nothing needs it. The lists are the differences between the public headers of
CUDA 12.8.1, 12.9.1 and 13.0 (cuda.h, cuda_runtime_api.h, driver_types.h and those beside them); PTX is from the release
notes in its manual, versions 8.8 (CUDA 12.9) and 9.0 (13.0).
"""
import pathlib
import re
import sys

GUARDED = "include/peerless/transport/cuda_version.cuh"
FOLDERS = ("include", "bench", "examples", "tests")
SOURCES = {".hpp", ".cuh", ".cpp", ".cu", ".inc"}
NEW = {
    "12.9": """
    CU_COMPUTE_FAMILY_TARGET_BASE CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED
    CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE CU_LAUNCH_KERNEL_REQUIRED_BLOCK_DIM
    CU_LOG_LEVEL_ERROR CU_LOG_LEVEL_WARNING CU_MEM_DECOMPRESS_ALGORITHM_LZ4 CUgraphChildGraphNodeOwnership
    CUlogIterator CUlogLevel CUlogsCallback CUlogsCallbackHandle cuLogsCurrent cuLogsDumpToFile cuLogsDumpToMemory
    cuLogsRegisterCallback cuLogsUnregisterCallback cudaDevAttrHostNumaMemoryPoolsSupported
    cudaDevAttrVulkanCigSupported cudaGraphChildGraphNodeOwnership cudaGraphChildGraphOwnershipClone
    cudaGraphChildGraphOwnershipMove
    """,
    "13.0": """
    CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER CU_ATOMIC_CAPABILITY_REDUCTION CU_ATOMIC_CAPABILITY_SCALAR_128
    CU_ATOMIC_CAPABILITY_SCALAR_32 CU_ATOMIC_CAPABILITY_SCALAR_64 CU_ATOMIC_CAPABILITY_SIGNED
    CU_ATOMIC_CAPABILITY_UNSIGNED CU_ATOMIC_CAPABILITY_VECTOR_32x4 CU_ATOMIC_OPERATION_AND CU_ATOMIC_OPERATION_CAS
    CU_ATOMIC_OPERATION_EXCHANGE CU_ATOMIC_OPERATION_FLOAT_ADD CU_ATOMIC_OPERATION_FLOAT_MAX
    CU_ATOMIC_OPERATION_FLOAT_MIN CU_ATOMIC_OPERATION_INTEGER_ADD CU_ATOMIC_OPERATION_INTEGER_DECREMENT
    CU_ATOMIC_OPERATION_INTEGER_INCREMENT CU_ATOMIC_OPERATION_INTEGER_MAX CU_ATOMIC_OPERATION_INTEGER_MIN
    CU_ATOMIC_OPERATION_MAX CU_ATOMIC_OPERATION_OR CU_ATOMIC_OPERATION_XOR
    CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED
    CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED
    CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD
    CU_JIT_SPLIT_COMPILE CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING CU_MEM_ALLOCATION_TYPE_MANAGED
    CU_MEM_LOCATION_TYPE_NONE CUatomicOperation CUatomicOperationCapability CUcheckpointGpuPair cuCtxGetDevice_v2
    cuCtxSynchronize_v2 cuDeviceGetHostAtomicCapabilities cuDeviceGetP2PAtomicCapabilities cuGreenCtxGetId
    cuMemDiscardAndPrefetchBatchAsync cuMemDiscardBatchAsync cuMemGetDefaultMemPool cuMemGetMemPool
    cuMemPrefetchBatchAsync cuMemSetMemPool cuMemcpy3DBatchAsync_v2 cuMemcpyBatchAsync_v2
    cudaAtomicCapabilityReduction cudaAtomicCapabilityScalar128 cudaAtomicCapabilityScalar32
    cudaAtomicCapabilityScalar64 cudaAtomicCapabilitySigned cudaAtomicCapabilityUnsigned
    cudaAtomicCapabilityVector32x4 cudaAtomicOperation cudaAtomicOperationAnd cudaAtomicOperationCAS
    cudaAtomicOperationCapability cudaAtomicOperationExchange cudaAtomicOperationFloatAdd
    cudaAtomicOperationFloatMax cudaAtomicOperationFloatMin cudaAtomicOperationIntegerAdd
    cudaAtomicOperationIntegerDecrement cudaAtomicOperationIntegerIncrement cudaAtomicOperationIntegerMax
    cudaAtomicOperationIntegerMin cudaAtomicOperationOr cudaAtomicOperationXOR cudaDevAttrHostMemoryPoolsSupported
    cudaDevAttrOnlyPartialHostNativeAtomicSupported cudaDevP2PAttrOnlyPartialNativeAtomicSupported
    cudaDeviceGetHostAtomicCapabilities cudaDeviceGetP2PAtomicCapabilities
    cudaKernelNodeAttributeNvlinkUtilCentricScheduling cudaLaunchAttributeNvlinkUtilCentricScheduling
    cudaLogIterator cudaLogLevel cudaLogLevelError cudaLogLevelWarning cudaLogsCallbackHandle cudaLogsCallback_t
    cudaLogsCurrent cudaLogsDumpToFile cudaLogsDumpToMemory cudaLogsRegisterCallback cudaLogsUnregisterCallback
    cudaMemAllocationTypeManaged cudaMemDiscardAndPrefetchBatchAsync cudaMemDiscardBatchAsync
    cudaMemGetDefaultMemPool cudaMemGetMemPool cudaMemLocationTypeNone cudaMemPrefetchBatchAsync cudaMemSetMemPool
    """,
}
REMOVED = """
    cudaCGScopeMultiGrid cudaCooperativeLaunchMultiDeviceNoPostSync cudaCooperativeLaunchMultiDeviceNoPreSync
    cudaDevAttrCooperativeMultiDeviceLaunch cudaDevAttrMaxTimelineSemaphoreInteropSupported
    cudaEventElapsedTime_v2 cudaExternalSemaphoreSignalParams_v1 cudaExternalSemaphoreWaitParams_v1
    cudaGetDeviceProperties_v2 cudaGraphAddDependencies_v2 cudaGraphAddNode_v2 cudaGraphGetEdges_v2
    cudaGraphNodeGetDependencies_v2 cudaGraphNodeGetDependentNodes_v2 cudaGraphRemoveDependencies_v2
    cudaLaunchCooperativeKernelMultiDevice cudaLaunchParams cudaMemAdvise_v2 cudaMemPrefetchAsync_v2
    cudaSetDoubleForDevice cudaSetDoubleForHost cudaSignalExternalSemaphoresAsync_v2 cudaStreamGetCaptureInfo_v2
    cudaStreamGetCaptureInfo_v3 cudaStreamUpdateCaptureDependencies_v2 cudaThreadExit cudaThreadGetCacheConfig
    cudaThreadGetLimit cudaThreadSetCacheConfig cudaThreadSetLimit cudaThreadSynchronize
    cudaWaitExternalSemaphoresAsync_v2
"""
CHANGED = """
    cuCtxCreate cuGraphAddDependencies cuGraphAddNode cuGraphGetEdges cuGraphNodeGetDependencies
    cuGraphNodeGetDependentNodes cuGraphRemoveDependencies cuMemAdvise cuMemPrefetchAsync cuMemcpy3DBatchAsync
    cuMemcpyBatchAsync cuStreamGetCaptureInfo cuStreamUpdateCaptureDependencies cudaGraphAddDependencies
    cudaGraphAddNode cudaGraphGetEdges cudaGraphKernelNodeCopyAttributes cudaGraphNodeGetDependencies
    cudaGraphNodeGetDependentNodes cudaGraphRemoveDependencies cudaMemAdvise cudaMemPrefetchAsync
    cudaMemcpy3DBatchAsync cudaMemcpyBatchAsync cudaStreamGetCaptureInfo cudaStreamUpdateCaptureDependencies
"""
# Members of cudaDeviceProp.
FIELDS = {
    "new in CUDA 13.0": """deviceNumaConfig deviceNumaId gpuPciDeviceID gpuPciSubsystemID hostNumaId
    hostNumaMultinodeIpcSupported mpsEnabled""",
    "removed in CUDA 13.0": """clockRate computeMode cooperativeMultiDeviceLaunch deviceOverlap kernelExecTimeoutEnabled
    maxTexture1DLinear memoryClockRate singleToDoublePrecisionPerfRatio""",
}
# In string literals.
PTX = {
    r"\b(ld|st)\.[\w.:]*v8\.[busf]32": "256-bit accesses are new in PTX 8.8",
    r"\b(ld|st)\.[\w.:]*v4\.[busf]64": "256-bit accesses are new in PTX 8.8",
    r"\b(min|max)\.[\w.]+\s+%\w+,\s*%\w+,\s*%\w+,\s*%\w+": "min and max of three are new in PTX 8.8",
    r"\btcgen05\.ld\.red\b": "new in PTX 8.8",
    r"\bsm_1\d\df\b": "family-specific targets are new in PTX 8.8",
    r"\.blocksareclusters\b": "new in PTX 9.0",
    r"\.abi_preserve(_control)?\b": "new in PTX 9.0",
    r"\benable_smem_spilling\b": "new in PTX 9.0",
}

COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def reasons():
    """name -> why it is not allowed."""
    why = {name: f"new in CUDA {version}" for version, names in NEW.items() for name in names.split()}
    why |= {name: "removed in CUDA 13.0" for name in REMOVED.split()}
    why |= {name: "CUDA 13.0 changed its parameters" for name in CHANGED.split()}
    return why


def source_violations(name, text):
    """(line number, text of the violation) of one file."""
    strings = []

    def blank(match):
        token = match[0]
        if token.startswith('"'):
            strings.append((text.count("\n", 0, match.start()) + 1, token))
        return "\n" * token.count("\n")

    code = COMMENT_OR_STRING.sub(blank, text)
    names = reasons()
    fields = {field: f"a member {when}" for when, listed in FIELDS.items() for field in listed.split()}
    for number, line in enumerate(code.splitlines(), 1):
        for word in re.findall(r"\b[A-Za-z_]\w*", line):
            if word in names:
                yield number, f"{word}: {names[word]}"
        for word in re.findall(r"(?:\.|->|\bcudaDeviceProp::)(\w+)", line):
            if word in fields:
                yield number, f"{word}: {fields[word]}"
    for number, string in strings:
        for pattern, why in PTX.items():
            if re.search(pattern, string):
                yield number, f"{string}: {why}"


def violations(root):
    root = pathlib.Path(root)
    found = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in SOURCES and name != GUARDED:
                found += [f"{name}:{number}: {what}" for number, what in source_violations(name, path.read_text())]
    return found


def main():
    found = violations(sys.argv[1])
    for text in found:
        print(text)
    print(f"{len(found)} use(s) of what CUDA 12.8 and 13 do not both have")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
