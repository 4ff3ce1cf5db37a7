#include "formats/torch_pickle.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "formats/torch_tensor.h"

namespace eaglet {
namespace {

constexpr std::size_t kMostNodes = std::size_t{1} << 23;
// Writers put a thousand items at a time on the stack, or a tuple's; recalling one value again and again
// makes no node.
constexpr std::size_t kMostOnStack = std::size_t{1} << 20;

Status refused(const std::string& what) {
  return Status(
      StatusCode::kConfig, what, "",
      "only tensors, lists, dicts, strings and numbers are read and nothing is ever run; save those alone");
}

struct Tuple;

/// What the machine's stack holds: data, or one of the few other things that take part in making a tensor.
struct Item {
  enum class Kind { kValue, kMark, kGlobal, kStorage, kTuple } kind = Kind::kValue;
  TorchValue* value = nullptr;
  std::string_view module, name;  // kGlobal
  TorchStorage storage;           // kStorage
  std::optional<Dtype> dtype;     // kStorage
  const Tuple* tuple = nullptr;
};
struct Tuple {
  std::vector<Item> items;
  TorchValue* value = nullptr;  // the same as a list, when all items are data
};

class Machine {
 public:
  Machine(std::string_view pickle, const FindStorage& find_storage, std::deque<TorchValue>* nodes)
      : pickle_(pickle), find_storage_(find_storage), nodes_(*nodes) {}

  Result<const TorchValue*> run() {
    while (true) {
      if (nodes_.size() + tuples_.size() > kMostNodes) return refused("it holds more than 8 million values");
      if (stack_.size() > kMostOnStack) return refused("it has more than a million values under way");
      std::uint8_t op = 0;
      EAGLET_RETURN_IF_ERROR(read(&op));
      if (op == '.') break;
      EAGLET_RETURN_IF_ERROR(step(op));
    }
    EAGLET_ASSIGN_OR_RETURN(const Item top, pop());
    EAGLET_ASSIGN_OR_RETURN(TorchValue * value, data(top));
    return static_cast<const TorchValue*>(value);
  }

 private:
  template <class T>
  Status read(T* value) {
    if (pickle_.size() - at_ < sizeof(T)) return corrupt_pickle("it ends in the middle");
    std::memcpy(value, pickle_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return {};
  }
  Status take(std::uint64_t bytes, std::string_view* text) {
    if (bytes > pickle_.size() - at_) return corrupt_pickle("a text is longer than the pickle");
    *text = pickle_.substr(at_, bytes);
    at_ += bytes;
    return {};
  }
  Status take_line(std::string_view* text) {
    const std::size_t end = pickle_.find('\n', at_);
    if (end == pickle_.npos) return corrupt_pickle("a name without an end");
    *text = pickle_.substr(at_, end - at_);
    at_ = end + 1;
    return {};
  }

  TorchValue* make(TorchValue::Kind kind) {
    nodes_.emplace_back();
    nodes_.back().kind = kind;
    return &nodes_.back();
  }
  void push(TorchValue* value) {
    Item item;
    item.value = value;
    stack_.push_back(item);
  }
  void push_integer(TorchValue::Kind kind, std::int64_t number) {
    TorchValue* value = make(kind);
    value->integer = number;
    push(value);
  }
  void push_text(std::string_view text) {
    TorchValue* value = make(TorchValue::Kind::kString);
    value->text = std::string(text);
    push(value);
  }
  Result<Item> pop() {
    if (stack_.empty()) return corrupt_pickle("it takes more than it has");
    const Item item = stack_.back();
    stack_.pop_back();
    return item;
  }
  Result<TorchValue*> data(const Item& item) {
    if (item.kind == Item::Kind::kValue) return item.value;
    if (item.kind == Item::Kind::kTuple && item.tuple->value != nullptr) return item.tuple->value;
    if (item.kind == Item::Kind::kGlobal)
      return refused(fmt::format("it holds the name {}.{}, which is not data", item.module, item.name));
    return corrupt_pickle("something that is not data stands where data should");
  }
  Status push_tuple(std::vector<Item> items) {
    tuples_.emplace_back();
    Tuple& tuple = tuples_.back();
    bool all = true;
    for (const Item& item : items) {
      if (item.kind == Item::Kind::kMark) return corrupt_pickle("a mark inside a tuple");
      all &= item.kind == Item::Kind::kValue ||
             (item.kind == Item::Kind::kTuple && item.tuple->value != nullptr);
    }
    if (all) {
      tuple.value = make(TorchValue::Kind::kList);
      for (const Item& item : items)
        tuple.value->items.push_back(item.kind == Item::Kind::kValue ? item.value : item.tuple->value);
    }
    tuple.items = std::move(items);
    Item item;
    item.kind = Item::Kind::kTuple;
    item.tuple = &tuple;
    stack_.push_back(item);
    return {};
  }
  Result<std::vector<Item>> pop_to_mark() {
    std::size_t mark = stack_.size();
    while (mark > 0 && stack_[mark - 1].kind != Item::Kind::kMark) --mark;
    if (mark == 0) return corrupt_pickle("it takes up to a mark that is not there");
    std::vector<Item> items(stack_.begin() + static_cast<std::ptrdiff_t>(mark), stack_.end());
    stack_.resize(mark - 1);
    return items;
  }
  Status pop_tuple(std::size_t count) {
    if (stack_.size() < count) return corrupt_pickle("it takes more than it has");
    std::vector<Item> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return push_tuple(std::move(items));
  }

  Status add_to_list(const std::vector<Item>& items) {
    if (stack_.empty() || stack_.back().kind != Item::Kind::kValue ||
        stack_.back().value->kind != TorchValue::Kind::kList)
      return corrupt_pickle("it appends to something that is no list");
    for (const Item& item : items) {
      EAGLET_ASSIGN_OR_RETURN(TorchValue * value, data(item));
      stack_.back().value->items.push_back(value);
    }
    return {};
  }
  Status add_to_dict(const std::vector<Item>& items) {
    if (items.size() % 2 != 0 || stack_.empty() || stack_.back().kind != Item::Kind::kValue ||
        stack_.back().value->kind != TorchValue::Kind::kDict)
      return corrupt_pickle("it sets items of something that is no dict");
    TorchValue* dict = stack_.back().value;
    for (std::size_t i = 0; i < items.size(); i += 2) {
      EAGLET_ASSIGN_OR_RETURN(TorchValue * key, data(items[i]));
      EAGLET_ASSIGN_OR_RETURN(TorchValue * value, data(items[i + 1]));
      dict->items.push_back(key);
      dict->values.push_back(value);
    }
    return {};
  }

  /// (storage kind, key, device, elements): where torch.save put a tensor's numbers.
  Status push_storage() {
    EAGLET_ASSIGN_OR_RETURN(const Item id, pop());
    if (id.kind != Item::Kind::kTuple || id.tuple->items.size() < 5)
      return corrupt_pickle("a reference to a storage of an unknown form");
    const std::vector<Item>& parts = id.tuple->items;
    EAGLET_ASSIGN_OR_RETURN(const TorchValue* tag, data(parts[0]));
    EAGLET_ASSIGN_OR_RETURN(const TorchValue* key, data(parts[2]));
    if (tag->text != "storage" || parts[1].kind != Item::Kind::kGlobal ||
        key->kind != TorchValue::Kind::kString)
      return corrupt_pickle("a reference to a storage of an unknown form");
    Item item;
    item.kind = Item::Kind::kStorage;
    item.dtype = torch_storage_dtype(parts[1].name);
    if (!item.dtype)
      return refused(fmt::format("it holds numbers of type {}.{}", parts[1].module, parts[1].name));
    EAGLET_ASSIGN_OR_RETURN(item.storage, find_storage_(key->text));
    stack_.push_back(item);
    return {};
  }

  Status read_sizes(const Item& item, std::vector<std::int64_t>* sizes) {
    EAGLET_ASSIGN_OR_RETURN(const TorchValue* list, data(item));
    if (list->kind != TorchValue::Kind::kList || list->items.size() > 16)
      return corrupt_pickle("a tensor's shape is no short list");
    for (const TorchValue* size : list->items) {
      if (size->kind != TorchValue::Kind::kInteger || size->integer < 0)
        return corrupt_pickle("a tensor's shape holds something that is not a number >= 0");
      sizes->push_back(size->integer);
    }
    return {};
  }

  /// _rebuild_tensor_v2(storage, offset, shape, stride, ...); v3 names the number type in its seventh
  /// argument.
  Status push_tensor(const std::vector<Item>& arguments, bool names_dtype) {
    if (arguments.size() < (names_dtype ? 7u : 4u) || arguments[0].kind != Item::Kind::kStorage)
      return corrupt_pickle("a tensor without a storage");
    TorchTensor tensor;
    tensor.dtype = *arguments[0].dtype;
    if (names_dtype) {
      const auto dtype =
          arguments[6].kind == Item::Kind::kGlobal ? torch_dtype(arguments[6].name) : std::nullopt;
      if (!dtype) return refused("it holds a tensor of a number type that is not known");
      tensor.dtype = *dtype;
    }
    EAGLET_ASSIGN_OR_RETURN(const TorchValue* offset, data(arguments[1]));
    EAGLET_RETURN_IF_ERROR(read_sizes(arguments[2], &tensor.shape));
    EAGLET_RETURN_IF_ERROR(read_sizes(arguments[3], &tensor.stride));
    if (offset->kind != TorchValue::Kind::kInteger || offset->integer < 0 ||
        tensor.stride.size() != tensor.shape.size())
      return corrupt_pickle("a tensor's offset or stride is not possible");
    EAGLET_RETURN_IF_ERROR(place_tensor(arguments[0].storage, offset->integer, &tensor));
    TorchValue* value = make(TorchValue::Kind::kTensor);
    value->tensor = std::move(tensor);
    push(value);
    return {};
  }

  Status reduce() {
    EAGLET_ASSIGN_OR_RETURN(const Item arguments, pop());
    EAGLET_ASSIGN_OR_RETURN(const Item callee, pop());
    if (callee.kind != Item::Kind::kGlobal || arguments.kind != Item::Kind::kTuple)
      return corrupt_pickle("it calls something that has no name");
    const std::vector<Item>& items = arguments.tuple->items;
    if (callee.module == "torch._utils") {
      if (callee.name == "_rebuild_tensor_v2") return push_tensor(items, false);
      if (callee.name == "_rebuild_tensor_v3") return push_tensor(items, true);
      if (callee.name == "_rebuild_parameter" && !items.empty()) {
        EAGLET_ASSIGN_OR_RETURN(TorchValue * value, data(items[0]));
        push(value);
        return {};
      }
    }
    if (callee.module == "torch" && callee.name == "Size" && items.size() == 1) {
      EAGLET_ASSIGN_OR_RETURN(TorchValue * value, data(items[0]));
      push(value);
      return {};
    }
    if (callee.module == "collections" && (callee.name == "OrderedDict" || callee.name == "Counter")) {
      if (items.empty()) {
        push(make(TorchValue::Kind::kDict));
        return {};
      }
      EAGLET_ASSIGN_OR_RETURN(TorchValue * value, data(items[0]));
      if (value->kind != TorchValue::Kind::kDict) return refused("it holds a dict made from something else");
      push(value);
      return {};
    }
    return refused(fmt::format("it would call {}.{}", callee.module, callee.name));
  }

  /// An OrderedDict's attributes (a state dict's _metadata) are not data.
  Status build() {
    EAGLET_ASSIGN_OR_RETURN(const Item state, pop());
    EAGLET_RETURN_IF_ERROR(data(state).status());
    if (stack_.empty() || stack_.back().kind != Item::Kind::kValue ||
        stack_.back().value->kind != TorchValue::Kind::kDict)
      return refused("it holds an object with a state of its own");
    return {};
  }

  Status remember(std::uint64_t key) {
    if (stack_.empty()) return corrupt_pickle("it remembers nothing");
    memo_[key] = stack_.back();
    return {};
  }
  Status recall(std::uint64_t key) {
    const auto it = memo_.find(key);
    if (it == memo_.end()) return corrupt_pickle("it recalls what it never remembered");
    stack_.push_back(it->second);
    return {};
  }

  Status push_global(std::string_view module, std::string_view name) {
    Item item;
    item.kind = Item::Kind::kGlobal;
    item.module = module;
    item.name = name;
    stack_.push_back(item);
    return {};
  }

  Status push_stack_global() {
    EAGLET_ASSIGN_OR_RETURN(const Item name, pop());
    EAGLET_ASSIGN_OR_RETURN(const Item module, pop());
    EAGLET_ASSIGN_OR_RETURN(const TorchValue* name_value, data(name));
    EAGLET_ASSIGN_OR_RETURN(const TorchValue* module_value, data(module));
    if (name_value->kind != TorchValue::Kind::kString || module_value->kind != TorchValue::Kind::kString)
      return corrupt_pickle("a name that is no text");
    return push_global(module_value->text, name_value->text);
  }

  template <class T>
  Status number() {
    T value = 0;
    EAGLET_RETURN_IF_ERROR(read(&value));
    push_integer(TorchValue::Kind::kInteger, static_cast<std::int64_t>(value));
    return {};
  }
  Status long_number() {
    std::uint8_t bytes = 0;
    std::string_view digits;
    EAGLET_RETURN_IF_ERROR(read(&bytes));
    EAGLET_RETURN_IF_ERROR(take(bytes, &digits));
    if (bytes > 8) return refused("it holds a whole number beyond 64 bits");
    std::uint64_t value = 0;
    std::memcpy(&value, digits.data(), digits.size());
    if (bytes > 0 && bytes < 8 && (static_cast<std::uint8_t>(digits.back()) & 0x80u) != 0)
      value |= ~std::uint64_t{0} << (8 * bytes);
    push_integer(TorchValue::Kind::kInteger, std::bit_cast<std::int64_t>(value));
    return {};
  }
  Status float_number() {
    std::uint64_t big_endian = 0;
    EAGLET_RETURN_IF_ERROR(read(&big_endian));
    TorchValue* value = make(TorchValue::Kind::kFloat);
    value->number = std::bit_cast<double>(__builtin_bswap64(big_endian));
    push(value);
    return {};
  }
  template <class Length>
  Status text() {
    Length length = 0;
    std::string_view value;
    EAGLET_RETURN_IF_ERROR(read(&length));
    EAGLET_RETURN_IF_ERROR(take(length, &value));
    push_text(value);
    return {};
  }
  template <class Key>
  Status memo(Status (Machine::*use)(std::uint64_t)) {
    Key key = 0;
    EAGLET_RETURN_IF_ERROR(read(&key));
    return (this->*use)(key);
  }

  Status step(std::uint8_t op) {
    std::string_view module, name;
    std::uint64_t ignored = 0;
    switch (op) {
      case 0x80: {  // PROTO
        std::uint8_t protocol = 0;
        EAGLET_RETURN_IF_ERROR(read(&protocol));
        return protocol >= 2 && protocol <= 5 ? Status() : refused("a pickle of another protocol");
      }
      case 0x95:  // FRAME
        return read(&ignored);
      case '(':
        stack_.emplace_back().kind = Item::Kind::kMark;
        return {};
      case 'N':
        push(make(TorchValue::Kind::kNone));
        return {};
      case 0x88:
      case 0x89:
        push_integer(TorchValue::Kind::kBool, op == 0x88 ? 1 : 0);
        return {};
      case 'K':
        return number<std::uint8_t>();
      case 'M':
        return number<std::uint16_t>();
      case 'J':
        return number<std::int32_t>();
      case 0x8a:
        return long_number();
      case 'G':
        return float_number();
      case 'X':
        return text<std::uint32_t>();
      case 0x8c:
        return text<std::uint8_t>();
      case ']':
        push(make(TorchValue::Kind::kList));
        return {};
      case '}':
        push(make(TorchValue::Kind::kDict));
        return {};
      case ')':
        return push_tuple({});
      case 0x85:
      case 0x86:
      case 0x87:
        return pop_tuple(op - 0x84u);
      case 't': {
        EAGLET_ASSIGN_OR_RETURN(std::vector<Item> items, pop_to_mark());
        return push_tuple(std::move(items));
      }
      case 'a': {
        EAGLET_ASSIGN_OR_RETURN(const Item item, pop());
        return add_to_list({item});
      }
      case 'e': {
        EAGLET_ASSIGN_OR_RETURN(const std::vector<Item> items, pop_to_mark());
        return add_to_list(items);
      }
      case 's': {
        EAGLET_ASSIGN_OR_RETURN(const Item value, pop());
        EAGLET_ASSIGN_OR_RETURN(const Item key, pop());
        return add_to_dict({key, value});
      }
      case 'u': {
        EAGLET_ASSIGN_OR_RETURN(const std::vector<Item> items, pop_to_mark());
        return add_to_dict(items);
      }
      case 'q':
        return memo<std::uint8_t>(&Machine::remember);
      case 'r':
        return memo<std::uint32_t>(&Machine::remember);
      case 0x94:
        return remember(memo_.size());
      case 'h':
        return memo<std::uint8_t>(&Machine::recall);
      case 'j':
        return memo<std::uint32_t>(&Machine::recall);
      case 'c':
        EAGLET_RETURN_IF_ERROR(take_line(&module));
        EAGLET_RETURN_IF_ERROR(take_line(&name));
        return push_global(module, name);
      case 0x93:
        return push_stack_global();
      case 'Q':
        return push_storage();
      case 'R':
        return reduce();
      case 'b':
        return build();
      case 0x81:  // NEWOBJ: an object of a class, which always is code
        if (stack_.size() >= 2 && stack_[stack_.size() - 2].kind == Item::Kind::kGlobal)
          return refused(fmt::format("it would make a {}.{}", stack_[stack_.size() - 2].module,
                                     stack_[stack_.size() - 2].name));
        [[fallthrough]];
      default:
        return refused(
            fmt::format("it holds something made by pickle opcode 0x{:02x}, which is not data", op));
    }
  }

  std::string_view pickle_;
  const FindStorage& find_storage_;
  std::deque<TorchValue>& nodes_;
  std::deque<Tuple> tuples_;
  std::vector<Item> stack_;
  std::unordered_map<std::uint64_t, Item> memo_;
  std::size_t at_ = 0;
};

}  // namespace

Result<const TorchValue*> run_torch_pickle(std::string_view pickle, const FindStorage& find_storage,
                                           std::deque<TorchValue>* nodes) {
  return Machine(pickle, find_storage, nodes).run();
}

}  // namespace eaglet
