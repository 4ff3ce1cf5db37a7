#include <dlfcn.h>

#include "device/cublas_lt.h"

namespace eaglet::cublas_lt {
namespace {

void* open_library() {
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so"})
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

template <class Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool find_all(void* library, Functions* f) {
  return find(library, "cublasLtCreate", &f->create) && find(library, "cublasLtDestroy", &f->destroy) &&
         find(library, "cublasLtMatmulDescCreate", &f->desc_create) &&
         find(library, "cublasLtMatmulDescDestroy", &f->desc_destroy) &&
         find(library, "cublasLtMatmulDescSetAttribute", &f->desc_set) &&
         find(library, "cublasLtMatrixLayoutCreate", &f->layout_create) &&
         find(library, "cublasLtMatrixLayoutDestroy", &f->layout_destroy) &&
         find(library, "cublasLtMatmulPreferenceCreate", &f->preference_create) &&
         find(library, "cublasLtMatmulPreferenceDestroy", &f->preference_destroy) &&
         find(library, "cublasLtMatmulPreferenceSetAttribute", &f->preference_set) &&
         find(library, "cublasLtMatmulAlgoGetHeuristic", &f->heuristic) &&
         find(library, "cublasLtMatmul", &f->matmul);
}

}  // namespace

Result<const Functions*> load() {
  static Functions functions;
  static void* const library = open_library();
  static const bool whole = library != nullptr && find_all(library, &functions);
  if (!whole)
    return Status(
        StatusCode::kNotFound, "cuBLASLt (libcublasLt.so.13 or .12) is not on this machine", "",
        "install it (package libcublas of NVIDIA, or nvidia-cublas of the Python index) and name its "
        "folder in LD_LIBRARY_PATH");
  return &functions;
}

}  // namespace eaglet::cublas_lt
