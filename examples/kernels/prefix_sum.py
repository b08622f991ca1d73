"""Running sum of many whole numbers in one pass: each block adds up a tile, and looks back at what
the blocks before it have found (Merrill and Garland, 2016)."""

import torch

from gpuadvisor import Kernel, array, output

SOURCE = r"""
typedef unsigned long long Word;  // of a tile: what is known above, the sum in the lower half
#define OWN (1ull << 32)  // its own sum
#define ALL (2ull << 32)  // the sum of it and all tiles before

__device__ __forceinline__ Word look(const Word *word) { return *(const volatile Word *)word; }

#if width == 1
typedef unsigned Several;
#elif width == 2
typedef uint2 Several;
#else
typedef uint4 Several;
#endif

// The sum of all threads before this one; `total` is that of the whole block.
__device__ unsigned before_this(unsigned own, unsigned *total)
{
    const int thread = threadIdx.x;
    unsigned sum = own;
#if shuffled
    __shared__ unsigned warps[block_x / 32];
    for (int away = 1; away < 32; away *= 2) {
        unsigned other = __shfl_up_sync(0xffffffffu, sum, away);
        if (thread % 32 >= away) sum += other;
    }
    if (thread % 32 == 31) warps[thread / 32] = sum;
    __syncthreads();
    unsigned earlier = 0;
    *total = 0;
    for (int warp = 0; warp < block_x / 32; ++warp) {
        if (warp == thread / 32) earlier = *total;
        *total += warps[warp];
    }
    return earlier + sum - own;
#else
    __shared__ unsigned sums[block_x];
    sums[thread] = sum;
    __syncthreads();
    for (int away = 1; away < block_x; away *= 2) {
        unsigned other = thread >= away ? sums[thread - away] : 0;
        __syncthreads();
        sums[thread] += other;
        __syncthreads();
    }
    *total = sums[block_x - 1];
    return sums[thread] - own;
#endif
}

// The sum of all tiles before this one, in the threads that look: one, or a warp.
__device__ unsigned tiles_before(const Word *tiles, int number)
{
    unsigned sum = 0;
#if lookers == 1
    for (int at = number - 1; at >= 0; --at) {
        Word word;
        do word = look(tiles + at); while (word >> 32 == 0);
        sum += (unsigned)word;
        if (word >= ALL) break;
    }
#else
    for (int at = number - 1 - (int)threadIdx.x;; at -= 32) {
        Word word;
        do word = at >= 0 ? look(tiles + at) : ALL;
        while (__any_sync(0xffffffffu, word >> 32 == 0));
        unsigned whole = __ballot_sync(0xffffffffu, word >= ALL);
        int nearest = whole ? __ffs(whole) - 1 : 31;
        unsigned part = (int)threadIdx.x <= nearest ? (unsigned)word : 0;
        for (int away = 16; away; away /= 2) part += __shfl_xor_sync(0xffffffffu, part, away);
        sum += part;
        if (whole) break;
    }
#endif
    return sum;
}

extern "C" __global__ void __launch_bounds__(block_x)
prefix_sum(const unsigned *in, unsigned *out, Word *state, long long count)
{
    const int tile = block_x * per_thread, thread = threadIdx.x;
    __shared__ unsigned shared_number, shared_before;
#if staged
    __shared__ unsigned stage[tile + tile / 32];  // an element is left out in 33, against conflicts
#endif
    unsigned *counters = (unsigned *)state;  // blocks that began, and that looked back
    Word *tiles = state + 1;
    // Numbers are given in the order in which blocks begin: those before are at work.
    if (thread == 0) shared_number = atomicAdd(counters, 1u);
    __syncthreads();
    const unsigned number = shared_number;
    const long long first = (long long)number * tile;
    unsigned values[per_thread];
    const bool whole = first + tile <= count;

#if staged
    for (int k = 0; k < per_thread / width; ++k) {
        int place = (k * block_x + thread) * width;
        alignas(Several) unsigned some[width];
        if (whole)
            *(Several *)some = *(const Several *)(in + first + place);
        else
            for (int u = 0; u < width; ++u)
                some[u] = first + place + u < count ? in[first + place + u] : 0;
        for (int u = 0; u < width; ++u) stage[place + u + (place + u) / 32] = some[u];
    }
    __syncthreads();
    for (int k = 0; k < per_thread; ++k) {
        int place = thread * per_thread + k;
        values[k] = stage[place + place / 32];
    }
#else
    for (int k = 0; k < per_thread; k += width) {
        long long from = first + thread * per_thread + k;
        alignas(Several) unsigned some[width];
        if (whole)
            *(Several *)some = *(const Several *)(in + from);
        else
            for (int u = 0; u < width; ++u) some[u] = from + u < count ? in[from + u] : 0;
        for (int u = 0; u < width; ++u) values[k + u] = some[u];
    }
#endif

    unsigned own = 0, total;
    for (int k = 0; k < per_thread; ++k) own += values[k];
    unsigned sum = before_this(own, &total);
    if (thread == 0 && number) atomicExch(tiles + number, OWN | total);
    if (thread < lookers) {
        unsigned before = tiles_before(tiles, number);
        if (thread == 0) {
            atomicExch(tiles + number, ALL | (unsigned)(before + total));
            shared_before = before;
        }
    }
    __syncthreads();
    sum += shared_before;

    for (int k = 0; k < per_thread; ++k) values[k] = sum += values[k];
#if staged
    for (int k = 0; k < per_thread; ++k) {
        int place = thread * per_thread + k;
        stage[place + place / 32] = values[k];
    }
    __syncthreads();
    for (int k = 0; k < per_thread / width; ++k) {
        int place = (k * block_x + thread) * width;
        alignas(Several) unsigned some[width];
        for (int u = 0; u < width; ++u) some[u] = stage[place + u + (place + u) / 32];
        if (whole)
            *(Several *)(out + first + place) = *(Several *)some;
        else
            for (int u = 0; u < width; ++u)
                if (first + place + u < count) out[first + place + u] = some[u];
    }
#else
    for (int k = 0; k < per_thread; k += width) {
        long long from = first + thread * per_thread + k;
        alignas(Several) unsigned some[width];
        for (int u = 0; u < width; ++u) some[u] = values[k + u];
        if (whole)
            *(Several *)(out + from) = *(Several *)some;
        else
            for (int u = 0; u < width; ++u)
                if (from + u < count) out[from + u] = some[u];
    }
#endif

    // The last block that has looked back leaves everything as the next launch wants to find it.
    if (thread == 0) shared_number = atomicAdd(counters + 1, 1u);
    __syncthreads();
    if (shared_number == gridDim.x - 1)
        for (int at = thread; at <= (int)gridDim.x; at += block_x) state[at] = 0;
}
"""

Kernel(
    SOURCE,
    parameters={
        "block_x": [64, 96, 128, 192, 256, 384, 512, 1024],
        "per_thread": [1, 2, 4, 8, 16],
        "width": [1, 2, 4],
        "staged": [0, 1],
        "shuffled": [0, 1],
        "lookers": [1, 32],
    },
    default={
        "block_x": 256, "per_thread": 4, "width": 1, "staged": 0, "shuffled": 0, "lookers": 1,
    },
    restrictions=[
        "width <= per_thread",
        "staged * 4 * block_x * per_thread * 33 // 32 + 4 * block_x <= 48 * 1024",
    ],
    problems=[{"n": 1 << 27}],
    grid="ceil_div(n, block_x * per_thread)",
    block="block_x",
    arguments=[
        array("n", dtype="int32"),
        output("n", dtype="int32"),
        array("n // 64 + 2", dtype="int64", fill=0),
        "n",
    ],
    # Sums that do not fit wrap around, in both.
    reference=lambda values, out, state, n: values.cumsum(0, dtype=torch.int64).to(torch.int32),
    bytes="2 * 4 * n",
)  # fmt: skip
