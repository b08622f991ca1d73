/* Answers a line of standard input with what NVIDIA's cuda_occupancy.h says of that launch.

   In:  major minor threads_an_sm shared_an_sm shared_a_block_optin reserved
        threads registers static_bytes dynamic_bytes carveout_percent barriers virtual_resources
   Out: error blocks warps registers shared_memory blocks barriers virtual_resources (limits)
        limiting_factors allocated_registers allocated_shared_bytes */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "cuda_occupancy.h"

int main(void) {
    int major, minor, threads_sm, shared_sm, optin, reserved;
    int threads, registers, shared, dynamic, carveout, barriers, resources;
    while (scanf("%d %d %d %d %d %d %d %d %d %d %d %d %d", &major, &minor, &threads_sm, &shared_sm,
                 &optin, &reserved, &threads, &registers, &shared, &dynamic, &carveout, &barriers,
                 &resources) == 13) {
        cudaOccDeviceProp device;
        cudaOccFuncAttributes function;
        cudaOccDeviceState state;
        cudaOccResult result;
        memset(&device, 0, sizeof device);
        memset(&function, 0, sizeof function);
        memset(&state, 0, sizeof state);
        memset(&result, 0, sizeof result);
        device.computeMajor = major;
        device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = threads_sm;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 48 * 1024;
        device.sharedMemPerMultiprocessor = shared_sm;
        device.numSms = 1;
        device.sharedMemPerBlockOptin = optin;
        device.reservedSharedMemPerBlock = reserved;
        function.maxThreadsPerBlock = INT_MAX;
        function.numRegs = registers;
        function.sharedSizeBytes = shared;
        function.partitionedGCConfig = PARTITIONED_GC_OFF;
        function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        function.maxDynamicSharedSizeBytes = optin;
        function.numBlockBarriers = barriers;
        function.virtualResourceCount = resources;
        state.carveoutConfig = carveout;
        int error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state,
                                                            threads, dynamic);
        printf("%d %d %d %d %d %d %d %d %u %d %d\n", error, result.activeBlocksPerMultiprocessor,
               result.blockLimitWarps, result.blockLimitRegs, result.blockLimitSharedMem,
               result.blockLimitBlocks, result.blockLimitBarriers, result.blockLimitVirtual,
               result.limitingFactors, result.allocatedRegistersPerBlock,
               (int)result.allocatedSharedMemPerBlock);
    }
    return 0;
}
