// cuBLASLt as our products call it (device/cublas_lt.h): every argument is checked, products are summed in
// double. An algorithm belongs to the layouts and alignments it was asked for; using it for others is a
// fault.

#include "device/cublas_lt.h"

#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "emulation.h"

namespace eaglet::cublas_lt {
namespace {

constexpr std::uint64_t kAlgoMark = 0x616c676f;
constexpr std::size_t kWorkspace = 64 << 10;

enum class Kind { kHandle, kDesc, kLayout, kPreference };

struct Object {
  Kind kind;
  int compute = 0, scale = 0, op_a = kNoTranspose, op_b = kNoTranspose;  // of a desc
  int type = 0;                                                          // of a layout
  std::uint64_t rows = 0, columns = 0;
  std::int64_t ld = 0;
  std::uint64_t workspace = 0;  // of a preference
  std::uint32_t alignment[4] = {256, 256, 256, 256};
};

std::set<const void*>& live() {
  static auto* const all = new std::set<const void*>();
  return *all;
}

int wrong(const std::string& what) {
  emulation::fault("cuBLASLt: " + what);
  return kInvalidValue;
}

const Object* as(const void* object, Kind kind) {
  if (live().count(object) == 0 || static_cast<const Object*>(object)->kind != kind) return nullptr;
  return static_cast<const Object*>(object);
}

int make(void** to, Object object) {
  auto* made = new Object(object);
  live().insert(made);
  *to = made;
  return kSuccess;
}

template <Kind kind>
int destroy(void* object) {
  if (as(object, kind) == nullptr) return wrong("something is destroyed that is not there");
  live().erase(object);
  delete static_cast<Object*>(object);
  return kSuccess;
}

int create(void** handle) {
  return make(handle, {Kind::kHandle});
}

int desc_create(void** desc, int compute, int scale) {
  if (compute != kCompute32F || scale != kF32) return wrong("a compute type that we do not use");
  Object object{Kind::kDesc};
  object.compute = compute;
  object.scale = scale;
  return make(desc, object);
}

int desc_set(void* desc, int attribute, const void* value, std::size_t bytes) {
  if (as(desc, Kind::kDesc) == nullptr || bytes != sizeof(int)) return wrong("desc_set");
  int op = 0;
  std::memcpy(&op, value, sizeof op);
  if (op != kNoTranspose && op != kTranspose) return wrong("an operation that is none");
  if (attribute != kDescTransA && attribute != kDescTransB)
    return wrong("an attribute of a desc that we do not use");
  (attribute == kDescTransA ? static_cast<Object*>(desc)->op_a : static_cast<Object*>(desc)->op_b) = op;
  return kSuccess;
}

int layout_create(void** layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t ld) {
  if (type != kF32 && type != kBf16) return wrong("a type that we do not use");
  if (rows == 0 || columns == 0) return wrong("an empty matrix");
  if (ld < static_cast<std::int64_t>(rows))
    return wrong("columns overlap: the distance between them is too small");
  Object object{Kind::kLayout};
  object.type = type;
  object.rows = rows;
  object.columns = columns;
  object.ld = ld;
  return make(layout, object);
}

int preference_create(void** preference) {
  return make(preference, {Kind::kPreference});
}

int preference_set(void* preference, int attribute, const void* value, std::size_t bytes) {
  if (as(preference, Kind::kPreference) == nullptr) return wrong("preference_set");
  auto* object = static_cast<Object*>(preference);
  if (attribute == kPreferMaxWorkspaceBytes && bytes == sizeof object->workspace) {
    std::memcpy(&object->workspace, value, bytes);
    return kSuccess;
  }
  const int place = attribute - kPreferAlignmentA;
  if (place < 0 || place > 3 || bytes != sizeof object->alignment[0])
    return wrong("a preference of a wrong size or name");
  std::memcpy(&object->alignment[place], value, bytes);
  return kSuccess;
}

// What an algorithm was chosen for.
struct Problem {
  const Object *desc, *a, *b, *c, *d;
};

std::uint64_t mix(std::uint64_t sum, std::uint64_t value) {
  return (sum ^ value) * 0x9e3779b97f4a7c15u + (sum >> 29);
}
std::uint64_t print_of(const Problem& p) {
  std::uint64_t sum =
      mix(static_cast<std::uint64_t>(p.desc->op_a), static_cast<std::uint64_t>(p.desc->op_b) + 7);
  for (const Object* layout : {p.a, p.b, p.c, p.d})
    sum = mix(mix(mix(mix(sum, static_cast<std::uint64_t>(layout->type)), layout->rows), layout->columns),
              static_cast<std::uint64_t>(layout->ld));
  return sum;
}

// Do the shapes fit? An empty answer means yes.
std::string misfit(const Problem& p) {
  if (p.desc == nullptr || p.a == nullptr || p.b == nullptr || p.c == nullptr || p.d == nullptr)
    return "a desc or layout that is not there";
  const bool turn_a = p.desc->op_a == kTranspose, turn_b = p.desc->op_b == kTranspose;
  const std::uint64_t rows = turn_a ? p.a->columns : p.a->rows, inner = turn_a ? p.a->rows : p.a->columns;
  const std::uint64_t inner_b = turn_b ? p.b->columns : p.b->rows,
                      columns = turn_b ? p.b->rows : p.b->columns;
  if (inner != inner_b) return "inner sizes differ";
  if (p.d->rows != rows || p.d->columns != columns || p.c->rows != rows || p.c->columns != columns)
    return "the result has another shape";
  if (p.a->type != p.b->type || p.c->type != kF32 || p.d->type != kF32)
    return "types that do not go together";
  return {};
}

int heuristic(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference, int wanted,
              Heuristic* results, int* found) {
  const Problem p{as(desc, Kind::kDesc), as(a, Kind::kLayout), as(b, Kind::kLayout), as(c, Kind::kLayout),
                  as(d, Kind::kLayout)};
  const Object* preferred = as(preference, Kind::kPreference);
  if (as(handle, Kind::kHandle) == nullptr || preferred == nullptr || wanted < 1) return wrong("heuristic");
  if (const std::string why = misfit(p); !why.empty()) return wrong(why);
  Heuristic result = {};
  result.workspace_bytes = preferred->workspace >= kWorkspace ? kWorkspace : 0;
  result.algo.data[0] = kAlgoMark;
  result.algo.data[1] = print_of(p);
  result.algo.data[2] = result.workspace_bytes;
  for (int i = 0; i < 4; ++i) result.algo.data[3 + i] = preferred->alignment[i];
  results[0] = result;
  *found = 1;
  return kSuccess;
}

float read(const void* matrix, int type, std::int64_t at) {
  if (type == kF32) return static_cast<const float*>(matrix)[at];
  const std::uint32_t bits = std::uint32_t{static_cast<const std::uint16_t*>(matrix)[at]} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct Run {
  Object desc, a_layout, b_layout, d_layout;
  float alpha, beta;
  const void *a, *b;
  float* d;
  void* workspace;
  std::size_t workspace_bytes;
};

// Column-major, as the library has it; the workspace is used up.
void multiply(const Run& r) {
  std::memset(r.workspace, 0xff, r.workspace_bytes);
  const bool turn_a = r.desc.op_a == kTranspose, turn_b = r.desc.op_b == kTranspose;
  const auto rows = static_cast<std::int64_t>(r.d_layout.rows),
             columns = static_cast<std::int64_t>(r.d_layout.columns);
  const auto inner = static_cast<std::int64_t>(turn_a ? r.a_layout.rows : r.a_layout.columns);
  for (std::int64_t column = 0; column < columns; ++column)
    for (std::int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (std::int64_t i = 0; i < inner; ++i) {
        const std::int64_t at_a = turn_a ? row * r.a_layout.ld + i : i * r.a_layout.ld + row;
        const std::int64_t at_b = turn_b ? i * r.b_layout.ld + column : column * r.b_layout.ld + i;
        sum += static_cast<double>(read(r.a, r.a_layout.type, at_a)) *
               static_cast<double>(read(r.b, r.b_layout.type, at_b));
      }
      float& to = r.d[column * r.d_layout.ld + row];
      // beta 0 does not read what was there.
      to = static_cast<float>(r.alpha * sum +
                              (r.beta == 0 ? 0.0 : static_cast<double>(r.beta) * static_cast<double>(to)));
    }
}

std::size_t bytes_of(const Object& layout) {
  return ((layout.columns - 1) * static_cast<std::uint64_t>(layout.ld) + layout.rows) *
         (layout.type == kF32 ? 4 : 2);
}

int matmul(void* handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,
           void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
           const Algo* algo, void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  const Problem p{as(desc, Kind::kDesc), as(a_layout, Kind::kLayout), as(b_layout, Kind::kLayout),
                  as(c_layout, Kind::kLayout), as(d_layout, Kind::kLayout)};
  if (as(handle, Kind::kHandle) == nullptr) return wrong("a handle that is not there");
  if (const std::string why = misfit(p); !why.empty()) return wrong(why);
  if (algo->data[0] != kAlgoMark || algo->data[1] != print_of(p))
    return wrong("an algorithm that was chosen for another product");
  const void* const addresses[4] = {a, b, c, d};
  const Object* const layouts[4] = {p.a, p.b, p.c, p.d};
  for (int i = 0; i < 4; ++i) {
    if (!emulation::lies_in_device(addresses[i], bytes_of(*layouts[i])))
      return wrong("matrix " + std::string(1, "abcd"[i]) + " does not lie in device memory as a whole");
    if (reinterpret_cast<std::uintptr_t>(addresses[i]) % algo->data[3 + i] != 0)
      return wrong("matrix " + std::string(1, "abcd"[i]) + " is not aligned as was said");
  }
  if (c != d) return wrong("c and d differ, which we do not use");
  if (workspace_bytes < algo->data[2] || !emulation::lies_in_device(workspace, workspace_bytes) ||
      reinterpret_cast<std::uintptr_t>(workspace) % 16 != 0)
    return wrong("the workspace is too small or not aligned");
  Run run{*p.desc, *p.a, *p.b, *p.d, 0, 0, a, b, static_cast<float*>(d), workspace, algo->data[2]};
  std::memcpy(&run.alpha, alpha, sizeof run.alpha);
  std::memcpy(&run.beta, beta, sizeof run.beta);
  constexpr double kFlops = 400e12;  // per second
  const std::uint64_t inner = p.desc->op_a == kTranspose ? p.a->rows : p.a->columns;
  const double flops =
      2.0 * static_cast<double>(p.d->rows) * static_cast<double>(p.d->columns) * static_cast<double>(inner);
  const cudaError_t error =
      emulation::queue_work(stream, "product", flops / kFlops, [run] { multiply(run); });
  return error == cudaSuccess ? kSuccess : kExecutionFailed;
}

}  // namespace

Result<const Functions*> load() {
  static const Functions functions = {&create,
                                      &destroy<Kind::kHandle>,
                                      &desc_create,
                                      &destroy<Kind::kDesc>,
                                      &desc_set,
                                      &layout_create,
                                      &destroy<Kind::kLayout>,
                                      &preference_create,
                                      &destroy<Kind::kPreference>,
                                      &preference_set,
                                      &heuristic,
                                      &matmul};
  return &functions;
}

}  // namespace eaglet::cublas_lt

namespace emulation {

int live_library_objects() {
  return static_cast<int>(eaglet::cublas_lt::live().size());
}

}  // namespace emulation
