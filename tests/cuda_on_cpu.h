// CUDA C++ on a CPU: enough for the examples. A block's threads are coroutines that take turns at
// barriers and warp operations, and blocks run one after the other.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ucontext.h>
#include <vector>

using std::max;
using std::min;
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __constant__
#define __launch_bounds__(...)

struct dim3 { unsigned x, y, z; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace on_cpu {
constexpr size_t STACK_BYTES = 64 << 10;
struct Barrier { unsigned waiting = 0; unsigned long rounds = 0; };
struct Thread { ucontext_t context; dim3 index; bool is_done; std::unique_ptr<char[]> stack; };
static std::vector<Thread> threads;
static ucontext_t scheduler;
static size_t current;
static Barrier block;
static std::vector<Barrier> warps;
static std::vector<uint64_t> slots;
static void (*call)(void **);
static void **arguments;

inline unsigned linear() { return current; }

inline void wait(Barrier &barrier, unsigned all) {
    unsigned long round = barrier.rounds;
    if (++barrier.waiting == all) {
        barrier.waiting = 0;
        ++barrier.rounds;
    }
    for (int turns = 0; barrier.rounds == round; ++turns) {
        if (turns == 1000) {
            std::fprintf(stderr, "a barrier that not all threads reach\n");
            std::abort();
        }
        swapcontext(&threads[current].context, &scheduler);
        threadIdx = threads[current].index;
    }
}

inline void warp_wait() {
    unsigned warp = linear() / 32, left = threads.size() - 32 * warp;
    wait(warps[warp], left < 32 ? left : 32);
}

template <class T> T exchanged(T value, unsigned from) {
    static_assert(sizeof(T) <= 8, "a slot has eight bytes");
    *(T *)&slots[linear()] = value;
    warp_wait();
    unsigned place = linear() / 32 * 32 + from;
    T found = from < 32 && place < threads.size() ? *(T *)&slots[place] : value;
    warp_wait();
    return found;
}

inline unsigned ballot(bool is_true) {
    slots[linear()] = is_true;
    warp_wait();
    unsigned found = 0, first = linear() / 32 * 32;
    for (unsigned lane = 0; lane < 32 && first + lane < threads.size(); ++lane)
        found |= (unsigned)slots[first + lane] << lane;
    warp_wait();
    return found;
}

static void body() {
    threadIdx = threads[current].index;
    call(arguments);
    threads[current].is_done = true;
}

static void run_block() {
    block = Barrier();
    warps.assign((threads.size() + 31) / 32, Barrier());
    for (auto &thread : threads) {
        thread.is_done = false;
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.get();
        thread.context.uc_stack.ss_size = STACK_BYTES;
        thread.context.uc_link = &scheduler;
        makecontext(&thread.context, body, 0);
    }
    for (bool is_open = true; is_open;) {
        is_open = false;
        for (current = 0; current < threads.size(); ++current)
            if (!threads[current].is_done) {
                is_open = true;
                swapcontext(&scheduler, &threads[current].context);
            }
    }
}

static void launch(void (*function)(void **), void **values, const unsigned *grid, const unsigned *size) {
    call = function;
    arguments = values;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {size[0], size[1], size[2]};
    threads.clear();
    threads.resize(size[0] * size[1] * size[2]);
    slots.assign(threads.size(), 0);
    for (unsigned n = 0; n < threads.size(); ++n) {
        threads[n].index = {n % size[0], n / size[0] % size[1], n / size[0] / size[1]};
        threads[n].stack.reset(new char[STACK_BYTES]);
    }
    for (unsigned z = 0; z < grid[2]; ++z)
        for (unsigned y = 0; y < grid[1]; ++y)
            for (unsigned x = 0; x < grid[0]; ++x) {
                blockIdx = {x, y, z};
                run_block();
            }
}
}  // namespace on_cpu

inline void __syncthreads() { on_cpu::wait(on_cpu::block, on_cpu::threads.size()); }
template <class T> T __shfl_up_sync(unsigned, T value, int away) {
    int lane = on_cpu::linear() % 32;
    return on_cpu::exchanged(value, lane >= away ? lane - away : lane);
}
template <class T> T __shfl_down_sync(unsigned, T value, int away) {
    return on_cpu::exchanged(value, on_cpu::linear() % 32 + away);
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
    return on_cpu::exchanged(value, on_cpu::linear() % 32 ^ mask);
}
inline unsigned __ballot_sync(unsigned, bool is_true) { return on_cpu::ballot(is_true); }
inline bool __any_sync(unsigned, bool is_true) { return on_cpu::ballot(is_true) != 0; }
inline int __ffs(int value) { return __builtin_ffs(value); }
template <class T> T atomicAdd(T *place, T value) { T before = *place; *place += value; return before; }
template <class T> T atomicExch(T *place, T value) { T before = *place; *place = value; return before; }
