#pragma once

#include <array>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>

#include "device/compute_type.h"

namespace eaglet::onednn {

// oneDNN's matrix product, for this room alone.
using Type = dnnl::memory::data_type;
using Layout = dnnl::memory::format_tag;

dnnl::engine& engine();
dnnl::stream& stream();  // of this thread
Type type_of(ComputeType type);
dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, Type type, Layout layout);
/// Row-major with a row distance.
dnnl::memory::desc rows_apart(std::int64_t rows, std::int64_t columns, Type type, std::int64_t distance);
/// c = a b (+ c)
dnnl::matmul::primitive_desc product(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                     const dnnl::memory::desc& c, bool accumulate,
                                     bool own_scratchpad = false);

// One compiled product and the memory objects it reads; pointers are set before each run. The scratchpad is
// empty unless the product was made with one of its own: oneDNN's shared one belongs to the thread that makes
// a primitive, and is counted wrong when another one ends it.
struct Program {
  dnnl::matmul run;
  dnnl::memory a, b, c, scratchpad;
  explicit Program(const dnnl::matmul::primitive_desc& desc)
      : run(desc),
        a(desc.src_desc(), engine(), nullptr),
        b(desc.weights_desc(), engine(), nullptr),
        c(desc.dst_desc(), engine(), nullptr),
        scratchpad(desc.scratchpad_desc(), engine()),
        arguments{{{DNNL_ARG_SRC, a.get()},
                   {DNNL_ARG_WEIGHTS, b.get()},
                   {DNNL_ARG_DST, c.get()},
                   {DNNL_ARG_SCRATCHPAD, scratchpad.get()}}} {}
  void operator()(const void* from, const void* with, float* to) {
    a.set_data_handle(const_cast<void*>(from));
    b.set_data_handle(const_cast<void*>(with));
    c.set_data_handle(to);
    // The C call: the C++ one makes a list on the heap every time.
    dnnl_primitive_execute(run.get(), stream().get(), static_cast<int>(arguments.size()), arguments.data());
    stream().wait();
  }
  std::array<dnnl_exec_arg_t, 4> arguments;
};

}  // namespace eaglet::onednn
