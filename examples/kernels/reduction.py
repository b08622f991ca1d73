"""Sum of many numbers: a thread adds some, a block adds its threads', and atomics the blocks'."""

from gpuadvisor import Kernel, array, output

SOURCE = r"""
extern "C" __global__ void reduction(const float *values, float *total, long long count)
{
    __shared__ float sums[block_x / 32];
    float sum = 0;
    long long stride = (long long)gridDim.x * block_x * width;
    for (long long at = ((long long)blockIdx.x * block_x + threadIdx.x) * width; at < count;
         at += stride * batch) {
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            long long from = at + u * stride;
            if (from + width <= count) {
#if width == 4
                float4 four = *(const float4 *)(values + from);
                sum += (four.x + four.y) + (four.z + four.w);
#elif width == 2
                float2 two = *(const float2 *)(values + from);
                sum += two.x + two.y;
#else
                sum += values[from];
#endif
            } else
                for (long long rest = from; rest < count; ++rest)
                    sum += values[rest];
        }
    }
    for (int away = 16; away; away /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, away);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < block_x / 32; ++warp)
            sum += sums[warp];
        atomicAdd(total, sum);
    }
}
"""

Kernel(
    SOURCE,
    parameters={
        "block_x": [32, 64, 96, 128, 192, 256, 384, 512, 768, 1024],
        "width": [1, 2, 4],
        "batch": [1, 2, 4, 8],
        "blocks": [66, 132, 264, 528, 1056, 2112, 4224],
    },
    default={"block_x": 256, "width": 1, "batch": 1, "blocks": 1056},
    problems=[{"n": 1 << 28}, {"n": 1 << 20}],
    grid="blocks",
    block="block_x",
    arguments=[array("n", fill="uniform"), output(1, fill=0), "n"],
    reference=lambda values, total, n: values.double().sum().reshape(1),
    bytes="4 * n",
)
