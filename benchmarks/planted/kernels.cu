// Kernels with one planted bottleneck each, and what cures it.
//
//   kernels            list the cases
//   kernels NAME       launch the planted kernel a few times, for a profiler
//   kernels --time     print `NAME planted_ms cured_ms` of every case, timed in turns
//
// Both kernels of a case do the same work. Sizes are chosen so that a launch takes a fraction of a
// millisecond on a data-centre GPU and does not fit its cache.

#include <mma.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

static void check(cudaError_t status, int line) {
  if (status != cudaSuccess) {
    std::fprintf(stderr, "line %d: %s\n", line, cudaGetErrorString(status));
    std::exit(1);
  }
}
#define CHECK(call) check(call, __LINE__)

constexpr int N = 1 << 25;

// --- arrays of structures ------------------------------------------------------------------------

struct Particle {
  float x, y, z, vx, vy, vz, mass, charge;
};

__global__ void field_of_structures(const Particle* particles, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = particles[i].mass * 2.0f;
}

__global__ void field_of_arrays(const float* mass, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = mass[i] * 2.0f;
}

// --- transposition -------------------------------------------------------------------------------

__global__ void transpose_rows_to_columns(const float* in, float* out, int side) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  out[size_t(x) * side + y] = in[size_t(y) * side + x];
}

template <int PAD>
__global__ void transpose_tiles(const float* in, float* out, int side) {
  __shared__ float tile[32][32 + PAD];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[size_t(y + j) * side + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8) out[size_t(y + j) * side + x] = tile[threadIdx.x][threadIdx.y + j];
}

// --- a table in shared memory, read along its columns --------------------------------------------

template <int PAD>
__global__ void column_sums(const float* in, float* out, int rounds) {
  __shared__ float table[32][32 + PAD];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int row = warp; row < 32; row += blockDim.x / 32)
    table[row][lane] = in[size_t(blockIdx.x) * 1024 + row * 32 + lane];
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < rounds; k++)
#pragma unroll 8
    for (int j = 0; j < 32; j++) sum += table[lane][(j + warp + k) & 31];
  out[size_t(blockIdx.x) * blockDim.x + threadIdx.x] = sum;
}

// --- occupancy: a load at a time, which only many warps hide --------------------------------------

constexpr int LOADS = 32;

__device__ float strided_sum(const float* in) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < LOADS; k++) sum = sum * 0.5f + in[i + size_t(k) * stride];
  return sum;
}

__global__ void sum_plain(const float* in, float* out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = strided_sum(in);
}

__global__ void sum_with_shared(const float* in, float* out) {
  extern __shared__ float scratch[];
  scratch[threadIdx.x] = strided_sum(in);
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = scratch[blockDim.x - 1 - threadIdx.x];
}

template <int KEPT, bool EARLY>
__global__ void __launch_bounds__(256) sum_with_registers(const float* in, float* out) {
  float kept[KEPT];
  if (EARLY) {
#pragma unroll
    for (int k = 0; k < KEPT; k++) kept[k] = in[k * 32 + threadIdx.x % 32];
  }
  __syncthreads();  // which no load passes
  float sum = strided_sum(in);
#pragma unroll
  for (int k = 0; k < KEPT; k++) {
    if (!EARLY) kept[k] = in[k * 32 + threadIdx.x % 32];
    sum = sum * 0.5f + kept[k];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// --- grids ---------------------------------------------------------------------------------------

__device__ float polynomial(float x, int terms) {
  float y = x;
  for (int k = 0; k < terms; k++) y = y * x + 0.5f;
  return y;
}

__global__ void __launch_bounds__(1024) work_of_blocks(float* out, int terms, int pieces) {
  for (int piece = 0; piece < pieces; piece++) {
    int i = (blockIdx.x * pieces + piece) * blockDim.x + threadIdx.x;
    out[i] = polynomial(i * 1e-9f, terms);
  }
}

__global__ void one_long_block(float* out, int terms, int every, int longer) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = polynomial(i * 1e-9f, blockIdx.x % every ? terms : terms * longer);
}

__global__ void sum_loop(const float* in, float* out, int n) {
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    sum += in[i];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// --- branches ------------------------------------------------------------------------------------

__device__ float chosen(int kind, float x) {
  switch (kind) {
    case 0: return polynomial(x, 96);
    case 1: for (int k = 0; k < 96; k++) x = x * 0.75f - 0.25f; return x;
    case 2: for (int k = 0; k < 96; k++) x = fabsf(x) * 1.25f - 1; return x;
    case 3: for (int k = 0; k < 96; k++) x = x * x * 0.5f - 0.5f; return x;
    case 4: for (int k = 0; k < 96; k++) x = fmaxf(x, 0.5f) * 0.9f; return x;
    case 5: for (int k = 0; k < 96; k++) x = fminf(x, 0.5f) * 1.1f; return x;
    case 6: for (int k = 0; k < 96; k++) x = 1 - x * 0.9f; return x;
    default: for (int k = 0; k < 96; k++) x = (x + 0.1f) * 0.9f; return x;
  }
}

__global__ void branch_by_thread(const float* in, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = chosen(i % 8, in[i]);
}

__global__ void branch_by_warp(const float* in, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = chosen(i / 32 % 8, in[i]);
}

// --- local memory --------------------------------------------------------------------------------

__global__ void histogram_in_local(const unsigned char* in, unsigned* out, int each) {
  unsigned counts[64] = {};
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
  for (int k = 0; k < each; k++) counts[in[i + size_t(k) * stride] & 63]++;
  for (int k = 0; k < 64; k++)
    if (counts[k] > unsigned(each)) out[i] = k;
}

__global__ void histogram_in_shared(const unsigned char* in, unsigned* out, int each) {
  __shared__ unsigned short counts[64][128];
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
  for (int k = 0; k < 64; k++) counts[k][threadIdx.x] = 0;
  for (int k = 0; k < each; k++) counts[in[i + size_t(k) * stride] & 63][threadIdx.x]++;
  for (int k = 0; k < 64; k++)
    if (counts[k][threadIdx.x] > unsigned(each)) out[i] = k;
}

// --- atomics -------------------------------------------------------------------------------------

__global__ void sum_by_atomics(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(out, in[i]);
}

__global__ void sum_by_warps(const float* in, float* out, int n) {
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    sum += in[i];
  for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}

// --- chains of loads -----------------------------------------------------------------------------

__device__ unsigned scattered(unsigned i) {
  i = (i ^ 61) ^ (i >> 16);
  i *= 9;
  i ^= i >> 4;
  i *= 0x27d4eb2d;
  return i ^ (i >> 15);
}

template <int CHAINS>
__global__ void follow(const unsigned* next, unsigned* out, unsigned mask, int hops) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  unsigned at[CHAINS];
  for (unsigned first = 0; first < 8; first += CHAINS) {
#pragma unroll
    for (int c = 0; c < CHAINS; c++) at[c] = scattered(i + (first + c) * threads) & mask;
    for (int k = 0; k < hops; k++)
#pragma unroll
      for (int c = 0; c < CHAINS; c++) at[c] = next[at[c]];
#pragma unroll
    for (int c = 0; c < CHAINS; c++) out[i + (first + c) * threads] = at[c];
  }
}

// --- precision -----------------------------------------------------------------------------------

template <typename Constant>
__global__ void exponential(const float* in, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[i];
  for (int k = 0; k < 128; k++) x = x * Constant(0.9) + Constant(0.1);
  out[i] = x;
}

// --- products ------------------------------------------------------------------------------------

__global__ void product_by_threads(const half* a, const half* b, float* c, int n) {
  __shared__ half as[32][32], bs[32][32];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x;
  float sum = 0;
  for (int k = 0; k < n; k += 32) {
    as[y][x] = a[size_t(row) * n + k + x];
    bs[y][x] = b[size_t(k + y) * n + column];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 32; j++) sum += __half2float(as[y][j]) * __half2float(bs[j][x]);
    __syncthreads();
  }
  c[size_t(row) * n + column] = sum;
}

__global__ void product_by_tensor_cores(const half* a, const half* b, float* c, int n) {
  using namespace nvcuda::wmma;
  int row = (blockIdx.y * 4 + threadIdx.y) * 32, column = (blockIdx.x * 4 + threadIdx.x / 32) * 32;
  fragment<matrix_a, 16, 16, 16, half, row_major> fa[2];
  fragment<matrix_b, 16, 16, 16, half, row_major> fb[2];
  fragment<accumulator, 16, 16, 16, float> fc[2][2];
  for (int i = 0; i < 4; i++) fill_fragment(fc[i / 2][i % 2], 0.0f);
  for (int k = 0; k < n; k += 16) {
    for (int i = 0; i < 2; i++) {
      load_matrix_sync(fa[i], a + size_t(row + 16 * i) * n + k, n);
      load_matrix_sync(fb[i], b + size_t(k) * n + column + 16 * i, n);
    }
    for (int i = 0; i < 4; i++) mma_sync(fc[i / 2][i % 2], fa[i / 2], fb[i % 2], fc[i / 2][i % 2]);
  }
  for (int i = 0; i < 4; i++)
    store_matrix_sync(c + size_t(row + 16 * (i / 2)) * n + column + 16 * (i % 2),
                      fc[i / 2][i % 2], n, mem_row_major);
}

// --- bytes at a time -----------------------------------------------------------------------------

template <typename Piece>
__global__ void invert(const Piece* in, Piece* out, size_t pieces) {
  size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (i >= pieces) return;
  Piece piece = in[i];
  unsigned char* bytes = reinterpret_cast<unsigned char*>(&piece);
#pragma unroll
  for (int k = 0; k < int(sizeof(Piece)); k++) bytes[k] = ~bytes[k];
  out[i] = piece;
}

// -------------------------------------------------------------------------------------------------

struct Case {
  const char* name;
  std::function<void()> planted, cured;
};

static std::vector<Case> cases() {
  float *in, *out;
  CHECK(cudaMalloc(&in, sizeof(float) * 8 * size_t(N)));
  CHECK(cudaMalloc(&out, sizeof(float) * 8 * size_t(N)));
  CHECK(cudaMemset(in, 0, sizeof(float) * 8 * size_t(N)));
  int multiprocessors, resident;
  CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, work_of_blocks, 1024, 0));
  int wave = multiprocessors * resident, side = 4096, n = 2048;
  auto bytes = reinterpret_cast<unsigned char*>(in);
  auto halves = reinterpret_cast<half*>(in);
  auto unsigned_out = reinterpret_cast<unsigned*>(out);
  // Where each entry leads to: the whole table is one cycle in a random-looking order.
  unsigned mask = (1u << 24) - 1;
  std::vector<unsigned> leads(mask + 1);
  for (unsigned i = 0; i <= mask; i++) leads[i] = (i * 1664525u + 1013904223u) & mask;
  unsigned* next;
  CHECK(cudaMalloc(&next, sizeof(unsigned) * (mask + 1)));
  CHECK(cudaMemcpy(next, leads.data(), sizeof(unsigned) * (mask + 1), cudaMemcpyHostToDevice));
  CHECK(cudaFuncSetAttribute(sum_with_shared, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             96 << 10));
  dim3 tiles(side / 32, side / 32), rows(side / 32, side / 8), threads(32, 8);
  return {
      {"healthy_copy", [=] { invert<uint4><<<N / 1024, 256>>>((uint4*)in, (uint4*)out, N / 4); },
       [=] { invert<uint4><<<N / 1024, 256>>>((uint4*)in, (uint4*)out, N / 4); }},
      {"healthy_transpose", [=] { transpose_tiles<1><<<tiles, threads>>>(in, out, side); },
       [=] { transpose_tiles<1><<<tiles, threads>>>(in, out, side); }},
      {"structures", [=] { field_of_structures<<<N / 256, 256>>>((Particle*)in, out, N); },
       [=] { field_of_arrays<<<N / 256, 256>>>(in, out, N); }},
      {"column_stores", [=] { transpose_rows_to_columns<<<rows, threads>>>(in, out, side); },
       [=] { transpose_tiles<1><<<tiles, threads>>>(in, out, side); }},
      {"bank_conflicts", [=] { column_sums<0><<<8192, 256>>>(in, out, 16); },
       [=] { column_sums<1><<<8192, 256>>>(in, out, 16); }},
      {"much_shared_memory", [=] { sum_with_shared<<<8192, 256, 96 << 10>>>(in, out); },
       [=] { sum_with_shared<<<8192, 256, 1 << 10>>>(in, out); }},
      {"many_registers", [=] { sum_with_registers<160, true><<<8192, 256>>>(in, out); },
       [=] { sum_with_registers<160, false><<<8192, 256>>>(in, out); }},
      {"small_blocks", [=] { sum_plain<<<65536, 32>>>(in, out); },
       [=] { sum_plain<<<8192, 256>>>(in, out); }},
      {"tail", [=] { work_of_blocks<<<wave + 8, 1024>>>(out, 2048, 8); },
       [=] { work_of_blocks<<<(wave + 8) * 8, 1024>>>(out, 2048, 1); }},
      {"long_blocks", [=] { one_long_block<<<multiprocessors * 32, 256>>>(out, 256, 132, 64); },
       [=] {
         one_long_block<<<multiprocessors * 32, 256>>>(out, 256 + 256 * 63 / 132, 1, 1);
       }},
      {"few_blocks", [=] { sum_loop<<<16, 256>>>(in, out, N); },
       [=] { sum_loop<<<multiprocessors * 8, 256>>>(in, out, N); }},
      {"branches", [=] { branch_by_thread<<<N / 256, 256>>>(in, out); },
       [=] { branch_by_warp<<<N / 256, 256>>>(in, out); }},
      {"local_array", [=] { histogram_in_local<<<4096, 128>>>(bytes, unsigned_out, 256); },
       [=] { histogram_in_shared<<<4096, 128>>>(bytes, unsigned_out, 256); }},
      {"atomics", [=] { sum_by_atomics<<<N / 8 / 256, 256>>>(in, out, N / 8); },
       [=] { sum_by_warps<<<multiprocessors * 8, 256>>>(in, out, N / 8); }},
      {"chains", [=] { follow<1><<<multiprocessors, 64>>>(next, unsigned_out, mask, 128); },
       [=] { follow<8><<<multiprocessors, 64>>>(next, unsigned_out, mask, 128); }},
      {"double_constants", [=] { exponential<double><<<N / 256, 256>>>(in, out); },
       [=] { exponential<float><<<N / 256, 256>>>(in, out); }},
      {"product_without_tensor_cores",
       [=] { product_by_threads<<<dim3(n / 32, n / 32), dim3(32, 32)>>>(halves, halves, out, n); },
       [=] {
         product_by_tensor_cores<<<dim3(n / 128, n / 128), dim3(128, 4)>>>(halves, halves, out, n);
       }},
      {"byte_by_byte",
       [=] { invert<unsigned char><<<N / 64, 256>>>(bytes, (unsigned char*)out, size_t(N) * 4); },
       [=] { invert<uint4><<<N / 1024, 256>>>((uint4*)in, (uint4*)out, N / 4); }},
  };
}

static float timed(const std::function<void()>& launch, int count) {
  static cudaEvent_t from = nullptr, to = nullptr;
  if (!from) CHECK(cudaEventCreate(&from)), CHECK(cudaEventCreate(&to));
  CHECK(cudaEventRecord(from));
  for (int i = 0; i < count; i++) launch();
  CHECK(cudaEventRecord(to));
  CHECK(cudaEventSynchronize(to));
  CHECK(cudaGetLastError());
  float ms;
  CHECK(cudaEventElapsedTime(&ms, from, to));
  return ms / count;
}

int main(int argc, char** argv) {
  if (argc == 1) {
    for (const Case& each : cases()) std::printf("%s\n", each.name);
    return 0;
  }
  bool timing = !std::strcmp(argv[1], "--time");
  for (const Case& each : cases()) {
    if (!timing && std::strcmp(argv[1], each.name)) continue;
    if (!timing) {
      timed(each.planted, 3);
      return 0;
    }
    std::vector<float> planted, cured;
    timed(each.planted, 3), timed(each.cured, 3);
    for (int round = 0; round < 9; round++) {
      planted.push_back(timed(each.planted, 8));
      cured.push_back(timed(each.cured, 8));
    }
    std::sort(planted.begin(), planted.end()), std::sort(cured.begin(), cured.end());
    std::printf("%s %.5f %.5f\n", each.name, planted[4], cured[4]);
    std::fflush(stdout);
  }
  return timing ? 0 : 1;
}
