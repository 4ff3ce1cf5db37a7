#include <algorithm>

#include "draft/draft_core.h"

namespace eaglet::draft_core {
namespace {

std::vector<float> draft_rows(const DraftVocab& vocab, const float* head, std::int64_t width) {
  std::vector<float> rows(static_cast<std::size_t>(vocab.size() * width));
  for (std::int64_t i = 0; i < vocab.size(); ++i) {
    const float* row = head + vocab.target_ids[static_cast<std::size_t>(i)] * width;
    std::copy(row, row + width, rows.data() + i * width);
  }
  return rows;
}

void make_teacher(ComputeType type, const DraftVocab& vocab, Core* core,
                  std::unique_ptr<LinearWeight>& teacher) {
  if (core->options.teacher_vocab == TeacherVocab::kWhole) return;  // the whole head is used in place
  const Dims& d = core->dims;
  LinearWeightOptions options{type, true, false};
  options.on_device = core->on_device();
  teacher = std::make_unique<LinearWeight>(d.Vd, d.Ht, d.Ht, options, &core->products.workspace);
  if (core->on_device())
    teacher->load(core->copies.teacher_rows.data());
  else if (vocab.is_full())
    teacher->load(core->verifier.lm_head);  // rows in target order
  else
    teacher->load(draft_rows(vocab, core->verifier.lm_head, d.Ht).data());
}

// Calls visit(product, its weight) for all but the teacher.
template <class Visit>
void each_product(Core* core, const Visit& visit) {
  const AllWeights& w = core->weights;
  visit(core->products.fc, w.fc);
  for (std::size_t l = 0; l < w.layers.size(); ++l) {
    LayerProducts& p = core->products.layers[l];
    const LayerWeights& layer = w.layers[l];
    const std::int64_t state = l == 0 ? core->dims.H : 0;
    if (l == 0) {
      visit(p.embed_q, layer.q);
      visit(p.embed_k, layer.k);
      visit(p.embed_v, layer.v);
    }
    visit(p.q, layer.q + state);
    visit(p.k, layer.k + state);
    visit(p.v, layer.v + state);
    visit(p.o, layer.o);
    visit(p.gate, layer.gate);
    visit(p.up, layer.up);
    visit(p.down, layer.down);
  }
}

// A shape of products and how many of it there are.
struct Shape {
  std::int64_t out, in, copies;
  LinearWeightOptions options;
};

// What make_products() makes.
std::vector<Shape> shapes(ComputeType type, bool with_gradients, bool head_is_frozen, TeacherVocab teacher,
                          const Dims& d, bool on_device) {
  LinearWeightOptions usual{with_gradients ? type : ComputeType::kF32, false, with_gradients};
  usual.on_device = on_device;
  LinearWeightOptions head = usual;
  head.pack_f32 = head_is_frozen || 4 * d.Vd * d.H <= kMostPackedBytes;
  head.gradients_come_rounded = true;
  std::vector<Shape> all = {{d.H, d.A * d.Ht, 1, usual},
                            {d.q_width(), d.H, d.L + 1, usual},
                            {d.kv_width(), d.H, 2 * (d.L + 1), usual},
                            {d.H, d.q_width(), d.L, usual},
                            {d.F, d.H, 2 * d.L, usual},
                            {d.H, d.F, d.L, usual},
                            {d.Vd, d.H, 1, head}};
  if (teacher == TeacherVocab::kWhole) return all;
  LinearWeightOptions of_teacher{ComputeType::kF32, true, false};
  of_teacher.on_device = on_device;
  all.push_back({d.Vd, d.Ht, 1, of_teacher});
  of_teacher.type = ComputeType::kBf16;
  if (usual.type == ComputeType::kBf16) all.push_back({d.Vd, d.Ht, 1, of_teacher});
  return all;
}

}  // namespace

std::uint64_t forecast_product_bytes(ComputeType type, bool with_gradients, bool head_is_frozen,
                                     TeacherVocab teacher, const Dims& dims, bool on_device) {
  ProductRoom room;
  std::uint64_t bytes = 0;
  for (const Shape& s : shapes(type, with_gradients, head_is_frozen, teacher, dims, on_device)) {
    bytes += static_cast<std::uint64_t>(s.copies) * LinearWeight::packed_bytes(s.out, s.in, s.options);
    room.grow(LinearWeight::room(s.out, s.in, s.options));
  }
  return bytes + room.bytes();
}

std::uint64_t Products::bytes() const {
  std::uint64_t sum = workspace.bytes();
  const auto add = [&](const std::unique_ptr<LinearWeight>& product) {
    if (product != nullptr) sum += product->bytes();
  };
  for (const auto* product : {&fc, &head, &teacher, &exact_teacher}) add(*product);
  for (const LayerProducts& p : layers)
    for (const auto* product :
         {&p.embed_q, &p.embed_k, &p.embed_v, &p.q, &p.k, &p.v, &p.o, &p.gate, &p.up, &p.down})
      add(*product);
  return sum;
}

void make_products(ComputeType type, bool with_gradients, const DraftVocab& vocab, Core* core) {
  const Dims& d = core->dims;
  Products& products = core->products;
  // Without gradients everything is measured, and that in fp32.
  LinearWeightOptions options{with_gradients ? type : ComputeType::kF32, false, with_gradients};
  options.on_device = core->on_device();
  const auto make = [&](std::unique_ptr<LinearWeight>& product, std::int64_t out, std::int64_t in,
                        std::int64_t stored_columns) {
    product = std::make_unique<LinearWeight>(out, in, stored_columns, options, &products.workspace);
  };
  make(products.fc, d.H, d.A * d.Ht, d.A * d.Ht);
  products.layers.resize(static_cast<std::size_t>(d.L));
  for (std::size_t l = 0; l < products.layers.size(); ++l) {
    LayerProducts& p = products.layers[l];
    const std::int64_t columns = l == 0 ? 2 * d.H : d.H;
    if (l == 0) {
      make(p.embed_q, d.q_width(), d.H, columns);
      make(p.embed_k, d.kv_width(), d.H, columns);
      make(p.embed_v, d.kv_width(), d.H, columns);
    }
    make(p.q, d.q_width(), d.H, columns);
    make(p.k, d.kv_width(), d.H, columns);
    make(p.v, d.kv_width(), d.H, columns);
    make(p.o, d.H, d.q_width(), d.q_width());
    make(p.gate, d.F, d.H, d.H);
    make(p.up, d.F, d.H, d.H);
    make(p.down, d.H, d.F, d.F);
  }
  LinearWeightOptions of_head = options;
  of_head.pack_f32 = core->head_is_frozen || 4 * d.Vd * d.H <= kMostPackedBytes;
  of_head.gradients_come_rounded = !core->on_device();  // by the head's loss
  products.head = std::make_unique<LinearWeight>(d.Vd, d.H, d.H, of_head, &products.workspace);
  if (core->head_is_frozen) products.head->load(core->weights.lm_head);
  make_teacher(ComputeType::kF32, vocab, core, products.exact_teacher);
  if (options.type == ComputeType::kBf16) make_teacher(options.type, vocab, core, products.teacher);
}

void load_products(bool exact, Core* core) {
  core->exact = exact;
  each_product(core, [&](std::unique_ptr<LinearWeight>& product, const float* w) {
    if (exact)
      product->load_exact(w);
    else
      product->load(w);
  });
  LinearWeight& head = *core->products.head;
  if (exact)
    head.load_exact(core->weights.lm_head);
  else
    head.load(core->weights.lm_head);
}

}  // namespace eaglet::draft_core
